// Factories: they type-check, insert the casts that SQL's promotions ask for and infer nullability.

#include "expr/expression.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/nearest_name.h"
#include "expr/function.h"
#include "expr/type.h"

namespace millstream::expr {

namespace {

/// What follows from the arguments: nullability, and whether evaluation can fail.
void infer(Expression& e) {
  auto nullable = [](const ExprPtr& x) { return x->nullable; };
  bool arguments_fail =
      std::any_of(e.arguments.begin(), e.arguments.end(), [](auto& x) { return x->can_fail; });
  bool any = std::any_of(e.arguments.begin(), e.arguments.end(), nullable);
  bool all = std::all_of(e.arguments.begin(), e.arguments.end(), nullable);
  e.can_fail = arguments_fail || (e.binding && e.binding->can_fail);
  switch (e.kind) {
    case Kind::kLiteral:
      e.nullable = !e.literal->is_valid;
      break;
    case Kind::kColumn:
      break;
    case Kind::kCall:
      if (e.binding->nulls == NullPolicy::kPropagate) {
        e.nullable = any || e.binding->gives_null;
      } else {
        e.nullable = !e.binding->never_null && (e.binding->gives_null ? any : all);
      }
      break;
    case Kind::kCast:
      e.nullable = any || (e.binding && e.binding->gives_null);
      break;
    case Kind::kAnd:
    case Kind::kOr:
    case Kind::kIn:
      e.nullable = any;
      break;
    case Kind::kCase: {
      e.nullable = e.arguments.back()->nullable;
      for (size_t i = 1; i < e.arguments.size(); i += 2) e.nullable |= e.arguments[i]->nullable;
      break;
    }
    case Kind::kCoalesce:
      e.nullable = all;
      break;
  }
}

ExprPtr finish(Expression e) {
  infer(e);
  return std::make_shared<const Expression>(std::move(e));
}

ExprPtr null_of(const TypePtr& type, QueryPosition position) {
  return make_literal(arrow::MakeNullScalar(type), position);
}

/// The value of an expression without columns; an error where it fails.
Result<std::shared_ptr<arrow::Scalar>> constant_value(const Expression& expression) {
  static const auto one_row = arrow::RecordBatch::Make(arrow::schema({}), 1, arrow::ArrayVector{});
  MILLSTREAM_ASSIGN(auto array, evaluate(expression, *one_row));
  return array->GetScalar(0);
}

/// An implicit conversion: like a cast, but a literal becomes a literal of the new type.
Result<ExprPtr> convert(const ExprPtr& argument, const TypePtr& type) {
  if (argument->type->Equals(*type)) return argument;
  if (is_null_type(*argument->type)) return null_of(type, argument->position);
  MILLSTREAM_ASSIGN(auto cast, make_cast(argument, type, false, argument->position));
  if (argument->kind == Kind::kLiteral) {
    auto value = constant_value(*cast);
    if (!value.ok()) return query_error("{}", value.status().message());
    return make_literal(std::move(value).ValueUnsafe(), argument->position);
  }
  return cast;
}

/// The conversion says that it is one. Of decimals the result's type grows with the arguments', so to_sql() must
/// write what stood in the query: with the conversion written out it would grow again.
ExprPtr mark_implicit(const ExprPtr& before, const ExprPtr& converted) {
  if (before == converted) return converted;
  Expression e = *converted;
  if (e.kind == Kind::kLiteral) e.written = before->written ? before->written : before;
  if (e.kind == Kind::kCast) e.implicit = true;
  return finish(std::move(e));
}

Result<ExprPtr> to_boolean(const ExprPtr& argument, const char* what) {
  bool converts = argument->type->id() == arrow::Type::BOOL || is_null_type(*argument->type) ||
                  is_numeric_type(*argument->type) ||
                  (argument->kind == Kind::kLiteral && is_string_type(*argument->type));
  if (!converts) {
    return query_error("{} needs a BOOLEAN, but {} is {}", what, argument->to_sql(),
                       sql_type_name(*argument->type));
  }
  return convert(argument, arrow::boolean());
}

std::string types_text(const std::vector<ExprPtr>& arguments) {
  std::string out;
  for (const ExprPtr& argument : arguments) {
    if (!out.empty()) out += ", ";
    out += sql_type_name(*argument->type);
  }
  return out;
}

Result<ExprPtr> make_connective(Kind kind, const char* what, std::vector<ExprPtr> arguments,
                                QueryPosition position) {
  if (arguments.empty()) return query_error("{} needs arguments", what);
  Expression e;
  e.kind = kind;
  e.type = arrow::boolean();
  e.position = position;
  for (const ExprPtr& argument : arguments) {
    MILLSTREAM_ASSIGN(auto condition, to_boolean(argument, what));
    if (condition->kind == kind) {
      e.arguments.insert(e.arguments.end(), condition->arguments.begin(), condition->arguments.end());
    } else {
      e.arguments.push_back(std::move(condition));
    }
  }
  if (e.arguments.size() == 1) return e.arguments[0];
  return finish(std::move(e));
}

/// The same node over other arguments.
ExprPtr with_arguments(const Expression& expression, std::vector<ExprPtr> arguments) {
  Expression e = expression;
  e.arguments = std::move(arguments);
  return finish(std::move(e));
}

template <class F>
ExprPtr transform_columns(const ExprPtr& expression, const F& column) {
  if (expression->kind == Kind::kColumn) return column(expression);
  bool changed = false;
  std::vector<ExprPtr> arguments;
  arguments.reserve(expression->arguments.size());
  for (const ExprPtr& argument : expression->arguments) {
    arguments.push_back(transform_columns(argument, column));
    changed |= arguments.back() != argument;
  }
  return changed ? with_arguments(*expression, std::move(arguments)) : expression;
}

void collect_columns(const Expression& expression, std::set<int>& out) {
  if (expression.kind == Kind::kColumn) out.insert(expression.column);
  for (const ExprPtr& argument : expression.arguments) collect_columns(*argument, out);
}

}  // namespace

ExprPtr make_literal(std::shared_ptr<arrow::Scalar> value, QueryPosition position) {
  Expression e;
  e.kind = Kind::kLiteral;
  e.type = value->type;
  e.literal = std::move(value);
  e.position = position;
  return finish(std::move(e));
}

ExprPtr make_column(int index, const arrow::Field& field, QueryPosition position) {
  Expression e;
  e.kind = Kind::kColumn;
  e.type = field.type();
  e.nullable = field.nullable();
  e.column = index;
  e.name = field.name();
  e.position = position;
  return finish(std::move(e));
}

Result<ExprPtr> make_call(std::string_view name, std::vector<ExprPtr> arguments, QueryPosition position) {
  const FunctionRegistry& registry = FunctionRegistry::instance();
  const Function* function = registry.find(name);
  if (!function) return query_error("unknown function '{}'{}", name, name_hint(name, registry.names()));
  if (function->rewrite) {
    MILLSTREAM_ASSIGN(auto rewritten, function->rewrite(arguments, position));
    if (rewritten) return rewritten;
  }
  MILLSTREAM_ASSIGN(Binding binding, resolve(*function, arguments));
  Expression e;
  e.kind = Kind::kCall;
  e.name = function->name;
  e.function = function;
  e.type = binding.result;
  e.position = position;
  for (size_t i = 0; i < arguments.size(); ++i) {
    MILLSTREAM_ASSIGN(auto argument, convert(arguments[i], binding.parameters[i]));
    if (is_decimal_type(*binding.result)) argument = mark_implicit(arguments[i], argument);
    e.arguments.push_back(std::move(argument));
  }
  e.binding = std::make_shared<const Binding>(std::move(binding));
  ExprPtr call = finish(std::move(e));
  // A negated number is a literal again: -1 goes into any integer type that holds it.
  if (function->name == "-" && call->arguments.size() == 1 && call->arguments[0]->kind == Kind::kLiteral &&
      is_numeric_type(*call->type)) {
    auto value = constant_value(*call);
    if (value.ok()) return make_literal(std::move(value).ValueUnsafe(), position);
  }
  return call;
}

Result<ExprPtr> make_cast(ExprPtr argument, TypePtr type, bool try_cast, QueryPosition position) {
  if (is_null_type(*argument->type)) return null_of(type, position);
  if (argument->type->Equals(*type) && argument->kind != Kind::kLiteral) return argument;
  Expression e;
  e.kind = Kind::kCast;
  e.type = type;
  e.try_cast = try_cast;
  e.position = position;
  e.binding = find_cast(argument->type, type, try_cast);
  if (!e.binding) {
    return query_error("{} can't be cast to {}: {}", sql_type_name(*argument->type), sql_type_name(*type),
                       argument->to_sql());
  }
  e.arguments = {std::move(argument)};
  return finish(std::move(e));
}

Result<ExprPtr> make_and(std::vector<ExprPtr> arguments, QueryPosition position) {
  return make_connective(Kind::kAnd, "AND", std::move(arguments), position);
}

Result<ExprPtr> make_or(std::vector<ExprPtr> arguments, QueryPosition position) {
  return make_connective(Kind::kOr, "OR", std::move(arguments), position);
}

Result<ExprPtr> make_case(std::vector<ExprPtr> arms, ExprPtr otherwise, QueryPosition position) {
  if (arms.empty() || arms.size() % 2) return query_error("CASE needs at least one WHEN with its THEN");
  if (!otherwise) otherwise = null_of(arrow::null(), position);
  std::vector<ExprPtr> results;
  for (size_t i = 1; i < arms.size(); i += 2) results.push_back(arms[i]);
  results.push_back(otherwise);
  TypePtr type = common_type(results);
  if (!type) {
    return query_error("the results of CASE have types without a common one ({}); cast them",
                       types_text(results));
  }
  if (is_null_type(*type)) type = arrow::int32();
  Expression e;
  e.kind = Kind::kCase;
  e.type = type;
  e.position = position;
  for (size_t i = 0; i < arms.size(); i += 2) {
    MILLSTREAM_ASSIGN(auto when, to_boolean(arms[i], "WHEN"));
    MILLSTREAM_ASSIGN(auto then, convert(arms[i + 1], type));
    e.arguments.push_back(std::move(when));
    e.arguments.push_back(std::move(then));
  }
  MILLSTREAM_ASSIGN(auto last, convert(otherwise, type));
  e.arguments.push_back(std::move(last));
  return finish(std::move(e));
}

Result<ExprPtr> make_coalesce(std::vector<ExprPtr> arguments, QueryPosition position) {
  if (arguments.empty()) return query_error("COALESCE needs arguments");
  TypePtr type = common_type(arguments);
  if (!type) {
    return query_error("the arguments of COALESCE have types without a common one ({}); cast them",
                       types_text(arguments));
  }
  if (is_null_type(*type)) type = arrow::int32();
  Expression e;
  e.kind = Kind::kCoalesce;
  e.type = type;
  e.position = position;
  // Arguments after one that is never NULL stay: that one's claim comes from the files at hand, and the expression
  // outlives them in a bundle. Evaluating costs nothing where there is no NULL.
  for (const ExprPtr& argument : arguments) {
    MILLSTREAM_ASSIGN(auto converted, convert(argument, type));
    e.arguments.push_back(std::move(converted));
  }
  if (e.arguments.size() == 1) return e.arguments[0];
  return finish(std::move(e));
}

Result<ExprPtr> make_in(ExprPtr value, std::vector<ExprPtr> list, QueryPosition position) {
  if (list.empty()) return query_error("IN needs at least one value");
  std::vector<ExprPtr> all = list;
  all.insert(all.begin(), value);
  TypePtr type = common_type(all);
  if (!type) {
    return query_error("the types of IN can't be compared ({}); cast them", types_text(all));
  }
  if (is_null_type(*type)) type = arrow::int32();
  bool constants = std::all_of(list.begin(), list.end(), [](auto& x) { return x->kind == Kind::kLiteral; });
  if (!constants || list.size() == 1) {
    std::vector<ExprPtr> comparisons;
    for (const ExprPtr& item : list) {
      MILLSTREAM_ASSIGN(auto left, convert(value, type));
      MILLSTREAM_ASSIGN(auto right, convert(item, type));
      MILLSTREAM_ASSIGN(auto equal, make_call("=", {left, right}, position));
      comparisons.push_back(std::move(equal));
    }
    return make_or(std::move(comparisons), position);
  }
  Expression e;
  e.kind = Kind::kIn;
  e.type = arrow::boolean();
  e.name = "in";
  e.position = position;
  for (const ExprPtr& x : all) {
    MILLSTREAM_ASSIGN(auto converted, convert(x, type));
    e.arguments.push_back(std::move(converted));
  }
  e.function = FunctionRegistry::instance().find("in");
  MILLSTREAM_CHECK(e.function != nullptr, "the function 'in' is registered");
  MILLSTREAM_ASSIGN(Binding binding, resolve(*e.function, e.arguments));
  e.binding = std::make_shared<const Binding>(std::move(binding));
  return finish(std::move(e));
}

std::vector<int> columns_read(const Expression& expression) {
  std::set<int> columns;
  collect_columns(expression, columns);
  return {columns.begin(), columns.end()};
}

ExprPtr remap_columns(const ExprPtr& expression, const std::vector<int>& mapping) {
  return transform_columns(expression, [&](const ExprPtr& column) -> ExprPtr {
    auto index = static_cast<size_t>(column->column);
    MILLSTREAM_CHECK(index < mapping.size() && mapping[index] >= 0, "column {} has no place in the mapping",
                     index);
    if (mapping[index] == column->column) return column;
    Expression e = *column;
    e.column = mapping[index];
    return finish(std::move(e));
  });
}

ExprPtr substitute_columns(const ExprPtr& expression, const std::vector<ExprPtr>& replacements) {
  return transform_columns(expression, [&](const ExprPtr& column) -> ExprPtr {
    auto index = static_cast<size_t>(column->column);
    MILLSTREAM_CHECK(index < replacements.size() && replacements[index], "column {} has no replacement",
                     index);
    return replacements[index];
  });
}

// ---- overloads
// -----------------------------------------------------------------------------------------------

namespace {

/// A bare integer of the query's text: its type is only what it has for want of another.
bool is_integer_literal(const Expression& e) {
  return e.kind == Kind::kLiteral && e.literal->is_valid &&
         (e.type->id() == arrow::Type::INT32 || e.type->id() == arrow::Type::INT64);
}
bool is_string_literal(const Expression& e) {
  return e.kind == Kind::kLiteral && is_string_type(*e.type);
}

bool integer_fits(int64_t value, const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::INT8:
      return value >= INT8_MIN && value <= INT8_MAX;
    case arrow::Type::INT16:
      return value >= INT16_MIN && value <= INT16_MAX;
    case arrow::Type::INT32:
      return value >= INT32_MIN && value <= INT32_MAX;
    case arrow::Type::INT64:
      return true;
    case arrow::Type::UINT8:
      return value >= 0 && value <= UINT8_MAX;
    case arrow::Type::UINT16:
      return value >= 0 && value <= UINT16_MAX;
    case arrow::Type::UINT32:
      return value >= 0 && value <= UINT32_MAX;
    case arrow::Type::UINT64:
      return value >= 0;
    default:
      return false;
  }
}

int64_t integer_value(const Expression& literal) {
  return literal.type->id() == arrow::Type::INT32
             ? static_cast<const arrow::Int32Scalar&>(*literal.literal).value
             : static_cast<const arrow::Int64Scalar&>(*literal.literal).value;
}

std::string overload_text(const Function& function, const Binding& binding) {
  std::string out = function.name + "(";
  for (size_t i = 0; i < binding.parameters.size(); ++i) {
    if (i) out += ", ";
    out += sql_type_name(*binding.parameters[i]);
  }
  return out + ")";
}

}  // namespace

