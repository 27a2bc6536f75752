// date_trunc: the beginning of the hour, day, week, … that a time lies in.

#include "expr/bound_rules.h"
#include "expr/calendar.h"
#include "expr/kernel.h"
#include "functions/date_part.h"

namespace millstream::functions {

using namespace expr;

namespace {

/// The length of a clock part in microseconds; 0 for parts of the calendar.
constexpr int64_t clock_unit(DatePart part) {
  switch (part) {
    case DatePart::kHour:
      return kMicrosPerHour;
    case DatePart::kMinute:
      return kMicrosPerMinute;
    case DatePart::kSecond:
    case DatePart::kEpoch:
      return kMicrosPerSecond;
    case DatePart::kMillisecond:
      return 1000;
    case DatePart::kMicrosecond:
      return 1;
    default:
      return 0;
  }
}

template <DatePart kPart>
MILLSTREAM_BODY int64_t first_day(int64_t days) {
  if constexpr (kPart == DatePart::kWeek || kPart == DatePart::kYearWeek) return week_start(days);
  if constexpr (kPart == DatePart::kIsoYear) {
    int64_t year = iso_week(days).year;
    return week_start(days_from_civil(year, 1, 4));
  }
  if constexpr (kPart == DatePart::kMonth) {
    return days - (civil_from_days(days).day - 1);
  }
  if constexpr (kPart == DatePart::kQuarter) {
    CivilDate date = civil_from_days(days);
    return days_from_civil(date.year, (date.month - 1) / 3 * 3 + 1, 1);
  }
  constexpr int64_t kYears = kPart == DatePart::kYear         ? 1
                             : kPart == DatePart::kDecade     ? 10
                             : kPart == DatePart::kCentury    ? 100
                             : kPart == DatePart::kMillennium ? 1000
                                                              : 0;
  if constexpr (kYears > 0) return days_from_civil(civil_from_days(days).year / kYears * kYears, 1, 1);
  return days;
}

template <DatePart kPart>
struct Trunc {
  template <class T>
  MILLSTREAM_BODY static auto body(T x) {
    constexpr int64_t kUnit = clock_unit(kPart);
    if constexpr (std::is_same_v<T, Interval>) {
      return of_interval(x);
    } else if constexpr (std::is_same_v<T, Date>) {
      if (!is_finite_date(x.days)) {
        return checked(Timestamp{x.days > 0 ? kTimestampInfinity : -kTimestampInfinity}, false,
                       Failure::kNone);
      }
      int64_t days = kUnit ? x.days : first_day<kPart>(x.days), micros;
      bool overflow = __builtin_mul_overflow(days, kMicrosPerDay, &micros);
      return checked(Timestamp{micros}, overflow, Failure::kOutOfRange);
    } else {
      if (!is_finite_timestamp(x.micros)) return x;
      if constexpr (kUnit > 0) {
        return T{x.micros - floor_mod(x.micros, kUnit)};
      } else {
        // Nothing overflows but in the first years that a timestamp has.
        auto days = static_cast<uint64_t>(first_day<kPart>(floor_div(x.micros, kMicrosPerDay)));
        return T{static_cast<int64_t>(days * static_cast<uint64_t>(kMicrosPerDay))};
      }
    }
  }

