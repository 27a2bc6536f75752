#pragma once
// The aggregates: their names and types. `exec` computes them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "expr/expression.h"

namespace millstream::expr {

enum class AggregateKind : uint8_t {
  kCountStar,
  kCount,
  kSum,
  kAverage,
  kMin,
  kMax,
  kVarianceSample,
  kVariancePopulation,
  kDeviationSample,
  kDeviationPopulation,
  kBoolAnd,
  kBoolOr,
  kAnyValue,  ///< the first in source order that is not NULL
  kFirst,     ///< the first in source order, NULL or not
  kLast,
  kMedian,  ///< between the two in the middle where values have such, else the lower one
  kQuantileContinuous,
  kQuantileDiscrete,
  kMode,
  kApproximateCountDistinct,
  kCorrelation,
  kCovariancePopulation,
  kCovarianceSample,
};

/// By name in lower case; count is kCount.
std::optional<AggregateKind> find_aggregate(std::string_view name);

struct AggregateTypes {
  TypePtr argument;  ///< what the argument is cast to
  TypePtr result;
};
/// A query error where there is no such aggregate of that type.
Result<AggregateTypes> aggregate_types(AggregateKind kind, const TypePtr& argument);

/// Has it two arguments, both of values?
bool has_two_arguments(AggregateKind kind);
/// Has it a second argument that is a constant fraction between 0 and 1?
bool has_fraction(AggregateKind kind);

/// Can values of this type be grouped by and sorted? Lists and structs cannot.
bool is_orderable_type(const arrow::DataType& type);

/// Is f(DISTINCT x) another value than f(x)?
bool distinct_matters(AggregateKind kind);

/// For the documentation: names, meaning.
struct AggregateDocument {
  std::vector<std::string> names;
  std::string meaning;
};
const std::vector<AggregateDocument>& aggregate_documents();

}  // namespace millstream::expr
