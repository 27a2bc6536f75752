#include "sql/binder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <arrow/util/decimal.h>

#include "base/nearest_name.h"
#include "expr/function.h"
#include "expr/text.h"
#include "expr/type.h"
#include "sql/lexer.h"
#include "sql/parser.h"

namespace millstream::sql {
namespace {

using ast::Expr;
using ast::ExprKind;

// Functions whose value is another one at every run: batches could not be made again.
constexpr std::array kVolatile = std::to_array<std::string_view>({
    "random",
    "rand",
    "uuid",
    "gen_random_uuid",
    "uuidv4",
    "uuidv7",
    "setseed",
    "now",
    "today",
    "current_date",
    "current_time",
    "current_timestamp",
    "get_current_time",
    "get_current_timestamp",
    "localtime",
    "localtimestamp",
    "transaction_timestamp",
    "nextval",
    "currval",
    "txid_current",
});

constexpr std::array kAggregates = std::to_array<std::string_view>({
    "any_value", "arg_max",  "arg_min",  "array_agg",  "avg",         "bit_and",      "bit_or",
    "bit_xor",   "bool_and", "bool_or",  "count",      "count_if",    "countif",      "count_star",
    "entropy",   "favg",     "first",    "fsum",       "geomean",     "group_concat", "histogram",
    "kurtosis",  "last",     "list",     "listagg",    "mad",         "max",          "max_by",
    "mean",      "min",      "min_by",   "product",    "regr_slope",  "regr_r2",      "regr_intercept",
    "sem",       "skewness", "stddev",   "stddev_pop", "stddev_samp", "string_agg",   "sum",
    "sumkahan",  "var_pop",  "var_samp", "variance",
});

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Status volatile_error(const SourceText& source, size_t offset, const std::string& name) {
  return source.error(
      offset, fmt::format("{} gives another value at every run, and the rows of a query must be the same "
                          "at every run",
                          name));
}

class Binder {
 public:
  Binder(const Scope& scope, const SourceText& source) : scope_(scope), source_(source) {}

  Result<expr::ExprPtr> bind(const Expr& e) {
    switch (e.kind) {
      case ExprKind::kNull:
        return literal(std::make_shared<arrow::NullScalar>(), e);
      case ExprKind::kBoolean:
        return literal(std::make_shared<arrow::BooleanScalar>(e.text == "true"), e);
      case ExprKind::kNumber:
        return number(e);
      case ExprKind::kString:
        return literal(std::make_shared<arrow::StringScalar>(e.text), e);
      case ExprKind::kBlob:
        return literal(std::make_shared<arrow::BinaryScalar>(arrow::Buffer::FromString(e.text)), e);
      case ExprKind::kInterval:
        return interval(e);
      case ExprKind::kColumn:
        return scope_.column(e, source_);
      case ExprKind::kUnary: {
        MILLSTREAM_ASSIGN(auto argument, bind(*e.arguments[0]));
        if (e.text == "+" && expr::is_numeric_type(*argument->type)) return argument;
        return call(e.text, {std::move(argument)}, e);
      }
      case ExprKind::kBinary:
        return binary(e);
      case ExprKind::kAnd:
      case ExprKind::kOr: {
        MILLSTREAM_ASSIGN(auto arguments, bind_all(e));
        return at(e, e.kind == ExprKind::kAnd ? expr::make_and(std::move(arguments), position(e))
                                              : expr::make_or(std::move(arguments), position(e)));
      }
      case ExprKind::kCall:
        return function(e);
      case ExprKind::kCast:
        return cast(e);
      case ExprKind::kCase:
        return case_when(e);
      case ExprKind::kIn: {
        MILLSTREAM_ASSIGN(auto arguments, bind_all(e));
        expr::ExprPtr value = arguments[0];
        arguments.erase(arguments.begin());
        return negate(e, at(e, expr::make_in(std::move(value), std::move(arguments), position(e))));
      }
      case ExprKind::kBetween: {
        MILLSTREAM_ASSIGN(auto arguments, bind_all(e));
        MILLSTREAM_ASSIGN(auto low, call(">=", {arguments[0], arguments[1]}, e));
        MILLSTREAM_ASSIGN(auto high, call("<=", {arguments[0], arguments[2]}, e));
        return negate(e, at(e, expr::make_and({std::move(low), std::move(high)}, position(e))));
      }
      case ExprKind::kIsNull: {
        MILLSTREAM_ASSIGN(auto argument, bind(*e.arguments[0]));
        return call(e.negated ? "is_not_null" : "is_null", {std::move(argument)}, e);
      }
      case ExprKind::kIsTrue:
        return is_true(e);
      case ExprKind::kSubquery:
      case ExprKind::kExists:
      case ExprKind::kInQuery: {
        if (scope_.subqueries() == nullptr)
          return source_.error(e.offset,
                               fmt::format("{} takes no query inside an expression", scope_.clause()));
        expr::ExprPtr operand;
        if (e.kind == ExprKind::kInQuery) {
          MILLSTREAM_ASSIGN(operand, bind(*e.arguments[0]));
        }
        return negate(e, scope_.subqueries()->bind(e, std::move(operand), scope_));
      }
    }
    return bug_error("an expression of kind {} cannot be bound", static_cast<int>(e.kind));
  }

