// Formatters and parsers of values.

#include "expr/text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "expr/calendar.h"

namespace millstream::expr {

namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool equals_ignoring_case(std::string_view a, std::string_view lower) {
  if (a.size() != lower.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower_case(a[i]) != lower[i]) return false;
  }
  return true;
}

/// Takes one to `most` digits off the front.
std::optional<int64_t> take_digits(std::string_view& text, size_t most) {
  size_t n = 0;
  int64_t value = 0;
  while (n < text.size() && n < most && is_digit(text[n])) value = value * 10 + (text[n++] - '0');
  if (n == 0) return {};
  text.remove_prefix(n);
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

/// A fraction of a second behind the point, in microseconds; further digits are cut, or up to three of them are
/// given as nanoseconds.
int64_t take_fraction(std::string_view& text, int64_t* nanos = nullptr) {
  int64_t value = 0, place = 100'000'000;
  while (!text.empty() && is_digit(text.front())) {
    value += (text.front() - '0') * place;
    place /= 10;
    text.remove_prefix(1);
  }
  if (nanos) *nanos = value % 1000;
  return value / 1000;
}

/// H:M[:S[.F]]; up to 24:00:00.
std::optional<int64_t> take_clock(std::string_view& text, int64_t* nanos = nullptr) {
  auto hour = take_digits(text, 2);
  if (!hour || !take(text, ':')) return {};
  auto minute = take_digits(text, 2);
  if (!minute) return {};
  int64_t second = 0, micros = 0;
  if (take(text, ':')) {
    auto digits = take_digits(text, 2);
    if (!digits) return {};
    second = *digits;
    if (take(text, '.')) micros = take_fraction(text, nanos);
  }
  if (*minute > 59 || second > 59) return {};
  if (*hour > 24 || (*hour == 24 && (*minute || second || micros))) return {};
  return *hour * kMicrosPerHour + *minute * kMicrosPerMinute + second * kMicrosPerSecond + micros;
}

/// Y-M-D or Y/M/D, also " (BC)"; infinities and "epoch" are words of their own.
std::optional<int32_t> take_date(std::string_view& text) {
  bool negative = take(text, '-');
  auto year = take_digits(text, 7);
  if (!year || text.empty()) return {};
  char separator = text.front();
  if (separator != '-' && separator != '/') return {};
  text.remove_prefix(1);
  auto month = take_digits(text, 2);
  if (!month || !take(text, separator)) return {};
  auto day = take_digits(text, 2);
  if (!day) return {};
  int64_t y = negative ? -*year : *year;
  if (text.starts_with(" (BC)")) {
    if (y <= 0) return {};
    y = 1 - y;
    text.remove_prefix(5);
  }
  if (*month < 1 || *month > 12) return {};
  if (*day < 1 || *day > days_in_month(y, static_cast<int32_t>(*month))) return {};
  int64_t days = days_from_civil(y, static_cast<int32_t>(*month), static_cast<int32_t>(*day));
  if (days < kDateMin || days > kDateMax) return {};
  return static_cast<int32_t>(days);
}

void append_padded(std::string& out, int64_t value, int width) {
  char digits[24];
  auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  for (auto n = end - digits; n < width; ++n) out += '0';
  out.append(digits, end);
}

template <class T>
void append_floating(std::string& out, T value) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
    return;
  }
  size_t start = out.size();
  fmt::format_to(std::back_inserter(out), "{}", value);
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

/// The text without underscores between digits; nothing where one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return {};
    }
  }
  return out;
}

template <class T>
std::optional<T> parse_floating(std::string_view text) {
  text = trim(text);
  std::string clean;
  if (text.find('_') != std::string_view::npos) {
    auto stripped = without_underscores(text);
    if (!stripped) return {};
    clean = std::move(*stripped);
    text = clean;
  }
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-') || text.starts_with('+')) return {};
  }
  if (text.empty()) return {};
  T value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return {};
  if (error == std::errc::result_out_of_range) {
    // Too large is an infinity, too small is zero.
    double wide = std::strtod(std::string(text).c_str(), nullptr);
    return static_cast<T>(wide);
  }
  if (std::isnan(value) && text.find('(') != std::string_view::npos) return {};
  return value;
}

}  // namespace

