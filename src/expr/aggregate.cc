#include "expr/aggregate.h"

#include <algorithm>

#include "expr/type.h"

namespace millstream::expr {
namespace {

struct Entry {
  AggregateKind kind;
  AggregateDocument document;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
      {AggregateKind::kCount, {{"count"}, "How many values are not NULL; `count(*)` counts rows."}},
      {AggregateKind::kSum,
       {{"sum"},
        "The sum: DECIMAL(38,0) of integers, exact; of floating point numbers the exact sum, rounded once."}},
      {AggregateKind::kAverage, {{"avg", "mean"}, "The average, a DOUBLE."}},
      {AggregateKind::kMin, {{"min"}, "The least value."}},
      {AggregateKind::kMax, {{"max"}, "The greatest value; NaN is greater than all others."}},
      {AggregateKind::kDeviationSample,
       {{"stddev", "stddev_samp"}, "The standard deviation of a sample (n - 1)."}},
      {AggregateKind::kDeviationPopulation, {{"stddev_pop"}, "The standard deviation of a population (n)."}},
      {AggregateKind::kVarianceSample, {{"variance", "var_samp"}, "The variance of a sample (n - 1)."}},
      {AggregateKind::kVariancePopulation, {{"var_pop"}, "The variance of a population (n)."}},
      {AggregateKind::kBoolAnd, {{"bool_and"}, "True where all values are."}},
      {AggregateKind::kBoolOr, {{"bool_or"}, "True where one value is."}},
      {AggregateKind::kAnyValue,
       {{"any_value"}, "The first value in the order of the source that is not NULL."}},
      {AggregateKind::kFirst, {{"first"}, "The first value in the order of the source, NULL or not."}},
      {AggregateKind::kLast, {{"last"}, "The last value in the order of the source, NULL or not."}},
      {AggregateKind::kMedian,
       {{"median"},
        "The value in the middle, of two the middle of both; of texts and booleans the lower one."}},
      {AggregateKind::kQuantileContinuous,
       {{"quantile_cont"},
        "The value below which a fraction of the values lies, between two values where it falls there: "
        "`quantile_cont(x, 0.9)`."}},
      {AggregateKind::kQuantileDiscrete,
       {{"quantile_disc", "quantile", "approx_quantile"},
        "The same, always one of the values. DuckDB's approx_quantile is an estimate; here it is exact."}},
      {AggregateKind::kMode,
       {{"mode"}, "The most frequent value; of several the one that comes first in the source."}},
      {AggregateKind::kApproximateCountDistinct,
       {{"approx_count_distinct"},
        "About how many different values there are, in 4 KiB a group (HyperLogLog; off by 1.6 % as a "
        "rule)."}},
      {AggregateKind::kCorrelation,
       {{"corr"}, "The correlation of two numbers, over the rows that have both."}},
      {AggregateKind::kCovariancePopulation, {{"covar_pop"}, "The covariance of a population (n)."}},
      {AggregateKind::kCovarianceSample, {{"covar_samp"}, "The covariance of a sample (n - 1)."}},
  };
  return kEntries;
}

}  // namespace

bool is_orderable_type(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BOOL:
    case arrow::Type::DATE32:
    case arrow::Type::TIME64:
    case arrow::Type::TIMESTAMP:
    case arrow::Type::INTERVAL_MONTH_DAY_NANO:
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return true;
    default:
      return is_numeric_type(type);
  }
}

std::optional<AggregateKind> find_aggregate(std::string_view name) {
  for (const Entry& entry : entries())
    if (std::ranges::find(entry.document.names, name) != entry.document.names.end()) return entry.kind;
  return std::nullopt;
}