 private:
  expr::QueryPosition position(const Expr& e) const { return source_.position(e.offset); }

  // An error of the expression layer, given its place.
  Result<expr::ExprPtr> at(const Expr& e, Result<expr::ExprPtr> result) const {
    if (result.ok()) return result;
    return source_.place(result.status(), e.offset);
  }
  Result<expr::ExprPtr> call(std::string_view name, std::vector<expr::ExprPtr> arguments,
                             const Expr& e) const {
    return at(e, expr::make_call(name, std::move(arguments), position(e)));
  }
  Result<expr::ExprPtr> literal(std::shared_ptr<arrow::Scalar> value, const Expr& e) const {
    return expr::make_literal(std::move(value), position(e));
  }
  Result<expr::ExprPtr> negate(const Expr& e, Result<expr::ExprPtr> result) const {
    if (!result.ok() || !e.negated) return result;
    return call("not", {std::move(result).ValueUnsafe()}, e);
  }
  Result<std::vector<expr::ExprPtr>> bind_all(const Expr& e) {
    std::vector<expr::ExprPtr> result;
    result.reserve(e.arguments.size());
    for (const ast::ExprPtr& written : e.arguments) {
      MILLSTREAM_ASSIGN(auto argument, bind(*written));
      result.push_back(std::move(argument));
    }
    return result;
  }

  // An integer is the narrower of INTEGER and BIGINT that holds it, or HUGEINT (DECIMAL(38,0)); with a point
  // it is a DECIMAL of just its digits; with an exponent DOUBLE.
  Result<expr::ExprPtr> number(const Expr& e) {
    const std::string& text = e.text;
    const char* end = text.data() + text.size();
    if (text.find('e') == std::string::npos) {
      if (text.find('.') == std::string::npos) {
        int64_t value = 0;
        if (std::from_chars(text.data(), end, value).ec == std::errc()) {
          if (value == static_cast<int32_t>(value)) {
            return literal(std::make_shared<arrow::Int32Scalar>(static_cast<int32_t>(value)), e);
          }
          return literal(std::make_shared<arrow::Int64Scalar>(value), e);
        }
      }
      arrow::Decimal128 value;
      int32_t precision = 0;
      int32_t scale = 0;
      std::string digits = text;
      if (digits.ends_with('.')) digits.pop_back();
      const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
      const auto width = static_cast<int32_t>(std::ranges::count_if(digits, is_digit));
      if (width <= 38 && arrow::Decimal128::FromString(digits, &value, &precision, &scale).ok()) {
        const bool whole = text.find('.') == std::string::npos;
        const auto type = expr::decimal_type(whole ? 38 : std::max(width, 1), scale);
        return literal(std::make_shared<arrow::Decimal128Scalar>(value, type), e);
      }
      if (text.find('.') == std::string::npos) {
        return source_.error(e.offset, "this number has more than 38 digits; write it as 1e40 for a DOUBLE");
      }
    }
    double value = 0;
    if (std::from_chars(text.data(), end, value).ec != std::errc()) {
      return source_.error(e.offset, fmt::format("{} is out of the range of DOUBLE", text));
    }
    return literal(std::make_shared<arrow::DoubleScalar>(value), e);
  }

  Result<expr::ExprPtr> interval(const Expr& e) {
    const Expr& quantity = *e.arguments[0];
    std::string text = quantity.text;
    if (!e.unit.empty()) {
      if (quantity.kind != ExprKind::kNumber && quantity.kind != ExprKind::kString)
        return computed_interval(e);
      // INTERVAL '1.5' DAY is one day: fractions count for seconds and milliseconds alone.
      const std::optional<double> number = expr::parse_double(quantity.text);
      const bool fractional = e.unit == "second" || e.unit == "millisecond";
      text =
          fmt::format("{:.6f} {}s", number && !fractional ? std::trunc(*number) : number.value_or(0), e.unit);
      if (!number) text.clear();
    }
    const auto value = expr::parse_interval(text);
    if (!value && e.unit.empty()) {
      return source_.error(quantity.offset,
                           fmt::format("'{}' is no interval; one is written '3 days', '1 year 2 months' or "
                                       "'01:30:00'",
                                       quantity.text));
    }
    if (!value) {
      return source_.error(quantity.offset, fmt::format("{} is no number of {}s that an interval can hold",
                                                        ast::to_text(quantity), e.unit));
    }
    const arrow::MonthDayNanoIntervalType::MonthDayNanos parts{value->months, value->days, value->nanos};
    return literal(std::make_shared<arrow::MonthDayNanoIntervalScalar>(parts), e);
  }

