// Dates, times and timestamps from their parts and from numbers, and what else is known of them: the last day of the
// month, names of days and months, the Julian day, an age.

#include <array>
#include <cmath>

#include "expr/bound_rules.h"
#include "expr/calendar.h"
#include "expr/kernel.h"

namespace millstream::functions {

using namespace expr;

namespace {

/// A value, NULL or a failure.
template <class T>
struct Outcome {
  T value{};
  bool valid = true;
  Failure failure = Failure::kNone;
};

template <class Body, class A>
Status run_outcome(KernelCall& call) {
  using T = decltype(Body::body(std::declval<A>()).value);
  const Strided<A> in(call.arguments[0]);
  for (int64_t i = 0; i < call.rows; ++i) {
    if (!is_set(call.validity, i)) continue;
    const auto outcome = Body::body(in[i]);
    if (outcome.failure != Failure::kNone) return failure_at(call, i, outcome.failure);
  }
  return loop_over<Maybe<T>, A>(call, [](A x) {
    const auto outcome = Body::body(x);
    return Maybe<T>{outcome.value, outcome.valid};
  });
}

template <class Body, class A>
Binding outcome_overload(TypePtr parameter = type_of<A>()) {
  Binding binding;
  binding.parameters = {std::move(parameter)};
  binding.result = type_of<decltype(Body::body(std::declval<A>()).value)>();
  binding.kernel = run_outcome<Body, A>;
  binding.can_fail = true;
  binding.gives_null = true;
  return binding;
}

// ---- from parts

MILLSTREAM_BODY bool day_of(int64_t year, int64_t month, int64_t day, int64_t& days) {
  constexpr int64_t kYears = 5881580;
  bool right = year >= -kYears && year <= kYears && month >= 1 && month <= 12 && day >= 1;
  if (!right || day > days_in_month(year, static_cast<int32_t>(month))) return false;
  days = days_from_civil(year, static_cast<int32_t>(month), static_cast<int32_t>(day));
  return days >= kDateMin && days <= kDateMax;
}

/// Microseconds of the day; 24:00:00 is the last.
MILLSTREAM_BODY bool clock_of(int64_t hour, int64_t minute, double second, int64_t& micros) {
  if (!(second >= 0 && second < 61) || hour < 0 || hour > 24 || minute < 0 || minute > 59) return false;
  const auto whole = static_cast<int64_t>(second);
  const auto fraction =
      static_cast<int64_t>(std::round((second - static_cast<double>(whole)) * kMicrosPerSecond));
  micros = hour * kMicrosPerHour + minute * kMicrosPerMinute + whole * kMicrosPerSecond + fraction;
  return micros <= kMicrosPerDay;
}

struct MakeDate {
  static Checked<Date> body(int64_t year, int64_t month, int64_t day) {
    int64_t days = 0;
    const bool right = day_of(year, month, day, days);
    return checked(Date{static_cast<int32_t>(days)}, !right, Failure::kOutOfRange);
  }
  static Date body(int32_t days) { return {days}; }
};

struct MakeTime {
  static Checked<Time> body(int64_t hour, int64_t minute, double second) {
    int64_t micros = 0;
    const bool right = clock_of(hour, minute, second, micros);
    return checked(Time{right ? micros : 0}, !right, Failure::kOutOfRange);
  }
};

template <class T>
struct MakeTimestamp {
  static Checked<T> body(int64_t year, int64_t month, int64_t day, int64_t hour, int64_t minute,
                         double second) {
    int64_t days = 0, clock = 0, micros = 0;
    if (!day_of(year, month, day, days) || !clock_of(hour, minute, second, clock))
      return {T{0}, Failure::kOutOfRange};
    const bool overflow = __builtin_mul_overflow(days, kMicrosPerDay, &micros) ||
                          __builtin_add_overflow(micros, clock, &micros) || micros > kTimestampMax ||
                          micros < kTimestampMin;
    return checked(T{overflow ? 0 : micros}, overflow, Failure::kOutOfRange);
  }
  static Checked<T> body(int64_t micros) {
    return checked(T{micros}, micros < kTimestampMin || micros > kTimestampMax, Failure::kOutOfRange);
  }
};

struct FromEpochMillis {
  static Checked<Timestamp> body(int64_t millis) {
    int64_t micros;
    const bool overflow = __builtin_mul_overflow(millis, int64_t{1000}, &micros) || micros > kTimestampMax ||
                          micros < kTimestampMin;
    return checked(Timestamp{overflow ? 0 : micros}, overflow, Failure::kOutOfRange);
  }
};
struct FromSeconds {
  static Checked<ZonedTimestamp> body(double seconds) {
    const double micros = std::round(seconds * kMicrosPerSecond);
    constexpr double kEnd = 9223372036854775808.0;
    const bool inside = micros > -kEnd && micros < kEnd;
    return checked(ZonedTimestamp{inside ? static_cast<int64_t>(micros) : 0}, !inside, Failure::kOutOfRange);
  }
};

// ---- parts

/// Nanoseconds since 1970, or the length of an interval or a time.
struct EpochNanos {
  template <class T>
  static Outcome<int64_t> body(T x) {
    Outcome<int64_t> out;
    __int128 nanos = 0;
    if constexpr (std::is_same_v<T, Interval>) {
      nanos = (static_cast<__int128>(x.months) * kDaysPerMonth + x.days) * (kMicrosPerDay * 1000) + x.nanos;
    } else {
      if constexpr (!std::is_same_v<T, Time>) out.valid = is_finite_timestamp(x.micros);
      nanos = static_cast<__int128>(x.micros) * 1000;
    }
    out.value = static_cast<int64_t>(nanos);
    if (out.valid && out.value != nanos) out.failure = Failure::kOutOfRange;
    return out;
  }
};
/// Of timestamps that are nanoseconds already.
struct Nanos {
  static Maybe<int64_t> body(Timestamp x) { return {x.micros, is_finite_timestamp(x.micros)}; }
};

constexpr int64_t kNanosPerMinute = kMicrosPerMinute * 1000;

struct NanosOfMinute {
  template <class T>
  MILLSTREAM_BODY static auto body(T x) {
    if constexpr (std::is_same_v<T, Interval>) {
      return x.nanos % kNanosPerMinute;
    } else if constexpr (std::is_same_v<T, Time>) {
      return x.micros % kMicrosPerMinute * 1000;
    } else if constexpr (std::is_same_v<T, Date>) {
      return Maybe<int64_t>{0, is_finite_date(x.days)};
    } else {
      return Maybe<int64_t>{floor_mod(x.micros, kMicrosPerMinute) * 1000, is_finite_timestamp(x.micros)};
    }
  }
};
struct NanosOfNanos {
  static Maybe<int64_t> body(Timestamp x) {
    return {floor_mod(x.micros, kNanosPerMinute), is_finite_timestamp(x.micros)};
  }
};

/// A binding for TIMESTAMP_NS, which has no C++ type of its own.
template <class Body>
Result<std::optional<Binding>> bind_nanos(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 1 || !arguments[0]->type->Equals(*arrow::timestamp(arrow::TimeUnit::NANO)))
    return std::nullopt;
  Binding binding = overload<Body, Timestamp>();
  binding.parameters = {arguments[0]->type};
  return binding;
}

/// The day that a date or timestamp lies on, and whether it is finite.
template <class T>
MILLSTREAM_BODY Maybe<int64_t> day_of_time(T x) {
  if constexpr (std::is_same_v<T, Date>) {
    return {x.days, is_finite_date(x.days)};
  } else {
    return {floor_div(x.micros, kMicrosPerDay), is_finite_timestamp(x.micros)};
  }
}

struct JulianDay {
  template <class T>
  MILLSTREAM_BODY static Maybe<double> body(T x) {
    constexpr double kOf1970 = 2440588;
    const Maybe<int64_t> day = day_of_time(x);
    double julian = static_cast<double>(day.value) + kOf1970;
    if constexpr (!std::is_same_v<T, Date>) {
      julian += static_cast<double>(floor_mod(x.micros, kMicrosPerDay)) / static_cast<double>(kMicrosPerDay);
    }
    return {julian, day.valid};
  }
};

struct LastDay {
  template <class T>
  static Outcome<Date> body(T x) {
    const Maybe<int64_t> day = day_of_time(x);
    const CivilDate date = civil_from_days(day.value);
    const int64_t last = day.value - date.day + days_in_month(date.year, date.month);
    Outcome<Date> out{{static_cast<int32_t>(last)}, day.valid};
    if (day.valid && last > kDateMax) out.failure = Failure::kOutOfRange;
    return out;
  }
};

struct DayName {
  template <class T>
  static Maybe<std::string_view> body(T x) {
    static constexpr std::string_view kNames[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                                  "Friday", "Saturday", "Sunday"};
    const Maybe<int64_t> day = day_of_time(x);
    return {kNames[iso_weekday(day.value) - 1], day.valid};
  }
};
struct MonthName {
  template <class T>
  static Maybe<std::string_view> body(T x) {
    static constexpr std::string_view kNames[] = {"January",   "February", "March",    "April",
                                                  "May",       "June",     "July",     "August",
                                                  "September", "October",  "November", "December"};
    const Maybe<int64_t> day = day_of_time(x);
    return {kNames[civil_from_days(day.value).month - 1], day.valid};
  }
};

/// The difference in years, months, days and time, as people count them; a day that is short is borrowed from the
/// month of the earlier time.
struct Age {
  template <class T>
  static Maybe<Interval> body(T a, T b) {
    if (!is_finite_timestamp(a.micros) || !is_finite_timestamp(b.micros)) return {Interval{}, false};
    const bool negative = a.micros < b.micros;
    const int64_t later = negative ? b.micros : a.micros, earlier = negative ? a.micros : b.micros;
    const CivilDate to = civil_from_days(floor_div(later, kMicrosPerDay));
    const CivilDate from = civil_from_days(floor_div(earlier, kMicrosPerDay));
    int64_t clock = floor_mod(later, kMicrosPerDay) - floor_mod(earlier, kMicrosPerDay);
    int64_t days = to.day - from.day;
    int64_t months = (to.year - from.year) * kMonthsPerYear + to.month - from.month;
    if (clock < 0) {
      clock += kMicrosPerDay;
      --days;
    }
    if (days < 0) {
      days += days_in_month(from.year, from.month);
      --months;
    }
    const int64_t sign = negative ? -1 : 1;
    return {Interval{static_cast<int32_t>(sign * months), static_cast<int32_t>(sign * days),
                     sign * clock * 1000}};
  }
};

template <class Body>
std::vector<Binding> of_calendars() {
  return {overload<Body, Date>(), overload<Body, Timestamp>(), overload<Body, ZonedTimestamp>()};
}

Function time_function(const char* name, const char* doc, std::vector<Example> examples,
                       std::vector<Binding> overloads) {
  Function f;
  f.name = name;
  f.doc = doc;
  f.examples = std::move(examples);
  f.overloads = std::move(overloads);
  return f;
}

template <class T>
Binding timestamp_of_parts() {
  return overload<MakeTimestamp<T>, int64_t, int64_t, int64_t, int64_t, int64_t, double>();
}

}  // namespace

