#include "exec/value_text.h"

#include "expr/kernel.h"
#include "expr/text.h"
#include "expr/type.h"

namespace millstream::exec {
namespace {

void append_nested(std::string& out, const arrow::Array& array, int64_t row) {
  const auto id = array.type_id();
  if (id == arrow::Type::BINARY || id == arrow::Type::STRING) {
    std::string text;
    append_value_text(text, array, row);
    if (array.IsNull(row)) {
      out += text;
    } else {
      expr::append_quoted(out, text, '\'');
    }
    return;
  }
  append_value_text(out, array, row);
}

void append_list(std::string& out, const arrow::Array& values, int64_t begin, int64_t end) {
  out += '[';
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) out += ", ";
    append_nested(out, values, i);
  }
  out += ']';
}

}  // namespace

void append_value_text(std::string& out, const arrow::Array& array, int64_t row) {
  if (array.IsNull(row)) {
    out += "NULL";
    return;
  }
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      out += static_cast<const arrow::BooleanArray&>(array).Value(row) ? "true" : "false";
      return;
    case arrow::Type::INT8:
      return expr::append_integer(out, static_cast<const arrow::Int8Array&>(array).Value(row));
    case arrow::Type::INT16:
      return expr::append_integer(out, static_cast<const arrow::Int16Array&>(array).Value(row));
    case arrow::Type::INT32:
      return expr::append_integer(out, static_cast<const arrow::Int32Array&>(array).Value(row));
    case arrow::Type::INT64:
      return expr::append_integer(out, static_cast<const arrow::Int64Array&>(array).Value(row));
    case arrow::Type::UINT8:
      return expr::append_unsigned(out, static_cast<const arrow::UInt8Array&>(array).Value(row));
    case arrow::Type::UINT16:
      return expr::append_unsigned(out, static_cast<const arrow::UInt16Array&>(array).Value(row));
    case arrow::Type::UINT32:
      return expr::append_unsigned(out, static_cast<const arrow::UInt32Array&>(array).Value(row));
    case arrow::Type::UINT64:
      return expr::append_unsigned(out, static_cast<const arrow::UInt64Array&>(array).Value(row));
    case arrow::Type::FLOAT:
      return expr::append_float(out, static_cast<const arrow::FloatArray&>(array).Value(row));
    case arrow::Type::DOUBLE:
      return expr::append_double(out, static_cast<const arrow::DoubleArray&>(array).Value(row));
    case arrow::Type::DECIMAL128: {
      __int128 digits;
      std::memcpy(&digits, static_cast<const arrow::Decimal128Array&>(array).GetValue(row), sizeof digits);
      return expr::append_decimal(out, digits, expr::decimal_scale(*array.type()));
    }
    case arrow::Type::DATE32:
      return expr::append_date(out, static_cast<const arrow::Date32Array&>(array).Value(row));
    case arrow::Type::TIME64:
      return expr::append_time(out, static_cast<const arrow::Time64Array&>(array).Value(row));
    case arrow::Type::TIMESTAMP: {
      const auto& type = static_cast<const arrow::TimestampType&>(*array.type());
      return expr::append_timestamp(out, static_cast<const arrow::TimestampArray&>(array).Value(row),
                                    expr::ticks_per_second(type.unit()), !type.timezone().empty());
    }
    case arrow::Type::INTERVAL_MONTH_DAY_NANO: {
      const auto parts = static_cast<const arrow::MonthDayNanoIntervalArray&>(array).GetValue(row);
      return expr::append_interval(out, {parts.months, parts.days, parts.nanoseconds});
    }
    case arrow::Type::STRING:
      out += static_cast<const arrow::StringArray&>(array).GetView(row);
      return;
    case arrow::Type::BINARY:
      for (const unsigned char c : static_cast<const arrow::BinaryArray&>(array).GetView(row)) {
        if (c >= 0x20 && c < 0x7F && c != '\\' && c != '\'' && c != '"') {
          out += static_cast<char>(c);
        } else {
          fmt::format_to(std::back_inserter(out), "\\x{:02X}", c);
        }
      }
      return;
    case arrow::Type::LIST: {
      const auto& list = static_cast<const arrow::ListArray&>(array);
      return append_list(out, *list.values(), list.value_offset(row), list.value_offset(row + 1));
    }
    case arrow::Type::STRUCT: {
      const auto& fields = static_cast<const arrow::StructArray&>(array);
      out += '{';
      for (int i = 0; i < fields.num_fields(); ++i) {
        if (i > 0) out += ", ";
        expr::append_quoted(out, fields.type()->field(i)->name(), '\'');
        out += ": ";
        append_nested(out, *fields.field(i), row);
      }
      out += '}';
      return;
    }
    default: {
      const auto scalar = array.GetScalar(row);
      out += scalar.ok() ? (*scalar)->ToString() : scalar.status().message();
    }
  }
}

}  // namespace millstream::exec
