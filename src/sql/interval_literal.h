#pragma once
// INTERVAL literals.

#include <optional>
#include <string_view>

#include <arrow/type.h>

namespace millstream::sql {

/// "3 days", "1 year 2 months", "01:30:00.5", "-1 day 02:00": nothing where it is none of these, or too big.
std::optional<arrow::MonthDayNanoIntervalType::MonthDayNanos> parse_interval(std::string_view text);

/// `quantity` of a unit ("day", "hour", …, singular): fractions count only for seconds and below, as in
/// DuckDB.
std::optional<arrow::MonthDayNanoIntervalType::MonthDayNanos> make_interval(double quantity,
                                                                            std::string_view unit);

}  // namespace millstream::sql
