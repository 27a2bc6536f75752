// Parts of dates, timestamps, times and intervals: year(x), hour(x), …, epoch(x), and date_part('name', x). What is
// infinite has no parts: NULL.

#include "functions/date_part.h"

#include "base/nearest_name.h"
#include "expr/bound_rules.h"
#include "expr/calendar.h"
#include "expr/kernel.h"

namespace millstream::functions {

using namespace expr;

namespace {

struct PartName {
  const char* name;
  DatePart part;
};
constexpr PartName kPartNames[] = {
    {"year", DatePart::kYear},
    {"years", DatePart::kYear},
    {"yr", DatePart::kYear},
    {"y", DatePart::kYear},
    {"month", DatePart::kMonth},
    {"months", DatePart::kMonth},
    {"mon", DatePart::kMonth},
    {"mons", DatePart::kMonth},
    {"day", DatePart::kDay},
    {"days", DatePart::kDay},
    {"d", DatePart::kDay},
    {"dayofmonth", DatePart::kDay},
    {"decade", DatePart::kDecade},
    {"decades", DatePart::kDecade},
    {"century", DatePart::kCentury},
    {"centuries", DatePart::kCentury},
    {"millennium", DatePart::kMillennium},
    {"millennia", DatePart::kMillennium},
    {"quarter", DatePart::kQuarter},
    {"quarters", DatePart::kQuarter},
    {"week", DatePart::kWeek},
    {"weeks", DatePart::kWeek},
    {"w", DatePart::kWeek},
    {"weekofyear", DatePart::kWeek},
    {"isoyear", DatePart::kIsoYear},
    {"dow", DatePart::kDayOfWeek},
    {"dayofweek", DatePart::kDayOfWeek},
    {"weekday", DatePart::kDayOfWeek},
    {"isodow", DatePart::kIsoDayOfWeek},
    {"doy", DatePart::kDayOfYear},
    {"dayofyear", DatePart::kDayOfYear},
    {"yearweek", DatePart::kYearWeek},
    {"era", DatePart::kEra},
    {"hour", DatePart::kHour},
    {"hours", DatePart::kHour},
    {"hr", DatePart::kHour},
    {"h", DatePart::kHour},
    {"minute", DatePart::kMinute},
    {"minutes", DatePart::kMinute},
    {"min", DatePart::kMinute},
    {"mins", DatePart::kMinute},
    {"m", DatePart::kMinute},
    {"second", DatePart::kSecond},
    {"seconds", DatePart::kSecond},
    {"sec", DatePart::kSecond},
    {"secs", DatePart::kSecond},
    {"s", DatePart::kSecond},
    {"millisecond", DatePart::kMillisecond},
    {"milliseconds", DatePart::kMillisecond},
    {"msec", DatePart::kMillisecond},
    {"ms", DatePart::kMillisecond},
    {"microsecond", DatePart::kMicrosecond},
    {"microseconds", DatePart::kMicrosecond},
    {"usec", DatePart::kMicrosecond},
    {"us", DatePart::kMicrosecond},
    {"epoch", DatePart::kEpoch},
};

/// A part of a calendar date.
template <DatePart kPart>
MILLSTREAM_BODY int64_t of_days(int64_t days) {
  if constexpr (kPart == DatePart::kYear) return civil_from_days(days).year;
  if constexpr (kPart == DatePart::kMonth) return civil_from_days(days).month;
  if constexpr (kPart == DatePart::kDay) return civil_from_days(days).day;
  if constexpr (kPart == DatePart::kDecade) return civil_from_days(days).year / 10;
  if constexpr (kPart == DatePart::kCentury || kPart == DatePart::kMillennium) {
    constexpr int64_t kLength = kPart == DatePart::kCentury ? 100 : 1000;
    int64_t year = civil_from_days(days).year;
    return year > 0 ? (year - 1) / kLength + 1 : year / kLength - 1;
  }
  if constexpr (kPart == DatePart::kQuarter) return (civil_from_days(days).month - 1) / 3 + 1;
  if constexpr (kPart == DatePart::kWeek) return iso_week(days).week;
  if constexpr (kPart == DatePart::kIsoYear) return iso_week(days).year;
  if constexpr (kPart == DatePart::kDayOfWeek) return iso_weekday(days) % 7;
  if constexpr (kPart == DatePart::kIsoDayOfWeek) return iso_weekday(days);
  if constexpr (kPart == DatePart::kDayOfYear)
    return days - days_from_civil(civil_from_days(days).year, 1, 1) + 1;
  if constexpr (kPart == DatePart::kYearWeek) {
    IsoWeek week = iso_week(days);
    return week.year * 100 + (week.year > 0 ? week.week : -week.week);
  }
  if constexpr (kPart == DatePart::kEra) return civil_from_days(days).year > 0 ? 1 : 0;
}

/// A part of a time of day, or of a length of time; not negative.
template <DatePart kPart>
MILLSTREAM_BODY int64_t of_clock(int64_t micros) {
  if constexpr (kPart == DatePart::kHour) return div_by<kMicrosPerHour>(micros);
  if constexpr (kPart == DatePart::kMinute)
    return div_by<kMicrosPerMinute>(floor_mod_by<kMicrosPerHour>(micros));
  if constexpr (kPart == DatePart::kSecond)
    return div_by<kMicrosPerSecond>(floor_mod_by<kMicrosPerMinute>(micros));
  if constexpr (kPart == DatePart::kMillisecond) return div_by<1000>(floor_mod_by<kMicrosPerMinute>(micros));
  if constexpr (kPart == DatePart::kMicrosecond) return floor_mod_by<kMicrosPerMinute>(micros);
}

template <DatePart kPart>
constexpr bool kIsClock = kPart >= DatePart::kHour&& kPart <= DatePart::kMicrosecond;

template <DatePart kPart>
struct Part {
  template <class T>
  MILLSTREAM_BODY static auto body(T x) {
    if constexpr (std::is_same_v<T, Time>) {
      return of_clock<kPart>(x.micros);
    } else if constexpr (std::is_same_v<T, Interval>) {
      if constexpr (kIsClock<kPart>) {
        const int64_t micros = x.nanos / 1000;
        return micros < 0 ? -of_clock<kPart>(-micros) : of_clock<kPart>(micros);
      } else {
        return of_interval(x);
      }
    } else if constexpr (std::is_same_v<T, Date>) {
      if constexpr (kIsClock<kPart>) {
        return Maybe<int64_t>{0, is_finite_date(x.days)};
      } else {
        return Maybe<int64_t>{of_days<kPart>(x.days), is_finite_date(x.days)};
      }
    } else {
      bool finite = is_finite_timestamp(x.micros);
      if constexpr (kIsClock<kPart>) {
        return Maybe<int64_t>{of_clock<kPart>(floor_mod_by<kMicrosPerDay>(x.micros)), finite};
      } else {
        return Maybe<int64_t>{of_days<kPart>(floor_div_by<kMicrosPerDay>(x.micros)), finite};
      }
    }
  }