MILLSTREAM_FUNCTION(time_values) {
  Function epoch_ns = time_function(
      "epoch_ns", "Nanoseconds since 1970-01-01, or the length of an interval.",
      {{"epoch_ns(TIMESTAMP '1970-01-01 00:00:01')", "1000000000"}},
      {outcome_overload<EpochNanos, Timestamp>(), outcome_overload<EpochNanos, ZonedTimestamp>(),
       outcome_overload<EpochNanos, Interval>(), outcome_overload<EpochNanos, Time>()});
  epoch_ns.bind = bind_nanos<Nanos>;
  epoch_ns.forms = {"epoch_ns(TIMESTAMP_NS)"};

  Function nanosecond = time_function("nanosecond", "Nanoseconds within the minute.",
                                      {{"nanosecond(TIMESTAMP '2024-12-31 10:11:12.345678')", "12345678000"}},
                                      {overload<NanosOfMinute, Date>(), overload<NanosOfMinute, Timestamp>(),
                                       overload<NanosOfMinute, ZonedTimestamp>(),
                                       overload<NanosOfMinute, Interval>(), overload<NanosOfMinute, Time>()});
  nanosecond.bind = bind_nanos<NanosOfNanos>;
  nanosecond.bound = always_between<-kNanosPerMinute + 1, kNanosPerMinute - 1>;
  nanosecond.forms = {"nanosecond(TIMESTAMP_NS)"};

  Function last_day =
      time_function("last_day", "The last day of the month.", {{"last_day(DATE '2024-02-10')", "2024-02-29"}},
                    {outcome_overload<LastDay, Date>(), outcome_overload<LastDay, Timestamp>(),
                     outcome_overload<LastDay, ZonedTimestamp>()});
  last_day.bound = rising_bounds<0>;

  Binding from_nanos;
  from_nanos.parameters = {arrow::int64()};
  from_nanos.result = arrow::timestamp(arrow::TimeUnit::NANO);
  from_nanos.can_fail = true;
  from_nanos.kernel = [](KernelCall& call) -> Status { return run<MakeTimestamp<Timestamp>, int64_t>(call); };

  return define(
      time_function("make_date", "The date of a year, month and day, or of days since 1970-01-01.",
                    {{"make_date(2024, 2, 29)", "2024-02-29"}, {"make_date(1)", "1970-01-02"}},
                    {overload<MakeDate, int64_t, int64_t, int64_t>(), overload<MakeDate, int32_t>()}),
      time_function("make_time", "The time of an hour, a minute and seconds.",
                    {{"make_time(10, 11, 12.5)", "10:11:12.5"}},
                    {overload<MakeTime, int64_t, int64_t, double>()}),
      time_function(
          "make_timestamp",
          "The timestamp of year, month, day, hour, minute and seconds, or of microseconds since 1970-01-01.",
          {{"make_timestamp(2024, 2, 29, 10, 11, 12.5)", "2024-02-29 10:11:12.5"}},
          {timestamp_of_parts<Timestamp>(), overload<MakeTimestamp<Timestamp>, int64_t>()}),
      time_function(
          "make_timestamptz", "The same as an instant, in UTC; parts that no date has are an error.",
          {{"make_timestamptz(2024, 2, 29, 10, 11, 12.5)", "2024-02-29 10:11:12.5+00"}},
          {timestamp_of_parts<ZonedTimestamp>(), overload<MakeTimestamp<ZonedTimestamp>, int64_t>()}),
      time_function("make_timestamp_ms", "The timestamp of milliseconds since 1970-01-01.",
                    {{"make_timestamp_ms(1500)", "1970-01-01 00:00:01.5"}},
                    {overload<FromEpochMillis, int64_t>()}),
      time_function("make_timestamp_ns", "The TIMESTAMP_NS of nanoseconds since 1970-01-01.",
                    {{"make_timestamp_ns(1)", "1970-01-01 00:00:00.000000001"}}, {from_nanos}),
      time_function("to_timestamp", "The instant of seconds since 1970-01-01.",
                    {{"to_timestamp(1.5)", "1970-01-01 00:00:01.5+00"}}, {overload<FromSeconds, double>()}),
      std::move(epoch_ns), std::move(nanosecond), std::move(last_day),
      time_function("julian", "The Julian day, with the part of the day that is over.",
                    {{"julian(TIMESTAMP '2024-01-01 12:00:00')", "2460311.5"}}, of_calendars<JulianDay>()),
      time_function("dayname", "The name of the day of the week.",
                    {{"dayname(DATE '2024-02-29')", "Thursday"}}, of_calendars<DayName>()),
      time_function("monthname", "The name of the month.", {{"monthname(DATE '2024-02-29')", "February"}},
                    of_calendars<MonthName>()),
      time_function(
          "age", "The years, months, days and the time from the second to the first.",
          {{"age(TIMESTAMP '2024-03-01', TIMESTAMP '2023-01-31')", "1 year 1 month 1 day"}},
          {overload<Age, Timestamp, Timestamp>(), overload<Age, ZonedTimestamp, ZonedTimestamp>()}));
}

}  // namespace millstream::functions