std::optional<int> implicit_cast_cost(const Expression& expression, const arrow::DataType& type) {
  if (expression.type->Equals(type)) return 0;
  // Where everything is NULL, the types are those that are most welcome.
  constexpr int kUntyped = 100, kInteger = 90, kString = 20;
  if (is_null_type(*expression.type)) return conversion_target_cost(type) - kUntyped;
  if (is_integer_literal(expression) && is_integer_type(type)) {
    if (!integer_fits(integer_value(expression), type)) return {};
    return conversion_target_cost(type) - kInteger;
  }
  if (is_string_literal(expression)) return kString;
  return implicit_cast_cost(*expression.type, type);
}

TypePtr common_type(std::span<const ExprPtr> expressions) {
  TypePtr type;  // of those that have one
  bool strings = false;
  for (const ExprPtr& e : expressions) {
    if (is_null_type(*e->type) || is_integer_literal(*e)) continue;
    if (is_string_literal(*e)) {
      strings = true;
      continue;
    }
    type = type ? common_type(type, e->type) : e->type;
    if (!type) return nullptr;
  }
  for (const ExprPtr& e : expressions) {
    if (!is_integer_literal(*e)) continue;
    if (type && is_integer_type(*type) && integer_fits(integer_value(*e), *type)) continue;
    type = type ? common_type(type, e->type) : e->type;
    if (!type) return nullptr;
  }
  if (type) return type;
  return strings ? arrow::utf8() : arrow::null();
}

