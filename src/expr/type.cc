// Names, canonical forms and promotions of types.

#include "expr/type.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <arrow/api.h>

#include "base/nearest_name.h"

namespace millstream::expr {

namespace {

constexpr int kMaxDecimalWidth = 38;
constexpr int kDefaultDecimalWidth = 18;
constexpr int kDefaultDecimalScale = 3;

struct NamedType {
  const char* name;
  TypePtr type;
};

const std::vector<NamedType>& named_types() {
  static const auto* names = [] {
    auto huge = arrow::decimal128(kMaxDecimalWidth, 0);
    return new std::vector<NamedType>{
        {"BOOLEAN", arrow::boolean()},
        {"BOOL", arrow::boolean()},
        {"LOGICAL", arrow::boolean()},
        {"TINYINT", arrow::int8()},
        {"INT1", arrow::int8()},
        {"SMALLINT", arrow::int16()},
        {"INT2", arrow::int16()},
        {"SHORT", arrow::int16()},
        {"INT16", arrow::int16()},
        {"INTEGER", arrow::int32()},
        {"INT", arrow::int32()},
        {"INT4", arrow::int32()},
        {"INT32", arrow::int32()},
        {"SIGNED", arrow::int32()},
        {"INTEGRAL", arrow::int32()},
        {"BIGINT", arrow::int64()},
        {"INT8", arrow::int64()},
        {"LONG", arrow::int64()},
        {"INT64", arrow::int64()},
        {"OID", arrow::int64()},
        {"HUGEINT", huge},
        {"INT128", huge},
        {"UTINYINT", arrow::uint8()},
        {"UINT8", arrow::uint8()},
        {"USMALLINT", arrow::uint16()},
        {"UINT16", arrow::uint16()},
        {"UINTEGER", arrow::uint32()},
        {"UINT32", arrow::uint32()},
        {"UBIGINT", arrow::uint64()},
        {"UINT64", arrow::uint64()},
        {"FLOAT", arrow::float32()},
        {"FLOAT4", arrow::float32()},
        {"REAL", arrow::float32()},
        {"DOUBLE", arrow::float64()},
        {"DOUBLE PRECISION", arrow::float64()},
        {"FLOAT8", arrow::float64()},
        {"DECIMAL", arrow::decimal128(kDefaultDecimalWidth, kDefaultDecimalScale)},
        {"NUMERIC", arrow::decimal128(kDefaultDecimalWidth, kDefaultDecimalScale)},
        {"DEC", arrow::decimal128(kDefaultDecimalWidth, kDefaultDecimalScale)},
        {"VARCHAR", arrow::utf8()},
        {"CHAR", arrow::utf8()},
        {"BPCHAR", arrow::utf8()},
        {"NVARCHAR", arrow::utf8()},
        {"TEXT", arrow::utf8()},
        {"STRING", arrow::utf8()},
        {"BLOB", arrow::binary()},
        {"BYTEA", arrow::binary()},
        {"BINARY", arrow::binary()},
        {"VARBINARY", arrow::binary()},
        {"DATE", arrow::date32()},
        {"TIME", arrow::time64(arrow::TimeUnit::MICRO)},
        {"TIME WITHOUT TIME ZONE", arrow::time64(arrow::TimeUnit::MICRO)},
        {"TIMESTAMP", timestamp_type()},
        {"DATETIME", timestamp_type()},
        {"TIMESTAMP_US", timestamp_type()},
        {"TIMESTAMP WITHOUT TIME ZONE", timestamp_type()},
        {"TIMESTAMP_S", arrow::timestamp(arrow::TimeUnit::SECOND)},
        {"TIMESTAMP_MS", arrow::timestamp(arrow::TimeUnit::MILLI)},
        {"TIMESTAMP_NS", arrow::timestamp(arrow::TimeUnit::NANO)},
        {"TIMESTAMPTZ", timestamp_with_zone_type()},
        {"TIMESTAMP WITH TIME ZONE", timestamp_with_zone_type()},
        {"INTERVAL", arrow::month_day_nano_interval()},
    };
  }();
  return *names;
}

/// Upper case, runs of spaces as one, none at the ends or inside parentheses.
std::string normal_name(std::string_view text) {
  std::string out;
  int depth = 0;
  for (char c : text) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (depth == 0 && !out.empty() && out.back() != ' ') out += ' ';
      continue;
    }
    if (c == '(') {
      if (!out.empty() && out.back() == ' ') out.pop_back();
      ++depth;
    }
    if (c == ')') --depth;
    out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

int integer_digits(arrow::Type::type id) {
  switch (id) {
    case arrow::Type::INT8:
    case arrow::Type::UINT8:
      return 3;
    case arrow::Type::INT16:
    case arrow::Type::UINT16:
      return 5;
    case arrow::Type::INT32:
    case arrow::Type::UINT32:
      return 10;
    case arrow::Type::INT64:
      return 19;
    default:
      return 20;
  }
}

int bit_width(const arrow::DataType& type) {
  return static_cast<const arrow::FixedWidthType&>(type).bit_width();
}

arrow::TimeUnit::type unit_of(const arrow::DataType& type) {
  return static_cast<const arrow::TimestampType&>(type).unit();
}

const std::string& zone_of(const arrow::DataType& type) {
  return static_cast<const arrow::TimestampType&>(type).timezone();
}

bool integer_widens(const arrow::DataType& from, const arrow::DataType& to) {
  bool from_signed = is_signed_integer_type(from), to_signed = is_signed_integer_type(to);
  if (from_signed == to_signed) return bit_width(from) < bit_width(to);
  return !from_signed && to_signed && bit_width(from) < bit_width(to);
}

TypePtr signed_of_width(int bits) {
  return bits <= 16   ? arrow::int16()
         : bits <= 32 ? arrow::int32()
         : bits <= 64 ? arrow::int64()
                      : decimal_type(38, 0);
}

}  // namespace

const TypePtr& timestamp_type() {
  static const TypePtr type = arrow::timestamp(arrow::TimeUnit::MICRO);
  return type;
}

const TypePtr& timestamp_with_zone_type() {
  static const TypePtr type = arrow::timestamp(arrow::TimeUnit::MICRO, "UTC");
  return type;
}

TypePtr decimal_type(int width, int scale) {
  return arrow::decimal128(width, scale);
}
int decimal_width(const arrow::DataType& type) {
  return static_cast<const arrow::DecimalType&>(type).precision();
}
int decimal_scale(const arrow::DataType& type) {
  return static_cast<const arrow::DecimalType&>(type).scale();
}
TypePtr decimal_of_integer(const arrow::DataType& type) {
  return decimal_type(integer_digits(type.id()), 0);
}

bool is_integer_type(const arrow::DataType& type) {
  return arrow::is_integer(type.id());
}
bool is_signed_integer_type(const arrow::DataType& type) {
  return arrow::is_signed_integer(type.id());
}
bool is_floating_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::FLOAT || type.id() == arrow::Type::DOUBLE;
}
bool is_decimal_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::DECIMAL128;
}
bool is_numeric_type(const arrow::DataType& type) {
  return is_integer_type(type) || is_floating_type(type) || is_decimal_type(type);
}
bool is_string_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::STRING;
}
bool is_null_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::NA;
}
bool is_date_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::DATE32;
}
bool is_timestamp_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::TIMESTAMP;
}
bool is_timestamp_with_zone_type(const arrow::DataType& type) {
  return is_timestamp_type(type) && !zone_of(type).empty();
}
bool is_interval_type(const arrow::DataType& type) {
  return type.id() == arrow::Type::INTERVAL_MONTH_DAY_NANO;
}

