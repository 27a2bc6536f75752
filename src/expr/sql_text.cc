// Expressions as SQL text that binds to them again.

#include <arrow/api.h>

#include "expr/expression.h"
#include "expr/function.h"
#include "expr/kernel.h"
#include "expr/text.h"

namespace millstream::expr {

namespace {

std::string cast_text(std::string_view inner, const arrow::DataType& type, bool try_cast = false) {
  return fmt::format("{}({} AS {})", try_cast ? "TRY_CAST" : "CAST", inner, sql_type_name(type));
}

/// The digits of a decimal literal as the parser counts them.
int literal_digits(std::string_view text) {
  int digits = 0;
  for (char c : text) digits += c >= '0' && c <= '9';
  return digits;
}

std::string literal_text(const arrow::Scalar& scalar) {
  const arrow::DataType& type = *scalar.type;
  if (!scalar.is_valid) return is_null_type(type) ? "NULL" : cast_text("NULL", type);
  auto array = arrow::MakeArrayFromScalar(scalar, 1);
  if (!array.ok()) return scalar.ToString();
  std::string text;
  switch (type.id()) {
    case arrow::Type::STRING: {
      append_quoted(text, static_cast<const arrow::StringScalar&>(scalar).view(), '\'');
      return text;
    }
    case arrow::Type::BINARY: {
      text = "'";
      for (char c : static_cast<const arrow::BinaryScalar&>(scalar).view()) {
        fmt::format_to(std::back_inserter(text), "\\x{:02X}", static_cast<unsigned char>(c));
      }
      return text + "'::BLOB";
    }
    default:
      text = value_text({(*array)->data(), true}, 0);
  }
  switch (type.id()) {
    case arrow::Type::BOOL:
    case arrow::Type::INT32:
      return text;
    case arrow::Type::INT64: {
      int64_t value = static_cast<const arrow::Int64Scalar&>(scalar).value;
      bool bare = value > INT32_MAX || (value < INT32_MIN && value != INT64_MIN);
      return bare ? text : cast_text(value == INT64_MIN ? "'" + text + "'" : text, type);
    }
    case arrow::Type::DOUBLE:
      if (text.find_first_of("ni") != std::string::npos) return cast_text("'" + text + "'", type);
      return text.find('e') == std::string::npos ? text + "e0" : text;
    case arrow::Type::DECIMAL128:
      if (decimal_scale(type) > 0 && literal_digits(text) == decimal_width(type)) return text;
      return cast_text("'" + text + "'", type);
    case arrow::Type::DATE32:
      return "DATE '" + text + "'";
    case arrow::Type::TIMESTAMP:
      if (type.Equals(*timestamp_type())) return "TIMESTAMP '" + text + "'";
      return cast_text("'" + text + "'", type);
    case arrow::Type::INTERVAL_MONTH_DAY_NANO:
      return "INTERVAL '" + text + "'";
    default:
      return cast_text("'" + text + "'", type);
  }
}

std::string listed(const std::vector<ExprPtr>& expressions, size_t first, const char* separator) {
  std::string out;
  for (size_t i = first; i < expressions.size(); ++i) {
    if (i > first) out += separator;
    out += expressions[i]->to_sql();
  }
  return out;
}

std::string call_text(const Expression& e) {
  const std::string& symbol = e.function->symbol.empty() ? e.function->name : e.function->symbol;
  if (e.function->notation == Notation::kInfix && e.arguments.size() == 2) {
    return fmt::format("({} {} {})", e.arguments[0]->to_sql(), symbol, e.arguments[1]->to_sql());
  }
  if (e.function->notation == Notation::kInfix && e.arguments.size() == 3) {  // LIKE
    return fmt::format("({} {} {} ESCAPE {})", e.arguments[0]->to_sql(), symbol, e.arguments[1]->to_sql(),
                       e.arguments[2]->to_sql());
  }
  if (e.function->notation == Notation::kPostfix)
    return fmt::format("({} {})", e.arguments[0]->to_sql(), symbol);
  if (e.function->notation != Notation::kCall && e.arguments.size() == 1) {
    return fmt::format("({} {})", symbol, e.arguments[0]->to_sql());
  }
  return fmt::format("{}({})", e.function->name, listed(e.arguments, 0, ", "));
}

}  // namespace

std::string Expression::to_sql() const {
  switch (kind) {
    case Kind::kLiteral:
      return written ? written->to_sql() : literal_text(*literal);
    case Kind::kColumn: {
      std::string out;
      append_quoted(out, name, '"');
      return out;
    }
    case Kind::kCall:
      return call_text(*this);
    case Kind::kCast:
      return implicit ? arguments[0]->to_sql() : cast_text(arguments[0]->to_sql(), *type, try_cast);
    case Kind::kAnd:
      return "(" + listed(arguments, 0, " AND ") + ")";
    case Kind::kOr:
      return "(" + listed(arguments, 0, " OR ") + ")";
    case Kind::kCase: {
      std::string out = "CASE";
      for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
        out += fmt::format(" WHEN {} THEN {}", arguments[i]->to_sql(), arguments[i + 1]->to_sql());
      }
      return out + fmt::format(" ELSE {} END", arguments.back()->to_sql());
    }
    case Kind::kCoalesce:
      return "coalesce(" + listed(arguments, 0, ", ") + ")";
    case Kind::kIn:
      return fmt::format("({} IN ({}))", arguments[0]->to_sql(), listed(arguments, 1, ", "));
  }
  return name;
}

}  // namespace millstream::expr
