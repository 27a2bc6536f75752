#pragma once
// Values as text and back, in DuckDB's forms. Used by casts, by messages and by to_sql().
//
// Parsers take the whole text, spaces around it aside (booleans: none), and give nothing where it is not a
// value of the type. Formatters append.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <arrow/type_fwd.h>

#include "expr/kernel.h"

namespace millstream::expr {

void append_integer(std::string& out, int64_t value);
void append_unsigned(std::string& out, uint64_t value);
void append_double(std::string& out, double value);  ///< the shortest that reads back: 1.0, 1e+16, nan, inf
void append_float(std::string& out, float value);
void append_decimal(std::string& out, __int128 digits, int scale);
void append_date(std::string& out, int64_t days);
void append_time(std::string& out, int64_t micros);
/// `ticks_per_second` of the timestamp's unit; fractions without trailing zeros.
void append_timestamp(std::string& out, int64_t ticks, int64_t ticks_per_second, bool zone);
void append_interval(std::string& out, const Interval& interval);
/// With quotes, inner quotes doubled.
void append_quoted(std::string& out, std::string_view text, char quote);

std::optional<bool> parse_boolean(std::string_view text);
std::optional<double> parse_double(std::string_view text);
std::optional<float> parse_float(std::string_view text);
/// The number times 10^scale, rounded half away from zero: "4.5" with scale 0 is 5. Exponents and underscores
/// between digits are understood. Nothing where it is no number or needs more than 38 digits.
std::optional<__int128> parse_scaled(std::string_view text, int scale);
/// As parse_scaled with scale 0; hexadecimal ("0x1F") too.
std::optional<__int128> parse_integer(std::string_view text);
std::optional<int32_t> parse_date(std::string_view text);
std::optional<int64_t> parse_time(std::string_view text);
/// Microseconds. An offset or Z at the end is applied where `zone`, else read past. Finer digits are cut off, or
/// given as the nanoseconds above the microsecond.
std::optional<int64_t> parse_timestamp(std::string_view text, bool zone, int64_t* nanos = nullptr);
std::optional<Interval> parse_interval(std::string_view text);

constexpr int64_t ticks_per_second(int unit) {  ///< of an arrow::TimeUnit::type
  constexpr int64_t kTicks[] = {1, 1000, 1000000, 1000000000};
  return kTicks[unit];
}
/// 10^n for n in 0 … 38.
__int128 power_of_ten(int n);

}  // namespace millstream::expr