__int128 power_of_ten(int n) {
  static const auto table = [] {
    std::array<__int128, 39> t{};
    t[0] = 1;
    for (size_t i = 1; i < t.size(); ++i) t[i] = t[i - 1] * 10;
    return t;
  }();
  return table[static_cast<size_t>(n)];
}

void append_integer(std::string& out, int64_t value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}
void append_unsigned(std::string& out, uint64_t value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}
void append_double(std::string& out, double value) {
  append_floating(out, value);
}
void append_float(std::string& out, float value) {
  append_floating(out, value);
}

void append_decimal(std::string& out, __int128 digits, int scale) {
  if (digits < 0) out += '-';
  unsigned __int128 rest = digits < 0 ? -static_cast<unsigned __int128>(digits) : digits;
  char text[48];
  int n = 0;
  do {
    text[n++] = static_cast<char>('0' + static_cast<int>(rest % 10));
    rest /= 10;
    if (n == scale) text[n++] = '.';
  } while (rest != 0 || n <= scale);
  if (n && text[n - 1] == '.') text[n++] = '0';
  while (n) out += text[--n];
}

void append_date(std::string& out, int64_t days) {
  if (days == kDateInfinity) {
    out += "infinity";
    return;
  }
  if (days == -int64_t{kDateInfinity}) {
    out += "-infinity";
    return;
  }
  CivilDate date = civil_from_days(days);
  append_padded(out, date.year > 0 ? date.year : 1 - date.year, 4);
  out += '-';
  append_padded(out, date.month, 2);
  out += '-';
  append_padded(out, date.day, 2);
  if (date.year <= 0) out += " (BC)";
}

namespace {
/// HH:MM:SS and the fraction, where one tick is 1/per_second seconds.
void append_clock(std::string& out, int64_t ticks, int64_t per_second) {
  int64_t seconds = ticks / per_second, fraction = ticks % per_second;
  append_padded(out, seconds / 3600, 2);
  out += ':';
  append_padded(out, seconds / 60 % 60, 2);
  out += ':';
  append_padded(out, seconds % 60, 2);
  if (fraction == 0) return;
  out += '.';
  int width = per_second == 1000 ? 3 : per_second == 1000000 ? 6 : 9;
  append_padded(out, fraction, width);
  while (out.back() == '0') out.pop_back();
}
}  // namespace

void append_time(std::string& out, int64_t micros) {
  append_clock(out, micros, kMicrosPerSecond);
}

void append_timestamp(std::string& out, int64_t ticks, int64_t per_second, bool zone) {
  if (!is_finite_timestamp(ticks)) {
    out += ticks > 0 ? "infinity" : "-infinity";
    return;
  }
  int64_t per_day = per_second * 86400;
  append_date(out, floor_div(ticks, per_day));
  out += ' ';
  append_clock(out, floor_mod(ticks, per_day), per_second);
  if (zone) out += "+00";
}

void append_interval(std::string& out, const Interval& interval) {
  size_t start = out.size();
  auto part = [&](int64_t count, const char* unit) {
    if (count == 0) return;
    if (out.size() > start) out += ' ';
    append_integer(out, count);
    out += ' ';
    out += unit;
    if (count != 1 && count != -1) out += 's';
  };
  part(interval.months / 12, "year");
  part(interval.months % 12, "month");
  part(interval.days, "day");
  int64_t micros = interval.nanos / 1000;
  if (micros != 0 || out.size() == start) {
    if (out.size() > start) out += ' ';
    if (micros < 0) out += '-';
    append_clock(out, micros < 0 ? -micros : micros, kMicrosPerSecond);
  }
}