  // INTERVAL (expression) DAY is to_days(expression), whole units below seconds excepted.
  Result<expr::ExprPtr> computed_interval(const Expr& e) {
    MILLSTREAM_ASSIGN(auto quantity, bind(*e.arguments[0]));
    const bool fractional = e.unit == "second" || e.unit == "millisecond";
    const bool small = e.unit == "hour" || e.unit == "minute" || e.unit == "microsecond";
    MILLSTREAM_ASSIGN(quantity,
                      at(e, expr::make_cast(std::move(quantity), arrow::float64(), false, position(e))));
    if (!fractional) {
      MILLSTREAM_ASSIGN(quantity, call("trunc", {std::move(quantity)}, e));
      const expr::TypePtr type = small ? arrow::int64() : arrow::int32();
      MILLSTREAM_ASSIGN(quantity, at(e, expr::make_cast(std::move(quantity), type, false, position(e))));
    }
    std::string plural = e.unit + "s";
    if (e.unit == "century") plural = "centuries";
    if (e.unit == "millennium") plural = "millennia";
    return call("to_" + plural, {std::move(quantity)}, e);
  }

  Result<expr::ExprPtr> binary(const Expr& e) {
    MILLSTREAM_ASSIGN(auto arguments, bind_all(e));
    return negate(e, call(e.text, std::move(arguments), e));
  }

  Result<expr::ExprPtr> function(const Expr& e) {
    const std::string& name = e.text;
    if (contains(kVolatile, name)) return volatile_error(source_, e.offset, name + "()");
    if (e.over != nullptr) return window(e);
    if (const auto kind = expr::find_aggregate(name)) return aggregate(e, *kind);
    if (expr::find_window_function(name)) {
      return source_.error(e.offset, fmt::format("the window function {} needs OVER (…)", name));
    }
    if (expr::FunctionRegistry::instance().find(name) == nullptr && contains(kAggregates, name)) {
      return source_.error(e.offset, fmt::format("the aggregate function {}() is not supported yet", name));
    }
    if (e.distinct || e.filter != nullptr) {
      return source_.error(e.offset, fmt::format("{} is for aggregates, and {} is none",
                                                 e.distinct ? "DISTINCT" : "FILTER", name));
    }
    if (e.unit == "*") return source_.error(e.offset, fmt::format("{}(*) is no function", name));
    MILLSTREAM_ASSIGN(auto arguments, bind_all(e));
    const auto expect_arguments = [&](size_t count, const char* form) -> Status {
      if (arguments.size() == count) return Status::OK();
      return source_.error(
          e.offset, fmt::format("{} takes {} arguments, not {}: {}", name, count, arguments.size(), form));
    };
    if (name == "coalesce" || name == "ifnull") {
      if (name == "ifnull") MILLSTREAM_TRY(expect_arguments(2, "ifnull(value, instead)"));
      if (arguments.empty()) return source_.error(e.offset, "coalesce takes at least one argument");
      return at(e, expr::make_coalesce(std::move(arguments), position(e)));
    }
    if (name == "if") {
      MILLSTREAM_TRY(expect_arguments(3, "if(condition, then, else)"));
      return at(e, expr::make_case({arguments[0], arguments[1]}, arguments[2], position(e)));
    }
    return negate(e, call(name, std::move(arguments), e));
  }

  static bool is_star(const Expr& e, expr::AggregateKind kind) {
    return e.unit == "*" || (kind == expr::AggregateKind::kCount && e.arguments.empty());
  }
  Status check_aggregate_arguments(const Expr& e, expr::AggregateKind kind) const {
    const bool star = is_star(e, kind);
    const bool pair = expr::has_two_arguments(kind), fraction = expr::has_fraction(kind);
    if (star ? kind == expr::AggregateKind::kCount : e.arguments.size() == (pair || fraction ? 2U : 1U))
      return Status::OK();
    if (star) return source_.error(e.offset, fmt::format("{}(*) is no aggregate; there is count(*)", e.text));
    return source_.error(e.offset, fmt::format("{} takes {}, not {}", e.text,
                                               pair       ? "two arguments"
                                               : fraction ? "a value and a fraction"
                                                          : "one argument",
                                               e.arguments.size()));
  }