Result<Binding> resolve(const Function& function, const std::vector<ExprPtr>& arguments) {
  if (function.bind) {
    MILLSTREAM_ASSIGN(auto binding, function.bind(arguments));
    if (binding) return std::move(*binding);
  }
  const Binding* best = nullptr;
  int best_cost = 0;
  bool ambiguous = false;
  for (const Binding& overload : function.overloads) {
    if (overload.parameters.size() != arguments.size()) continue;
    int cost = 0;
    bool possible = true;
    for (size_t i = 0; i < arguments.size() && possible; ++i) {
      auto c = implicit_cast_cost(*arguments[i], *overload.parameters[i]);
      possible = c.has_value();
      cost += c.value_or(0);
    }
    if (!possible || (best && cost > best_cost)) continue;
    if (!best || cost < best_cost) {
      best = &overload;
      best_cost = cost;
      ambiguous = false;
      continue;
    }
    // Of equals the first, unless it is a text whose meaning differs.
    for (size_t i = 0; i < arguments.size(); ++i) {
      ambiguous |= is_string_literal(*arguments[i]) && !best->parameters[i]->Equals(*overload.parameters[i]);
    }
  }
  if (best && !ambiguous) return *best;
  std::vector<std::string> forms = function.forms;
  for (const Binding& overload : function.overloads) forms.push_back(overload_text(function, overload));
  std::string listed;
  for (const std::string& form : forms) listed += (listed.empty() ? "" : ", ") + form;
  if (best) {
    return query_error("{}({}) could mean several things ({}); cast the text to the type that is meant",
                       function.name, types_text(arguments), listed);
  }
  return query_error("there is no {}({}); there are: {}", function.name, types_text(arguments), listed);
}

}  // namespace millstream::expr
