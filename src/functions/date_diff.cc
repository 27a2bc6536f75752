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

/// The number of the part that a time lies in, from any beginning.
template <DatePart kPart>
MILLSTREAM_BODY int64_t ordinal(int64_t micros) {
  constexpr Length kLength = length_of(kPart);
  if constexpr (kPart == DatePart::kWeek) return floor_div(week_start(floor_div(micros, kMicrosPerDay)), 7);
  if constexpr (kPart == DatePart::kIsoYear) return iso_week(floor_div(micros, kMicrosPerDay)).year;
  if constexpr (kLength.micros > 0) return floor_div(micros, kLength.micros);
  CivilDate date = civil_from_days(floor_div(micros, kMicrosPerDay));
  if constexpr (kLength.months >= 12) return date.year / (kLength.months / 12);
  return floor_div(date.year * 12 + date.month - 1, kLength.months);
}

template <DatePart kPart>
struct Difference {
  MILLSTREAM_BODY static int64_t between(int64_t a, int64_t b) {
    return ordinal<kPart>(b) - ordinal<kPart>(a);
  }
};

/// Whole months from a to the later b; the last day of a shorter month completes one.
MILLSTREAM_BODY int64_t whole_months(int64_t a, int64_t b) {
  const int64_t a_days = floor_div(a, kMicrosPerDay), b_days = floor_div(b, kMicrosPerDay);
  const CivilDate from = civil_from_days(a_days), to = civil_from_days(b_days);
  const int64_t months = (to.year - from.year) * 12 + to.month - from.month;
  const int64_t reached = add_months(a_days, months);
  bool passed =
      reached > b_days || (reached == b_days && floor_mod(a, kMicrosPerDay) > floor_mod(b, kMicrosPerDay));
  return months - passed;
}

template <DatePart kPart>
struct WholeParts {
  MILLSTREAM_BODY static int64_t between(int64_t a, int64_t b) {
    constexpr Length kLength = length_of(kPart);
    if constexpr (kLength.micros > 0) {
      return static_cast<int64_t>(static_cast<uint64_t>(b) - static_cast<uint64_t>(a)) / kLength.micros;
    } else {
      int64_t months = a <= b ? whole_months(a, b) : -whole_months(b, a);
      return months / kLength.months;
    }
  }
};

/// The count over dates, timestamps and times; NULL where one is infinite.
template <class Count>
struct Between {
  template <class T>
  MILLSTREAM_BODY static auto body(T a, T b) {
    if constexpr (std::is_same_v<T, Date>) {
      bool finite = is_finite_date(a.days) && is_finite_date(b.days);
      // Dates beyond the range of timestamps wrap, as nothing finer than a day is lost for those inside.
      auto micros = [](Date x) {
        return static_cast<int64_t>(static_cast<uint64_t>(int64_t{x.days}) *
                                    static_cast<uint64_t>(kMicrosPerDay));
      };
      return Maybe<int64_t>{Count::between(micros(a), micros(b)), finite};
    } else if constexpr (std::is_same_v<T, Time>) {
      return Count::between(a.micros, b.micros);
    } else {
      bool finite = is_finite_timestamp(a.micros) && is_finite_timestamp(b.micros);
      return Maybe<int64_t>{Count::between(a.micros, b.micros), finite};
    }
  }
};

/// The overloads for one part; kernels are given the part as well, which is in their type already.
template <class Count>
std::vector<Binding> overloads_for(bool with_time) {
  auto with_part = []<class T>(std::type_identity<T>) {
    Binding binding = overload<Between<Count>, T, T>();
    binding.parameters.insert(binding.parameters.begin(), arrow::utf8());
    binding.kernel = [](KernelCall& call) -> Status {
      KernelCall times{call.expression, call.arguments.subspan(1), call.rows, call.validity, call.out};
      return run<Between<Count>, T, T>(times);
    };
    return binding;
  };
  std::vector<Binding> all = {with_part(std::type_identity<Date>{}),
                              with_part(std::type_identity<Timestamp>{}),
                              with_part(std::type_identity<ZonedTimestamp>{})};
  if (with_time) all.push_back(with_part(std::type_identity<Time>{}));
  return all;
}

template <template <DatePart> class Count>
std::vector<Binding> overloads_of(DatePart part) {
  switch (part) {
    case DatePart::kMicrosecond:
      return overloads_for<Count<DatePart::kMicrosecond>>(true);
    case DatePart::kMillisecond:
      return overloads_for<Count<DatePart::kMillisecond>>(true);
    case DatePart::kSecond:
    case DatePart::kEpoch:
      return overloads_for<Count<DatePart::kSecond>>(true);
    case DatePart::kMinute:
      return overloads_for<Count<DatePart::kMinute>>(true);
    case DatePart::kHour:
      return overloads_for<Count<DatePart::kHour>>(true);
    case DatePart::kDay:
    case DatePart::kDayOfWeek:
    case DatePart::kIsoDayOfWeek:
    case DatePart::kDayOfYear:
      return overloads_for<Count<DatePart::kDay>>(false);
    case DatePart::kWeek:
    case DatePart::kYearWeek:
      return overloads_for<Count<DatePart::kWeek>>(false);
    case DatePart::kMonth:
      return overloads_for<Count<DatePart::kMonth>>(false);
    case DatePart::kQuarter:
      return overloads_for<Count<DatePart::kQuarter>>(false);
    case DatePart::kYear:
      return overloads_for<Count<DatePart::kYear>>(false);
    case DatePart::kIsoYear:
      return overloads_for<Count<DatePart::kIsoYear>>(false);
    case DatePart::kDecade:
      return overloads_for<Count<DatePart::kDecade>>(false);
    case DatePart::kCentury:
      return overloads_for<Count<DatePart::kCentury>>(false);
    case DatePart::kMillennium:
      return overloads_for<Count<DatePart::kMillennium>>(false);
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