  // What stands in the parentheses of an aggregate that is no count(*), of the types that it takes.
  Status bind_aggregate_arguments(const Expr& e, expr::AggregateKind kind, expr::ExprPtr& argument,
                                  expr::ExprPtr& second, double& fraction, expr::TypePtr& result) {
    const auto bind_argument = [&](const Expr& written, expr::ExprPtr& bound) -> Status {
      MILLSTREAM_ASSIGN(bound, bind(written));
      auto types = expr::aggregate_types(kind, bound->type);
      if (!types.ok()) return source_.place(types.status(), e.offset);
      result = types->result;
      if (types->argument->Equals(*bound->type)) return Status::OK();
      MILLSTREAM_ASSIGN(bound, at(e, expr::make_cast(bound, types->argument, false, position(e))));
      return Status::OK();
    };
    MILLSTREAM_TRY(bind_argument(*e.arguments[0], argument));
    if (expr::has_two_arguments(kind)) {
      if (e.distinct)
        return source_.error(e.offset, fmt::format("DISTINCT in {} is not supported yet", e.text));
      return bind_argument(*e.arguments[1], second);
    }
    if (!expr::has_fraction(kind)) return Status::OK();
    const Expr& written = *e.arguments[1];
    MILLSTREAM_ASSIGN(auto bound, bind(written));
    if (expr::columns_read(*bound).empty() &&
        (expr::is_numeric_type(*bound->type) && !expr::is_null_type(*bound->type))) {
      MILLSTREAM_ASSIGN(bound,
                        at(written, expr::make_cast(bound, arrow::float64(), false, position(written))));
      const auto row = arrow::RecordBatch::Make(arrow::schema(arrow::FieldVector{}), 1, arrow::ArrayVector{});
      const auto value = expr::evaluate(*bound, *row);
      if (!value.ok()) return source_.place(value.status(), written.offset);
      fraction = static_cast<const arrow::DoubleArray&>(**value).Value(0);
      if ((*value)->IsValid(0) && fraction >= 0 && fraction <= 1) return Status::OK();
    }
    return source_.error(
        written.offset,
        fmt::format("the fraction of {} is a number between 0 and 1 that is written out", e.text));
  }

  // A bare NULL is an INTEGER where values are kept.
  Result<expr::ExprPtr> typed(const Expr& e) {
    MILLSTREAM_ASSIGN(auto bound, bind(e));
    if (!expr::is_null_type(*bound->type)) return bound;
    return at(e, expr::make_cast(std::move(bound), arrow::int32(), false, position(e)));
  }

  Result<int64_t> whole_number(const Expr& e, const std::string& what) {
    MILLSTREAM_ASSIGN(const auto bound, bind(e));
    if (bound->kind == expr::Kind::kLiteral && bound->literal->is_valid) {
      if (bound->type->id() == arrow::Type::INT32)
        return static_cast<const arrow::Int32Scalar&>(*bound->literal).value;
      if (bound->type->id() == arrow::Type::INT64)
        return static_cast<const arrow::Int64Scalar&>(*bound->literal).value;
    }
    return source_.error(e.offset, fmt::format("{} is a whole number that is written out", what));
  }

  Result<expr::ExprPtr> window(const Expr& e) {
    WindowCollector* collector = scope_.windows();
    if (collector == nullptr)
      return source_.error(e.offset, fmt::format("{} cannot contain window functions", scope_.clause()));
    if (collector->inside) return source_.error(e.offset, "window functions cannot be nested");
    if (scope_.aggregates() != nullptr && scope_.aggregates()->inside)
      return source_.error(e.offset, "aggregate function calls cannot contain window functions");
    WindowExpression call;
    collector->inside = true;
    const Status status = bind_window(e, *collector, call);
    collector->inside = false;
    MILLSTREAM_TRY(status);
    size_t index = 0;
    while (index < collector->calls.size() && !same_window(collector->calls[index], call)) ++index;
    const bool never_null = call.argument == nullptr || call.aggregate == expr::AggregateKind::kCount;
    const auto field = arrow::field(ast::to_text(e), call.result, !never_null);
    if (index == collector->calls.size()) collector->calls.push_back(std::move(call));
    return negate(e,
                  expr::make_column(collector->first_column + static_cast<int>(index), *field, position(e)));
  }

  static bool same_window(const WindowExpression& a, const WindowExpression& b) {
    const auto same = [](const expr::ExprPtr& x, const expr::ExprPtr& y) {
      return x == nullptr || y == nullptr ? x == y : same_expression(*x, *y);
    };
    return a.function == b.function && a.aggregate == b.aggregate && a.number == b.number &&
           a.frame == b.frame && a.fraction == b.fraction && same(a.argument, b.argument) &&
           same(a.second, b.second) && same(a.otherwise, b.otherwise) && same(a.filter, b.filter) &&
           std::ranges::equal(a.partition_by, b.partition_by, same) &&
           std::ranges::equal(a.order_by, b.order_by, [&](const auto& x, const auto& y) {
             return x.descending == y.descending && x.nulls_first == y.nulls_first &&
                    same(x.expression, y.expression);
           });
  }