Result<AggregateTypes> aggregate_types(AggregateKind kind, const TypePtr& argument) {
  // A bare NULL is an INTEGER.
  const TypePtr type = is_null_type(*argument) ? arrow::int32() : argument;
  const auto refused = [&](const char* what) {
    const std::string name = std::ranges::find(entries(), kind, &Entry::kind)->document.names[0];
    return query_error("{} takes {}, not {}", name, what, sql_type_name(*type));
  };
  switch (kind) {
    case AggregateKind::kCountStar:
    case AggregateKind::kCount:
      return AggregateTypes{type, arrow::int64()};
    case AggregateKind::kSum:
      if (type->id() == arrow::Type::BOOL) return AggregateTypes{arrow::int32(), decimal_type(38, 0)};
      if (is_integer_type(*type)) return AggregateTypes{type, decimal_type(38, 0)};
      if (is_decimal_type(*type)) return AggregateTypes{type, decimal_type(38, decimal_scale(*type))};
      if (is_floating_type(*type)) return AggregateTypes{type, arrow::float64()};
      return refused("numbers and booleans");
    case AggregateKind::kAverage:
      if (type->id() == arrow::Type::BOOL) return AggregateTypes{arrow::int32(), arrow::float64()};
      if (is_numeric_type(*type)) return AggregateTypes{type, arrow::float64()};
      return refused("numbers and booleans");
    case AggregateKind::kVarianceSample:
    case AggregateKind::kVariancePopulation:
    case AggregateKind::kDeviationSample:
    case AggregateKind::kDeviationPopulation:
    case AggregateKind::kCorrelation:
    case AggregateKind::kCovariancePopulation:
    case AggregateKind::kCovarianceSample:
      if (is_numeric_type(*type)) return AggregateTypes{arrow::float64(), arrow::float64()};
      return refused("numbers");
    case AggregateKind::kBoolAnd:
    case AggregateKind::kBoolOr:
      if (type->id() == arrow::Type::BOOL) return AggregateTypes{type, type};
      return refused("booleans");
    case AggregateKind::kMin:
    case AggregateKind::kMax:
    case AggregateKind::kAnyValue:
    case AggregateKind::kFirst:
    case AggregateKind::kLast:
    case AggregateKind::kMode:
    case AggregateKind::kQuantileDiscrete:
      if (is_orderable_type(*type)) return AggregateTypes{type, type};
      return refused("numbers, texts, booleans and times");
    case AggregateKind::kMedian:
    case AggregateKind::kQuantileContinuous: {
      if (is_decimal_type(*type) || is_floating_type(*type)) return AggregateTypes{type, type};
      if (is_integer_type(*type)) return AggregateTypes{type, arrow::float64()};
      if (is_date_type(*type)) return AggregateTypes{timestamp_type(), timestamp_type()};
      if (is_timestamp_type(*type) || type->id() == arrow::Type::TIME64) return AggregateTypes{type, type};
      const bool discrete =
          is_string_type(*type) || type->id() == arrow::Type::BINARY || type->id() == arrow::Type::BOOL;
      if (kind == AggregateKind::kMedian && discrete) return AggregateTypes{type, type};
      return refused(kind == AggregateKind::kMedian ? "numbers, texts, booleans, dates and times"
                                                    : "numbers, dates and times");
    }
    case AggregateKind::kApproximateCountDistinct:
      if (is_orderable_type(*type)) return AggregateTypes{type, arrow::int64()};
      return refused("numbers, texts, booleans and times");
  }
  return bug_error("an aggregate of kind {}", static_cast<int>(kind));
}

bool has_two_arguments(AggregateKind kind) {
  return kind == AggregateKind::kCorrelation || kind == AggregateKind::kCovariancePopulation ||
         kind == AggregateKind::kCovarianceSample;
}

bool has_fraction(AggregateKind kind) {
  return kind == AggregateKind::kQuantileContinuous || kind == AggregateKind::kQuantileDiscrete;
}

bool distinct_matters(AggregateKind kind) {
  switch (kind) {
    case AggregateKind::kMedian:
    case AggregateKind::kQuantileContinuous:
    case AggregateKind::kQuantileDiscrete:
    case AggregateKind::kCount:
    case AggregateKind::kSum:
    case AggregateKind::kAverage:
    case AggregateKind::kVarianceSample:
    case AggregateKind::kVariancePopulation:
    case AggregateKind::kDeviationSample:
    case AggregateKind::kDeviationPopulation:
      return true;
    default:
      return false;
  }
}

const std::vector<AggregateDocument>& aggregate_documents() {
  static const std::vector<AggregateDocument> kDocuments = [] {
    std::vector<AggregateDocument> documents;
    for (const Entry& entry : entries()) documents.push_back(entry.document);
    return documents;
  }();
  return kDocuments;
}

}  // namespace millstream::expr
