#pragma once
// The types of the language. They are Arrow types in one canonical form each, so that two types are the same
// type exactly when they are equal: string, large_string, string_view and dictionaries are utf8; binary of
// any kind is binary; decimals are decimal128; date64 is date32; times are time64[us]; half floats are float;
// intervals are month_day_nano. Timestamps keep unit and zone (TIMESTAMP is timestamp[us] without a zone,
// TIMESTAMPTZ timestamp[us, UTC]). HUGEINT is DECIMAL(38,0). Lists and structs pass through.
//
// The promotions are DuckDB's.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/type_fwd.h>

#include "base/status.h"

namespace millstream::expr {

using TypePtr = std::shared_ptr<arrow::DataType>;

/// The canonical form of an Arrow type; a data error names a type that the language does not have.
Result<TypePtr> canonical_type(const TypePtr& type);

/// The type that an SQL name means ("BIGINT", "decimal(10, 2)", "timestamp with time zone"). A query error
/// names the nearest known name.
Result<TypePtr> parse_type(std::string_view text);
/// All names that parse_type knows, without DECIMAL's arguments.
std::vector<std::string> type_names();

/// SQL's name of a canonical type, which parse_type understands again: "DECIMAL(10,2)", "VARCHAR".
std::string sql_type_name(const arrow::DataType& type);

bool is_integer_type(const arrow::DataType& type);  ///< int8 … uint64
bool is_signed_integer_type(const arrow::DataType& type);
bool is_floating_type(const arrow::DataType& type);  ///< float, double
bool is_decimal_type(const arrow::DataType& type);
bool is_numeric_type(const arrow::DataType& type);  ///< the three above
bool is_string_type(const arrow::DataType& type);
bool is_null_type(const arrow::DataType& type);  ///< the type of a bare NULL
bool is_date_type(const arrow::DataType& type);
bool is_timestamp_type(const arrow::DataType& type);  ///< with or without a zone
bool is_timestamp_with_zone_type(const arrow::DataType& type);
bool is_interval_type(const arrow::DataType& type);

/// TIMESTAMP, and TIMESTAMP WITH TIME ZONE (in UTC), of microseconds.
const TypePtr& timestamp_type();
const TypePtr& timestamp_with_zone_type();
/// A decimal of `width` digits in all (1 to 38), `scale` of them behind the point.
TypePtr decimal_type(int width, int scale);
int decimal_width(const arrow::DataType& type);
int decimal_scale(const arrow::DataType& type);
/// The decimal that holds every value of an integer type: BIGINT -> DECIMAL(19,0).
TypePtr decimal_of_integer(const arrow::DataType& type);

/// What it costs to convert a value of type `from` to `to` where nobody wrote a cast; nothing where SQL does
/// not do that. 0 for the same type. Lower is preferred; BIGINT, DOUBLE, INTEGER before the others, in that
/// order.
std::optional<int> implicit_cast_cost(const arrow::DataType& from, const arrow::DataType& to);

/// How welcome a type is as the target of an implicit conversion: lower is more.
int conversion_target_cost(const arrow::DataType& to);

/// The type to which values of both are converted to be compared, or to stand in one column; null where there
/// is none. Both canonical.
TypePtr common_type(const TypePtr& a, const TypePtr& b);

}  // namespace millstream::expr
