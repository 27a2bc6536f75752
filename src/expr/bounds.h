#pragma once
// What is known of the values that an expression can have, before any row is looked at (design, section 5): between
// which limits they lie, which few values they are, that there are none but NULL.
//
// 1. A limit speaks of the values that are not NULL, in SQL's order: NaN is greater than everything, so an upper
//    limit of a floating point number also says that it is not NaN. Both limits are inclusive.
// 2. Each limit has an origin. Typed and observed ones hold always; claimed ones hold where the file that made the
//    claim is honest: they may choose plans and prune, and must not size memory or drop checks.
// 3. What is inferred never excludes a value that evaluation can give (the sweep test holds every function to it).
//
// Functions bring their own rule (Function::bound); expr/bound_rules.h has those that several share.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <arrow/api.h>

#include "expr/expression.h"

namespace millstream::expr {

/// From the most to the least certain.
enum class BoundOrigin : uint8_t { kTyped, kObserved, kClaimed };
const char* bound_origin_name(BoundOrigin origin);
inline BoundOrigin less_certain(BoundOrigin a, BoundOrigin b) {
  return std::max(a, b);
}

template <class T>
struct Limit {
  T value{};
  BoundOrigin origin = BoundOrigin::kTyped;
};
template <class T>
struct Range {
  std::optional<Limit<T>> low, high;
};

/// Types whose values have limits: `Bounds::whole` for booleans (0 and 1), integers, dates (days), timestamps (ticks
/// of their unit), times and decimals (digits); `Bounds::real` for floating point numbers.
bool has_whole_bounds(const arrow::DataType& type);
bool has_real_bounds(const arrow::DataType& type);

struct Bounds {
  Range<__int128> whole;
  Range<double> real;
  /// No value but NULL is possible.
  std::optional<BoundOrigin> none;
  /// When not null: the values, all that are not NULL are among these. At most kMaxKnownValues, without NULLs.
  std::shared_ptr<arrow::Array> values;
  BoundOrigin values_origin = BoundOrigin::kTyped;

  static constexpr int64_t kMaxKnownValues = 32;
};

/// What the type alone says: the range of an integer type, 0 and 1 for booleans.
Bounds bounds_of_type(const arrow::DataType& type);
/// From limits to known contradictions: low above high is `none`.
void close_bounds(Bounds& bounds);
/// Values that both sides allow.
Bounds intersect_bounds(const Bounds& a, const Bounds& b);
/// Values that either side allows.
Bounds unite_bounds(const Bounds& a, const Bounds& b);
/// Of values of type `from`, cast to `to`.
Bounds cast_bounds(const Bounds& bounds, const TypePtr& from, const TypePtr& to);
/// Of the values of an array: its smallest and greatest value.
Bounds observed_bounds(const arrow::Array& values);

/// "0 … 23 (typed)", "2021-01-01 … (claimed)", "{1, 2} (typed)", "only NULL (claimed)"; empty where nothing is known
/// beyond the type.
std::string bounds_text(const Bounds& bounds, const TypePtr& type);
/// A limit as SQL writes the value.
std::string limit_text(__int128 value, const arrow::DataType& type);
std::string limit_text(double value);

/// Infers over rows whose columns have the given bounds.
class BoundInference {
 public:
  /// `columns`: of the input's columns by index; fewer than the input has: nothing is known of the others.
  explicit BoundInference(std::vector<Bounds> columns);

  /// Of the values of `expression`.
  Bounds infer(const Expression& expression);
  /// From here on only of rows for which `predicate` is true.
  void assume(const Expression& predicate) { assume_outcome(predicate, true); }
  /// The assumptions hold for no row; with the origin of what says so.
  const std::optional<BoundOrigin>& impossible() const { return impossible_; }
  /// Of a column, under the assumptions.
  Bounds column(int index, const arrow::DataType& type) const;

 private:
  void assume_outcome(const Expression& e, bool outcome);
  void assume_comparison(const Expression& e, bool outcome);
  void assume_either(const std::vector<ExprPtr>& sides, bool outcome);
  void restrict(const Expression& e, const Bounds& bounds);
  void contradict(BoundOrigin origin);
  Bounds infer_call(const Expression& e, std::vector<Bounds> arguments);
  Bounds infer_case(const Expression& e);

  std::shared_ptr<const std::vector<Bounds>> columns_;
  std::vector<std::pair<int, Bounds>> assumed_;  // one a column; includes what was known before
  std::optional<BoundOrigin> impossible_;
  int depth_ = 0;
  std::shared_ptr<int64_t> visits_;  // of one call from outside, branches included
};

}  // namespace millstream::expr
