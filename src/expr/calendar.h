#pragma once
// The proleptic Gregorian calendar over days since 1970-01-01, for dates, timestamps and their parts. The
// algorithms are Howard Hinnant's (chrono-compatible low-level date algorithms). Inline: bodies use them.

#include <cstdint>

namespace millstream::expr {

constexpr int64_t kMicrosPerSecond = 1'000'000;
constexpr int64_t kMicrosPerMinute = 60 * kMicrosPerSecond;
constexpr int64_t kMicrosPerHour = 60 * kMicrosPerMinute;
constexpr int64_t kMicrosPerDay = 24 * kMicrosPerHour;
constexpr int64_t kDaysPerMonth = 30;  ///< what a month counts where an interval must become a length
constexpr int64_t kMonthsPerYear = 12;

// DuckDB's infinities: the largest value and its negative.
constexpr int32_t kDateInfinity = INT32_MAX;
constexpr int64_t kTimestampInfinity = INT64_MAX;
constexpr bool is_finite_date(int32_t days) {
  return days != kDateInfinity && days != -kDateInfinity;
}
constexpr bool is_finite_timestamp(int64_t micros) {
  return micros != kTimestampInfinity && micros != -kTimestampInfinity;
}
// The dates that have a name, and the timestamps: 5877642-06-25 BC to 5881580-07-10, 290309-12-22 BC to
// 294247-01-10.
constexpr int64_t kDateMin = -2147483646, kDateMax = 2147483646;
constexpr int64_t kTimestampMin = INT64_MIN + 2, kTimestampMax = INT64_MAX - 1;

constexpr int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - (a % b < 0);
}
/// 0 … b-1.
constexpr int64_t floor_mod(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r + (r < 0 ? b : 0);
}

/// floor_div by a constant. In generated code by way of a double, since loops become vector code then, which 64-bit
/// divisions do not; for divisors below 4096 only where the quotient is below 2^51.
template <int64_t kDivisor>
constexpr int64_t floor_div_by(int64_t x) {
  static_assert(kDivisor > 1 && kDivisor < int64_t{1} << 40);
#ifdef MILLSTREAM_BITCODE
  // Within 1 of the truth, which the remainder tells. It wraps around near the ends of the range, rightly.
  const double quotient = __builtin_floor(static_cast<double>(x) * (1.0 / static_cast<double>(kDivisor)));
  const auto near = static_cast<int64_t>(quotient);
  const auto rest = static_cast<int64_t>(static_cast<uint64_t>(x) -
                                         static_cast<uint64_t>(near) * static_cast<uint64_t>(kDivisor));
  return near - (rest < 0) + (rest >= kDivisor);
#else
  return floor_div(x, kDivisor);
#endif
}
/// floor_mod by a constant, likewise.
template <int64_t kDivisor>
constexpr int64_t floor_mod_by(int64_t x) {
#ifdef MILLSTREAM_BITCODE
  return static_cast<int64_t>(static_cast<uint64_t>(x) - static_cast<uint64_t>(floor_div_by<kDivisor>(x)) *
                                                             static_cast<uint64_t>(kDivisor));
#else
  return floor_mod(x, kDivisor);
#endif
}
/// x / kDivisor of what is not negative, likewise.
template <int64_t kDivisor>
constexpr int64_t div_by(int64_t x) {
#ifdef MILLSTREAM_BITCODE
  return floor_div_by<kDivisor>(x);
#else
  return x / kDivisor;
#endif
}

struct CivilDate {
  int64_t year;
  int32_t month;  ///< 1 … 12
  int32_t day;    ///< 1 … 31
};

constexpr int64_t days_from_civil(int64_t year, int32_t month, int32_t day) {
  year -= month <= 2;
  const int64_t era = floor_div(year, 400);
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

constexpr CivilDate civil_from_days(int64_t days) {
  days += 719468;
  const int64_t era = floor_div_by<146097>(days);
  const auto day_of_era = static_cast<uint32_t>(days - era * 146097);
  const uint32_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const uint32_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const uint32_t month_shifted = (5 * day_of_year + 2) / 153;
  const auto day = static_cast<int32_t>(day_of_year - (153 * month_shifted + 2) / 5 + 1);
  const auto month = static_cast<int32_t>(month_shifted < 10 ? month_shifted + 3 : month_shifted - 9);
  return {static_cast<int64_t>(year_of_era) + era * 400 + (month <= 2), month, day};
}

constexpr bool is_leap_year(int64_t year) {
  return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

constexpr int32_t days_in_month(int64_t year, int32_t month) {
  constexpr int32_t kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month == 2 && is_leap_year(year) ? 29 : kDays[month - 1];
}

/// Monday 1 … Sunday 7.
constexpr int32_t iso_weekday(int64_t days) {
  return static_cast<int32_t>(floor_mod_by<7>(days + 3)) + 1;
}
/// The Monday of the week.
constexpr int64_t week_start(int64_t days) {
  return days - (iso_weekday(days) - 1);
}

struct IsoWeek {
  int64_t year;
  int32_t week;
};
/// ISO 8601: a week belongs to the year of its Thursday.
constexpr IsoWeek iso_week(int64_t days) {
  const int64_t thursday = week_start(days) + 3;
  const int64_t year = civil_from_days(thursday).year;
  return {year, static_cast<int32_t>((thursday - days_from_civil(year, 1, 1)) / 7) + 1};
}

/// The date `months` later; a day that the month lacks becomes its last.
constexpr int64_t add_months(int64_t days, int64_t months) {
  const CivilDate date = civil_from_days(days);
  const int64_t index = date.year * kMonthsPerYear + date.month - 1 + months;
  const int64_t year = floor_div(index, kMonthsPerYear);
  const auto month = static_cast<int32_t>(floor_mod(index, kMonthsPerYear)) + 1;
  const int32_t last = days_in_month(year, month);
  return days_from_civil(year, month, date.day < last ? date.day : last);
}

}  // namespace millstream::expr