  Status bind_window(const Expr& e, WindowCollector& collector, WindowExpression& call) {
    using expr::WindowFunction;
    const auto function = expr::find_window_function(e.text);
    const auto aggregate = expr::find_aggregate(e.text);
    if (!function && !aggregate) {
      const bool known = contains(kAggregates, e.text);
      return source_.error(e.offset,
                           known ? fmt::format("the aggregate function {}() is not supported yet", e.text)
                                 : fmt::format("{} is no window function and no aggregate", e.text));
    }
    if (e.distinct) return source_.error(e.offset, "DISTINCT in a window function is not supported yet");
    call.function = function.value_or(WindowFunction::kAggregate);
    const size_t count = e.arguments.size();
    const auto expect = [&](size_t least, size_t most, const char* form) -> Status {
      if (e.unit != "*" && count >= least && count <= most) return Status::OK();
      return source_.error(e.offset, fmt::format("{} is called as {}", e.text, form));
    };
    if (function && e.filter != nullptr)
      return source_.error(e.offset, fmt::format("FILTER is for aggregates, and {} is none", e.text));
    call.result = arrow::int64();
    switch (call.function) {
      case WindowFunction::kPercentRank:
      case WindowFunction::kCumeDist:
        call.result = arrow::float64();
        [[fallthrough]];
      case WindowFunction::kRowNumber:
      case WindowFunction::kRank:
      case WindowFunction::kDenseRank:
        MILLSTREAM_TRY(expect(0, 0, (e.text + "()").c_str()));
        break;
      case WindowFunction::kNtile: {
        MILLSTREAM_TRY(expect(1, 1, "ntile(parts)"));
        MILLSTREAM_ASSIGN(call.number, whole_number(*e.arguments[0], "the number of parts"));
        if (call.number < 1)
          return source_.error(e.arguments[0]->offset, "the number of parts is greater than zero");
        break;
      }
      case WindowFunction::kLag:
      case WindowFunction::kLead: {
        MILLSTREAM_TRY(expect(1, 3, (e.text + "(value[, rows[, default]])").c_str()));
        MILLSTREAM_ASSIGN(call.argument, typed(*e.arguments[0]));
        if (count > 1) {
          MILLSTREAM_ASSIGN(call.number, whole_number(*e.arguments[1], "the number of rows"));
        }
        if (count > 2) {
          MILLSTREAM_ASSIGN(call.otherwise, bind(*e.arguments[2]));
          MILLSTREAM_ASSIGN(call.otherwise,
                            at(*e.arguments[2], expr::make_cast(call.otherwise, call.argument->type, false,
                                                                position(*e.arguments[2]))));
        }
        call.result = call.argument->type;
        break;
      }
      case WindowFunction::kFirstValue:
      case WindowFunction::kLastValue:
      case WindowFunction::kNthValue: {
        const bool nth = call.function == WindowFunction::kNthValue;
        MILLSTREAM_TRY(nth ? expect(2, 2, "nth_value(value, row)")
                           : expect(1, 1, (e.text + "(value)").c_str()));
        MILLSTREAM_ASSIGN(call.argument, typed(*e.arguments[0]));
        if (nth) {
          MILLSTREAM_ASSIGN(call.number, whole_number(*e.arguments[1], "the row of nth_value"));
        }
        call.result = call.argument->type;
        break;
      }
      case WindowFunction::kAggregate: {
        MILLSTREAM_TRY(check_aggregate_arguments(e, *aggregate));
        call.aggregate = is_star(e, *aggregate) ? expr::AggregateKind::kCountStar : *aggregate;
        if (call.aggregate != expr::AggregateKind::kCountStar) {
          MILLSTREAM_TRY(bind_aggregate_arguments(e, *aggregate, call.argument, call.second, call.fraction,
                                                  call.result));
        }
        if (e.filter != nullptr) {
          MILLSTREAM_ASSIGN(call.filter, bind_predicate(*e.filter, scope_, source_, "FILTER"));
        }
        break;
      }
    }
    MILLSTREAM_TRY(
        bind_over(*e.over, collector, collector.named == nullptr ? 0 : collector.named->size(), call));
    // All rows are equal where nothing orders them.
    if (call.order_by.empty() && call.frame.unit == expr::FrameUnit::kRange) {
      call.frame.begin.edge = expr::FrameEdge::kUnboundedPreceding;
      call.frame.end.edge = expr::FrameEdge::kUnboundedFollowing;
    }
    return Status::OK();
  }

