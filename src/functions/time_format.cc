// strftime writes times by a format, strptime and try_strptime read them. The letters are C's, as DuckDB has them.

#include <array>

#include "expr/calendar.h"
#include "expr/kernel.h"
#include "expr/text.h"
#include "expr/time_zone.h"
#include "functions/definition.h"

namespace millstream::functions {

using namespace expr;
using Text = std::string_view;

namespace {

constexpr Text kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr Text kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                            "July",    "August",   "September", "October", "November", "December"};
constexpr size_t kShort = 3;

/// A format in pieces: a literal, then what `letter` says. `-` before a letter: without zeros in front.
struct Piece {
  std::string literal;
  char letter = 0;  ///< 0: nothing, at the end
  bool plain = false;
};

Result<std::vector<Piece>> parse_format(Text format) {
  if (format.empty()) return query_error("a format of times can't be empty");
  std::vector<Piece> pieces(1);
  const auto add = [&](Text more, auto& self) -> Status {
    while (!more.empty()) {
      const char c = more.front();
      more.remove_prefix(1);
      if (c != '%') {
        pieces.back().literal += c;
        continue;
      }
      const bool plain = !more.empty() && more.front() == '-';
      if (plain) more.remove_prefix(1);
      if (more.empty()) return query_error("the format '{}' ends within a %", format);
      const char letter = more.front();
      more.remove_prefix(1);
      if (letter == '%' && !plain) {
        pieces.back().literal += '%';
      } else if (letter == 'c' && !plain) {
        MILLSTREAM_TRY(self("%Y-%m-%d %H:%M:%S", self));
      } else if (letter == 'x' && !plain) {
        MILLSTREAM_TRY(self("%Y-%m-%d", self));
      } else if (letter == 'X' && !plain) {
        MILLSTREAM_TRY(self("%H:%M:%S", self));
      } else if (Text(plain ? "dmyHIMSj" : "aAwudbBmyYHIpMSfgnzZjUWVG").find(letter) != Text::npos) {
        pieces.back().letter = letter;
        pieces.back().plain = plain;
        pieces.emplace_back();
      } else {
        return query_error(
            "the format '{}' has %{}{}, and there are a A b B c d f g G H I j m M n p S u U V w W x X y Y z "
            "Z %, and "
            "-d -H -I -j -m -M -S -y",
            format, plain ? "-" : "", letter);
      }
    }
    return Status::OK();
  };
  MILLSTREAM_TRY(add(format, add));
  return pieces;
}

// ---- writing

/// What a format can ask for.
struct Moment {
  int64_t days = 0;
  int64_t nanos = 0;  ///< since midnight
  bool zone = false;
};

void append_number(StringWriter& out, int64_t value, int width) {
  char digits[24];
  int n = 0;
  uint64_t rest = value < 0 ? static_cast<uint64_t>(-value) : static_cast<uint64_t>(value);
  do digits[n++] = static_cast<char>('0' + rest % 10);
  while (rest /= 10);
  while (n < width) digits[n++] = '0';
  while (n) out.append(digits[--n]);
}

/// Weeks of the year that begin on a day, 0 is Sunday; days before the first such day are in week 0.
int64_t week_of_year(int64_t days, const CivilDate& date, int first_weekday) {
  const int64_t day_of_year = days - days_from_civil(date.year, 1, 1);
  const int64_t weekday = floor_mod(iso_weekday(days) % 7 - first_weekday, 7);
  return (day_of_year + 7 - weekday) / 7;
}

void write(StringWriter& out, const std::vector<Piece>& pieces, const Moment& moment) {
  const CivilDate date = civil_from_days(moment.days);
  const int64_t seconds = moment.nanos / 1'000'000'000, fraction = moment.nanos % 1'000'000'000;
  const int64_t hour = seconds / 3600;
  const auto year = [&](int64_t y) {
    if (y < 0) out.append('-');
    append_number(out, y, y >= 0 ? 4 : 1);
  };
  for (const Piece& piece : pieces) {
    out.append(piece.literal);
    const int two = piece.plain ? 1 : 2;
    switch (piece.letter) {
      case 'a':
        out.append(kDays[iso_weekday(moment.days) % 7].substr(0, kShort));
        break;
      case 'A':
        out.append(kDays[iso_weekday(moment.days) % 7]);
        break;
      case 'w':
        append_number(out, iso_weekday(moment.days) % 7, 1);
        break;
      case 'u':
        append_number(out, iso_weekday(moment.days), 1);
        break;
      case 'd':
        append_number(out, date.day, two);
        break;
      case 'b':
        out.append(kMonths[date.month - 1].substr(0, kShort));
        break;
      case 'B':
        out.append(kMonths[date.month - 1]);
        break;
      case 'm':
        append_number(out, date.month, two);
        break;
      case 'y':
        append_number(out, date.year % 100, two);
        break;
      case 'Y':
        year(date.year);
        break;
      case 'G':
        year(iso_week(moment.days).year);
        break;
      case 'V':
        append_number(out, iso_week(moment.days).week, 2);
        break;
      case 'H':
        append_number(out, hour, two);
        break;
      case 'I':
        append_number(out, hour % 12 == 0 ? 12 : hour % 12, two);
        break;
      case 'p':
        out.append(hour >= 12 ? "PM" : "AM");
        break;
      case 'M':
        append_number(out, seconds / 60 % 60, two);
        break;
      case 'S':
        append_number(out, seconds % 60, two);
        break;
      case 'f':
        append_number(out, fraction / 1000, 6);
        break;
      case 'g':
        append_number(out, fraction / 1'000'000, 3);
        break;
      case 'n':
        append_number(out, fraction, 9);
        break;
      case 'z':
        out.append("+00");
        break;
      case 'Z':
        out.append(moment.zone ? "UTC" : "");
        break;
      case 'j':
        append_number(out, moment.days - days_from_civil(date.year, 1, 1) + 1, piece.plain ? 1 : 3);
        break;
      case 'U':
        append_number(out, week_of_year(moment.days, date, 0), 2);
        break;
      case 'W':
        append_number(out, week_of_year(moment.days, date, 1), 2);
        break;
      default:
        break;
    }
  }
}

bool is_text(const Expression& e) {
  return is_string_type(*e.type) || is_null_type(*e.type);
}

/// The constant format of an argument; nothing where it is none.
Result<std::optional<std::vector<Piece>>> constant_format(const Expression& e) {
  if (e.kind != Kind::kLiteral || !is_string_type(*e.type) || !e.literal->is_valid) return std::nullopt;
  MILLSTREAM_ASSIGN(auto pieces, parse_format(static_cast<const arrow::StringScalar&>(*e.literal).view()));
  return pieces;
}

/// The arguments stand in either order.
template <bool kFormatFirst>
Status format_times(KernelCall& call) {
  const Value &times = call.arguments[kFormatFirst ? 1 : 0], &formats = call.arguments[kFormatFirst ? 0 : 1];
  const arrow::DataType& type = *times.data->type;
  const Strided<Text> format(formats);
  std::vector<Piece> pieces;
  Text known;
  StringWriter writer;
  MILLSTREAM_TRY(writer.start(call.rows, call.rows * 12));
  const int64_t ticks =
      is_date_type(type) ? 1 : ticks_per_second(static_cast<const arrow::TimestampType&>(type).unit());
  for (int64_t i = 0; i < call.rows; ++i) {
    if (!is_set(call.validity, i)) {
      writer.end_row();
      continue;
    }
    if (pieces.empty() || format[i] != known) {
      known = format[i];
      auto parsed = parse_format(known);
      if (!parsed.ok())
        return make_error(ErrorCategory::kData, parsed.status().message(), SourcePosition{0, i});
      pieces = std::move(*parsed);
    }
    Moment moment;
    int infinite = 0;
    if (is_date_type(type)) {
      moment.days = Strided<int32_t>(times)[i];
      if (!is_finite_date(static_cast<int32_t>(moment.days))) infinite = moment.days > 0 ? 1 : -1;
    } else {
      const int64_t x = Strided<int64_t>(times)[i];
      if (!is_finite_timestamp(x)) infinite = x > 0 ? 1 : -1;
      moment.days = floor_div(x, ticks * 86400);
      moment.nanos = floor_mod(x, ticks * 86400) * (1'000'000'000 / ticks);
      moment.zone = is_timestamp_with_zone_type(type);
    }
    if (infinite) {
      writer.append(infinite > 0 ? "infinity" : "-infinity");
    } else {
      write(writer, pieces, moment);
    }
    writer.end_row();
  }
  return writer.finish(call.out);
}

Result<std::optional<Binding>> bind_strftime(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 2) return std::nullopt;
  const auto is_time = [](const Expression& e) {
    return is_date_type(*e.type) || is_timestamp_type(*e.type);
  };
  const bool format_first = is_time(*arguments[1]) && is_text(*arguments[0]);
  if (!format_first && !(is_time(*arguments[0]) && is_text(*arguments[1]))) return std::nullopt;
  const size_t time = format_first ? 1 : 0;
  MILLSTREAM_ASSIGN(const auto constant, constant_format(*arguments[1 - time]));
  Binding binding;
  binding.parameters = {arrow::utf8(), arrow::utf8()};
  binding.parameters[time] = arguments[time]->type;
  binding.result = arrow::utf8();
  binding.kernel = format_first ? format_times<true> : format_times<false>;
  binding.can_fail = !constant;
  return binding;
}

// ---- reading

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}
bool starts_with(Text text, Text word) {
  if (text.size() < word.size()) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    if (lower(text[i]) != lower(word[i])) return false;
  }
  return true;
}