Result<TypePtr> canonical_type(const TypePtr& type) {
  switch (type->id()) {
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
      return arrow::utf8();
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::FIXED_SIZE_BINARY:
      return arrow::binary();
    case arrow::Type::DICTIONARY:
      return canonical_type(static_cast<const arrow::DictionaryType&>(*type).value_type());
    case arrow::Type::RUN_END_ENCODED:
      return canonical_type(static_cast<const arrow::RunEndEncodedType&>(*type).value_type());
    case arrow::Type::DATE64:
      return arrow::date32();
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
      return arrow::time64(arrow::TimeUnit::MICRO);
    case arrow::Type::HALF_FLOAT:
      return arrow::float32();
    case arrow::Type::DECIMAL32:
    case arrow::Type::DECIMAL64:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256: {
      int width = decimal_width(*type), scale = decimal_scale(*type);
      if (width > kMaxDecimalWidth || scale < 0 || scale > width) {
        return data_error(
            "type {} has no counterpart: decimals have up to {} digits, with 0 to all of them behind "
            "the point",
            type->ToString(), kMaxDecimalWidth);
      }
      return decimal_type(width, scale);
    }
    case arrow::Type::INTERVAL_MONTHS:
    case arrow::Type::INTERVAL_DAY_TIME:
    case arrow::Type::INTERVAL_MONTH_DAY_NANO:
      return arrow::month_day_nano_interval();
    case arrow::Type::NA:
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
    case arrow::Type::DATE32:
    case arrow::Type::TIMESTAMP:
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
    case arrow::Type::STRUCT:
    case arrow::Type::MAP:
      return type;
    case arrow::Type::EXTENSION:
      return canonical_type(static_cast<const arrow::ExtensionType&>(*type).storage_type());
    default:
      return data_error("type {} is not one that queries can read", type->ToString());
  }
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const NamedType& named : named_types()) names.emplace_back(named.name);
  return names;
}

