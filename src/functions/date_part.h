#pragma once
// The parts of dates and times, by the names that date_part, date_trunc and date_diff take.

#include <string>
#include <string_view>
#include <vector>

#include "expr/function.h"

namespace millstream::functions {

enum class DatePart : uint8_t {
  kYear,
  kMonth,
  kDay,
  kDecade,
  kCentury,
  kMillennium,
  kQuarter,
  kWeek,
  kIsoYear,
  kDayOfWeek,
  kIsoDayOfWeek,
  kDayOfYear,
  kYearWeek,
  kEra,
  kHour,
  kMinute,
  kSecond,
  kMillisecond,
  kMicrosecond,
  kEpoch,
};

/// The part that the literal argument names, for `function`; query errors name the nearest part.
Result<DatePart> part_of(const expr::ExprPtr& argument, std::string_view function);
/// The function that gives the part: "year", "dayofweek".
const char* part_function(DatePart part);

}  // namespace millstream::functions