/// What a format's letters have said of a time.
struct Read {
  int64_t year = 1900, month = 1, day = 1;
  int64_t hour = 0, minute = 0, second = 0, nanos = 0;
  int64_t offset = 0;  ///< seconds east of UTC
  std::string zone;
  int half = 0;  ///< 1: AM, 2: PM
  char week_letter = 0;
  int64_t week = 0, weekday = -1;
  int64_t day_of_year = 0;
  int64_t iso_year = -1, iso_week = -1, iso_weekday = -1;
};

/// A number of one to `most` digits.
bool take_number(Text& text, size_t most, int64_t& value, size_t* digits = nullptr) {
  size_t n = 0;
  value = 0;
  while (n < text.size() && n < most && is_digit(text[n])) value = value * 10 + (text[n++] - '0');
  text.remove_prefix(n);
  if (digits) *digits = n;
  return n > 0;
}

template <size_t N>
bool take_name(Text& text, const Text (&names)[N], bool shortened, int64_t& index) {
  for (size_t i = 0; i < N; ++i) {
    const Text name = shortened ? names[i].substr(0, kShort) : names[i];
    if (!starts_with(text, name)) continue;
    text.remove_prefix(name.size());
    index = static_cast<int64_t>(i);
    return true;
  }
  return false;
}