void append_quoted(std::string& out, std::string_view text, char quote) {
  out += quote;
  for (char c : text) {
    if (c == quote) out += quote;
    out += c;
  }
  out += quote;
}

std::optional<bool> parse_boolean(std::string_view text) {
  for (std::string_view yes : {"true", "t", "yes", "y", "1"}) {
    if (equals_ignoring_case(text, yes)) return true;
  }
  for (std::string_view no : {"false", "f", "no", "n", "0"}) {
    if (equals_ignoring_case(text, no)) return false;
  }
  return {};
}

std::optional<double> parse_double(std::string_view text) {
  return parse_floating<double>(text);
}
std::optional<float> parse_float(std::string_view text) {
  return parse_floating<float>(text);
}

std::optional<__int128> parse_scaled(std::string_view text, int scale) {
  text = trim(text);
  bool negative = false;
  if (text.starts_with('-') || text.starts_with('+')) {
    negative = text.front() == '-';
    text.remove_prefix(1);
  }
  std::string clean;
  if (text.find('_') != std::string_view::npos) {
    auto stripped = without_underscores(text);
    if (!stripped) return {};
    clean = std::move(*stripped);
    text = clean;
  }
  // The exponent moves the point.
  int64_t exponent = 0;
  if (size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view power = text.substr(e + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    auto [end, error] = std::from_chars(power.data(), power.data() + power.size(), exponent);
    if (power.empty() || end != power.data() + power.size() || error != std::errc()) return {};
    if (exponent > 1000 || exponent < -1000) return {};
    text = text.substr(0, e);
  }
  size_t point = text.find('.');
  std::string_view whole = text.substr(0, point);
  std::string_view fraction = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  if (whole.empty() && fraction.empty()) return {};
  for (char c : whole) {
    if (!is_digit(c)) return {};
  }
  for (char c : fraction) {
    if (!is_digit(c)) return {};
  }
  const int64_t total = static_cast<int64_t>(whole.size() + fraction.size());
  auto digit = [&](int64_t i) {
    auto k = static_cast<size_t>(i);
    return k < whole.size() ? whole[k] - '0' : fraction[k - whole.size()] - '0';
  };
  // Digits before this place are kept; the one at it rounds.
  const int64_t kept = static_cast<int64_t>(whole.size()) + exponent + scale;
  const __int128 limit = power_of_ten(38);
  __int128 value = 0;
  for (int64_t i = 0; i < kept; ++i) {
    value = value * 10 + (i < total ? digit(i) : 0);
    if (value >= limit) return {};
    if (i >= total && value == 0) break;
  }
  if (kept >= 0 && kept < total && digit(kept) >= 5) ++value;
  if (value >= limit) return {};
  return negative ? -value : value;
}

std::optional<__int128> parse_integer(std::string_view text) {
  text = trim(text);
  std::string_view digits = text;
  bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
    uint64_t value = 0;
    auto [end, error] = std::from_chars(digits.data() + 2, digits.data() + digits.size(), value, 16);
    if (error != std::errc() || end != digits.data() + digits.size()) return {};
    return negative ? -static_cast<__int128>(value) : static_cast<__int128>(value);
  }
  return parse_scaled(text, 0);
}

namespace {
bool is_infinity(std::string_view text) {
  return equals_ignoring_case(text, "infinity") || equals_ignoring_case(text, "inf");
}
}  // namespace

std::optional<int32_t> parse_date(std::string_view text) {
  text = trim(text);
  if (is_infinity(text)) return kDateInfinity;
  if (text.starts_with('-') && is_infinity(text.substr(1))) return -kDateInfinity;
  if (equals_ignoring_case(text, "epoch")) return 0;
  std::string_view rest = text;
  auto days = take_date(rest);
  if (!days) return {};
  // A time of day behind it is cut off, but must be one.
  if (!rest.empty() && !parse_timestamp(text, false)) return {};
  return days;
}

