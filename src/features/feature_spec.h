#pragma once
// What the user asked of the feature columns: the [[feature]] tables of a recipe.

#include <string>
#include <vector>

namespace millstream::features {

/// One step with its argument, as written: "standard_scale", "fill_null(mean)", "fill_null(0)".
struct StepSpec {
  std::string name;
  std::vector<std::string> arguments;
};

enum class OnNull : uint8_t {
  kError,  ///< a null or non-finite raw input is an error naming column, file, row group and row
  kDrop,   ///< such rows are left out of training and counted
};

struct FeatureSpec {
  std::vector<std::string> columns;
  std::vector<StepSpec> steps;
  OnNull on_null = OnNull::kError;
};

}  // namespace millstream::features