  MILLSTREAM_BODY static int64_t of_interval(const Interval& x) {
    if constexpr (kPart == DatePart::kYear) return x.months / 12;
    if constexpr (kPart == DatePart::kMonth) return x.months % 12;
    if constexpr (kPart == DatePart::kDay) return x.days;
    if constexpr (kPart == DatePart::kDecade) return x.months / 120;
    if constexpr (kPart == DatePart::kCentury) return x.months / 1200;
    if constexpr (kPart == DatePart::kMillennium) return x.months / 12000;
    if constexpr (kPart == DatePart::kQuarter) return x.months % 12 / 3 + 1;
    return 0;
  }
};

/// Seconds since 1970; of an interval its length, with years of 365.25 days and other months of 30.
MILLSTREAM_BODY __int128 interval_micros(const Interval& x) {
  constexpr int64_t kMicrosPerYear = kMicrosPerDay * 365 + kMicrosPerDay / 4;
  return static_cast<__int128>(x.months / 12) * kMicrosPerYear +
         static_cast<__int128>(x.months % 12 * kDaysPerMonth + x.days) * kMicrosPerDay + x.nanos / 1000;
}

struct Epoch {
  template <class T>
  MILLSTREAM_BODY static auto body(T x) {
    if constexpr (std::is_same_v<T, Date>) {
      return Maybe<double>{static_cast<double>(x.days) * 86400.0, is_finite_date(x.days)};
    } else if constexpr (std::is_same_v<T, Interval>) {
      return static_cast<double>(interval_micros(x)) / 1e6;
    } else if constexpr (std::is_same_v<T, Time>) {
      return static_cast<double>(x.micros) / 1e6;
    } else {
      return Maybe<double>{static_cast<double>(x.micros) / 1e6, is_finite_timestamp(x.micros)};
    }
  }
};

/// The timestamp of so many milliseconds: epoch_ms goes both ways.
struct FromMillis {
  MILLSTREAM_BODY static Checked<Timestamp> body(int64_t millis) {
    int64_t micros;
    const bool overflow = __builtin_mul_overflow(millis, int64_t{1000}, &micros);
    return checked(Timestamp{micros}, overflow || micros > kTimestampMax || micros < kTimestampMin,
                   Failure::kOutOfRange);
  }
};

/// The same as whole numbers of a smaller unit.
template <int64_t kPerSecond>
struct EpochIn {
  static constexpr int64_t kUnit = kMicrosPerSecond / kPerSecond;
  template <class T>
  MILLSTREAM_BODY static auto body(T x) {
    if constexpr (std::is_same_v<T, Interval>) {
      // Here, other than in epoch(), a year is twelve months of 30 days.
      __int128 micros =
          static_cast<__int128>(int64_t{x.months} * kDaysPerMonth + x.days) * kMicrosPerDay + x.nanos / 1000;
      auto count = static_cast<int64_t>(micros / kUnit);
      return checked(count, count != micros / kUnit, Failure::kOutOfRange);
    } else if constexpr (std::is_same_v<T, Time>) {
      return x.micros / kUnit;
    } else {
      // To the nearest, halves away from zero.
      const int64_t rest = x.micros % kUnit;
      constexpr int64_t kHalf = kUnit > 1 ? kUnit / 2 : 1;
      const int64_t nearest = x.micros / kUnit + (rest >= kHalf) - (rest <= -kHalf);
      return Maybe<int64_t>{nearest, is_finite_timestamp(x.micros)};
    }
  }
};

template <class Body, class... T>
std::vector<Binding> one_each(Types<T...>) {
  return {overload<Body, T>()...};
}

using Calendars = Types<Date, Timestamp, ZonedTimestamp>;
using WithIntervals = Types<Date, Timestamp, ZonedTimestamp, Interval>;
using WithoutDates = Types<Timestamp, ZonedTimestamp, Interval, Time>;
using AllTimes = Types<Date, Timestamp, ZonedTimestamp, Interval, Time>;

/// Parts of dates and timestamps. A time of day may be 24:00:00, and an interval has any number of hours.
template <DatePart kPart>
Bounds part_bounds(const Expression& call, std::span<const Bounds> arguments) {
  const arrow::DataType& type = *call.arguments[0]->type;
  if (!is_date_type(type) && !is_timestamp_type(type)) return {};
  switch (kPart) {
    case DatePart::kMonth:
      return whole_bounds(1, 12);
    case DatePart::kDay:
      return whole_bounds(1, 31);
    case DatePart::kQuarter:
      return whole_bounds(1, 4);
    case DatePart::kWeek:
      return whole_bounds(1, 53);
    case DatePart::kDayOfWeek:
      return whole_bounds(0, 6);
    case DatePart::kIsoDayOfWeek:
      return whole_bounds(1, 7);
    case DatePart::kDayOfYear:
      return whole_bounds(1, 366);
    case DatePart::kEra:
      return whole_bounds(0, 1);
    case DatePart::kHour:
      return whole_bounds(0, 23);
    case DatePart::kMinute:
    case DatePart::kSecond:
      return whole_bounds(0, 59);
    case DatePart::kMillisecond:
      return whole_bounds(0, 59'999);
    case DatePart::kMicrosecond:
      return whole_bounds(0, 59'999'999);
    case DatePart::kYearWeek:  // falls with the weeks of years BC
      return {};
    default:
      return bounds_at_limits(call, arguments, 0);
  }
}

template <DatePart kPart>
Function part(std::vector<std::string> aliases, const char* doc, std::vector<Example> examples) {
  Function f;
  f.name = part_function(kPart);
  f.aliases = std::move(aliases);
  f.doc = doc;
  f.examples = std::move(examples);
  f.bound = part_bounds<kPart>;
  if constexpr (kIsClock<kPart>) {
    f.overloads = one_each<Part<kPart>>(AllTimes{});
  } else if constexpr (kPart <= DatePart::kQuarter) {
    f.overloads = one_each<Part<kPart>>(WithIntervals{});
  } else {
    f.overloads = one_each<Part<kPart>>(Calendars{});
  }
  return f;
}

Result<ExprPtr> rewrite_date_part(const std::vector<ExprPtr>& arguments, QueryPosition position) {
  if (arguments.size() != 2)
    return query_error("date_part takes two arguments: a part, such as 'hour', and a time");
  MILLSTREAM_ASSIGN(DatePart part, part_of(arguments[0], "date_part"));
  return make_call(part_function(part), {arguments[1]}, position);
}

}  // namespace

Result<DatePart> part_of(const ExprPtr& argument, std::string_view function) {
  if (argument->kind != Kind::kLiteral || !is_string_type(*argument->type) || !argument->literal->is_valid) {
    return query_error("the part that {} takes must be a literal such as 'day', not {}", function,
                       argument->to_sql());
  }
  std::string name(static_cast<const arrow::StringScalar&>(*argument->literal).view());
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  std::vector<std::string> names;
  for (const PartName& known : kPartNames) {
    if (name == known.name) return known.part;
    names.emplace_back(known.name);
  }
  return query_error("{}: unknown part '{}'{}", function, name, name_hint(name, names));
}

const char* part_function(DatePart part) {
  switch (part) {
    case DatePart::kDayOfWeek:
      return "dayofweek";
    case DatePart::kDayOfYear:
      return "dayofyear";
    default:
      break;
  }
  for (const PartName& known : kPartNames) {
    if (known.part == part) return known.name;
  }
  return "";
}

MILLSTREAM_FUNCTION(date_part) {
  Function date_part;
  date_part.name = "date_part";
  date_part.aliases = {"datepart"};
  date_part.doc = "A part of a date, timestamp, time or interval by its name, as EXTRACT(part FROM x).";
  date_part.examples = {{"date_part('hour', TIMESTAMP '2024-01-02 10:11:12')", "10"}};
  date_part.rewrite = rewrite_date_part;
  date_part.forms = {"date_part('part', ANY)"};

  Function epoch;
  epoch.name = "epoch";
  epoch.doc = "Seconds since 1970-01-01, or the length of an interval, with fractions.";
  epoch.examples = {{"epoch(TIMESTAMP '1970-01-02 00:00:00.5')", "86400.5"},
                    {"epoch(INTERVAL '90 minutes')", "5400.0"}};
  epoch.bound = rising_bounds<0>;
  epoch.overloads = one_each<Epoch>(AllTimes{});

  Function epoch_ms;
  epoch_ms.name = "epoch_ms";
  epoch_ms.doc =
      "Milliseconds since 1970-01-01, or the length of an interval; of an integer the timestamp of so many.";
  epoch_ms.examples = {{"epoch_ms(DATE '1970-01-02')", "86400000"},
                       {"epoch_ms(1500)", "1970-01-01 00:00:01.5"}};
  epoch_ms.bound = rising_bounds<0>;
  epoch_ms.overloads = one_each<EpochIn<1000>>(WithoutDates{});
  epoch_ms.overloads.push_back(overload<FromMillis, int64_t>());

  Function epoch_us;
  epoch_us.name = "epoch_us";
  epoch_us.doc = "Microseconds since 1970-01-01, or the length of an interval.";
  epoch_us.examples = {{"epoch_us(DATE '1970-01-02')", "86400000000"}};
  epoch_us.bound = rising_bounds<0>;
  epoch_us.overloads = one_each<EpochIn<1000000>>(WithoutDates{});

  const char* t = "(TIMESTAMP '2024-12-31 10:11:12.345678')";
  auto at = [&](const char* function, const char* result) {
    return std::vector<Example>{{function + std::string(t), result}};
  };
  return define(
      part<DatePart::kYear>({}, "The year.", at("year", "2024")),
      part<DatePart::kMonth>({}, "The month, 1 to 12.", at("month", "12")),
      part<DatePart::kDay>({"dayofmonth"}, "The day of the month, 1 to 31.", at("day", "31")),
      part<DatePart::kDecade>({}, "The year divided by ten.", at("decade", "202")),
      part<DatePart::kCentury>({}, "The century: 2001 begins the 21st.", at("century", "21")),
      part<DatePart::kMillennium>({}, "The millennium: 2001 begins the third.", at("millennium", "3")),
      part<DatePart::kQuarter>({}, "The quarter, 1 to 4.", at("quarter", "4")),
      part<DatePart::kWeek>({"weekofyear"}, "The ISO week, 1 to 53.", at("week", "1")),
      part<DatePart::kIsoYear>({}, "The year that the ISO week belongs to.", at("isoyear", "2025")),
      part<DatePart::kDayOfWeek>({"weekday"}, "The day of the week, Sunday 0 to Saturday 6.",
                                 at("dayofweek", "2")),
      part<DatePart::kIsoDayOfWeek>({}, "The day of the week, Monday 1 to Sunday 7.", at("isodow", "2")),
      part<DatePart::kDayOfYear>({}, "The day of the year, 1 to 366.", at("dayofyear", "366")),
      part<DatePart::kYearWeek>({}, "ISO year and week as one number.", at("yearweek", "202501")),
      part<DatePart::kEra>({}, "1 for years AD, 0 for years BC.", at("era", "1")),
      part<DatePart::kHour>({}, "The hour, 0 to 23; all hours of an interval's time.", at("hour", "10")),
      part<DatePart::kMinute>({}, "The minute, 0 to 59.", at("minute", "11")),
      part<DatePart::kSecond>({}, "The whole second, 0 to 59.", at("second", "12")),
      part<DatePart::kMillisecond>({}, "Milliseconds within the minute.", at("millisecond", "12345")),
      part<DatePart::kMicrosecond>({}, "Microseconds within the minute.", at("microsecond", "12345678")),
      std::move(epoch), std::move(epoch_ms), std::move(epoch_us), std::move(date_part));
}

}  // namespace millstream::functions
