#pragma once
// What a step wants to know of the training rows, and what the rows say: aggregates that are made block by block and
// merged in block order, so that their bits do not depend on ranks and threads.
//
// Moments are merged block by block. The other kinds are merged to one state an entry point first, which is the same
// rows in the same order: an entry point is read by one thread. Counts of values have no order: a ValueCounter adds them
// up, and the state is given what came out.

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "expr/expression.h"
#include "features/moments.h"
#include "features/quantile_sketch.h"
#include "features/value_counter.h"

namespace millstream::features {

enum class FitKind : uint8_t {
  kMoments,    ///< of doubles
  kRange,      ///< least and greatest of doubles
  kQuantiles,  ///< of doubles
  kCounts,     ///< of doubles or texts
  kTargets,    ///< the target's sums by text and fold
};

struct FitRequest {
  std::string column;        ///< the feature it is for, for messages
  std::string step;          ///< likewise, as written
  expr::ExprPtr expression;  ///< of type double, or utf8 for counts; nulls are left out
  FitKind kind = FitKind::kMoments;
  expr::ExprPtr target;  ///< kTargets: a double
  expr::ExprPtr fold;    ///< kTargets: 0 to num_folds - 1
  int num_folds = 0;
  int64_t min_count = 1, max_size = INT64_MAX;  ///< kCounts: the values that are kept
  ValueOrder order() const {
    return expression->type->id() == arrow::Type::STRING ? ValueOrder::kTexts : ValueOrder::kDoubles;
  }
};

/// How many rows a category has and what their targets sum up to, by fold.
struct FoldSums {
  std::vector<int64_t> counts;
  std::vector<double> sums;
};
/// By category: 'v' and the text, or 'n' for null.
using TargetSums = std::map<std::string, FoldSums, std::less<>>;

struct FitState {
  Moments moments;
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
  QuantileSketch quantiles;
  CountedValues counted;  ///< kCounts; not among the bytes of encode()
  TargetSums targets;

  /// What the values of one block say; neither kCounts nor kTargets. Errors have no place yet.
  Status add(FitKind kind, const double* values, int64_t count);
  /// Texts (null: a category of its own), doubles and folds, which are never null. Errors: too many categories.
  Status add_targets(const arrow::Array& texts, const arrow::Array& targets, const arrow::Array& folds,
                     int num_folds);
  /// The rows of `next` come after those here. Moments and counted values are not merged.
  Status merge(const FitState& next);

  std::string encode() const;
  static Result<FitState> decode(std::string_view bytes);
};

}  // namespace millstream::features