  MILLSTREAM_BODY static Interval of_interval(Interval x) {
    constexpr int64_t kUnit = clock_unit(kPart);
    if constexpr (kUnit > 0) {
      x.nanos -= x.nanos % (kUnit * 1000);
      return x;
    }
    x.nanos = 0;
    if constexpr (kPart == DatePart::kWeek || kPart == DatePart::kYearWeek) x.days -= x.days % 7;
    constexpr int32_t kMonths = kPart == DatePart::kMonth                                 ? 1
                                : kPart == DatePart::kQuarter                             ? 3
                                : kPart == DatePart::kYear || kPart == DatePart::kIsoYear ? 12
                                : kPart == DatePart::kDecade                              ? 120
                                : kPart == DatePart::kCentury                             ? 1200
                                : kPart == DatePart::kMillennium                          ? 12000
                                                                                          : 0;
    if constexpr (kMonths > 0) {
      x.days = 0;
      x.months -= x.months % kMonths;
    }
    return x;
  }
};

/// The kernel takes the part too, which is in its type already.
template <DatePart kPart, class T>
Binding with_part() {
  Binding binding = overload<Trunc<kPart>, T>();
  binding.parameters.insert(binding.parameters.begin(), arrow::utf8());
  binding.first_body_argument = 1;
#ifndef MILLSTREAM_BITCODE
  binding.kernel = [](KernelCall& call) -> Status {
    KernelCall time{call.expression, call.arguments.subspan(1), call.rows, call.validity, call.out};
    return run<Trunc<kPart>, T>(time);
  };
#endif
  return binding;
}

template <DatePart kPart>
Result<Binding> choose(const ExprPtr& time) {
  Function f;
  f.name = "date_trunc";
  f.overloads = {overload<Trunc<kPart>, Date>(), overload<Trunc<kPart>, Timestamp>(),
                 overload<Trunc<kPart>, ZonedTimestamp>(), overload<Trunc<kPart>, Interval>()};
  MILLSTREAM_ASSIGN(Binding binding, resolve(f, {time}));
  const arrow::DataType& type = *binding.parameters[0];
  if (is_date_type(type)) return with_part<kPart, Date>();
  if (is_interval_type(type)) return with_part<kPart, Interval>();
  if (is_timestamp_with_zone_type(type)) return with_part<kPart, ZonedTimestamp>();
  return with_part<kPart, Timestamp>();
}

Result<Binding> choose_part(DatePart part, const ExprPtr& time) {
  switch (part) {
    case DatePart::kYear:
      return choose<DatePart::kYear>(time);
    case DatePart::kMonth:
      return choose<DatePart::kMonth>(time);
    case DatePart::kDecade:
      return choose<DatePart::kDecade>(time);
    case DatePart::kCentury:
      return choose<DatePart::kCentury>(time);
    case DatePart::kMillennium:
      return choose<DatePart::kMillennium>(time);
    case DatePart::kQuarter:
      return choose<DatePart::kQuarter>(time);
    case DatePart::kWeek:
    case DatePart::kYearWeek:
      return choose<DatePart::kWeek>(time);
    case DatePart::kIsoYear:
      return choose<DatePart::kIsoYear>(time);
    case DatePart::kDay:
    case DatePart::kDayOfWeek:
    case DatePart::kIsoDayOfWeek:
    case DatePart::kDayOfYear:
      return choose<DatePart::kDay>(time);
    case DatePart::kHour:
      return choose<DatePart::kHour>(time);
    case DatePart::kMinute:
      return choose<DatePart::kMinute>(time);
    case DatePart::kSecond:
    case DatePart::kEpoch:
      return choose<DatePart::kSecond>(time);
    case DatePart::kMillisecond:
      return choose<DatePart::kMillisecond>(time);
    case DatePart::kMicrosecond:
      return choose<DatePart::kMicrosecond>(time);
    case DatePart::kEra:
      break;
  }
  return query_error("date_trunc: an era has no beginning to cut to");
}

Result<std::optional<Binding>> bind(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 2) return std::nullopt;
  MILLSTREAM_ASSIGN(DatePart part, part_of(arguments[0], "date_trunc"));
  MILLSTREAM_ASSIGN(Binding binding, choose_part(part, arguments[1]));
  return binding;
}

}  // namespace

MILLSTREAM_FUNCTION(date_trunc) {
  Function f;
  f.name = "date_trunc";
  f.aliases = {"datetrunc"};
  f.doc = "The beginning of the part that a date or timestamp lies in; of a DATE it is a TIMESTAMP.";
  f.examples = {{"date_trunc('hour', TIMESTAMP '2024-01-02 10:11:12')", "2024-01-02 10:00:00"},
                {"date_trunc('month', DATE '2024-01-31')", "2024-01-01 00:00:00"}};
  f.bind = bind;
  f.bound = rising_bounds<1>;
  f.forms = {"date_trunc('part', DATE)", "date_trunc('part', TIMESTAMP)",
             "date_trunc('part', TIMESTAMP WITH TIME ZONE)", "date_trunc('part', INTERVAL)"};
  return define(std::move(f));
}

}  // namespace millstream::functions