std::optional<int64_t> parse_time(std::string_view text) {
  text = trim(text);
  std::string completed(text);
  if (text.ends_with(':')) completed += '0';  // "12:" is enough
  std::string_view rest = completed;
  const auto micros = take_clock(rest);
  if (micros && rest.empty()) return micros;
  // An offset behind it is read past, and of a timestamp it is the time of day.
  const auto timestamp =
      parse_timestamp(micros ? "1970-01-01 " + std::string(text) : std::string(text), false);
  if (!timestamp || !is_finite_timestamp(*timestamp)) return {};
  return floor_mod(*timestamp, kMicrosPerDay);
}

std::optional<int64_t> parse_timestamp(std::string_view text, bool zone, int64_t* nanos) {
  text = trim(text);
  if (is_infinity(text)) return kTimestampInfinity;
  if (text.starts_with('-') && is_infinity(text.substr(1))) return -kTimestampInfinity;
  if (equals_ignoring_case(text, "epoch")) return 0;
  auto days = take_date(text);
  if (!days) return {};
  int64_t clock = 0;
  if (!text.empty()) {
    if (text.front() != ' ' && text.front() != 'T') return {};
    text.remove_prefix(1);
    text = trim(text);
    auto micros = take_clock(text, nanos);
    if (!micros) return {};
    clock = *micros;
    if (!text.empty()) {
      bool spaced = text.front() == ' ';
      text = trim(text);
      if (equals_ignoring_case(text, "z") || (spaced && equals_ignoring_case(text, "utc"))) {
        text = {};
      } else if (text.front() == '+' || text.front() == '-') {
        int64_t sign = text.front() == '-' ? -1 : 1;
        text.remove_prefix(1);
        auto hours = take_digits(text, 2);
        if (!hours) return {};
        int64_t minutes = 0, seconds = 0;
        if (!text.empty()) {
          take(text, ':');
          auto digits = take_digits(text, 2);
          if (!digits || *digits > 59) return {};
          minutes = *digits;
          if (take(text, ':')) {
            digits = take_digits(text, 2);
            if (!digits || *digits > 59) return {};
            seconds = *digits;
          }
        }
        if (zone) {
          clock -= sign * (*hours * kMicrosPerHour + minutes * kMicrosPerMinute + seconds * kMicrosPerSecond);
        }
      }
      if (!text.empty()) return {};
    }
  }
  int64_t micros;
  if (__builtin_mul_overflow(int64_t{*days}, kMicrosPerDay, &micros) ||
      __builtin_add_overflow(micros, clock, &micros) || micros < kTimestampMin || micros > kTimestampMax) {
    return {};
  }
  return micros;
}

