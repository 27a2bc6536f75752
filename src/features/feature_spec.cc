#include "features/feature_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/nearest_name.h"
#include "expr/expression.h"

namespace millstream::features {
namespace {

constexpr int64_t kMostBuckets = int64_t{1} << 24;
constexpr int64_t kMostEdges = 1000;
constexpr int64_t kWidestEmbedding = 4096;

std::string trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::optional<int64_t> parse_whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status wrong_arguments(const StepSpec& step, std::string_view right) {
  return usage_error("{}: {}", step_text(step), right);
}

Status check_fill_null(const StepSpec& step) {
  if (step.arguments.size() != 1) {
    return usage_error(
        "feature step fill_null takes one argument, fill_null(mean) or a number as in fill_null(0); "
        "it has {}",
        step.arguments.size());
  }
  const std::string& argument = step.arguments[0];
  if (argument == "mean" || argument == "median" || argument == "most_frequent" || parse_number(argument) ||
      quoted_text(argument)) {
    return Status::OK();
  }
  return wrong_arguments(
      step, "the argument can be mean, median, most_frequent, a finite number or a text in quotes, 'none'");
}

Status check_scale_range(const StepSpec& step) {
  if (step.arguments.empty()) return Status::OK();
  if (step.arguments.size() == 2) {
    const auto low = parse_number(step.arguments[0]);
    const auto high = parse_number(step.arguments[1]);
    if (low && high && *low < *high) return Status::OK();
  }
  return wrong_arguments(step, "it is written min_max_scale or min_max_scale(LOW, HIGH) with LOW < HIGH");
}

Status check_robust(const StepSpec& step) {
  if (step.arguments.empty()) return Status::OK();
  if (step.arguments.size() == 2) {
    const auto low = parse_number(step.arguments[0]);
    const auto high = parse_number(step.arguments[1]);
    if (low && high && *low >= 0 && *low < *high && *high <= 1) return Status::OK();
  }
  return wrong_arguments(step,
                         "it is written robust_scale or robust_scale(LOW, HIGH) with 0 <= LOW < HIGH <= 1");
}

Status check_clip(const StepSpec& step) {
  if (step.arguments.size() == 2) {
    const auto low = parse_number(step.arguments[0]);
    const auto high = parse_number(step.arguments[1]);
    const bool no_low = step.arguments[0] == "none";
    const bool no_high = step.arguments[1] == "none";
    if ((low || no_low) && (high || no_high) && !(no_low && no_high) && !(low && high && *low > *high))
      return Status::OK();
  }
  if (step.arguments.size() == 3 && step.arguments[0] == "quantiles") {
    const auto low = parse_number(step.arguments[1]);
    const auto high = parse_number(step.arguments[2]);
    if (low && high && *low >= 0 && *low <= *high && *high <= 1) return Status::OK();
  }
  return wrong_arguments(step,
                         "it is written clip(LOW, HIGH) with numbers, of which one may be none, or "
                         "clip(quantiles, LOW, HIGH) with 0 <= LOW <= HIGH <= 1");
}

Status check_bucketize(const StepSpec& step) {
  const auto wrong = [&] {
    return wrong_arguments(step,
                           fmt::format("it is written bucketize(EDGE, EDGE, ...) with ascending numbers, or "
                                       "bucketize(quantiles, N) with N from 2 to {}",
                                       kMostEdges));
  };
  if (step.arguments.empty() || step.arguments.size() > kMostEdges) return wrong();
  if (step.arguments[0] == "quantiles") {
    const auto buckets = step.arguments.size() == 2 ? parse_whole(step.arguments[1]) : std::nullopt;
    return buckets && *buckets >= 2 && *buckets <= kMostEdges ? Status::OK() : wrong();
  }
  std::optional<double> last;
  for (const std::string& argument : step.arguments) {
    const auto edge = parse_number(argument);
    if (!edge || (last && *edge <= *last)) return wrong();
    last = edge;
  }
  return Status::OK();
}

const std::vector<std::string>& datetime_parts() {
  static const auto* parts = new std::vector<std::string>{
      "year", "quarter", "month", "week", "day", "dayofweek", "dayofyear", "hour", "minute", "second"};
  return *parts;
}

Status check_datetime(const StepSpec& step) {
  const auto& known = datetime_parts();
  if (step.arguments.empty()) {
    return usage_error("datetime: name the parts, as in datetime(hour, dayofweek); there are {}",
                       fmt::join(known, ", "));
  }
  for (auto part = step.arguments.begin(); part != step.arguments.end(); ++part) {
    if (std::find(known.begin(), known.end(), *part) == known.end()) {
      return usage_error("{}: there is no part '{}'{}; there are {}", step_text(step), *part,
                         name_hint(*part, known), fmt::join(known, ", "));
    }
    if (std::find(step.arguments.begin(), part, *part) != part)
      return usage_error("{}: the part '{}' is named twice", step_text(step), *part);
  }
  return Status::OK();
}

Status check_one_number(const StepSpec& step, bool positive, const char* right) {
  const auto number = step.arguments.size() == 1 ? parse_number(step.arguments[0]) : std::nullopt;
  if (number && (!positive || *number > 0)) return Status::OK();
  return wrong_arguments(step, right);
}

Status check_elapsed(const StepSpec& step) {
  if (step.arguments.empty() || (step.arguments.size() == 1 && parse_time(step.arguments[0])))
    return Status::OK();
  return wrong_arguments(
      step, "it is written elapsed, since the earliest time of the training rows, or elapsed(2024-01-01)");
}

Status check_hash_bucket(const StepSpec& step) {
  const auto buckets = step.arguments.size() == 1 ? parse_whole(step.arguments[0]) : std::nullopt;
  if (buckets && *buckets >= 1 && *buckets <= kMostBuckets) return Status::OK();
  return wrong_arguments(step, fmt::format("it is written hash_bucket(N) with N from 1 to {}", kMostBuckets));
}

// one_hot and categorify: NAME=WHOLE NUMBER arguments.
Status check_categories(const StepSpec& step) {
  int known = 0;
  for (const char* name : {"min_count", "max_size"}) {
    const auto text = named_argument(step, name);
    if (!text) continue;
    ++known;
    const auto number = parse_whole(*text);
    if (!number || *number < 1)
      return wrong_arguments(step, fmt::format("{} is a whole number, at least 1", name));
  }
  if (known == static_cast<int>(step.arguments.size())) return Status::OK();
  return wrong_arguments(
      step, fmt::format("it is written {0} or {0}(min_count=N, max_size=N), each at most once", step.name));
}

Status check_ordinal(const StepSpec& step) {
  std::set<std::string> seen;
  for (const std::string& argument : step.arguments) {
    const auto text = quoted_text(argument);
    if (!text && !parse_number(argument)) {
      return wrong_arguments(step, fmt::format("{} is neither a text in quotes nor a number", argument));
    }
    if (!seen.insert(text.value_or(argument)).second)
      return wrong_arguments(step, fmt::format("{} is there twice", argument));
  }
  if (!seen.empty()) return Status::OK();
  return wrong_arguments(step, "name the values in their order, as in ordinal('low', 'middle', 'high')");
}

Status check_embedding(const StepSpec& step) {
  const auto width = step.arguments.size() == 1 ? parse_whole(step.arguments[0]) : std::nullopt;
  if (width && *width >= 1 && *width <= kWidestEmbedding) return Status::OK();
  return wrong_arguments(
      step, fmt::format("it is written embedding(WIDTH) with the length of the vectors, from 1 to {}",
                        kWidestEmbedding));
}

// target_encode: smooth and folds.
Status check_target_encode(const StepSpec& step) {
  int known = 0;
  if (const auto text = named_argument(step, "smooth")) {
    ++known;
    const auto number = parse_number(*text);
    if (!number || *number < 0) return wrong_arguments(step, "smooth is a number, at least 0");
  }
  if (const auto text = named_argument(step, "folds")) {
    ++known;
    const auto number = parse_whole(*text);
    if (!number || *number < 2 || *number > 100)
      return wrong_arguments(step, "folds is a whole number from 2 to 100");
  }
  if (known == static_cast<int>(step.arguments.size())) return Status::OK();
  return wrong_arguments(
      step, "it is written target_encode or target_encode(smooth=NUMBER, folds=N), each at most once");
}

Status check_quantile_transform(const StepSpec& step) {
  std::vector<std::string> arguments = step.arguments;
  if (!arguments.empty() && arguments.back() == "normal") arguments.pop_back();
  if (arguments.empty()) return Status::OK();
  const auto quantiles = arguments.size() == 1 ? parse_whole(arguments[0]) : std::nullopt;
  if (quantiles && *quantiles >= 2 && *quantiles <= kMostEdges) return Status::OK();
  return wrong_arguments(
      step, fmt::format("it is written quantile_transform, quantile_transform(N) with N from 2 to "
                        "{}, quantile_transform(normal) or quantile_transform(N, normal)",
                        kMostEdges));
}

Status check_cross(const StepSpec& step) {
  std::set<std::string> seen;
  for (const std::string& column : step.arguments)
    if (column.empty() || !seen.insert(column).second)
      return wrong_arguments(step, "each argument is the name of another column, once");
  if (!seen.empty()) return Status::OK();
  return wrong_arguments(step, "name the other columns, as in cross(sex)");
}

Status check_none(const StepSpec& step) {
  if (step.arguments.empty()) return Status::OK();
  return usage_error("feature step {} takes no arguments; it has '{}'", step.name, step.arguments[0]);
}

struct StepKind {
  const char* name;
  std::vector<const char*> forms;
  bool takes_nulls = false;
  Status (*check)(const StepSpec&);
};

const std::vector<StepKind>& step_kinds() {
  static const auto* kinds = new std::vector<StepKind>{
      {"standard_scale", {"standard_scale"}, false, check_none},
      {"min_max_scale", {"min_max_scale", "min_max_scale(LOW, HIGH)"}, false, check_scale_range},
      {"max_abs_scale", {"max_abs_scale"}, false, check_none},
      {"robust_scale", {"robust_scale", "robust_scale(LOW, HIGH)"}, false, check_robust},
      {"fill_null",
       {"fill_null(mean)", "fill_null(median)", "fill_null(most_frequent)", "fill_null(NUMBER)",
        "fill_null('TEXT')"},
       true,
       check_fill_null},
      {"null_indicator", {"null_indicator"}, false, check_none},
      {"log1p", {"log1p"}, false, check_none},
      {"power",
       {"power(NUMBER)"},
       false,
       [](const StepSpec& step) {
         return check_one_number(step, false, "it is written power(NUMBER), as in power(0.5)");
       }},
      {"clip", {"clip(LOW, HIGH)", "clip(quantiles, LOW, HIGH)"}, false, check_clip},
      {"bucketize", {"bucketize(EDGE, ...)", "bucketize(quantiles, N)"}, false, check_bucketize},
      {"quantile_transform",
       {"quantile_transform", "quantile_transform(N)", "quantile_transform(normal)",
        "quantile_transform(N, normal)"},
       false,
       check_quantile_transform},
      {"datetime", {"datetime(PART, ...)"}, false, check_datetime},
      {"cyclical",
       {"cyclical(PERIOD)"},
       false,
       [](const StepSpec& step) {
         return check_one_number(step, true,
                                 "it is written cyclical(PERIOD) with a number above 0, as in cyclical(24)");
       }},
      {"elapsed", {"elapsed", "elapsed(TIME)"}, false, check_elapsed},
      {"hash_bucket", {"hash_bucket(N)"}, true, check_hash_bucket},
      {"one_hot", {"one_hot", "one_hot(min_count=N, max_size=N)"}, true, check_categories},
      {"categorify", {"categorify", "categorify(min_count=N, max_size=N)"}, true, check_categories},
      {"ordinal", {"ordinal(VALUE, ...)"}, false, check_ordinal},
      {"embedding", {"embedding(WIDTH)"}, false, check_embedding},
      {"target_encode",
       {"target_encode", "target_encode(smooth=NUMBER, folds=N)"},
       true,
       check_target_encode},
      {"cross", {"cross(COLUMN, ...)"}, false, check_cross},
  };
  return *kinds;
}

const StepKind* find_kind(const std::string& name) {
  for (const StepKind& kind : step_kinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace

const std::vector<std::string>& known_steps() {
  static const auto* names = [] {
    auto* all = new std::vector<std::string>;
    for (const StepKind& kind : step_kinds()) all->push_back(kind.name);
    return all;
  }();
  return *names;
}

const std::vector<std::string>& step_forms() {
  static const auto* forms = [] {
    auto* all = new std::vector<std::string>;
    for (const StepKind& kind : step_kinds()) all->insert(all->end(), kind.forms.begin(), kind.forms.end());
    return all;
  }();
  return *forms;
}

bool steps_take_nulls(const std::vector<StepSpec>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const StepSpec& step) {
    const StepKind* kind = find_kind(step.name);
    return kind != nullptr && kind->takes_nulls;
  });
}

std::vector<std::string> feature_inputs(const std::vector<FeatureSpec>& specs) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) names.push_back(name);
  };
  for (const FeatureSpec& spec : specs) {
    for (const std::string& column : spec.columns) add(column);
  }
  for (const FeatureSpec& spec : specs) {
    for (const StepSpec& step : spec.steps) {
      if (step.name != "cross") continue;
      for (const std::string& column : step.arguments) add(column);
    }
  }
  return names;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::string> quoted_text(std::string_view argument) {
  if (argument.size() < 2 || argument.front() != '\'' || argument.back() != '\'') return std::nullopt;
  const std::string_view inside = argument.substr(1, argument.size() - 2);
  std::string text;
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] == '\'' && (++i == inside.size() || inside[i] != '\'')) return std::nullopt;
    text += inside[i];
  }
  return text;
}

