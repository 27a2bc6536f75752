#include "features/feature_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/nearest_name.h"

namespace millstream::features {
namespace {

bool is_fit(const StepSpec& step) {
  return step.name == "standard_scale" || (step.name == "fill_null" && step.arguments[0] == "mean");
}

expr::ExprPtr double_literal(double value) {
  return expr::make_literal(std::make_shared<arrow::DoubleScalar>(value));
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

Status check_tensor_type(const std::string& column, const arrow::DataType& type, const char* role) {
  switch (type.id()) {
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
          "the {} column '{}' is a {}, which is not a number; take parts of it in the query, as in "
          "hour({}), or its distance to another time with date_diff",
          role, column, type.ToString(), column);
    case arrow::Type::STRING:
      return usage_error(
          "the {} column '{}' is text (string), which is not a number; turn it into one in the query, "
          "with CASE or CAST({} AS DOUBLE), or leave it out",
          role, column, column);
    default:
      return usage_error(
          "the {} column '{}' has type {}, which can't become a number; turn it into one in the query "
          "or leave it out",
          role, column, type.ToString());
  }
}

Result<FeaturePlan> FeaturePlan::make(const arrow::Schema& query, const std::vector<FeatureSpec>& specs,
                                      const std::string& target, OnNull on_null_target) {
  FeaturePlan plan;
  plan.target_ = target;
  MILLSTREAM_ASSIGN(const int target_index, find_column(query, target, "target"));
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::set<std::string> seen;
  for (const FeatureSpec& spec : specs) {
    for (const StepSpec& step : spec.steps) MILLSTREAM_TRY(check_step(step));
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
      MILLSTREAM_TRY(check_tensor_type(name, *field->type(), "feature"));
      const int column = static_cast<int>(fields.size());
      fields.push_back(field);

      Chain chain;
      chain.column = name;
      chain.steps = spec.steps;
      MILLSTREAM_ASSIGN(chain.expression,
                        expr::make_cast(expr::make_column(column, *field), arrow::float64()));
      const bool fills = std::any_of(spec.steps.begin(), spec.steps.end(),
                                     [](const StepSpec& step) { return step.name == "fill_null"; });
      plan.rules_.push_back({column, fills, false, spec.on_null});
      plan.normal_form_ += fmt::format("{}:{}", name, field->type()->ToString());
      for (const StepSpec& step : spec.steps) plan.normal_form_ += "|" + step_text(step);
      plan.normal_form_ += spec.on_null == OnNull::kDrop ? "|drop\n" : "\n";
      int fits = 0;
      for (const StepSpec& step : spec.steps) fits += is_fit(step);
      plan.num_passes_ = std::max(plan.num_passes_, fits);
      plan.chains_.push_back(std::move(chain));
    }
  }
  if (plan.chains_.empty()) {
    return usage_error("there are no feature columns; name them in a [[feature]] table: columns = [\"...\"]");
  }
  const auto& target_field = query.field(target_index);
  MILLSTREAM_TRY(check_tensor_type(target, *target_field->type(), "target"));
  plan.rules_.push_back({static_cast<int>(fields.size()), false, true, on_null_target});
  plan.normal_form_ += fmt::format("target {}:{}{}\n", target, target_field->type()->ToString(),
                                   on_null_target == OnNull::kDrop ? "|drop" : "");
  fields.push_back(target_field);
  plan.input_ = arrow::schema(fields);
  for (Chain& chain : plan.chains_) MILLSTREAM_TRY(plan.advance(chain));
  std::set<std::string> names;
  for (const Chain& chain : plan.chains_) {
    names.insert(chain.column);
    for (const FeatureColumn& column : chain.extra) {
      if (!names.insert(column.name).second || seen.count(column.name)) {
        return usage_error("two features are named '{}': a column and the null indicator of '{}'",
                           column.name, chain.column);
      }
    }
  }
  return plan;
}

Status FeaturePlan::advance(Chain& chain) {
  for (; chain.next_step < chain.steps.size(); ++chain.next_step) {
    const StepSpec& step = chain.steps[chain.next_step];
    if (is_fit(step)) return Status::OK();
    if (step.name == "fill_null") {
      MILLSTREAM_ASSIGN(
          chain.expression,
          expr::make_coalesce({chain.expression, double_literal(*parse_number(step.arguments[0]))}));
      chain.filled = true;
    } else if (step.name == "null_indicator") {
      if (chain.filled) {
        return usage_error(
            "feature column '{}': null_indicator comes after fill_null and would see no null; put it "
            "before",
            chain.column);
      }
      const std::string name = chain.column + "_is_null";
      for (const FeatureColumn& other : chain.extra) {
        if (other.name == name)
          return usage_error("feature column '{}' has null_indicator twice", chain.column);
      }
      MILLSTREAM_ASSIGN(auto is_null, expr::make_call("is_null", {chain.expression}));
      MILLSTREAM_ASSIGN(auto indicator, expr::make_case({is_null, double_literal(1)}, double_literal(0)));
      chain.extra.push_back({name, indicator});
    } else if (step.name == "log1p") {
      MILLSTREAM_ASSIGN(chain.expression, expr::make_call("log1p", {chain.expression}));
    } else {
      return bug_error("no body for feature step {}", step.name);
    }
  }
  return Status::OK();
}

std::vector<expr::ExprPtr> FeaturePlan::pending() const {
  std::vector<expr::ExprPtr> expressions;
  for (const Chain& chain : chains_) {
    if (chain.next_step < chain.steps.size()) expressions.push_back(chain.expression);
  }
  return expressions;
}

std::vector<std::string> FeaturePlan::pending_columns() const {
  std::vector<std::string> names;
  for (const Chain& chain : chains_) {
    if (chain.next_step < chain.steps.size()) names.push_back(chain.column);
  }
  return names;
}

Status FeaturePlan::provide(const std::vector<Moments>& moments) {
  size_t next = 0;
  for (Chain& chain : chains_) {
    if (chain.next_step == chain.steps.size()) continue;
    MILLSTREAM_CHECK(next < moments.size());
    const Moments& fit = moments[next++];
    const StepSpec& step = chain.steps[chain.next_step];
    if (fit.count > 0 && !(std::isfinite(fit.mean) && std::isfinite(fit.m2))) {
      return make_error(
          ErrorCategory::kData,
          fmt::format("{} of column '{}': its mean or variance overflows a double; scale it in the query",
                      step.name, chain.column));
    }
    if (step.name == "standard_scale") {
      const double scale = standard_scale_divisor(fit);
      MILLSTREAM_ASSIGN(auto centred, expr::make_call("-", {chain.expression, double_literal(fit.mean)}));
      MILLSTREAM_ASSIGN(chain.expression, expr::make_call("/", {centred, double_literal(scale)}));
      values_.push_back({chain.column, "standard_scale", "mean", fit.mean});
      values_.push_back({chain.column, "standard_scale", "scale", scale});
    } else {
      if (fit.count == 0) {
        return make_error(
            ErrorCategory::kData,
            fmt::format("fill_null(mean) of column '{}': all its values in the training rows are null, so "
                        "there is no mean; give a number, as in fill_null(0), or leave the column out",
                        chain.column));
      }
      MILLSTREAM_ASSIGN(chain.expression, expr::make_coalesce({chain.expression, double_literal(fit.mean)}));
      chain.filled = true;
      values_.push_back({chain.column, "fill_null", "mean", fit.mean});
    }
    ++chain.next_step;
    MILLSTREAM_TRY(advance(chain));
  }
  MILLSTREAM_CHECK(next == moments.size());
  return Status::OK();
}

Fitted FeaturePlan::fitted() const {
  MILLSTREAM_CHECK(pending().empty());
  Fitted fitted;
  fitted.input = input_;
  for (const Chain& chain : chains_) {
    for (const FeatureColumn& column : chain.extra) fitted.columns.push_back(column);
    fitted.columns.push_back({chain.column, chain.expression});
  }
  // By column in the recipe's order, whatever pass fitted them.
  for (const Chain& chain : chains_) {
    for (const FittedValue& value : values_) {
      if (value.column == chain.column) fitted.values.push_back(value);
    }
  }
  return fitted;
}

}  // namespace millstream::features