  // The window itself; of the WINDOW clause it sees the first `visible` ones.
  Status bind_over(const ast::Window& window, const WindowCollector& collector, size_t visible,
                   WindowExpression& call) {
    if (!window.base.empty()) {
      std::vector<std::string> names;
      const ast::NamedWindow* base = nullptr;
      size_t index = 0;
      for (; index < visible && base == nullptr; ++index) {
        const ast::NamedWindow& named = (*collector.named)[index];
        names.push_back(named.name);
        if (equals_ignoring_case(named.name, window.base)) base = &named;
      }
      if (base == nullptr) {
        return source_.error(window.offset, fmt::format("there is no window '{}'{}", window.base,
                                                        names.empty() ? "; WINDOW name AS (…) defines one"
                                                                      : name_hint(window.base, names)));
      }
      MILLSTREAM_TRY(bind_over(base->window, collector, index - 1, call));
      if (!window.partition_by.empty())
        return source_.error(window.offset,
                             fmt::format("the window '{}' says what PARTITION BY is", window.base));
      if (!window.order_by.empty() && !call.order_by.empty())
        return source_.error(window.offset, fmt::format("the window '{}' has an ORDER BY", window.base));
    }
    const auto key = [&](const Expr& e, const char* clause) -> Result<expr::ExprPtr> {
      MILLSTREAM_ASSIGN(auto bound, typed(e));
      if (expr::is_orderable_type(*bound->type)) return bound;
      return source_.error(
          e.offset, fmt::format("{} takes no values of type {}", clause, expr::sql_type_name(*bound->type)));
    };
    for (const auto& written : window.partition_by) {
      MILLSTREAM_ASSIGN(auto bound, key(*written, "PARTITION BY"));
      call.partition_by.push_back(std::move(bound));
    }
    for (const ast::OrderItem& item : window.order_by) {
      MILLSTREAM_ASSIGN(auto bound, key(*item.expression, "ORDER BY"));
      call.order_by.push_back({std::move(bound), item.descending, item.nulls_first});
    }
    if (window.frame) call.frame = *window.frame;
    return Status::OK();
  }

  Result<expr::ExprPtr> aggregate(const Expr& e, expr::AggregateKind kind) {
    AggregateCollector* collector = scope_.aggregates();
    if (collector == nullptr)
      return source_.error(e.offset, fmt::format("{} cannot contain aggregates", scope_.clause()));
    if (collector->inside) return source_.error(e.offset, "aggregate function calls cannot be nested");
    MILLSTREAM_TRY(check_aggregate_arguments(e, kind));
    // Of values that count once each, all are the most frequent one.
    if (e.distinct && kind == expr::AggregateKind::kMode) kind = expr::AggregateKind::kAnyValue;
    const bool star = is_star(e, kind);
    if (star && e.distinct) return source_.error(e.offset, "DISTINCT needs an argument: count(DISTINCT x)");
    AggregateExpression call;
    call.kind = star ? expr::AggregateKind::kCountStar : kind;
    call.result = arrow::int64();
    collector->inside = true;
    const auto bind_parts = [&]() -> Status {
      if (!star) {
        MILLSTREAM_TRY(
            bind_aggregate_arguments(e, kind, call.argument, call.second, call.fraction, call.result));
        // count of what is never NULL counts rows.
        if (kind == expr::AggregateKind::kCount && !call.argument->nullable && !e.distinct) {
          call.kind = expr::AggregateKind::kCountStar;
          call.argument = nullptr;
        }
        call.distinct = e.distinct && expr::distinct_matters(kind);
      }
      if (e.filter != nullptr) {
        MILLSTREAM_ASSIGN(call.filter, bind_predicate(*e.filter, scope_, source_, "FILTER"));
      }
      return Status::OK();
    };
    const Status status = bind_parts();
    collector->inside = false;
    MILLSTREAM_TRY(status);
    const auto same = [](const expr::ExprPtr& a, const expr::ExprPtr& b) {
      return a == nullptr || b == nullptr ? a == b : same_expression(*a, *b);
    };
    size_t index = 0;
    for (; index < collector->calls.size(); ++index) {
      const AggregateExpression& known = collector->calls[index];
      if (known.kind == call.kind && known.distinct == call.distinct && same(known.argument, call.argument) &&
          same(known.second, call.second) && known.fraction == call.fraction &&
          same(known.filter, call.filter)) {
        break;
      }
    }
    const bool count = kind == expr::AggregateKind::kCount;
    const auto field = arrow::field(ast::to_text(e), call.result, !count);
    if (index == collector->calls.size()) collector->calls.push_back(std::move(call));
    return expr::make_column(collector->first_column + static_cast<int>(index), *field, position(e));
  }

  Result<expr::ExprPtr> cast(const Expr& e) {
    MILLSTREAM_ASSIGN(auto operand, bind(*e.arguments[0]));
    MILLSTREAM_ASSIGN(auto result,
                      at(e, expr::make_cast(std::move(operand), e.type.type, e.try_cast, position(e))));
    // DATE '2024-02-30' is wrong now, not at the first row. Integers and strings stay casts: as literals they
    // would adapt to the types around them.
    if (e.arguments[0]->kind != ExprKind::kString || expr::is_string_type(*e.type.type) ||
        expr::is_integer_type(*e.type.type)) {
      return result;
    }
    const auto empty = arrow::RecordBatch::Make(arrow::schema(arrow::FieldVector{}), 1, arrow::ArrayVector{});
    const auto value = expr::evaluate(*result, *empty);
    if (!value.ok()) {
      if (error_category(value.status()) == ErrorCategory::kBug) return value.status();
      return source_.error(e.arguments[0]->offset, value.status().message());
    }
    MILLSTREAM_ASSIGN(auto scalar, (*value)->GetScalar(0));
    return literal(std::move(scalar), e);
  }

