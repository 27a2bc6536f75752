#pragma once
// What a person looks at first in a column: how many nulls, how many different values, extremes, moments, quantiles,
// frequent values; and how it goes with the target. One pass, block by block; states of stretches of the data are
// merged in their order, so that the result has the same bits on any number of ranks and threads.
//
// Memory of a state: at most about 250 KiB, and the texts of 2048 values.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <arrow/api.h>

#include "features/distinct_sketch.h"
#include "features/frequent_values.h"
#include "features/moments.h"
#include "features/quantile_sketch.h"

namespace millstream::features {

enum class ProfileKind : uint8_t {
  kWhole,  ///< integers, booleans, dates, timestamps: 64-bit numbers
  kReal,   ///< floating point, decimals, uint64: doubles
  kText,   ///< text and bytes
  kOther,  ///< of which only nulls are counted
};
ProfileKind profile_kind(const arrow::DataType& type);

/// A block's values of one column, taken apart once.
struct ColumnValues {
  ProfileKind kind = ProfileKind::kOther;
  int64_t rows = 0;
  int64_t nulls = 0;
  std::vector<uint8_t> valid;           ///< empty: all are
  std::vector<int64_t> whole;           ///< kWhole
  std::vector<double> real;             ///< kWhole and kReal, by row
  const arrow::Array* texts = nullptr;  ///< kText
  bool is_null(int64_t row) const { return !valid.empty() && valid[row] == 0; }
  /// What tells different values apart.
  uint64_t key(int64_t row) const;
  std::string_view text(int64_t row) const;
};
Result<ColumnValues> column_values(const arrow::Array& array);

/// Sums over the rows in which a column and the target have a finite number each.
struct CoMoments {
  int64_t count = 0;
  double mean_x = 0, mean_y = 0, m2_x = 0, m2_y = 0, c = 0;
  void merge(const CoMoments& next);
  /// Pearson's; nothing where one of them is constant, or of fewer than three rows.
  std::optional<double> correlation() const;
};

class ColumnProfile {
 public:
  ColumnProfile() = default;
  ColumnProfile(ProfileKind kind, int64_t sketch_capacity) : kind_(kind), quantiles_(sketch_capacity) {}

  /// `target`: the same rows of the target, or null.
  void add(const ColumnValues& values, const ColumnValues* target);
  /// The rows of `next` come after those here.
  void merge(const ColumnProfile& next);

  ProfileKind kind() const { return kind_; }
  int64_t rows() const { return rows_; }
  int64_t nulls() const { return nulls_; }
  int64_t nans() const { return nans_; }
  int64_t infinities() const { return infinities_; }
  int64_t values() const { return rows_ - nulls_; }
  int64_t distinct() const;
  bool distinct_exact() const { return distinct_.exact() || frequent_.exact(); }
  /// Of finite numbers.
  const Moments& moments() const { return moments_; }
  bool has_range() const { return has_range_; }
  int64_t whole_min() const { return whole_min_; }
  int64_t whole_max() const { return whole_max_; }
  double min() const { return min_; }
  double max() const { return max_; }
  const std::string& text_min() const { return text_min_; }
  const std::string& text_max() const { return text_max_; }
  int64_t longest_text() const { return longest_text_; }
  const FrequentValues& frequent() const { return frequent_; }
  /// Of the finite numbers, for each of `fractions`; linear between two values. Empty where there are none.
  std::vector<double> quantiles(const std::vector<double>& fractions) const;
  /// The fraction of the values by which the rank of a quantile may be off; 0: exact.
  double rank_error() const;
  /// How many finite numbers lie in each of `bins` stretches of equal width from min() to max(); estimated where
  /// quantiles are. Empty where there is no range.
  std::vector<int64_t> histogram(int bins) const;
  std::optional<double> correlation() const { return with_target_.correlation(); }
  /// Each of the column's values has one target only, in ten rows each at least on average: knowing the column is
  /// knowing the target.
  bool determines_target() const;

  std::string encode() const;
  static Result<ColumnProfile> decode(std::string_view bytes);

 private:
  void add_numbers(const ColumnValues& values);
  void add_texts(const ColumnValues& values);
  void add_target(const ColumnValues& values, const ColumnValues& target);
  void pair(uint64_t key, uint64_t target);
  /// The values counted so far go to the sketch of quantiles, which takes all that follow.
  void begin_sketch();
  std::vector<std::pair<double, int64_t>> weighted() const;
  double number_of(uint64_t key) const;

  ProfileKind kind_ = ProfileKind::kOther;
  int64_t rows_ = 0, nulls_ = 0, nans_ = 0, infinities_ = 0;
  Moments moments_;
  bool has_range_ = false;
  int64_t whole_min_ = 0, whole_max_ = 0;
  double min_ = 0, max_ = 0;
  std::string text_min_, text_max_;
  int64_t longest_text_ = 0;
  DistinctSketch distinct_;
  FrequentValues frequent_;
  bool sketching_ = false;  ///< else the quantiles are those of frequent_, which is exact
  QuantileSketch quantiles_;
  CoMoments with_target_;
  bool pairs_fit_ = true;  ///< no value was seen with two targets, and there are few values
  std::unordered_map<uint64_t, uint64_t> target_of_;
};

}  // namespace millstream::features
