#pragma once
// Fitted features as JSON text and back, for bundles: expressions as SQL over the query's output columns,
// fitted numbers as the shortest text that reads back to the same double.

#include <string>

#include "features/fitted.h"

namespace millstream::features {

Result<std::string> fitted_to_json(const Fitted& fitted);
/// `input` is the schema that the expressions shall be over (what the query gives now): it must have the
/// columns that they read; a missing one is an error that names it.
Result<Fitted> fitted_from_json(const std::string& json, const std::shared_ptr<arrow::Schema>& input);

}  // namespace millstream::features