std::optional<Interval> parse_interval(std::string_view text) {
  struct Unit {
    std::string_view name;
    int64_t months, days, micros;
  };
  static constexpr Unit kUnits[] = {
      {"millennium", 12000, 0, 0},
      {"millennia", 12000, 0, 0},
      {"mil", 12000, 0, 0},
      {"century", 1200, 0, 0},
      {"centuries", 1200, 0, 0},
      {"decade", 120, 0, 0},
      {"year", 12, 0, 0},
      {"yr", 12, 0, 0},
      {"y", 12, 0, 0},
      {"quarter", 3, 0, 0},
      {"month", 1, 0, 0},
      {"mon", 1, 0, 0},
      {"week", 0, 7, 0},
      {"w", 0, 7, 0},
      {"day", 0, 1, 0},
      {"d", 0, 1, 0},
      {"hour", 0, 0, kMicrosPerHour},
      {"hr", 0, 0, kMicrosPerHour},
      {"h", 0, 0, kMicrosPerHour},
      {"minute", 0, 0, kMicrosPerMinute},
      {"min", 0, 0, kMicrosPerMinute},
      {"m", 0, 0, kMicrosPerMinute},
      {"second", 0, 0, kMicrosPerSecond},
      {"sec", 0, 0, kMicrosPerSecond},
      {"s", 0, 0, kMicrosPerSecond},
      {"millisecond", 0, 0, 1000},
      {"msec", 0, 0, 1000},
      {"ms", 0, 0, 1000},
      {"microsecond", 0, 0, 1},
      {"usec", 0, 0, 1},
      {"us", 0, 0, 1},
  };
  text = trim(text);
  if (text.empty()) return {};
  int64_t months = 0, days = 0, micros = 0;
  bool any = false;
  while (!text.empty()) {
    if (any && equals_ignoring_case(text, "ago")) {
      months = -months;
      days = -days;
      micros = -micros;
      break;
    }
    bool negative = false;
    const bool first = !any;
    if (text.front() == '-' || text.front() == '+') {
      negative = text.front() == '-';
      text.remove_prefix(1);
    }
    std::string_view clock_text = text;
    auto count = take_digits(text, 18);
    if (!count) return {};
    any = true;
    if (text.starts_with(':')) {  // a clock time
      text = clock_text;
      int64_t hours = *take_digits(text, 18);
      take(text, ':');
      auto minutes = text.empty() ? std::optional<int64_t>(0) : take_digits(text, 2);  // "12:" is enough
      if (!minutes || *minutes > 59) return {};
      int64_t seconds = 0, fraction = 0;
      if (take(text, ':') && !text.empty()) {
        auto digits = take_digits(text, 2);
        if (!digits || *digits > 59) return {};
        seconds = *digits;
        if (take(text, '.')) fraction = take_fraction(text);
      }
      if (hours > 2'000'000'000) return {};
      int64_t clock =
          hours * kMicrosPerHour + *minutes * kMicrosPerMinute + seconds * kMicrosPerSecond + fraction;
      micros += negative ? -clock : clock;
    } else {
      int64_t fraction = 0, nanos = 0;  // millionths, rounded
      if (take(text, '.')) fraction = take_fraction(text, &nanos) + (nanos >= 500);
      text = trim(text);
      size_t n = 0;
      while (n < text.size() && ((text[n] >= 'a' && text[n] <= 'z') || (text[n] >= 'A' && text[n] <= 'Z')))
        ++n;
      std::string_view word = text.substr(0, n);
      text.remove_prefix(n);
      if (first && word.empty() && text.empty()) word = "s";  // a number alone is seconds
      const Unit* unit = nullptr;
      for (const Unit& candidate : kUnits) {
        if (equals_ignoring_case(word, candidate.name) ||
            (word.size() == candidate.name.size() + 1 && lower_case(word.back()) == 's' &&
             equals_ignoring_case(word.substr(0, word.size() - 1), candidate.name))) {
          unit = &candidate;
        }
      }
      if (!unit) return {};
      int64_t sign = negative ? -1 : 1;
      __int128 whole_micros = static_cast<__int128>(unit->micros) * *count +
                              static_cast<__int128>(unit->micros) * fraction / 1000000;
      // A fraction of a month is days of a 30-day month, of a day a time.
      int64_t month_millionths = unit->months * fraction;
      int64_t day_millionths = unit->days * fraction + month_millionths % 1000000 * kDaysPerMonth;
      whole_micros += static_cast<__int128>(day_millionths % 1000000) * kMicrosPerDay / 1000000;
      if (whole_micros > INT64_MAX / 2000 || *count > INT32_MAX) {
        if (unit->micros == 0 || whole_micros > INT64_MAX / 2000) return {};
      }
      months += sign * (unit->months * *count + month_millionths / 1000000);
      days += sign * (unit->days * *count + day_millionths / 1000000);
      micros += sign * static_cast<int64_t>(whole_micros);
    }
    text = trim(text);
  }
  int64_t nanos;
  if (months > INT32_MAX || months < INT32_MIN || days > INT32_MAX || days < INT32_MIN ||
      __builtin_mul_overflow(micros, int64_t{1000}, &nanos)) {
    return {};
  }
  return Interval{static_cast<int32_t>(months), static_cast<int32_t>(days), nanos};
}

}  // namespace millstream::expr
