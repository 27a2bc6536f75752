// Dates, timestamps and intervals in + - * /, and the functions that make intervals of numbers. An interval
// is added months first, then days, then its time; a day that the month lacks becomes its last.

#include <cmath>

#include "expr/calendar.h"
#include "expr/kernel.h"
#include "functions/arithmetic.h"

namespace millstream::functions {

using namespace expr;

namespace {

/// Months come first, then days, then the time. Of instants, as in DuckDB, the time comes first where a part goes back,
/// and in any case its microseconds below the millisecond.
template <class T>
MILLSTREAM_BODY Checked<T> add_interval(int64_t micros, const Interval& interval, int sign) {
  if (!is_finite_timestamp(micros)) return {T{micros}};
  const int64_t months = int64_t{sign} * interval.months, shift = int64_t{sign} * interval.days;
  int64_t clock = sign * (interval.nanos / 1000);
  bool overflow = false;
  if constexpr (std::is_same_v<T, ZonedTimestamp>) {
    const int64_t first = months < 0 || shift < 0 || clock < 0 ? clock : clock % 1000;
    overflow = __builtin_add_overflow(micros, first, &micros);
    clock -= first;
  }
  int64_t days = floor_div(micros, kMicrosPerDay);
  const int64_t time = floor_mod(micros, kMicrosPerDay);
  if (months) days = add_months(days, months);
  days += shift;
  int64_t result;
  overflow |= __builtin_mul_overflow(days, kMicrosPerDay, &result);
  overflow |= __builtin_add_overflow(result, time, &result);
  overflow |= __builtin_add_overflow(result, clock, &result);
  return checked(T{result}, overflow || result < kTimestampMin || result > kTimestampMax,
                 Failure::kOutOfRange);
}

/// The beginning of the date, shifted. Dates reach further than timestamps.
MILLSTREAM_BODY Checked<Timestamp> shift_date(Date date, const Interval& interval, int sign) {
  if (!is_finite_date(date.days)) {
    return {Timestamp{date.days > 0 ? kTimestampInfinity : -kTimestampInfinity}};
  }
  int64_t micros;
  const bool overflow = __builtin_mul_overflow(int64_t{date.days}, kMicrosPerDay, &micros);
  if (overflow || micros < kTimestampMin || micros > kTimestampMax)
    return {Timestamp{0}, Failure::kOutOfRange};
  return add_interval<Timestamp>(micros, interval, sign);
}

template <int kSign>
struct ShiftTimestamp {
  template <class T>
  MILLSTREAM_BODY static Checked<T> body(T x, Interval interval) {
    return add_interval<T>(x.micros, interval, kSign);
  }
  template <class T>
  MILLSTREAM_BODY static Checked<T> body(Interval interval, T x) requires(!std::is_same_v<T, Interval>) {
    return add_interval<T>(x.micros, interval, kSign);
  }
};
template <int kSign>
struct ShiftDate {
  MILLSTREAM_BODY static Checked<Timestamp> body(Date x, Interval interval) {
    return shift_date(x, interval, kSign);
  }
  MILLSTREAM_BODY static Checked<Timestamp> body(Interval interval, Date x) {
    return shift_date(x, interval, kSign);
  }
};
template <int kSign>
struct ShiftTime {
  MILLSTREAM_BODY static Time body(Time x, Interval interval) {
    int64_t shift = kSign * (interval.nanos / 1000 % kMicrosPerDay);
    return {floor_mod(x.micros + shift, kMicrosPerDay)};
  }
  MILLSTREAM_BODY static Time body(Interval interval, Time x) { return body(x, interval); }
};

template <int kSign>
struct ShiftDays {
  MILLSTREAM_BODY static Checked<Date> body(Date x, int32_t days) {
    if (!is_finite_date(x.days)) return {x};
    int64_t result = int64_t{x.days} + kSign * int64_t{days};
    bool outside = result < kDateMin || result > kDateMax;
    return checked(Date{static_cast<int32_t>(result)}, outside, Failure::kOutOfRange);
  }
  MILLSTREAM_BODY static Checked<Date> body(int32_t days, Date x) { return body(x, days); }
};

struct DateAndTime {
  MILLSTREAM_BODY static Checked<Timestamp> body(Date date, Time time) {
    return shift_date(date, Interval{0, 0, time.micros * 1000}, 1);
  }
  MILLSTREAM_BODY static Checked<Timestamp> body(Time time, Date date) { return body(date, time); }
};

struct DaysBetween {
  MILLSTREAM_BODY static int64_t body(Date a, Date b) { return int64_t{a.days} - b.days; }
};

struct Elapsed {
  template <class T>
  MILLSTREAM_BODY static Checked<Interval> body(T a, T b) {
    int64_t micros;
    bool overflow = __builtin_sub_overflow(a.micros, b.micros, &micros);
    overflow |= !is_finite_timestamp(a.micros) || !is_finite_timestamp(b.micros);
    Interval interval{0, static_cast<int32_t>(micros / kMicrosPerDay), micros % kMicrosPerDay * 1000};
    return checked(interval, overflow, Failure::kOutOfRange);
  }
};

template <int kSign>
struct SumOfIntervals {
  MILLSTREAM_BODY static Checked<Interval> body(Interval a, Interval b) {
    Interval r{};
    bool overflow;
    if constexpr (kSign > 0) {
      overflow = __builtin_add_overflow(a.months, b.months, &r.months);
      overflow |= __builtin_add_overflow(a.days, b.days, &r.days);
      overflow |= __builtin_add_overflow(a.nanos, b.nanos, &r.nanos);
    } else {
      overflow = __builtin_sub_overflow(a.months, b.months, &r.months);
      overflow |= __builtin_sub_overflow(a.days, b.days, &r.days);
      overflow |= __builtin_sub_overflow(a.nanos, b.nanos, &r.nanos);
    }
    return checked(r, overflow, Failure::kOverflow);
  }
};

struct NegateInterval {
  MILLSTREAM_BODY static Checked<Interval> body(Interval x) {
    return SumOfIntervals<-1>::body(Interval{}, x);
  }
};

/// A fraction of a month is days of a 30-day month, of a day a time.
MILLSTREAM_BODY Checked<Interval> scaled(const Interval& x, double factor) {
  double months = x.months * factor, days = x.days * factor,
         micros = static_cast<double>(x.nanos / 1000) * factor;
  double whole_months = std::trunc(months);
  days += (months - whole_months) * static_cast<double>(kDaysPerMonth);
  double whole_days = std::trunc(days);
  micros = std::round(micros + (days - whole_days) * static_cast<double>(kMicrosPerDay));
  constexpr double kInt32 = 2147483647.0, kMicros = 9.2e15;
  bool inside =
      std::abs(whole_months) <= kInt32 && std::abs(whole_days) <= kInt32 && std::abs(micros) <= kMicros;
  if (!inside) return {Interval{}, Failure::kOverflow};
  return {Interval{static_cast<int32_t>(whole_months), static_cast<int32_t>(whole_days),
                   static_cast<int64_t>(micros) * 1000}};
}

struct ScaleInterval {
  MILLSTREAM_BODY static Checked<Interval> body(Interval x, int64_t factor) {
    Interval r{};
    int64_t months, days;
    bool overflow = __builtin_mul_overflow(int64_t{x.months}, factor, &months);
    overflow |= __builtin_mul_overflow(int64_t{x.days}, factor, &days);
    overflow |= __builtin_mul_overflow(x.nanos, factor, &r.nanos);
    r.months = static_cast<int32_t>(months);
    r.days = static_cast<int32_t>(days);
    overflow |= factor != static_cast<int32_t>(factor);  // DuckDB takes no other
    return checked(r, overflow || r.months != months || r.days != days, Failure::kOverflow);
  }
  MILLSTREAM_BODY static Checked<Interval> body(int64_t factor, Interval x) { return body(x, factor); }
  MILLSTREAM_BODY static Checked<Interval> body(Interval x, double factor) { return scaled(x, factor); }
  MILLSTREAM_BODY static Checked<Interval> body(double factor, Interval x) { return scaled(x, factor); }
};

struct DivideInterval {
  MILLSTREAM_BODY static Checked<Interval> body(Interval x, double divisor) {
    if (divisor == 0) return {Interval{}, Failure::kDivisionByZero};
    return scaled(x, 1 / divisor);
  }
};

/// Intervals of one unit.
template <int64_t kMonths, int64_t kDays, int64_t kMicros>
struct ToInterval {
  MILLSTREAM_BODY static Checked<Interval> body(int64_t count) {
    int64_t months, days, nanos;
    bool overflow = __builtin_mul_overflow(count, kMonths, &months);
    overflow |= __builtin_mul_overflow(count, kDays, &days);
    overflow |= __builtin_mul_overflow(count, kMicros * 1000, &nanos);
    Interval r{static_cast<int32_t>(months), static_cast<int32_t>(days), nanos};
    return checked(r, overflow || r.months != months || r.days != days, Failure::kOverflow);
  }
};

template <int64_t kMonths, int64_t kDays, int64_t kMicros>
Function interval_maker(const char* name, const char* doc, const char* example, const char* result) {
  Function f;
  f.name = name;
  f.doc = doc;
  f.examples = {{example, result}};
  f.overloads = {overload<ToInterval<kMonths, kDays, kMicros>, int64_t>()};
  return f;
}

/// Seconds and milliseconds may have a fraction.
template <int64_t kMicros>
struct ToSeconds {
  MILLSTREAM_BODY static Checked<Interval> body(double seconds) {
    double micros = std::round(seconds * kMicros);
    bool inside = std::abs(micros) <= 9.2e15;
    return checked(Interval{0, 0, inside ? static_cast<int64_t>(micros) * 1000 : 0}, !inside,
                   Failure::kOverflow);
  }
};

}  // namespace

std::vector<Binding> time_additions() {
  return {overload<ShiftDays<1>, Date, int32_t>(),
          overload<ShiftDays<1>, int32_t, Date>(),
          overload<ShiftDate<1>, Date, Interval>(),
          overload<ShiftDate<1>, Interval, Date>(),
          overload<ShiftTimestamp<1>, Timestamp, Interval>(),
          overload<ShiftTimestamp<1>, Interval, Timestamp>(),
          overload<ShiftTimestamp<1>, ZonedTimestamp, Interval>(),
          overload<ShiftTimestamp<1>, Interval, ZonedTimestamp>(),
          overload<ShiftTime<1>, Time, Interval>(),
          overload<ShiftTime<1>, Interval, Time>(),
          overload<DateAndTime, Date, Time>(),
          overload<DateAndTime, Time, Date>(),
          overload<SumOfIntervals<1>, Interval, Interval>()};
}

std::vector<Binding> time_subtractions() {
  return {overload<DaysBetween, Date, Date>(),
          overload<ShiftDays<-1>, Date, int32_t>(),
          overload<Elapsed, Timestamp, Timestamp>(),
          overload<Elapsed, ZonedTimestamp, ZonedTimestamp>(),
          overload<ShiftDate<-1>, Date, Interval>(),
          overload<ShiftTimestamp<-1>, Timestamp, Interval>(),
          overload<ShiftTimestamp<-1>, ZonedTimestamp, Interval>(),
          overload<ShiftTime<-1>, Time, Interval>(),
          overload<SumOfIntervals<-1>, Interval, Interval>()};
}

std::vector<Binding> interval_products() {
  return {overload<ScaleInterval, Interval, int64_t>(), overload<ScaleInterval, int64_t, Interval>(),
          overload<ScaleInterval, Interval, double>(), overload<ScaleInterval, double, Interval>()};
}

std::vector<Binding> interval_quotients() {
  return {overload<DivideInterval, Interval, double>()};
}

Binding interval_negation() {
  return overload<NegateInterval, Interval>();
}

MILLSTREAM_FUNCTION(time_arithmetic) {
  Function seconds;
  seconds.name = "to_seconds";
  seconds.doc = "An interval of so many seconds.";
  seconds.examples = {{"to_seconds(90.5)", "00:01:30.5"}};
  seconds.overloads = {overload<ToSeconds<kMicrosPerSecond>, double>()};
  Function milliseconds;
  milliseconds.name = "to_milliseconds";
  milliseconds.doc = "An interval of so many milliseconds.";
  milliseconds.examples = {{"to_milliseconds(1500)", "00:00:01.5"}};
  milliseconds.overloads = {overload<ToSeconds<1000>, double>()};
  return define(
      interval_maker<12000, 0, 0>("to_millennia", "An interval of so many millennia.", "to_millennia(1)",
                                  "1000 years"),
      interval_maker<1200, 0, 0>("to_centuries", "An interval of so many centuries.", "to_centuries(1)",
                                 "100 years"),
      interval_maker<120, 0, 0>("to_decades", "An interval of so many decades.", "to_decades(2)", "20 years"),
      interval_maker<12, 0, 0>("to_years", "An interval of so many years.", "to_years(2)", "2 years"),
      interval_maker<3, 0, 0>("to_quarters", "An interval of so many quarters.", "to_quarters(2)",
                              "6 months"),
      interval_maker<1, 0, 0>("to_months", "An interval of so many months.", "to_months(2)", "2 months"),
      interval_maker<0, 7, 0>("to_weeks", "An interval of so many weeks.", "to_weeks(2)", "14 days"),
      interval_maker<0, 1, 0>("to_days", "An interval of so many days.", "to_days(2)", "2 days"),
      interval_maker<0, 0, kMicrosPerHour>("to_hours", "An interval of so many hours.", "to_hours(30)",
                                           "30:00:00"),
      interval_maker<0, 0, kMicrosPerMinute>("to_minutes", "An interval of so many minutes.", "to_minutes(5)",
                                             "00:05:00"),
      std::move(seconds), std::move(milliseconds),
      interval_maker<0, 0, 1>("to_microseconds", "An interval of so many microseconds.", "to_microseconds(5)",
                              "00:00:00.000005"));
}

}  // namespace millstream::functions