std::optional<double> parse_time(std::string_view argument) {
  const std::string text = quoted_text(argument).value_or(std::string(argument));
  auto time = expr::make_cast(expr::make_literal(std::make_shared<arrow::StringScalar>(text)),
                              arrow::timestamp(arrow::TimeUnit::MICRO));
  if (!time.ok()) return std::nullopt;
  auto seconds = expr::make_call("epoch", {*time});
  if (!seconds.ok()) return std::nullopt;
  const auto row = arrow::RecordBatch::Make(arrow::schema({}), 1, arrow::ArrayVector{});
  const auto value = expr::evaluate(**seconds, *row);
  if (!value.ok() || (*value)->IsNull(0)) return std::nullopt;
  return static_cast<const arrow::DoubleArray&>(**value).Value(0);
}

std::optional<std::string> named_argument(const StepSpec& step, std::string_view name) {
  for (const std::string& argument : step.arguments) {
    const size_t equals = argument.find('=');
    if (equals != std::string::npos && trimmed(std::string_view(argument).substr(0, equals)) == name)
      return trimmed(std::string_view(argument).substr(equals + 1));
  }
  return std::nullopt;
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
    const std::string inside = trimmed(std::string_view(rest).substr(0, rest.size() - 1));
    // A comma within quotes belongs to the text.
    bool quoted = false;
    std::string argument;
    for (const char c : inside) {
      if (c == '\'') quoted = !quoted;
      if (c == ',' && !quoted) {
        step.arguments.push_back(trimmed(argument));
        argument.clear();
      } else {
        argument += c;
      }
    }
    if (quoted) return usage_error("feature step '{}' has a text without its closing quote", text);
    if (!inside.empty()) step.arguments.push_back(trimmed(argument));
  }
  MILLSTREAM_TRY(check_step(step));
  return step;
}

Status check_step(const StepSpec& step) {
  const StepKind* kind = find_kind(step.name);
  if (kind == nullptr)
    return usage_error("unknown feature step '{}'{}", step.name, name_hint(step.name, known_steps()));
  return kind->check(step);
}

std::string step_text(const StepSpec& step) {
  std::string text = step.name;
  for (size_t i = 0; i < step.arguments.size(); ++i) text += (i ? "," : "(") + step.arguments[i];
  return step.arguments.empty() ? text : text + ")";
}

}  // namespace millstream::features
