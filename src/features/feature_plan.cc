#include "features/feature_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <set>

#include "base/check.h"
#include "base/nearest_name.h"

namespace millstream::features {
namespace {

// Columns that one_hot makes of one column unless max_size says more.
constexpr int64_t kMostOneHotColumns = 256;
// Categories that categorify looks up in an expression, by a CASE; of more it makes a table.
constexpr int64_t kMostCasesOfCategory = 64;
// Categories that are listed among the fitted values.
constexpr int64_t kMostListedCategories = 1024;

expr::ExprPtr double_literal(double value) {
  return expr::make_literal(std::make_shared<arrow::DoubleScalar>(value));
}

Result<expr::ExprPtr> to_double(const expr::ExprPtr& value) {
  return expr::make_cast(value, arrow::float64());
}

bool is_time(const arrow::DataType& type) {
  return type.id() == arrow::Type::DATE32 || type.id() == arrow::Type::TIMESTAMP;
}

// (value - shift) / scale: the form that RowPacker evaluates without the interpreter.
Result<expr::ExprPtr> scaled(const expr::ExprPtr& value, double shift, double scale) {
  MILLSTREAM_ASSIGN(auto centred, expr::make_call("-", {value, double_literal(shift)}));
  return expr::make_call("/", {centred, double_literal(scale)});
}

// What scikit-learn's _handle_zeros_in_scale does to a spread: where it is none, 1 takes its place.
double divisor(double spread) {
  return spread < 10 * std::numeric_limits<double>::epsilon() ? 1 : spread;
}

Result<double> normal_quantile_of(double share) {
  MILLSTREAM_ASSIGN(const auto call, expr::make_call("normal_quantile", {double_literal(share)}));
  const auto row = arrow::RecordBatch::Make(arrow::schema({}), 1, arrow::ArrayVector{});
  MILLSTREAM_ASSIGN(const auto value, expr::evaluate(*call, *row));
  return static_cast<const arrow::DoubleArray&>(*value).Value(0);
}

// The number of edges that are at or below the value, by halving; `value` is not null.
Result<expr::ExprPtr> bucket_of(const expr::ExprPtr& value, const std::vector<double>& edges, size_t first,
                                size_t end) {
  if (first == end) return double_literal(static_cast<double>(first));
  const size_t middle = first + (end - first) / 2;
  MILLSTREAM_ASSIGN(auto below, expr::make_call("<", {value, double_literal(edges[middle])}));
  MILLSTREAM_ASSIGN(auto left, bucket_of(value, edges, first, middle));
  MILLSTREAM_ASSIGN(auto right, bucket_of(value, edges, middle + 1, end));
  return expr::make_case({below, left}, right);
}

Result<expr::ExprPtr> bucketized(const expr::ExprPtr& value, const std::vector<double>& edges) {
  MILLSTREAM_ASSIGN(auto is_null, expr::make_call("is_null", {value}));
  MILLSTREAM_ASSIGN(auto null, expr::make_cast(expr::make_literal(arrow::MakeNullScalar(arrow::float64())),
                                               arrow::float64()));
  MILLSTREAM_ASSIGN(auto bucket, bucket_of(value, edges, 0, edges.size()));
  return expr::make_case({is_null, null}, bucket);
}

Result<expr::ExprPtr> clipped(const expr::ExprPtr& value, std::optional<double> low,
                              std::optional<double> high) {
  // Not least() and greatest(), which pass over nulls.
  std::vector<expr::ExprPtr> arms;
  if (low) {
    MILLSTREAM_ASSIGN(auto below, expr::make_call("<", {value, double_literal(*low)}));
    arms.insert(arms.end(), {below, double_literal(*low)});
  }
  if (high) {
    MILLSTREAM_ASSIGN(auto above, expr::make_call(">", {value, double_literal(*high)}));
    arms.insert(arms.end(), {above, double_literal(*high)});
  }
  return expr::make_case(arms, value);
}

expr::ExprPtr text_literal(const std::string& text) {
  return expr::make_literal(std::make_shared<arrow::StringScalar>(text));
}

// The number that stands beside the text in `table` (ascending by text), else `other`; by halving. Null gives
// `other`.
Result<expr::ExprPtr> looked_up(const expr::ExprPtr& text,
                                const std::vector<std::pair<std::string, double>>& table, double other,
                                size_t first, size_t end) {
  if (first == end) return double_literal(other);
  if (end - first == 1) {
    MILLSTREAM_ASSIGN(auto same, expr::make_call("=", {text, text_literal(table[first].first)}));
    return expr::make_case({same, double_literal(table[first].second)}, double_literal(other));
  }
  const size_t middle = first + (end - first) / 2;
  MILLSTREAM_ASSIGN(auto below, expr::make_call("<", {text, text_literal(table[middle].first)}));
  MILLSTREAM_ASSIGN(auto left, looked_up(text, table, other, first, middle));
  MILLSTREAM_ASSIGN(auto right, looked_up(text, table, other, middle, end));
  return expr::make_case({below, left}, right);
}

Result<expr::ExprPtr> looked_up(const expr::ExprPtr& text, std::vector<std::pair<std::string, double>> table,
                                double other, expr::ExprPtr of_null) {
  std::sort(table.begin(), table.end());
  MILLSTREAM_ASSIGN(auto is_null, expr::make_call("is_null", {text}));
  MILLSTREAM_ASSIGN(auto found, looked_up(text, table, other, 0, table.size()));
  return expr::make_case({is_null, std::move(of_null)}, found);
}

// One row trains, or rows of one fold.
Status encoding_of_nothing(const std::string& column, const StepSpec& step) {
  return make_error(
      ErrorCategory::kData,
      fmt::format("{} of column '{}': all training rows are in one of its folds, so that there are none "
                  "to encode them by; it needs more rows",
                  step_text(step), column));
}

bool is_category_step(const StepSpec& step) {
  return step.name == "one_hot" || step.name == "categorify" || step.name == "ordinal" ||
         step.name == "target_encode" || step.name == "cross";
}

int folds_of(const StepSpec& step) {
  const auto text = named_argument(step, "folds");
  return text ? static_cast<int>(*parse_number(*text)) : 5;
}

// What kind of column a step works on.
enum class Takes : uint8_t { kNumber, kNumberOrText, kTime, kCategory };

Takes takes(const StepSpec& step) {
  if (step.name == "datetime" || step.name == "elapsed") return Takes::kTime;
  if (step.name == "hash_bucket" || is_category_step(step)) return Takes::kCategory;
  if (step.name == "fill_null" && (step.arguments[0] == "most_frequent" || quoted_text(step.arguments[0])))
    return Takes::kNumberOrText;
  return Takes::kNumber;
}

Status check_takes(const std::string& column, const arrow::DataType& type, const StepSpec& step) {
  const bool is_number = type.id() == arrow::Type::DOUBLE;
  const bool is_text = type.id() == arrow::Type::STRING;
  const char* wanted = nullptr;
  switch (takes(step)) {
    case Takes::kNumber:
      if (!is_number) wanted = "a number";
      break;
    case Takes::kNumberOrText:
      if (quoted_text(step.arguments[0]) ? !is_text : !is_text && !is_number)
        wanted = quoted_text(step.arguments[0]) ? "text" : "a number or text";
      break;
    case Takes::kTime:
      if (!is_time(type)) wanted = "a date or timestamp";
      break;
    case Takes::kCategory:
      if (!is_text && !is_number) wanted = "text or a number";
      break;
  }
  if (wanted == nullptr) return Status::OK();
  const char* advice = is_time(type) ? "; datetime(PART, ...) and elapsed make numbers of it"
                       : is_text     ? "; one_hot, categorify, ordinal and hash_bucket make numbers of it"
                                     : "";
  return usage_error("feature column '{}': {} takes {}, and it is {} there{}", column, step.name, wanted,
                     is_number ? "a number"
                     : is_text ? "text"
                               : fmt::format("a {}", type.ToString()),
                     advice);
}

// embedding(N) ends a chain that makes categories.
Status check_embedding_place(const FeatureSpec& spec) {
  for (size_t i = 0; i < spec.steps.size(); ++i) {
    if (spec.steps[i].name != "embedding") continue;
    const std::string column = spec.columns.empty() ? "" : spec.columns[0];
    if (i + 1 < spec.steps.size())
      return usage_error(
          "feature column '{}': {} comes after embedding, which gives ids to the model: nothing follows it",
          column, step_text(spec.steps[i + 1]));
    const std::string before = i == 0 ? "" : spec.steps[i - 1].name;
    if (before != "categorify" && before != "hash_bucket" && before != "ordinal" && before != "bucketize")
      return usage_error(
          "feature column '{}': embedding is of categories: the step before it must be categorify, "
          "hash_bucket(N), "
          "ordinal(...) or bucketize(...){}",
          column, before.empty() ? "" : fmt::format(", and is {}", before));
  }
  return Status::OK();
}

Result<int> find_column(const arrow::Schema& query, const std::string& name, const char* role) {
  const int index = query.GetFieldIndex(name);
  if (index >= 0) return index;
  if (query.GetAllFieldIndices(name).size() > 1) {
    return usage_error("the {} column '{}' is in the query's output more than once; give each its own alias",
                       role, name);
  }
  return usage_error("the {} column '{}' is not an output of the query{}", role, name,
                     name_hint(name, query.field_names()));
}

}  // namespace

bool is_tensor_type(const arrow::DataType& type) {
  return check_tensor_type("", type, "").ok();
}

Status check_tensor_type(const std::string& column, const arrow::DataType& type, const char* role) {
  const bool is_feature = std::string_view(role) == "feature";
  switch (type.id()) {
    case arrow::Type::NA:  // nothing but nulls, or no rows: the rules on nulls decide
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::DECIMAL128:
      return Status::OK();
    case arrow::Type::DATE32:
    case arrow::Type::TIMESTAMP:
      return usage_error(
          "the {} column '{}' is a {}, which is not a number; take parts of it{} in the query, as in "
          "hour({}), or its distance to another time with date_diff",
          role, column, type.ToString(),
          is_feature ? " with a step, datetime(hour, dayofweek) or elapsed, or" : "", column);
    case arrow::Type::STRING:
      return usage_error(
          "the {} column '{}' is text (string), which is not a number; turn it into one {}in the query, "
          "with CASE or CAST({} AS DOUBLE), or leave it out",
          role, column, is_feature ? "with a step, one_hot, categorify, ordinal or hash_bucket, or " : "",
          column);
    default:
      return usage_error(
          "the {} column '{}' has type {}, which can't become a number; turn it into one in the query "
          "or leave it out",
          role, column, type.ToString());
  }
}

Result<FeaturePlan> FeaturePlan::make(const arrow::Schema& query, const std::vector<FeatureSpec>& specs,
                                      const std::string& target, OnNull on_null_target,
                                      const std::string& weight, const std::vector<std::string>& also) {
  FeaturePlan plan;
  plan.target_ = target;
  MILLSTREAM_ASSIGN(const int target_index, find_column(query, target, "target"));
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::set<std::string> seen;
  for (const FeatureSpec& spec : specs) {
    for (const StepSpec& step : spec.steps) MILLSTREAM_TRY(check_step(step));
    MILLSTREAM_TRY(check_embedding_place(spec));
    for (const std::string& name : spec.columns) {
      MILLSTREAM_ASSIGN(const int index, find_column(query, name, "feature"));
      if (!seen.insert(name).second) {
        return usage_error("the feature column '{}' is named twice; a column has one chain of steps", name);
      }
      if (name == target) {
        return usage_error(
            "the column '{}' is both the target and a feature; the model would learn to copy it", name);
      }
      const auto& field = query.field(index);
      const bool is_number = is_tensor_type(*field->type());
      if (spec.steps.empty() ||
          (!is_number && !is_time(*field->type()) && field->type()->id() != arrow::Type::STRING)) {
        MILLSTREAM_TRY(check_tensor_type(name, *field->type(), "feature"));
      }
      const int column = static_cast<int>(fields.size());
      fields.push_back(field);

      Chain chain;
      chain.column = name;
      chain.steps = spec.steps;
      chain.raw = expr::make_column(column, *field);
      if (spec.on_nan == OnNan::kNull && arrow::is_floating(field->type()->id())) {
        MILLSTREAM_ASSIGN(auto finite, expr::make_call("isfinite", {chain.raw}));
        MILLSTREAM_ASSIGN(
            const auto null,
            expr::make_cast(expr::make_literal(arrow::MakeNullScalar(field->type())), field->type()));
        MILLSTREAM_ASSIGN(chain.raw, expr::make_case({finite, chain.raw}, null));
      }
      chain.branches.push_back({name, chain.raw});
      if (is_number) {
        MILLSTREAM_ASSIGN(chain.branches[0].expression, to_double(chain.raw));
      }
      plan.rules_.push_back({.column = column,
                             .nulls_allowed = steps_take_nulls(spec.steps),
                             .on_null = spec.on_null,
                             .on_nan = spec.on_nan});
      plan.normal_form_ += fmt::format("{}:{}", name, field->type()->ToString());
      for (const StepSpec& step : spec.steps) plan.normal_form_ += "|" + step_text(step);
      if (spec.on_nan != OnNan::kSame)
        plan.normal_form_ += fmt::format("|nan {}", static_cast<int>(spec.on_nan));
      plan.normal_form_ += spec.on_null == OnNull::kDrop ? "|drop\n" : "\n";
      int fits = 0;
      for (const StepSpec& step : spec.steps) fits += fit_kind(step).has_value();
      plan.num_passes_ = std::max(plan.num_passes_, fits);
      plan.chains_.push_back(std::move(chain));
    }
  }
  if (plan.chains_.empty()) {
    return usage_error("there are no feature columns; name them in a [[feature]] table: columns = [\"...\"]");
  }
  // Columns that cross() names beside those; nulls are theirs to have.
  std::map<std::string, int> crossed;
  for (const std::string& name : feature_inputs(specs)) {
    if (seen.count(name)) continue;
    MILLSTREAM_ASSIGN(const int index, find_column(query, name, "cross"));
    if (name == target)
      return usage_error("cross({}): that is the target; the model would learn to copy it", name);
    fields.push_back(query.field(index));
  }
  for (size_t i = 0; i < fields.size(); ++i) crossed[fields[i]->name()] = static_cast<int>(i);
  for (Chain& chain : plan.chains_) {
    for (const StepSpec& step : chain.steps) {
      if (step.name != "cross") continue;
      for (const std::string& name : step.arguments) {
        if (name == chain.column) return usage_error("feature column '{}' is crossed with itself", name);
        const int at = crossed[name];
        const auto& type = *fields[static_cast<size_t>(at)]->type();
        if (type.id() != arrow::Type::STRING && !is_tensor_type(type))
          return usage_error("cross({}): that column is a {}; texts and numbers are crossed", name,
                             type.ToString());
        chain.crossed.push_back(expr::make_column(at, *fields[static_cast<size_t>(at)]));
      }
    }
  }
  const auto& target_field = query.field(target_index);
  MILLSTREAM_TRY(check_tensor_type(target, *target_field->type(), "target"));
  plan.rules_.push_back(
      {.column = static_cast<int>(fields.size()), .is_target = true, .on_null = on_null_target});
  plan.normal_form_ += fmt::format("target {}:{}{}\n", target, target_field->type()->ToString(),
                                   on_null_target == OnNull::kDrop ? "|drop" : "");
  MILLSTREAM_ASSIGN(plan.target_value_,
                    to_double(expr::make_column(static_cast<int>(fields.size()), *target_field)));
  fields.push_back(target_field);
  if (!weight.empty()) {
    MILLSTREAM_ASSIGN(const int weight_index, find_column(query, weight, "weight"));
    if (weight == target || seen.count(weight) != 0)
      return usage_error(
          "the weight column '{}' is also {}; give it to the query under a second name, with AS", weight,
          weight == target ? "the target" : "a feature");
    const auto& field = query.field(weight_index);
    MILLSTREAM_TRY(check_tensor_type(weight, *field->type(), "weight"));
    plan.rules_.push_back({.column = static_cast<int>(fields.size()), .is_weight = true});
    plan.normal_form_ += fmt::format("weight {}:{}\n", weight, field->type()->ToString());
    fields.push_back(field);
  }
  for (const std::string& name : also) {
    const auto is_there = [&](const auto& field) { return field->name() == name; };
    if (std::any_of(fields.begin(), fields.end(), is_there)) continue;
    MILLSTREAM_ASSIGN(const int index, find_column(query, name, "split"));
    fields.push_back(query.field(index));
  }
  const bool encodes_target = std::any_of(specs.begin(), specs.end(), [](const FeatureSpec& spec) {
    return std::any_of(spec.steps.begin(), spec.steps.end(),
                       [](const StepSpec& step) { return step.name == "target_encode"; });
  });
  if (encodes_target) {
    if (query.GetFieldIndex(kPlaceColumn) >= 0)
      return usage_error("an output of the query is called '{}', which target_encode needs for itself",
                         kPlaceColumn);
    const auto field = arrow::field(kPlaceColumn, arrow::int64());
    plan.place_ = expr::make_column(static_cast<int>(fields.size()), *field);
    fields.push_back(field);
  }
  plan.input_ = arrow::schema(fields);
  for (Chain& chain : plan.chains_) MILLSTREAM_TRY(plan.advance(chain));
  MILLSTREAM_TRY(plan.check_names());
  return plan;
}

std::vector<std::string> FeaturePlan::query_columns() const {
  auto names = input_->field_names();
  if (needs_places()) names.pop_back();
  return names;
}

Result<expr::ExprPtr> FeaturePlan::fold(int folds) const {
  return expr::make_call("%", {place_, expr::make_literal(arrow::MakeScalar(int64_t{folds}))});
}

Status FeaturePlan::check_names() const {
  std::set<std::string> names;
  for (const Chain& chain : chains_) {
    const auto add = [&](const std::string& name) {
      if (names.insert(name).second) return Status::OK();
      return usage_error(
          "two features are named '{}', the second by the steps of column '{}'; give that column another "
          "name in the query, with AS",
          name, chain.column);
    };
    for (const FeatureColumn& column : chain.extra) MILLSTREAM_TRY(add(column.name));
    for (const Branch& branch : chain.branches) MILLSTREAM_TRY(add(branch.name));
  }
  return Status::OK();
}

std::optional<FitKind> FeaturePlan::fit_kind(const StepSpec& step) {
  const std::string& name = step.name;
  const std::string argument = step.arguments.empty() ? "" : step.arguments[0];
  if (name == "standard_scale") return FitKind::kMoments;
  if (name == "min_max_scale" || name == "max_abs_scale") return FitKind::kRange;
  if (name == "elapsed" && argument.empty()) return FitKind::kRange;
  if (name == "robust_scale") return FitKind::kQuantiles;
  if (name == "one_hot" || name == "categorify") return FitKind::kCounts;
  if (name == "target_encode") return FitKind::kTargets;
  if (name == "quantile_transform") return FitKind::kQuantiles;
  if ((name == "clip" || name == "bucketize") && argument == "quantiles") return FitKind::kQuantiles;
  if (name == "fill_null") {
    if (argument == "mean") return FitKind::kMoments;
    if (argument == "median") return FitKind::kQuantiles;
    if (argument == "most_frequent") return FitKind::kCounts;
  }
  return std::nullopt;
}

Status FeaturePlan::advance(Chain& chain) {
  for (; chain.next_step < chain.steps.size(); ++chain.next_step) {
    const StepSpec& step = chain.steps[chain.next_step];
    if (step.name != "null_indicator") {
      for (const Branch& branch : chain.branches)
        MILLSTREAM_TRY(check_takes(chain.column, *branch.expression->type, step));
    }
    if (step.name == "elapsed") {
      // Seconds since 1970 here; its fit takes the start away.
      for (Branch& branch : chain.branches) {
        MILLSTREAM_ASSIGN(branch.expression, expr::make_call("epoch", {branch.expression}));
      }
    }
    if (is_category_step(step)) {
      // A number that no step has changed has the text that SQL writes: 42, not 42.0.
      for (Branch& branch : chain.branches) {
        if (branch.expression->type->id() == arrow::Type::STRING) continue;
        MILLSTREAM_ASSIGN(branch.expression,
                          expr::make_cast(chain.changed ? branch.expression : chain.raw, arrow::utf8()));
      }
    }
    if (fit_kind(step)) return Status::OK();
    MILLSTREAM_TRY(apply(chain, step));
    chain.changed = chain.changed || step.name != "null_indicator";
  }
  for (const Branch& branch : chain.branches)
    MILLSTREAM_TRY(check_tensor_type(chain.column, *branch.expression->type, "feature"));
  return Status::OK();
}

Status FeaturePlan::apply(Chain& chain, const StepSpec& step) {
  const std::string& name = step.name;
  if (name == "null_indicator") {
    if (chain.filled) {
      return usage_error(
          "feature column '{}': null_indicator comes after fill_null and would see no null; put it "
          "before",
          chain.column);
    }
    for (const Branch& branch : chain.branches) {
      const std::string indicator_name = branch.name + "_is_null";
      for (const FeatureColumn& other : chain.extra) {
        if (other.name == indicator_name)
          return usage_error("feature column '{}' has null_indicator twice", chain.column);
      }
      MILLSTREAM_ASSIGN(auto is_null, expr::make_call("is_null", {branch.expression}));
      MILLSTREAM_ASSIGN(auto indicator, expr::make_case({is_null, double_literal(1)}, double_literal(0)));
      FeatureColumn& added = chain.extra.emplace_back();
      added.name = indicator_name;
      added.expression = indicator;
    }
    return Status::OK();
  }
  if (name == "datetime") {
    std::vector<Branch> parts;
    for (const Branch& branch : chain.branches) {
      for (const std::string& part : step.arguments) {
        MILLSTREAM_ASSIGN(auto value, expr::make_call(part, {branch.expression}));
        MILLSTREAM_ASSIGN(value, to_double(value));
        parts.push_back({branch.name + "_" + part, value});
      }
    }
    chain.branches = std::move(parts);
    return Status::OK();
  }
  if (name == "embedding") {
    for (Branch& branch : chain.branches) {
      MILLSTREAM_CHECK(branch.categories > 0);
      branch.embedding_width = static_cast<int64_t>(*parse_number(step.arguments[0]));
      if (chain.steps[chain.next_step - 1].name != "ordinal") continue;
      // Its -1, for what is not in the list, is a category too.
      MILLSTREAM_ASSIGN(branch.expression, expr::make_call("+", {branch.expression, double_literal(1)}));
      ++branch.categories;
    }
    return Status::OK();
  }
  if (name == "cyclical") {
    const double turn = 2 * std::numbers::pi / *parse_number(step.arguments[0]);
    std::vector<Branch> pairs;
    for (const Branch& branch : chain.branches) {
      MILLSTREAM_ASSIGN(auto angle, expr::make_call("*", {branch.expression, double_literal(turn)}));
      for (const char* function : {"sin", "cos"}) {
        MILLSTREAM_ASSIGN(auto value, expr::make_call(function, {angle}));
        pairs.push_back({branch.name + "_" + function, value});
      }
    }
    chain.branches = std::move(pairs);
    return Status::OK();
  }
  for (Branch& branch : chain.branches) {
    expr::ExprPtr& value = branch.expression;
    if (name == "fill_null") {
      const auto text = quoted_text(step.arguments[0]);
      const auto fill = text ? expr::make_literal(std::make_shared<arrow::StringScalar>(*text))
                             : double_literal(*parse_number(step.arguments[0]));
      MILLSTREAM_ASSIGN(value, expr::make_coalesce({value, fill}));
      chain.filled = true;
    } else if (name == "log1p") {
      MILLSTREAM_ASSIGN(value, expr::make_call("log1p", {value}));
    } else if (name == "power") {
      MILLSTREAM_ASSIGN(value,
                        expr::make_call("power", {value, double_literal(*parse_number(step.arguments[0]))}));
    } else if (name == "clip") {
      MILLSTREAM_ASSIGN(value,
                        clipped(value, parse_number(step.arguments[0]), parse_number(step.arguments[1])));
    } else if (name == "bucketize") {
      std::vector<double> edges;
      for (const std::string& edge : step.arguments) edges.push_back(*parse_number(edge));
      MILLSTREAM_ASSIGN(value, bucketized(value, edges));
      branch.categories = static_cast<int64_t>(edges.size()) + 1;
    } else if (name == "elapsed") {
      MILLSTREAM_ASSIGN(value, expr::make_call("-", {value, double_literal(*parse_time(step.arguments[0]))}));
    } else if (name == "hash_bucket") {
      // A number that no step has changed is hashed as SQL writes it: 42, not 42.0.
      MILLSTREAM_ASSIGN(auto text, expr::make_cast(chain.changed ? value : chain.raw, arrow::utf8()));
      const auto buckets = static_cast<int64_t>(*parse_number(step.arguments[0]));
      MILLSTREAM_ASSIGN(auto bucket, expr::make_call("hash_bucket",
                                                     {text, expr::make_literal(arrow::MakeScalar(buckets))}));
      MILLSTREAM_ASSIGN(bucket, to_double(bucket));
      // Null has a bucket of its own.
      MILLSTREAM_ASSIGN(value, expr::make_coalesce({bucket, double_literal(static_cast<double>(buckets))}));
      branch.categories = buckets + 1;
      chain.filled = true;
    } else if (name == "cross") {
      // Of what is still to be crossed the step's own columns come first.
      for (size_t i = 0; i < step.arguments.size(); ++i) {
        MILLSTREAM_ASSIGN(auto other, expr::make_cast(chain.crossed[i], arrow::utf8()));
        MILLSTREAM_ASSIGN(value, expr::make_call("||", {value, text_literal("|")}));
        MILLSTREAM_ASSIGN(value, expr::make_call("||", {value, other}));
        branch.name += "_" + step.arguments[i];
      }
    } else if (name == "ordinal") {
      std::vector<std::pair<std::string, double>> table;
      for (const std::string& argument : step.arguments)
        table.push_back({quoted_text(argument).value_or(argument), static_cast<double>(table.size())});
      const auto null = expr::make_literal(arrow::MakeNullScalar(arrow::float64()));
      branch.categories = static_cast<int64_t>(table.size());
      MILLSTREAM_ASSIGN(value, looked_up(value, std::move(table), -1, null));
    } else {
      return bug_error("no body for feature step {}", name);
    }
  }
  if (name == "cross")
    chain.crossed.erase(chain.crossed.begin(),
                        chain.crossed.begin() + static_cast<int64_t>(step.arguments.size()));
  return Status::OK();
}

std::vector<FitRequest> FeaturePlan::pending() const {
  std::vector<FitRequest> requests;
  for (const Chain& chain : chains_) {
    if (chain.next_step == chain.steps.size()) continue;
    const StepSpec& step = chain.steps[chain.next_step];
    for (const Branch& branch : chain.branches) {
      FitRequest request{
          branch.name, step_text(step), branch.expression, *fit_kind(step), nullptr, nullptr, 0};
      if (request.kind == FitKind::kTargets) {
        request.target = target_value_;
        request.num_folds = folds_of(step);
        request.fold = fold(request.num_folds).ValueOrDie();  // two integers have a remainder
      }
      if (step.name == "fill_null") request.max_size = 1;
      for (auto [argument, value] :
           {std::pair("min_count", &request.min_count), {"max_size", &request.max_size}}) {
        if (const auto text = named_argument(step, argument))
          *value = static_cast<int64_t>(*parse_number(*text));
      }
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

Status FeaturePlan::apply_fit(Chain& chain, Branch& branch, const StepSpec& step, const FitState& fit) {
  const std::string& name = step.name;
  expr::ExprPtr& value = branch.expression;
  const auto keep = [&](std::string what, double number) {
    chain.values.push_back({branch.name, name, std::move(what), number});
  };
  const auto overflow = [&](const char* what) {
    return make_error(ErrorCategory::kData,
                      fmt::format("{} of column '{}': its {} overflows a double; scale it in the query", name,
                                  branch.name, what));
  };
  const Moments& moments = fit.moments;
  if (moments.count > 0 && !(std::isfinite(moments.mean) && std::isfinite(moments.m2)))
    return overflow("mean or variance");
  // Nothing but nulls: they stay null whatever is done to them, and need not be centred.
  const bool no_range = fit.least > fit.greatest;
  const double least = no_range ? 0 : fit.least;
  const double greatest = no_range ? 0 : fit.greatest;
  const auto keep_error = [&] {
    if (fit.quantiles.rank_error() > 0)
      keep("rank_error",
           static_cast<double>(fit.quantiles.rank_error()) / static_cast<double>(fit.quantiles.count()));
  };

  if (name == "standard_scale") {
    const double scale = standard_scale_divisor(moments);
    MILLSTREAM_ASSIGN(value, scaled(value, moments.mean, scale));
    keep("mean", moments.mean);
    keep("scale", scale);
  } else if (name == "min_max_scale") {
    const double scale = divisor(greatest - least);
    if (!std::isfinite(scale)) return overflow("range");
    MILLSTREAM_ASSIGN(value, scaled(value, least, scale));
    if (!step.arguments.empty()) {
      const double low = *parse_number(step.arguments[0]);
      const double high = *parse_number(step.arguments[1]);
      MILLSTREAM_ASSIGN(value, expr::make_call("*", {value, double_literal(high - low)}));
      MILLSTREAM_ASSIGN(value, expr::make_call("+", {value, double_literal(low)}));
    }
    keep("min", least);
    keep("max", greatest);
  } else if (name == "max_abs_scale") {
    const double scale = divisor(std::max(std::abs(least), std::abs(greatest)));
    MILLSTREAM_ASSIGN(value, scaled(value, 0, scale));
    keep("scale", scale);
  } else if (name == "robust_scale") {
    const double low = step.arguments.empty() ? 0.25 : *parse_number(step.arguments[0]);
    const double high = step.arguments.empty() ? 0.75 : *parse_number(step.arguments[1]);
    const auto quantiles = fit.quantiles.quantiles({low, 0.5, high});
    const double scale = divisor(quantiles[2] - quantiles[0]);
    if (!std::isfinite(scale)) return overflow("range");
    MILLSTREAM_ASSIGN(value, scaled(value, quantiles[1], scale));
    keep("center", quantiles[1]);
    keep("scale", scale);
    keep_error();
  } else if (name == "elapsed") {
    MILLSTREAM_ASSIGN(value, expr::make_call("-", {value, double_literal(least)}));
    keep("start", least);
  } else if (name == "clip") {
    if (fit.quantiles.count() == 0) return Status::OK();
    const auto ends =
        fit.quantiles.quantiles({*parse_number(step.arguments[1]), *parse_number(step.arguments[2])});
    MILLSTREAM_ASSIGN(value, clipped(value, ends[0], ends[1]));
    keep("low", ends[0]);
    keep("high", ends[1]);
    keep_error();
  } else if (name == "bucketize") {
    const int buckets = static_cast<int>(*parse_number(step.arguments[1]));
    std::vector<double> fractions;
    // Rounded as scikit-learn does, which goes by percent: a value that is an edge falls on the same side of it.
    for (int i = 0; i < buckets; ++i) fractions.push_back(i * (100.0 / buckets) / 100);
    fractions.push_back(1);
    std::vector<double> edges;
    if (fit.quantiles.count() > 0) {
      // Buckets without width are left out by scikit-learn's rule; the outermost edges bound nothing.
      std::vector<double> all = fit.quantiles.quantiles(fractions);
      for (size_t i = 0; i < all.size(); ++i) {
        if (i == 0 || all[i] - all[i - 1] > 1e-8) edges.push_back(all[i]);
      }
      edges.erase(edges.begin());
      if (!edges.empty()) edges.pop_back();
    }
    MILLSTREAM_ASSIGN(value, bucketized(value, edges));
    branch.categories = static_cast<int64_t>(edges.size()) + 1;
    for (size_t i = 0; i < edges.size(); ++i) keep(fmt::format("edge_{}", i + 1), edges[i]);
    keep_error();
  } else if (name == "fill_null") {
    const std::string& what = step.arguments[0];
    const bool empty = what == "mean"     ? moments.count == 0
                       : what == "median" ? fit.quantiles.count() == 0
                                          : fit.counted.empty();
    if (empty) {
      return make_error(
          ErrorCategory::kData,
          fmt::format("fill_null({}) of column '{}': all its values in the training rows are null, so "
                      "there is no {}; give a {}, or leave the column out",
                      what, branch.name, what == "most_frequent" ? "most frequent one" : what,
                      value->type->id() == arrow::Type::STRING ? "text, as in fill_null('none')"
                                                               : "number, as in fill_null(0)"));
    }
    if (value->type->id() == arrow::Type::STRING) {
      const std::string text((*fit.counted.values)[0]);
      MILLSTREAM_ASSIGN(value, expr::make_coalesce(
                                   {value, expr::make_literal(std::make_shared<arrow::StringScalar>(text))}));
    } else {
      const double fill = what == "mean"     ? moments.mean
                          : what == "median" ? fit.quantiles.quantiles({0.5})[0]
                                             : fit.counted.as_double(0);
      MILLSTREAM_ASSIGN(value, expr::make_coalesce({value, double_literal(fill)}));
      keep(what, fill);
      if (what == "median") keep_error();
    }
    chain.filled = true;
  } else if (name == "quantile_transform") {
    if (fit.quantiles.count() == 0) return Status::OK();
    MILLSTREAM_ASSIGN(value, quantile_transformed(value, step, fit.quantiles));
    const auto ends = fit.quantiles.quantiles({0, 0.5, 1});
    keep("min", ends[0]);
    keep("median", ends[1]);
    keep("max", ends[2]);
    keep_error();
  } else if (name == "target_encode") {
    double mean = 0;
    MILLSTREAM_ASSIGN(value, target_encoded(chain, branch, step, fit.targets, &mean));
    keep("target_mean", mean);
    chain.filled = true;
  } else if (name == "categorify") {
    const int64_t size = fit.counted.empty() ? 0 : fit.counted.values->size();
    branch.categories = size + 2;
    if (size <= kMostListedCategories) {
      for (int64_t i = 0; i < size; ++i)
        keep(std::string((*fit.counted.values)[i]), static_cast<double>(i) + 2);
    } else {
      keep("categories", static_cast<double>(size));
    }
    if (size <= kMostCasesOfCategory) {
      std::vector<std::pair<std::string, double>> table;
      for (int64_t i = 0; i < size; ++i)
        table.push_back({std::string((*fit.counted.values)[i]), static_cast<double>(i) + 2});
      MILLSTREAM_ASSIGN(value, looked_up(value, std::move(table), 0, double_literal(1)));
    } else {
      MILLSTREAM_ASSIGN(auto table, expr::TextTable::make(fit.counted.values));
      MILLSTREAM_ASSIGN(value,
                        expr::make_call("category_id", {value, expr::make_table_literal(std::move(table))}));
    }
    chain.filled = true;
  } else {
    return bug_error("no fit for feature step {}", name);
  }
  return Status::OK();
}

Result<expr::ExprPtr> FeaturePlan::quantile_transformed(const expr::ExprPtr& value, const StepSpec& step,
                                                        const QuantileSketch& quantiles) const {
  const bool normal = !step.arguments.empty() && step.arguments.back() == "normal";
  const bool counted = !step.arguments.empty() && step.arguments[0] != "normal";
  const int64_t wanted = counted ? static_cast<int64_t>(*parse_number(step.arguments[0])) : 1000;
  const auto number = static_cast<size_t>(std::clamp<int64_t>(quantiles.count(), 2, wanted));
  std::vector<double> references;
  for (size_t i = 0; i < number; ++i)
    references.push_back(i + 1 == number ? 1
                                         : static_cast<double>(i) * (1 / static_cast<double>(number - 1)));
  const auto at = quantiles.quantiles(references);
  // Equal quantiles make one knot, which stands for the mean of its references; lines go from the last of one knot to
  // the first of the next. That is what numpy.interp from both sides, averaged, comes to.
  struct Knot {
    double value, first, last;
  };
  std::vector<Knot> knots;
  for (size_t i = 0; i < number; ++i) {
    if (knots.empty() || at[i] > knots.back().value) {
      knots.push_back({at[i], references[i], references[i]});
    } else {
      knots.back().last = references[i];
    }
  }
  // At knot k and above it, up to the next.
  const auto piece = [&](size_t k) -> Result<expr::ExprPtr> {
    if (k + 1 == knots.size()) return double_literal(1);
    const double slope = (knots[k + 1].first - knots[k].last) / (knots[k + 1].value - knots[k].value);
    MILLSTREAM_ASSIGN(auto line, expr::make_call("-", {value, double_literal(knots[k].value)}));
    MILLSTREAM_ASSIGN(line, expr::make_call("*", {line, double_literal(slope)}));
    MILLSTREAM_ASSIGN(line, expr::make_call("+", {line, double_literal(knots[k].last)}));
    if (knots[k].first == knots[k].last) return line;
    MILLSTREAM_ASSIGN(auto same, expr::make_call("=", {value, double_literal(knots[k].value)}));
    return expr::make_case({same, double_literal((knots[k].first + knots[k].last) / 2)}, line);
  };
  const std::function<Result<expr::ExprPtr>(size_t, size_t)> between =
      [&](size_t first, size_t end) -> Result<expr::ExprPtr> {
    if (end - first == 1) return piece(first);
    const size_t middle = first + (end - first) / 2;
    MILLSTREAM_ASSIGN(auto below, expr::make_call("<", {value, double_literal(knots[middle].value)}));
    MILLSTREAM_ASSIGN(auto left, between(first, middle));
    MILLSTREAM_ASSIGN(auto right, between(middle, end));
    return expr::make_case({below, left}, right);
  };
  MILLSTREAM_ASSIGN(auto inside, between(0, knots.size()));
  MILLSTREAM_ASSIGN(auto is_null, expr::make_call("is_null", {value}));
  const auto null = expr::make_literal(arrow::MakeNullScalar(arrow::float64()));
  if (!normal) {
    MILLSTREAM_ASSIGN(auto below, expr::make_call("<=", {value, double_literal(knots[0].value)}));
    return expr::make_case({is_null, null, below, double_literal(0)}, inside);
  }
  // As scikit-learn: what is closer than this to an end counts as the end, whose normal quantile would be infinite and
  // is that of the same distance.
  constexpr double kBounds = 1e-7;
  MILLSTREAM_ASSIGN(auto lower, expr::make_call("-", {value, double_literal(kBounds)}));
  MILLSTREAM_ASSIGN(auto below, expr::make_call("<", {lower, double_literal(knots[0].value)}));
  MILLSTREAM_ASSIGN(auto upper, expr::make_call("+", {value, double_literal(kBounds)}));
  MILLSTREAM_ASSIGN(auto above, expr::make_call(">", {upper, double_literal(knots.back().value)}));
  MILLSTREAM_ASSIGN(
      auto share,
      expr::make_case({is_null, null, below, double_literal(0), above, double_literal(1)}, inside));
  MILLSTREAM_ASSIGN(auto quantile, expr::make_call("normal_quantile", {share}));
  const double near = kBounds - std::numeric_limits<double>::epsilon();
  MILLSTREAM_ASSIGN(const double low, normal_quantile_of(near));
  MILLSTREAM_ASSIGN(const double high, normal_quantile_of(1 - near));
  return clipped(quantile, low, high);
}

Result<expr::ExprPtr> FeaturePlan::target_encoded(const Chain& chain, const Branch& branch,
                                                  const StepSpec& step, const TargetSums& targets,
                                                  double* mean) const {
  const int folds = folds_of(step);
  const auto smooth_text = named_argument(step, "smooth");
  const double smooth = smooth_text ? *parse_number(*smooth_text) : 10;
  // Of the rows of all folds but one (-1: all).
  const auto total_without = [&](const FoldSums& sums, int without) {
    std::pair<double, double> total{0, 0};  // count, sum
    for (int fold = 0; fold < folds; ++fold) {
      if (fold == without) continue;
      total.first += static_cast<double>(sums.counts[static_cast<size_t>(fold)]);
      total.second += sums.sums[static_cast<size_t>(fold)];
    }
    return total;
  };
  const auto encoding = [&](int without) -> Result<expr::ExprPtr> {
    std::pair<double, double> all{0, 0};
    for (const auto& [category, sums] : targets) {
      const auto total = total_without(sums, without);
      all.first += total.first;
      all.second += total.second;
    }
    if (without >= 0 && all.first == 0) return encoding_of_nothing(chain.column, step);
    const double prior = all.second / all.first;
    if (!std::isfinite(prior))
      return make_error(ErrorCategory::kData,
                        fmt::format("{} of column '{}': the target's sum overflows a double", step_text(step),
                                    branch.name));
    if (without < 0) *mean = prior;
    double of_null = prior;
    std::vector<std::pair<std::string, double>> table;
    for (const auto& [category, sums] : targets) {
      const auto [count, sum] = total_without(sums, without);
      const double code = count + smooth > 0 ? (sum + smooth * prior) / (count + smooth) : prior;
      if (category == "n") {
        of_null = code;
      } else {
        table.push_back({category.substr(1), code});
      }
    }
    return looked_up(branch.expression, std::move(table), prior, double_literal(of_null));
  };
  if (targets.empty()) return encoding_of_nothing(chain.column, step);
  // Rows that train have a fold, whose rows do not count for them; others have no place and get the whole.
  MILLSTREAM_ASSIGN(auto no_place, expr::make_call("is_null", {place_}));
  MILLSTREAM_ASSIGN(auto whole, encoding(-1));
  std::vector<expr::ExprPtr> arms = {no_place, whole};
  MILLSTREAM_ASSIGN(const auto fold_of_row, fold(folds));
  expr::ExprPtr last;
  for (int i = 0; i < folds; ++i) {
    MILLSTREAM_ASSIGN(auto code, encoding(i));
    if (i + 1 == folds) {
      last = code;
      break;
    }
    MILLSTREAM_ASSIGN(auto in_fold,
                      expr::make_call("=", {fold_of_row, expr::make_literal(arrow::MakeScalar(int64_t{i}))}));
    arms.insert(arms.end(), {in_fold, code});
  }
  return expr::make_case(arms, last);
}

Result<std::vector<FeaturePlan::Branch>> FeaturePlan::one_hot(Chain& chain, const Branch& branch,
                                                              const StepSpec& step,
                                                              const CountedValues& counted) const {
  const int64_t kept = counted.empty() ? 0 : counted.values->size();
  if (kept > kMostOneHotColumns && !named_argument(step, "max_size")) {
    return make_error(
        ErrorCategory::kData,
        fmt::format("one_hot of column '{}' would make {} columns, one for each value, and makes {} at most "
                    "unless it "
                    "is told so; say how many, one_hot(max_size=N), or take categorify or hash_bucket(N)",
                    branch.name, kept, kMostOneHotColumns));
  }
  if (kept == 0) {
    return make_error(
        ErrorCategory::kData,
        fmt::format("{} of column '{}': no value of the training rows is kept ({} different ones), so "
                    "there are no columns to make; leave the column out",
                    step_text(step), branch.name, counted.distinct));
  }
  std::vector<Branch> columns;
  for (int64_t i = 0; i < kept; ++i) {
    const std::string category((*counted.values)[i]);
    MILLSTREAM_ASSIGN(auto same, expr::make_call("=", {branch.expression, text_literal(category)}));
    MILLSTREAM_ASSIGN(auto value, expr::make_case({same, double_literal(1)}, double_literal(0)));
    chain.values.push_back({branch.name, step.name, category, static_cast<double>(columns.size())});
    columns.push_back({branch.name + "_" + category, value});
  }
  chain.filled = true;
  return columns;
}

Status FeaturePlan::provide(const std::vector<FitState>& fits) {
  size_t next = 0;
  for (Chain& chain : chains_) {
    if (chain.next_step == chain.steps.size()) continue;
    const StepSpec& step = chain.steps[chain.next_step];
    std::vector<Branch> made;
    for (Branch& branch : chain.branches) {
      MILLSTREAM_CHECK(next < fits.size());
      const FitState& fit = fits[next++];
      if (step.name == "one_hot") {
        MILLSTREAM_ASSIGN(const auto columns, one_hot(chain, branch, step, fit.counted));
        made.insert(made.end(), columns.begin(), columns.end());
      } else {
        MILLSTREAM_TRY(apply_fit(chain, branch, step, fit));
        made.push_back(branch);
      }
    }
    chain.branches = std::move(made);
    chain.changed = true;
    ++chain.next_step;
    MILLSTREAM_TRY(advance(chain));
  }
  MILLSTREAM_CHECK(next == fits.size());
  return check_names();
}

Fitted FeaturePlan::fitted() const {
  MILLSTREAM_CHECK(pending().empty());
  Fitted fitted;
  fitted.input = input_;
  // Rows that do not train have no place.
  std::vector<expr::ExprPtr> without_place;
  for (int i = 0; place_ != nullptr && i < input_->num_fields(); ++i)
    without_place.push_back(expr::make_column(i, *input_->field(i)));
  if (place_ != nullptr) without_place.back() = expr::make_literal(arrow::MakeNullScalar(arrow::int64()));
  // By column in the recipe's order, whatever pass fitted them.
  for (const Chain& chain : chains_) {
    for (const FeatureColumn& column : chain.extra) fitted.columns.push_back(column);
    for (const Branch& branch : chain.branches) {
      FeatureColumn& column = fitted.columns.emplace_back();
      column.name = branch.name;
      column.expression = branch.expression;
      column.categories = branch.embedding_width > 0 ? branch.categories : 0;
      column.embedding_width = branch.embedding_width;
      if (place_ == nullptr) continue;
      column.training = branch.expression;
      column.expression = expr::substitute_columns(branch.expression, without_place);
    }
    fitted.values.insert(fitted.values.end(), chain.values.begin(), chain.values.end());
  }
  return fitted;
}

}  // namespace millstream::features