/// +HH, +HHMM or +HH:MM, with seconds perhaps.
bool take_offset(Text& text, int64_t& seconds) {
  if (text.size() < 3 || (text[0] != '+' && text[0] != '-')) return false;
  const int64_t sign = text[0] == '-' ? -1 : 1;
  text.remove_prefix(1);
  size_t digits = 0;
  int64_t part = 0;
  if (!take_number(text, 2, part, &digits) || digits != 2) return false;
  seconds = part * 3600;
  for (const int64_t unit : {60, 1}) {
    Text rest = text;
    if (!rest.empty() && rest[0] == ':') rest.remove_prefix(1);
    if (!take_number(rest, 2, part, &digits) || digits != 2) break;
    if (part > 59) return false;
    seconds += part * unit;
    text = rest;
  }
  seconds *= sign;
  return true;
}

bool take_letter(Text& text, char letter, Read& read) {
  int64_t number = 0;
  size_t digits = 0;
  const auto in = [&](size_t most, int64_t low, int64_t high, int64_t& to) {
    if (!take_number(text, most, number, &digits) || number < low || number > high) return false;
    to = number;
    return true;
  };
  const auto fraction = [&](size_t most) {
    if (!take_number(text, most, number, &digits)) return false;
    for (; digits < 9; ++digits) number *= 10;
    read.nanos = number;
    return true;
  };
  switch (letter) {
    case 'd':
      return in(2, 1, 31, read.day);
    case 'm':
      return in(2, 1, 12, read.month);
    case 'y':
      if (!in(2, 0, 99, read.year)) return false;
      read.year += read.year < 69 ? 2000 : 1900;
      return true;
    case 'Y':
      return in(4, 0, 9999, read.year);
    case 'G':
      return in(4, 0, 9999, read.iso_year);
    case 'H':
      return in(2, 0, 23, read.hour);
    case 'I':
      return in(2, 1, 12, read.hour);
    case 'M':
      return in(2, 0, 59, read.minute);
    case 'S':
      return in(2, 0, 59, read.second);
    case 'f':
      return fraction(6);
    case 'g':
      return fraction(3);
    case 'n':
      return fraction(9);
    case 'U':
    case 'W':
      read.week_letter = letter;
      return in(2, 0, 53, read.week);
    case 'V':
      return in(2, 1, 53, read.iso_week);
    case 'w':
      return in(1, 0, 6, read.weekday);
    case 'u':
      return in(1, 1, 7, read.iso_weekday);
    case 'j':
      return in(3, 1, 366, read.day_of_year);
    case 'p':
      if (text.size() < 2 || lower(text[1]) != 'm') return false;
      read.half = lower(text[0]) == 'a' ? 1 : lower(text[0]) == 'p' ? 2 : 0;
      text.remove_prefix(2);
      return read.half != 0;
    case 'a':
    case 'A':  // says nothing new
      return take_name(text, kDays, letter == 'a', number);
    case 'b':
    case 'B':
      if (!take_name(text, kMonths, letter == 'b', number)) return false;
      read.month = number + 1;
      return true;
    case 'z':
      return take_offset(text, read.offset);
    case 'Z': {
      size_t n = 0;
      const auto of_name = [](char c) {
        return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || c == '_' || c == '/' || c == '+' ||
               c == '-';
      };
      while (n < text.size() && of_name(text[n])) ++n;
      read.zone = text.substr(0, n);
      text.remove_prefix(n);
      return true;
    }
    default:
      return false;
  }
}