  Result<expr::ExprPtr> case_when(const Expr& e) {
    expr::ExprPtr operand;
    size_t i = 0;
    if (e.has_operand) {
      MILLSTREAM_ASSIGN(operand, bind(*e.arguments[0]));
      i = 1;
    }
    std::vector<expr::ExprPtr> arms;
    const size_t end = e.arguments.size() - (e.has_else ? 1 : 0);
    for (; i < end; i += 2) {
      MILLSTREAM_ASSIGN(auto when, bind(*e.arguments[i]));
      if (operand != nullptr) {
        MILLSTREAM_ASSIGN(when, call("=", {operand, std::move(when)}, *e.arguments[i]));
      }
      MILLSTREAM_ASSIGN(auto then, bind(*e.arguments[i + 1]));
      arms.push_back(std::move(when));
      arms.push_back(std::move(then));
    }
    expr::ExprPtr otherwise;
    if (e.has_else) {
      MILLSTREAM_ASSIGN(otherwise, bind(*e.arguments.back()));
    }
    return at(e, expr::make_case(std::move(arms), std::move(otherwise), position(e)));
  }

  // x IS TRUE is never NULL.
  Result<expr::ExprPtr> is_true(const Expr& e) {
    MILLSTREAM_ASSIGN(auto argument, bind(*e.arguments[0]));
    MILLSTREAM_ASSIGN(argument,
                      at(e, expr::make_cast(std::move(argument), arrow::boolean(), false, position(e))));
    if (e.text == "unknown") return call(e.negated ? "is_not_null" : "is_null", {std::move(argument)}, e);
    MILLSTREAM_ASSIGN(auto value, literal(std::make_shared<arrow::BooleanScalar>(e.text == "true"), e));
    return call(e.negated ? "is_distinct_from" : "is_not_distinct_from",
                {std::move(argument), std::move(value)}, e);
  }

