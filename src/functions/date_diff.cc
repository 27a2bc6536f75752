// date_diff counts the boundaries of a part that lie between two times, date_sub the whole parts that fit.

#include "expr/calendar.h"
#include "expr/kernel.h"
#include "functions/date_part.h"

namespace millstream::functions {

using namespace expr;

namespace {

/// What divides the time line evenly: microseconds for a part of fixed length, months for others; 0: neither.
struct Length {
  int64_t micros = 0;
  int64_t months = 0;
};
constexpr Length length_of(DatePart part) {
  switch (part) {
    case DatePart::kMicrosecond:
      return {1};
    case DatePart::kMillisecond:
      return {1000};
    case DatePart::kSecond:
    case DatePart::kEpoch:
      return {kMicrosPerSecond};
    case DatePart::kMinute:
      return {kMicrosPerMinute};
    case DatePart::kHour:
      return {kMicrosPerHour};
    case DatePart::kDay:
    case DatePart::kDayOfWeek:
    case DatePart::kIsoDayOfWeek:
    case DatePart::kDayOfYear:
      return {kMicrosPerDay};
    case DatePart::kWeek:
    case DatePart::kYearWeek:
      return {7 * kMicrosPerDay};
    case DatePart::kMonth:
      return {0, 1};
    case DatePart::kQuarter:
      return {0, 3};
    case DatePart::kYear:
    case DatePart::kIsoYear:
      return {0, 12};
    case DatePart::kDecade:
      return {0, 120};
    case DatePart::kCentury:
      return {0, 1200};
    case DatePart::kMillennium:
      return {0, 12000};
    case DatePart::kEra:
      break;
  }
  return {};
}

/// The number of the part that a day lies in, from any beginning.
template <DatePart kPart>
MILLSTREAM_BODY int64_t ordinal_of_day(int64_t days) {
  constexpr Length kLength = length_of(kPart);
  if constexpr (kPart == DatePart::kDay) return days;
  if constexpr (kPart == DatePart::kIsoYear) return iso_week(days).year;
  const CivilDate date = civil_from_days(days);
  if constexpr (kLength.months >= 12) return date.year / (kLength.months / 12);
  return (date.year * 12 + date.month - 1) / std::max<int64_t>(kLength.months, 1);
}

template <DatePart kPart>
struct Difference {
  /// Dates reach further than timestamps.
  static constexpr bool kOfDates = length_of(kPart).micros >= kMicrosPerSecond;
  MILLSTREAM_BODY static int64_t between(int64_t a, int64_t b) {
    if constexpr (kPart == DatePart::kWeek) {
      return between_days(floor_div(a, kMicrosPerDay), floor_div(b, kMicrosPerDay));
    }
    return ordinal(b) - ordinal(a);
  }
  /// Weeks are counted whole, from day to day.
  MILLSTREAM_BODY static int64_t between_days(int64_t a, int64_t b) {
    if constexpr (kPart == DatePart::kWeek) return (b - a) / 7;
    constexpr int64_t kMicros = length_of(kPart).micros;
    if constexpr (kMicros > 0 && kMicros < kMicrosPerDay) return (b - a) * (kMicrosPerDay / kMicros);
    return ordinal_of_day<kPart>(b) - ordinal_of_day<kPart>(a);
  }
  MILLSTREAM_BODY static int64_t ordinal(int64_t micros) {
    constexpr int64_t kMicros = length_of(kPart).micros;
    if constexpr (kMicros > 0 && kMicros < kMicrosPerDay) return floor_div(micros, kMicros);
    return ordinal_of_day<kPart>(floor_div(micros, kMicrosPerDay));
  }
};

/// Whole months from a to the later b; the last day of a shorter month completes one.
MILLSTREAM_BODY int64_t whole_months(int64_t a_days, int64_t a_clock, int64_t b_days, int64_t b_clock) {
  const CivilDate from = civil_from_days(a_days), to = civil_from_days(b_days);
  const int64_t months = (to.year - from.year) * 12 + to.month - from.month;
  const int64_t reached = add_months(a_days, months);
  return months - (reached > b_days || (reached == b_days && a_clock > b_clock));
}

template <DatePart kPart>
struct WholeParts {
  static constexpr bool kOfDates = length_of(kPart).micros >= kMicrosPerDay || length_of(kPart).micros == 0;
  MILLSTREAM_BODY static int64_t between(int64_t a, int64_t b) {
    constexpr Length kLength = length_of(kPart);
    if constexpr (kLength.micros > 0) {
      int64_t apart;
      if (!__builtin_sub_overflow(b, a, &apart)) return apart / kLength.micros;
      return static_cast<int64_t>((static_cast<__int128>(b) - a) / kLength.micros);
    } else {
      return months(floor_div(a, kMicrosPerDay), floor_mod(a, kMicrosPerDay), floor_div(b, kMicrosPerDay),
                    floor_mod(b, kMicrosPerDay)) /
             kLength.months;
    }
  }
  MILLSTREAM_BODY static int64_t between_days(int64_t a, int64_t b) {
    constexpr Length kLength = length_of(kPart);
    if constexpr (kLength.micros > 0) {
      return (b - a) / (kLength.micros / kMicrosPerDay);
    } else {
      return months(a, 0, b, 0) / kLength.months;
    }
  }
  MILLSTREAM_BODY static int64_t months(int64_t a_days, int64_t a_clock, int64_t b_days, int64_t b_clock) {
    bool forward = a_days < b_days || (a_days == b_days && a_clock <= b_clock);
    return forward ? whole_months(a_days, a_clock, b_days, b_clock)
                   : -whole_months(b_days, b_clock, a_days, a_clock);
  }
};

/// The count over dates, timestamps and times; NULL where one is infinite.
template <class Count>
struct Between {
  template <class T>
  MILLSTREAM_BODY static auto body(T a, T b) {
    if constexpr (std::is_same_v<T, Date>) {
      return Maybe<int64_t>{Count::between_days(a.days, b.days),
                            is_finite_date(a.days) && is_finite_date(b.days)};
    } else if constexpr (std::is_same_v<T, Time>) {
      return Count::between(a.micros, b.micros);
    } else {
      return Maybe<int64_t>{Count::between(a.micros, b.micros),
                            is_finite_timestamp(a.micros) && is_finite_timestamp(b.micros)};
    }
  }
};

/// The overloads for one part; kernels are given the part as well, which is in their type already. Clock parts of
/// dates are those of the timestamps that they are cast to, unless the count has its own rule.
template <class Count, bool kClock>
std::vector<Binding> overloads_for(std::bool_constant<kClock>) {
  auto with_part = []<class T>(std::type_identity<T>) {
    Binding binding = overload<Between<Count>, T, T>();
    binding.parameters.insert(binding.parameters.begin(), arrow::utf8());
    binding.first_body_argument = 1;
#ifndef MILLSTREAM_BITCODE
    binding.kernel = [](KernelCall& call) -> Status {
      KernelCall times{call.expression, call.arguments.subspan(1), call.rows, call.validity, call.out};
      return run<Between<Count>, T, T>(times);
    };
#endif
    return binding;
  };
  std::vector<Binding> all = {with_part(std::type_identity<Timestamp>{}),
                              with_part(std::type_identity<ZonedTimestamp>{})};
  if constexpr (kClock) all.push_back(with_part(std::type_identity<Time>{}));
  if constexpr (!kClock || Count::kOfDates) all.push_back(with_part(std::type_identity<Date>{}));
  return all;
}

template <template <DatePart> class Count>
std::vector<Binding> overloads_of(DatePart part) {
  switch (part) {
    case DatePart::kMicrosecond:
      return overloads_for<Count<DatePart::kMicrosecond>>(std::true_type{});
    case DatePart::kMillisecond:
      return overloads_for<Count<DatePart::kMillisecond>>(std::true_type{});
    case DatePart::kSecond:
    case DatePart::kEpoch:
      return overloads_for<Count<DatePart::kSecond>>(std::true_type{});
    case DatePart::kMinute:
      return overloads_for<Count<DatePart::kMinute>>(std::true_type{});
    case DatePart::kHour:
      return overloads_for<Count<DatePart::kHour>>(std::true_type{});
    case DatePart::kDay:
    case DatePart::kDayOfWeek:
    case DatePart::kIsoDayOfWeek:
    case DatePart::kDayOfYear:
      return overloads_for<Count<DatePart::kDay>>(std::false_type{});
    case DatePart::kWeek:
    case DatePart::kYearWeek:
      return overloads_for<Count<DatePart::kWeek>>(std::false_type{});
    case DatePart::kMonth:
      return overloads_for<Count<DatePart::kMonth>>(std::false_type{});
    case DatePart::kQuarter:
      return overloads_for<Count<DatePart::kQuarter>>(std::false_type{});
    case DatePart::kYear:
      return overloads_for<Count<DatePart::kYear>>(std::false_type{});
    case DatePart::kIsoYear:
      return overloads_for<Count<DatePart::kIsoYear>>(std::false_type{});
    case DatePart::kDecade:
      return overloads_for<Count<DatePart::kDecade>>(std::false_type{});
    case DatePart::kCentury:
      return overloads_for<Count<DatePart::kCentury>>(std::false_type{});
    case DatePart::kMillennium:
      return overloads_for<Count<DatePart::kMillennium>>(std::false_type{});
    case DatePart::kEra:
      break;
  }
  return {};
}

template <template <DatePart> class Count>
Result<std::optional<Binding>> bind(const std::vector<ExprPtr>& arguments, const char* name) {
  if (arguments.size() != 3) return std::nullopt;
  MILLSTREAM_ASSIGN(DatePart part, part_of(arguments[0], name));
  Function f;
  f.name = name;
  f.overloads = overloads_of<Count>(part);
  if (f.overloads.empty()) return query_error("{} does not count eras", name);
  MILLSTREAM_ASSIGN(Binding binding, resolve(f, arguments));
  return binding;
}

Result<std::optional<Binding>> bind_difference(const std::vector<ExprPtr>& arguments) {
  return bind<Difference>(arguments, "date_diff");
}
Result<std::optional<Binding>> bind_whole(const std::vector<ExprPtr>& arguments) {
  return bind<WholeParts>(arguments, "date_sub");
}

}  // namespace

MILLSTREAM_FUNCTION(date_diff) {
  Function difference;
  difference.name = "date_diff";
  difference.aliases = {"datediff"};
  difference.doc = "How many boundaries of the part lie between the first time and the second.";
  difference.examples = {
      {"date_diff('hour', TIMESTAMP '2024-01-01 10:59:00', TIMESTAMP '2024-01-01 11:00:00')", "1"},
      {"date_diff('month', DATE '2024-01-31', DATE '2024-02-01')", "1"}};
  difference.bind = bind_difference;

  Function whole;
  whole.name = "date_sub";
  whole.aliases = {"datesub"};
  whole.doc = "How many whole parts fit between the first time and the second.";
  whole.examples = {
      {"date_sub('hour', TIMESTAMP '2024-01-01 10:59:00', TIMESTAMP '2024-01-01 11:00:00')", "0"},
      {"date_sub('month', DATE '2024-01-31', DATE '2024-02-29')", "1"}};
  whole.bind = bind_whole;

  for (Function* f : {&difference, &whole}) {
    for (const char* type : {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIME"}) {
      f->forms.push_back(fmt::format("{}('part', {}, {})", f->name, type, type));
    }
  }
  return define(std::move(difference), std::move(whole));
}

}  // namespace millstream::functions