Result<TypePtr> parse_type(std::string_view text) {
  std::string name = normal_name(text);
  std::string_view arguments;
  std::string_view base = name;
  if (size_t open = name.find('('); open != std::string::npos) {
    if (name.back() != ')') return query_error("type '{}': a closing parenthesis is missing", text);
    base = std::string_view(name).substr(0, open);
    arguments = std::string_view(name).substr(open + 1, name.size() - open - 2);
  }
  const NamedType* found = nullptr;
  for (const NamedType& named : named_types()) {
    if (named.name == base) found = &named;
  }
  if (!found) return query_error("unknown type '{}'{}", text, name_hint(base, type_names()));
  if (name.size() == base.size()) return found->type;
  if (is_string_type(*found->type) || base == "FLOAT")
    return found->type;  // VARCHAR(10): the length says nothing
  if (!is_decimal_type(*found->type) || base == "HUGEINT" || base == "INT128") {
    return query_error("type {} takes no arguments", base);
  }
  size_t comma = arguments.find(',');
  std::optional<int> width = parse_int(arguments.substr(0, comma));
  std::optional<int> scale =
      comma == std::string_view::npos ? std::optional<int>(0) : parse_int(arguments.substr(comma + 1));
  if (!width || !scale || *width < 1 || *width > kMaxDecimalWidth || *scale < 0 || *scale > *width) {
    return query_error(
        "type '{}': the digits of a DECIMAL are 1 to {}, and 0 to all of them stand behind the point", text,
        kMaxDecimalWidth);
  }
  return decimal_type(*width, *scale);
}

std::string sql_type_name(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::NA:
      return "NULL";
    case arrow::Type::BOOL:
      return "BOOLEAN";
    case arrow::Type::INT8:
      return "TINYINT";
    case arrow::Type::INT16:
      return "SMALLINT";
    case arrow::Type::INT32:
      return "INTEGER";
    case arrow::Type::INT64:
      return "BIGINT";
    case arrow::Type::UINT8:
      return "UTINYINT";
    case arrow::Type::UINT16:
      return "USMALLINT";
    case arrow::Type::UINT32:
      return "UINTEGER";
    case arrow::Type::UINT64:
      return "UBIGINT";
    case arrow::Type::FLOAT:
      return "FLOAT";
    case arrow::Type::DOUBLE:
      return "DOUBLE";
    case arrow::Type::DECIMAL128:
      return fmt::format("DECIMAL({},{})", decimal_width(type), decimal_scale(type));
    case arrow::Type::STRING:
      return "VARCHAR";
    case arrow::Type::BINARY:
      return "BLOB";
    case arrow::Type::DATE32:
      return "DATE";
    case arrow::Type::TIME64:
      return "TIME";
    case arrow::Type::TIMESTAMP:
      if (!zone_of(type).empty()) return "TIMESTAMP WITH TIME ZONE";
      switch (unit_of(type)) {
        case arrow::TimeUnit::SECOND:
          return "TIMESTAMP_S";
        case arrow::TimeUnit::MILLI:
          return "TIMESTAMP_MS";
        case arrow::TimeUnit::MICRO:
          return "TIMESTAMP";
        case arrow::TimeUnit::NANO:
          return "TIMESTAMP_NS";
      }
      return "TIMESTAMP";
    case arrow::Type::INTERVAL_MONTH_DAY_NANO:
      return "INTERVAL";
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
      return sql_type_name(*type.field(0)->type()) + "[]";
    case arrow::Type::STRUCT: {
      std::string out = "STRUCT(";
      for (int i = 0; i < type.num_fields(); ++i) {
        out += fmt::format("{}{} {}", i ? ", " : "", type.field(i)->name(),
                           sql_type_name(*type.field(i)->type()));
      }
      return out + ")";
    }
    default:
      return type.ToString();
  }
}