/// The literal text of a format; runs of spaces match runs of spaces.
bool take_literal(Text& text, Text literal) {
  while (!literal.empty()) {
    if (text.empty()) return false;
    if (is_space(literal[0])) {
      if (!is_space(text[0])) return false;
      while (!text.empty() && is_space(text[0])) text.remove_prefix(1);
      while (!literal.empty() && is_space(literal[0])) literal.remove_prefix(1);
      continue;
    }
    if (text[0] != literal[0]) return false;
    text.remove_prefix(1);
    literal.remove_prefix(1);
  }
  return true;
}

/// The day that was read; nothing where there is no such day.
std::optional<int64_t> day_of(const Read& read) {
  if (read.iso_year >= 0 || read.iso_week >= 0) {
    const int64_t year = read.iso_year >= 0 ? read.iso_year : read.year;
    const int64_t first = week_start(days_from_civil(year, 1, 4));
    const int64_t weekday = read.iso_weekday > 0 ? read.iso_weekday - 1
                            : read.weekday >= 0  ? (read.weekday + 6) % 7
                                                 : 0;
    return first + 7 * (std::max<int64_t>(read.iso_week, 1) - 1) + weekday;
  }
  const int64_t january = days_from_civil(read.year, 1, 1);
  if (read.week_letter) {
    const int first_weekday = read.week_letter == 'U' ? 0 : 1;
    const int64_t before = floor_mod(first_weekday - iso_weekday(january) % 7, 7);  // days in week 0
    int64_t weekday = 0;
    if (read.weekday >= 0)
      weekday = floor_mod(read.weekday - first_weekday, 7);
    else if (read.iso_weekday > 0)
      weekday = floor_mod(read.iso_weekday % 7 - first_weekday, 7);
    return january + before + 7 * (read.week - 1) + weekday;
  }
  if (read.day_of_year > 0) {
    if (read.day_of_year == 366 && !is_leap_year(read.year)) return {};
    return january + read.day_of_year - 1;
  }
  if (read.day > days_in_month(read.year, static_cast<int32_t>(read.month))) return {};
  return days_from_civil(read.year, static_cast<int32_t>(read.month), static_cast<int32_t>(read.day));
}

/// Ticks of a timestamp: `nanos_result` or microseconds.
std::optional<int64_t> read_time(Text text, const std::vector<Piece>& pieces, bool nanos_result) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()) && !(pieces.back().literal.ends_with(' ')))
    text.remove_suffix(1);
  for (const auto& [word, ticks] : {std::pair<Text, int64_t>{"infinity", kTimestampInfinity},
                                    {"-infinity", -kTimestampInfinity},
                                    {"epoch", 0}}) {
    if (text.size() == word.size() && starts_with(text, word)) return ticks;
  }
  Read read;
  for (const Piece& piece : pieces) {
    if (!take_literal(text, piece.literal)) return {};
    if (piece.letter && !take_letter(text, piece.letter, read)) return {};
  }
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  if (!text.empty()) return {};
  if (read.half) {
    if (read.hour > 12) return {};
    read.hour = read.hour % 12 + (read.half == 2 ? 12 : 0);
  }
  const auto day = day_of(read);
  if (!day) return {};
  const int64_t clock = (read.hour * 3600 + read.minute * 60 + read.second - read.offset) * kMicrosPerSecond;
  int64_t micros = *day * kMicrosPerDay + clock + read.nanos / 1000;
  if (!read.zone.empty()) {
    const auto zone = TimeZone::find(read.zone);
    if (!zone.ok()) return {};
    micros -= (*zone)->offset_at_local(floor_div(micros, kMicrosPerSecond)) * kMicrosPerSecond;
  }
  if (!nanos_result) return micros;
  int64_t nanos;
  if (__builtin_mul_overflow(micros, int64_t{1000}, &nanos)) return {};
  return nanos + read.nanos % 1000;
}

