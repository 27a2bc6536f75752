#include "features/feature_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/nearest_name.h"

namespace millstream::features {
namespace {

std::string trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

const std::vector<std::string>& known_steps() {
  static const auto* names =
      new std::vector<std::string>{"standard_scale", "fill_null", "null_indicator", "log1p"};
  return *names;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Result<StepSpec> parse_step(std::string_view text) {
  StepSpec step;
  const size_t open = text.find('(');
  step.name = trimmed(text.substr(0, open));
  if (open != std::string_view::npos) {
    const std::string rest = trimmed(text.substr(open + 1));
    if (rest.empty() || rest.back() != ')') {
      return usage_error("feature step '{}' has no closing parenthesis", text);
    }
    std::string_view inside = std::string_view(rest).substr(0, rest.size() - 1);
    while (!trimmed(inside).empty()) {
      const size_t comma = inside.find(',');
      step.arguments.push_back(trimmed(inside.substr(0, comma)));
      inside = comma == std::string_view::npos ? std::string_view() : inside.substr(comma + 1);
    }
  }
  MILLSTREAM_TRY(check_step(step));
  return step;
}

Status check_step(const StepSpec& step) {
  const auto& known = known_steps();
  if (std::find(known.begin(), known.end(), step.name) == known.end()) {
    return usage_error("unknown feature step '{}'{}", step.name, name_hint(step.name, known));
  }
  if (step.name == "fill_null") {
    if (step.arguments.size() != 1) {
      return usage_error(
          "feature step fill_null takes one argument, fill_null(mean) or a number as in fill_null(0); "
          "it has {}",
          step.arguments.size());
    }
    if (step.arguments[0] != "mean" && !parse_number(step.arguments[0])) {
      return usage_error("fill_null({}): the argument can be mean or a finite number", step.arguments[0]);
    }
  } else if (!step.arguments.empty()) {
    return usage_error("feature step {} takes no arguments; it has '{}'", step.name, step.arguments[0]);
  }
  return Status::OK();
}

std::string step_text(const StepSpec& step) {
  std::string text = step.name;
  for (size_t i = 0; i < step.arguments.size(); ++i) text += (i ? "," : "(") + step.arguments[i];
  return step.arguments.empty() ? text : text + ")";
}

}  // namespace millstream::features
