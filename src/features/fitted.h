#pragma once
// Feature transforms. A step is a fit (aggregates over the training rows) and an expression with the fitted
// numbers as constants, so applying it is ordinary evaluation.

#include <memory>
#include <string>
#include <vector>

#include "expr/expression.h"
#include "features/feature_spec.h"

namespace millstream::features {

/// A model input column: its name and the expression that makes it, over the query's output columns.
struct FeatureColumn {
  std::string name;          ///< "trip_time", "tips_is_null"
  expr::ExprPtr expression;  ///< of type double; cast to float32 when packed
  /// Set by the step embedding(width): whole numbers from 0 to categories - 1, packed as int32 ids.
  int64_t categories = 0, embedding_width = 0;
  expr::ExprPtr
      training;  ///< the same for rows that train, where that is another one (target_encode); or null
};

/// One fitted number, for people and for the bundle.
struct FittedValue {
  std::string column;
  std::string step;  ///< "standard_scale"
  std::string name;  ///< "mean", "scale"
  double value = 0;
};

/// All features after the fit.
struct Fitted {
  /// What the expressions are over: the query's output columns that features and target need.
  std::shared_ptr<arrow::Schema> input;
  std::vector<FeatureColumn> columns;
  std::vector<FittedValue> values;
};

}  // namespace millstream::features
