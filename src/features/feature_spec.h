#pragma once
// What the user asked of the feature columns: the [[feature]] tables of a recipe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millstream::features {

/// One step with its arguments, as written: "standard_scale", "fill_null(mean)", "fill_null('none')" (with the
/// quotes), "one_hot(max_size=20)".
struct StepSpec {
  std::string name;
  std::vector<std::string> arguments;
};

enum class OnNull : uint8_t {
  kError,  ///< a null or non-finite raw input is an error naming column, file, row group and row
  kDrop,   ///< such rows are left out of training and counted
};

/// What NaN and infinities in a raw column do.
enum class OnNan : uint8_t {
  kSame,  ///< as OnNull says
  kError,
  kDrop,
  kNull,  ///< they are nulls: steps fill them, or OnNull decides
};

struct FeatureSpec {
  std::vector<std::string> columns;
  std::vector<StepSpec> steps;
  OnNull on_null = OnNull::kError;
  OnNan on_nan = OnNan::kSame;
};

/// Reads "standard_scale" or "fill_null(mean)". Errors are usage errors: an unknown step names the nearest
/// known one, wrong arguments name those that are right.
Result<StepSpec> parse_step(std::string_view text);
/// The checks of parse_step() on a step that was made otherwise.
Status check_step(const StepSpec& step);
/// The step as it is written in a recipe.
std::string step_text(const StepSpec& step);
const std::vector<std::string>& known_steps();
/// How each step may be written, in the order of the documentation: "clip(LOW, HIGH)".
const std::vector<std::string>& step_forms();
/// Whether one of the steps takes care of nulls, so that a null in the raw column is no fault.
bool steps_take_nulls(const std::vector<StepSpec>& steps);
/// The query's columns that features read: those of the specs in their order, then those that cross() names beside
/// them, each once.
std::vector<std::string> feature_inputs(const std::vector<FeatureSpec>& specs);

/// A finite number, the whole text; nothing where it is not one.
std::optional<double> parse_number(std::string_view text);
/// The text within single quotes, a quote being written twice; nothing where `argument` is not such a text.
std::optional<std::string> quoted_text(std::string_view argument);
/// Seconds since 1970 of "2024-01-01" or "2024-01-01 12:30:00", with or without quotes; nothing where it is
/// neither.
std::optional<double> parse_time(std::string_view argument);
/// The value of the argument NAME=VALUE; nothing where there is none of that name.
std::optional<std::string> named_argument(const StepSpec& step, std::string_view name);

}  // namespace millstream::features