template <bool kTry>
Status parse_times(KernelCall& call) {
  const Strided<Text> texts(call.arguments[0]);
  const bool nanos = static_cast<const arrow::TimestampType&>(*call.out.type).unit() == arrow::TimeUnit::NANO;
  MILLSTREAM_ASSIGN(const auto pieces, parse_format(Strided<Text>(call.arguments[1])[0]));
  MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(call.rows * 8));
  auto* out = reinterpret_cast<int64_t*>(call.out.buffers[1]->mutable_data());
  std::shared_ptr<arrow::Buffer> validity;
  if (kTry) {
    MILLSTREAM_ASSIGN(validity, allocate_values(bitmap_bytes(call.rows)));
  }
  for (int64_t i = 0; i < call.rows; ++i) {
    std::optional<int64_t> ticks;
    if (is_set(call.validity, i)) {
      ticks = read_time(texts[i], pieces, nanos);
      if (!ticks && !kTry) {
        return make_error(ErrorCategory::kData,
                          fmt::format("strptime: {} is not a time of the format {}",
                                      value_text(call.arguments[0], i), value_text(call.arguments[1], i)),
                          SourcePosition{0, i});
      }
    }
    out[i] = ticks.value_or(0);
    if (kTry) arrow::bit_util::SetBitTo(validity->mutable_data(), i, ticks.has_value());
  }
  if (kTry) {
    call.out.buffers[0] = std::move(validity);
    call.out.null_count = arrow::kUnknownNullCount;
  }
  return Status::OK();
}

template <bool kTry>
Result<std::optional<Binding>> bind_strptime(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 2 || !is_text(*arguments[0]) || !is_text(*arguments[1])) return std::nullopt;
  const char* name = kTry ? "try_strptime" : "strptime";
  const Expression& format = *arguments[1];
  if (format.kind != Kind::kLiteral)
    return query_error("the format of {} must be a literal such as '%Y-%m-%d'", name);
  MILLSTREAM_ASSIGN(const auto pieces, constant_format(format));
  Binding binding;
  binding.parameters = {arrow::utf8(), arrow::utf8()};
  binding.result = timestamp_type();
  binding.can_fail = !kTry;
  binding.gives_null = kTry;
  binding.kernel = parse_times<kTry>;
  for (const Piece& piece : pieces.value_or(std::vector<Piece>{})) {
    if (piece.letter == 'n') binding.result = arrow::timestamp(arrow::TimeUnit::NANO);
  }
  for (const Piece& piece : pieces.value_or(std::vector<Piece>{})) {
    if (piece.letter == 'z' || piece.letter == 'Z') binding.result = timestamp_with_zone_type();
  }
  return binding;
}

}  // namespace

MILLSTREAM_FUNCTION(time_format) {
  return define(
      bound_function(
          "strftime",
          "A date or timestamp as text, by a format: %Y year, %m month, %d day, %H hour, %M minute, %S "
          "second, %f microseconds, %a and %A day of the week, %b and %B month, %j day of the year, %p AM "
          "or PM, %I hour of it, %W and %V week; %-d without zeros.",
          {{"strftime(DATE '2024-02-29', '%a, %-d %B %Y')", "Thu, 29 February 2024"}}, bind_strftime,
          {"strftime(DATE, VARCHAR)", "strftime(TIMESTAMP, VARCHAR)", "strftime(VARCHAR, TIMESTAMP)"}),
      bound_function(
          "strptime",
          "The timestamp that a text means by a format of strftime's letters. With %z or %Z it is an "
          "instant, with %n a TIMESTAMP_NS.",
          {{"strptime('2/29/24 1:05 PM', '%-m/%-d/%y %I:%M %p')", "2024-02-29 13:05:00"}},
          bind_strptime<false>, {"strptime(VARCHAR, 'format')"}),
      bound_function("try_strptime", "As strptime; NULL where the text is not of that format.",
                     {{"try_strptime('2024', '%Y-%m')", "NULL"}}, bind_strptime<true>,
                     {"try_strptime(VARCHAR, 'format')"}));
}

}  // namespace millstream::functions