  const Scope& scope_;
  const SourceText& source_;
};

}  // namespace

void Scope::add_table(std::string name, std::shared_ptr<arrow::Schema> schema) {
  const int first = tables_.empty() ? 0 : tables_.back().first_column + tables_.back().schema->num_fields();
  tables_.push_back({std::move(name), std::move(schema), first});
}

std::vector<std::string> Scope::known_names(const std::string& table) const {
  std::vector<std::string> names;
  for (const Table& candidate : tables_) {
    if (!table.empty() && !equals_ignoring_case(candidate.name, table)) continue;
    for (const auto& field : candidate.schema->fields()) names.push_back(field->name());
  }
  if (items_ != nullptr && table.empty()) {
    for (size_t i = 0; i < std::min(visible_items_, items_->size()); ++i) {
      if (!(*items_)[i].alias.empty()) names.push_back((*items_)[i].alias);
    }
  }
  return names;
}

// The column that is written so, else the one that differs in case alone.
Result<expr::ExprPtr> Scope::find_in(const Table& table, const std::string& name, const Expr& reference,
                                     const SourceText& source) const {
  int found = -1;
  for (int i = 0; i < table.schema->num_fields(); ++i) {
    const std::string& field = table.schema->field(i)->name();
    if (field == name) {
      found = i;
      break;
    }
    if (!equals_ignoring_case(field, name)) continue;
    if (found >= 0) {
      return source.error(reference.offset,
                          fmt::format("'{}' may be the column '{}' or the column '{}'; write it as it is",
                                      name, table.schema->field(found)->name(), field));
    }
    found = i;
  }
  if (found < 0) return nullptr;
  return expr::make_column(table.first_column + found, *table.schema->field(found),
                           source.position(reference.offset));
}

Result<expr::ExprPtr> Scope::alias(size_t item, const SourceText& source) const {
  if (const auto known = bound_aliases_.find(item); known != bound_aliases_.end()) return known->second;
  // An alias sees those before it, so chains of them end.
  Scope earlier;
  earlier.tables_ = tables_;
  earlier.items_ = items_;
  earlier.visible_items_ = item;
  earlier.aggregates_ = aggregates_;
  earlier.clause_ = clause_;
  earlier.windows_ = windows_;
  earlier.subqueries_ = subqueries_;
  earlier.outer_ = outer_;
  earlier.bound_aliases_ = bound_aliases_;
  MILLSTREAM_ASSIGN(auto bound, bind_expression(*(*items_)[item].expression, earlier, source));
  bound_aliases_.insert(earlier.bound_aliases_.begin(), earlier.bound_aliases_.end());
  bound_aliases_.emplace(item, bound);
  return bound;
}

bool Scope::knows(const Expr& reference) const {
  for (const Table& table : tables_) {
    if (reference.parts.size() > 1 && !equals_ignoring_case(table.name, reference.parts[0])) continue;
    for (const auto& field : table.schema->fields())
      if (equals_ignoring_case(field->name(), reference.parts.back())) return true;
  }
  return outer_ != nullptr && outer_->knows(reference);
}

// A query in an expression is run once, before the rows around it are known.
Status Scope::correlated(const Expr& reference, const SourceText& source) const {
  if (outer_ == nullptr || !outer_->knows(reference)) return Status::OK();
  return source.error(
      reference.offset,
      fmt::format("'{}' belongs to the query around this one; a query in an expression that reads "
                  "the rows around it is not supported, a JOIN can say the same",
                  reference.parts.back()));
}

Result<expr::ExprPtr> Scope::column(const Expr& reference, const SourceText& source) const {
  const std::vector<std::string>& parts = reference.parts;
  if (parts.size() == 1) {
    const std::string& name = parts[0];
    expr::ExprPtr found;
    for (const Table& table : tables_) {
      MILLSTREAM_ASSIGN(auto here, find_in(table, name, reference, source));
      if (here == nullptr) continue;
      if (found != nullptr)
        return source.error(reference.offset,
                            fmt::format("several tables have a column '{}'; write table.{}", name, name));
      found = std::move(here);
    }
    if (found != nullptr) return found;
    if (items_ != nullptr) {
      for (size_t i = 0; i < items_->size(); ++i) {
        const ast::SelectItem& item = (*items_)[i];
        if (item.expression == nullptr || !equals_ignoring_case(item.alias, name)) continue;
        if (i < visible_items_) return alias(i, source);
        return source.error(
            reference.offset,
            fmt::format("'{}' is defined further on in the SELECT list; an item may use those before it",
                        name));
      }
    }
    if (contains(kVolatile, to_lower(name))) return volatile_error(source, reference.offset, name);
    MILLSTREAM_TRY(correlated(reference, source));
    return source.error(reference.offset,
                        fmt::format("there is no column '{}'{}", name, name_hint(name, known_names(""))));
  }
  for (const Table& table : tables_) {
    if (!equals_ignoring_case(table.name, parts[0])) continue;
    if (parts.size() > 2)
      return source.error(reference.offset, "taking a field of a struct is not supported yet");
    MILLSTREAM_ASSIGN(auto found, find_in(table, parts[1], reference, source));
    if (found != nullptr) return found;
    return source.error(reference.offset,
                        fmt::format("the table '{}' has no column '{}'{}", parts[0], parts[1],
                                    name_hint(parts[1], known_names(table.name))));
  }
  for (const Table& table : tables_) {
    MILLSTREAM_ASSIGN(auto found, find_in(table, parts[0], reference, source));
    if (found != nullptr)
      return source.error(reference.offset, "taking a field of a struct is not supported yet");
  }
  MILLSTREAM_TRY(correlated(reference, source));
  std::vector<std::string> names;
  for (const Table& table : tables_) {
    if (!table.name.empty()) names.push_back(table.name);
  }
  return source.error(reference.offset,
                      fmt::format("there is no table '{}'{}", parts[0], name_hint(parts[0], names)));
}

Result<expr::ExprPtr> bind_expression(const Expr& expression, const Scope& scope, const SourceText& source) {
  return Binder(scope, source).bind(expression);
}

bool same_expression(const expr::Expression& a, const expr::Expression& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.column != b.column || a.try_cast != b.try_cast || a.function != b.function ||
      !a.type->Equals(*b.type) || a.arguments.size() != b.arguments.size()) {
    return false;
  }
  if ((a.literal == nullptr) != (b.literal == nullptr)) return false;
  if (a.literal != nullptr && !a.literal->Equals(*b.literal)) return false;
  for (size_t i = 0; i < a.arguments.size(); ++i)
    if (!same_expression(*a.arguments[i], *b.arguments[i])) return false;
  return true;
}

Result<expr::ExprPtr> bind_predicate(const Expr& expression, const Scope& scope, const SourceText& source,
                                     const char* clause) {
  MILLSTREAM_ASSIGN(auto bound, bind_expression(expression, scope, source));
  if (bound->type->id() == arrow::Type::BOOL) return bound;
  if (!expr::is_numeric_type(*bound->type) && !expr::is_null_type(*bound->type)) {
    return source.error(expression.offset, fmt::format("{} needs a condition, which is BOOLEAN; this is {}",
                                                       clause, expr::sql_type_name(*bound->type)));
  }
  auto cast = expr::make_cast(std::move(bound), arrow::boolean(), false, source.position(expression.offset));
  if (cast.ok()) return cast;
  return source.place(cast.status(), expression.offset);
}

Result<expr::ExprPtr> bind_text(const std::string& text, const std::shared_ptr<arrow::Schema>& schema,
                                const std::string& name) {
  const SourceText source(name, text);
  MILLSTREAM_ASSIGN(auto parsed, parse_expression(source));
  Scope scope;
  scope.add_table("", schema);
  return bind_expression(*parsed, scope, source);
}

}  // namespace millstream::sql
