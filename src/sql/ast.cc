#include "sql/ast.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sql/lexer.h"

namespace millstream::sql::ast {
namespace {

// Function names that DuckDB shows in quotes because they are words of its grammar.
bool is_quoted_function(const std::string& name) {
  static const std::vector<std::string> kNames = {
      "year",        "month",   "day",        "hour",      "minute",   "second", "millisecond",
      "microsecond", "week",    "quarter",    "decade",    "if",       "nullif", "left",
      "replace",     "right",   "position",   "substring", "trim",     "first",  "last",
      "row",         "century", "millennium", "overlay",   "translate"};
  return std::ranges::find(kNames, name) != kNames.end();
}

std::string quote_string(const std::string& text) {
  std::string result = "'";
  for (char c : text) {
    if (c == '\'') result += '\'';
    result += c;
  }
  return result + "'";
}

std::string quote_name(const std::string& name) {
  bool plain = !name.empty() && !(name[0] >= '0' && name[0] <= '9') && !is_reserved_word(name);
  for (char c : name) {
    plain = plain && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_');
  }
  if (plain) return name;
  std::string result = "\"";
  for (char c : name) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

std::string list_text(const std::vector<ExprPtr>& arguments, size_t begin, const char* separator) {
  std::string result;
  for (size_t i = begin; i < arguments.size(); ++i) {
    if (i > begin) result += separator;
    result += to_text(*arguments[i]);
  }
  return result;
}

std::string negate(bool negated, const std::string& text) {
  return negated ? fmt::format("(NOT {})", text) : text;
}

std::string binary_text(const Expr& e) {
  if (e.arguments.size() == 3) {
    return negate(e.negated, fmt::format("{}_escape({})", e.text, list_text(e.arguments, 0, ", ")));
  }
  if (e.text == "glob") {
    return negate(e.negated, fmt::format("({} ~~~ {})", to_text(*e.arguments[0]), to_text(*e.arguments[1])));
  }
  std::string name = e.text;
  if (name == "<>") name = "!=";
  if (name == "like") name = e.negated ? "!~~" : "~~";
  if (name == "ilike") name = e.negated ? "!~~*" : "~~*";
  if (name == "is_distinct_from") name = "IS DISTINCT FROM";
  if (name == "is_not_distinct_from") name = "IS NOT DISTINCT FROM";
  return fmt::format("({} {} {})", to_text(*e.arguments[0]), name, to_text(*e.arguments[1]));
}

std::string case_text(const Expr& e) {
  std::string result = "CASE ";
  size_t i = e.has_operand ? 1 : 0;
  const size_t end = e.arguments.size() - (e.has_else ? 1 : 0);
  for (; i < end; i += 2) {
    std::string when = to_text(*e.arguments[i]);
    if (e.has_operand) when = fmt::format("({} = {})", to_text(*e.arguments[0]), when);
    result += fmt::format(" WHEN ({}) THEN ({})", when, to_text(*e.arguments[i + 1]));
  }
  return fmt::format("{} ELSE {} END", result, e.has_else ? to_text(*e.arguments.back()) : "NULL");
}

std::string frame_end_text(const expr::FrameEnd& end) {
  switch (end.edge) {
    case expr::FrameEdge::kUnboundedPreceding:
      return "UNBOUNDED PRECEDING";
    case expr::FrameEdge::kPreceding:
      return fmt::format("{} PRECEDING", end.count);
    case expr::FrameEdge::kCurrentRow:
      return "CURRENT ROW";
    case expr::FrameEdge::kFollowing:
      return fmt::format("{} FOLLOWING", end.count);
    case expr::FrameEdge::kUnboundedFollowing:
      return "UNBOUNDED FOLLOWING";
  }
  return "";
}

std::string window_text(const Window& window) {
  std::vector<std::string> parts;
  if (!window.base.empty()) parts.push_back(quote_name(window.base));
  if (!window.partition_by.empty())
    parts.push_back("PARTITION BY " + list_text(window.partition_by, 0, ", "));
  std::string order;
  for (const OrderItem& item : window.order_by) {
    order += (order.empty() ? "ORDER BY " : ", ") + to_text(*item.expression);
    if (item.descending) order += " DESC";
    if (item.nulls_first) order += " NULLS FIRST";
  }
  if (!order.empty()) parts.push_back(order);
  if (window.frame) {
    const expr::FrameUnit unit = window.frame->unit;
    parts.push_back(fmt::format("{} BETWEEN {} AND {}",
                                unit == expr::FrameUnit::kRows    ? "ROWS"
                                : unit == expr::FrameUnit::kRange ? "RANGE"
                                                                  : "GROUPS",
                                frame_end_text(window.frame->begin), frame_end_text(window.frame->end)));
  }
  return fmt::format("({})", fmt::join(parts, " "));
}

}  // namespace

std::string to_text(const Expr& e) {
  switch (e.kind) {
    case ExprKind::kNull:
      return "NULL";
    case ExprKind::kBoolean:
    case ExprKind::kNumber:
      return e.text;
    case ExprKind::kString:
      return quote_string(e.text);
    case ExprKind::kBlob: {
      std::string digits;
      for (unsigned char c : e.text) digits += fmt::format("{:02X}", c);
      return fmt::format("X'{}'", digits);
    }
    case ExprKind::kInterval:
      if (e.unit.empty()) return fmt::format("CAST({} AS INTERVAL)", to_text(*e.arguments[0]));
      return fmt::format("INTERVAL ({}) {}", to_text(*e.arguments[0]), e.unit);
    case ExprKind::kColumn:
      return quote_name(e.parts.back());
    case ExprKind::kUnary:
      if (e.text == "not") return fmt::format("(NOT {})", to_text(*e.arguments[0]));
      return fmt::format("({}({}))", e.text, to_text(*e.arguments[0]));
    case ExprKind::kBinary:
      return binary_text(e);
    case ExprKind::kAnd:
      return fmt::format("({})", list_text(e.arguments, 0, " AND "));
    case ExprKind::kOr:
      return fmt::format("({})", list_text(e.arguments, 0, " OR "));
    case ExprKind::kCall: {
      const std::string over = e.over == nullptr ? "" : " OVER " + window_text(*e.over);
      if (e.unit == "*") {
        return fmt::format("{}{}(){}{}", e.text, e.over == nullptr ? "_star" : "",
                           e.filter == nullptr ? "" : fmt::format(" FILTER (WHERE {})", to_text(*e.filter)),
                           over);
      }
      std::string name = e.text;
      if (name == "coalesce" || name == "ifnull") name = "COALESCE";
      if (e.over != nullptr && (name == "first" || name == "last")) name += "_value";
      if (is_quoted_function(name)) name = fmt::format("\"{}\"", name);
      name = fmt::format("{}({}{})", name, e.distinct ? "DISTINCT " : "", list_text(e.arguments, 0, ", "));
      if (e.filter != nullptr) name += fmt::format(" FILTER (WHERE {})", to_text(*e.filter));
      return negate(e.negated, name + over);
    }
    case ExprKind::kCast:
      return fmt::format("{}({} AS {})", e.try_cast ? "TRY_CAST" : "CAST", to_text(*e.arguments[0]),
                         e.type.text);
    case ExprKind::kCase:
      return case_text(e);
    case ExprKind::kIn:
      return negate(e.negated,
                    fmt::format("({} IN ({}))", to_text(*e.arguments[0]), list_text(e.arguments, 1, ", ")));
    case ExprKind::kBetween:
      return negate(e.negated, fmt::format("({} BETWEEN {} AND {})", to_text(*e.arguments[0]),
                                           to_text(*e.arguments[1]), to_text(*e.arguments[2])));
    case ExprKind::kIsNull:
      return fmt::format("({} IS {}NULL)", to_text(*e.arguments[0]), e.negated ? "NOT " : "");
    case ExprKind::kIsTrue:
      return fmt::format("({} IS {}{})", to_text(*e.arguments[0]), e.negated ? "NOT " : "", e.text);
    case ExprKind::kSubquery:
      return fmt::format("({})", e.text);
    case ExprKind::kExists:
      return fmt::format("EXISTS({})", e.text);
    case ExprKind::kInQuery:
      return negate(e.negated, fmt::format("({} = ANY({}))", to_text(*e.arguments[0]), e.text));
  }
  return "";
}

}  // namespace millstream::sql::ast