int conversion_target_cost(const arrow::DataType& to) {
  switch (to.id()) {
    case arrow::Type::INT64:
      return 101;
    case arrow::Type::DOUBLE:
      return 102;
    case arrow::Type::INT32:
      return 103;
    case arrow::Type::DECIMAL128:
      return 104;
    case arrow::Type::TIMESTAMP:
      return 120;
    case arrow::Type::STRING:
      return 149;
    default:
      return 110;
  }
}

std::optional<int> implicit_cast_cost(const arrow::DataType& from, const arrow::DataType& to) {
  if (from.Equals(to) || is_null_type(from)) return 0;
  bool allowed = false;
  if (is_integer_type(from)) {
    allowed = (is_integer_type(to) && integer_widens(from, to)) || is_floating_type(to) ||
              (is_decimal_type(to) && decimal_width(to) - decimal_scale(to) >= integer_digits(from.id()));
  } else if (from.id() == arrow::Type::FLOAT) {
    allowed = to.id() == arrow::Type::DOUBLE;
  } else if (is_decimal_type(from)) {
    allowed = is_floating_type(to) ||
              (is_decimal_type(to) && decimal_scale(to) >= decimal_scale(from) &&
               decimal_width(to) - decimal_scale(to) >= decimal_width(from) - decimal_scale(from));
  } else if (is_date_type(from)) {
    allowed = is_timestamp_type(to);
  } else if (is_timestamp_type(from)) {
    // Any unit will do for a function of TIMESTAMP, also a coarser one; a zone is never lost silently.
    allowed = is_timestamp_type(to) && zone_of(from).empty() >= zone_of(to).empty();
  }
  if (!allowed) return {};
  return conversion_target_cost(to);
}

TypePtr common_type(const TypePtr& a, const TypePtr& b) {
  if (a->Equals(*b)) return a;
  if (is_null_type(*a)) return b;
  if (is_null_type(*b)) return a;
  if (a->id() == arrow::Type::BOOL && is_numeric_type(*b)) return b;
  if (b->id() == arrow::Type::BOOL && is_numeric_type(*a)) return a;
  if (is_integer_type(*a) && is_integer_type(*b)) {
    if (integer_widens(*a, *b)) return b;
    if (integer_widens(*b, *a)) return a;
    return signed_of_width(2 * std::max(is_signed_integer_type(*a) ? 0 : bit_width(*a),
                                        is_signed_integer_type(*b) ? 0 : bit_width(*b)));
  }
  if (is_numeric_type(*a) && is_numeric_type(*b)) {
    if (a->id() == arrow::Type::DOUBLE || b->id() == arrow::Type::DOUBLE) return arrow::float64();
    if (a->id() == arrow::Type::FLOAT || b->id() == arrow::Type::FLOAT) return arrow::float32();
    TypePtr x = is_decimal_type(*a) ? a : decimal_of_integer(*a),
            y = is_decimal_type(*b) ? b : decimal_of_integer(*b);
    int scale = std::max(decimal_scale(*x), decimal_scale(*y));
    int whole = std::max(decimal_width(*x) - decimal_scale(*x), decimal_width(*y) - decimal_scale(*y));
    return decimal_type(std::min(whole + scale, kMaxDecimalWidth), scale);
  }
  if (is_date_type(*a) && is_timestamp_type(*b)) return b;
  if (is_date_type(*b) && is_timestamp_type(*a)) return a;
  if (is_timestamp_type(*a) && is_timestamp_type(*b)) {
    const std::string& zone = zone_of(*a).empty() ? zone_of(*b) : zone_of(*a);
    return arrow::timestamp(std::max(unit_of(*a), unit_of(*b)), zone);
  }
  return nullptr;
}

}  // namespace millstream::expr
