#include "sql/interval_literal.h"

#include <charconv>
#include <cmath>
#include <string>

#include "sql/lexer.h"

namespace millstream::sql {
namespace {

using Interval = arrow::MonthDayNanoIntervalType::MonthDayNanos;

constexpr double kMicrosPerSecond = 1e6;

std::string singular(std::string_view unit) {
  std::string word = to_lower(unit);
  if (word == "centuries") return "century";
  if (word == "millennia") return "millennium";
  if (word.size() > 1 && word.back() == 's') word.pop_back();
  if (word == "y" || word == "yr") return "year";
  if (word == "mon") return "month";
  if (word == "d") return "day";
  if (word == "h" || word == "hr") return "hour";
  if (word == "m" || word == "min") return "minute";
  if (word == "sec") return "second";
  if (word == "msec") return "millisecond";
  if (word == "usec") return "microsecond";
  if (word == "s") return "second";  // one letter: not taken for a plural above
  return word;
}

bool add(Interval& sum, const Interval& part) {
  return !__builtin_add_overflow(sum.months, part.months, &sum.months) &&
         !__builtin_add_overflow(sum.days, part.days, &sum.days) &&
         !__builtin_add_overflow(sum.nanoseconds, part.nanoseconds, &sum.nanoseconds);
}

std::optional<Interval> whole(double quantity, int32_t months, int32_t days, double micros) {
  const double count = std::trunc(quantity);
  if (!(std::fabs(count) <= 9e18)) return std::nullopt;
  const double total_months = count * months;
  const double total_days = count * days;
  const double total_nanos = count * micros * 1000;
  if (std::fabs(total_months) > 2147483647.0 || std::fabs(total_days) > 2147483647.0 ||
      std::fabs(total_nanos) > 9.2e18) {
    return std::nullopt;
  }
  Interval result{};
  result.months = static_cast<int32_t>(total_months);
  result.days = static_cast<int32_t>(total_days);
  result.nanoseconds = static_cast<int64_t>(total_nanos);
  return result;
}

std::optional<Interval> fractional(double quantity, double micros) {
  const double total = std::round(quantity * micros);
  if (!(std::fabs(total) <= 9.2e15)) return std::nullopt;
  Interval result{};
  result.nanoseconds = static_cast<int64_t>(total) * 1000;
  return result;
}

// hours:minutes[:seconds[.fraction]]
std::optional<Interval> parse_clock(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  double parts[3] = {0, 0, 0};
  int count = 0;
  while (count < 3) {
    const size_t colon = text.find(':');
    const std::string_view part = text.substr(0, colon);
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), parts[count]);
    if (error != std::errc() || end != part.data() + part.size() || parts[count] < 0) return std::nullopt;
    if (count > 0 && parts[count] >= 60) return std::nullopt;
    ++count;
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
    if (count == 3) return std::nullopt;
  }
  if (count < 2 || parts[0] > 1e9) return std::nullopt;
  const double seconds = std::trunc(parts[0]) * 3600 + std::trunc(parts[1]) * 60 + parts[2];
  return fractional(negative ? -seconds : seconds, kMicrosPerSecond);
}

}  // namespace

std::optional<Interval> make_interval(double quantity, std::string_view unit_text) {
  const std::string unit = singular(unit_text);
  if (unit == "millennium") return whole(quantity, 12000, 0, 0);
  if (unit == "century") return whole(quantity, 1200, 0, 0);
  if (unit == "decade") return whole(quantity, 120, 0, 0);
  if (unit == "year") return whole(quantity, 12, 0, 0);
  if (unit == "quarter") return whole(quantity, 3, 0, 0);
  if (unit == "month") return whole(quantity, 1, 0, 0);
  if (unit == "week") return whole(quantity, 0, 7, 0);
  if (unit == "day") return whole(quantity, 0, 1, 0);
  if (unit == "hour") return whole(quantity, 0, 0, 3600 * kMicrosPerSecond);
  if (unit == "minute") return whole(quantity, 0, 0, 60 * kMicrosPerSecond);
  if (unit == "second") return fractional(quantity, kMicrosPerSecond);
  if (unit == "millisecond") return fractional(quantity, 1000);
  if (unit == "microsecond") return whole(quantity, 0, 0, 1);
  return std::nullopt;
}

std::optional<Interval> parse_interval(std::string_view text) {
  Interval sum{};
  bool any = false;
  size_t at = 0;
  const auto skip_blanks = [&] {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  };
  const auto word_end = [&](auto belongs) {
    size_t end = at;
    while (end < text.size() && belongs(text[end])) ++end;
    return end;
  };
  for (skip_blanks(); at < text.size(); skip_blanks()) {
    const size_t number_end = word_end(
        [](char c) { return (c >= '0' && c <= '9') || c == '.' || c == ':' || c == '-' || c == '+'; });
    std::string_view number = text.substr(at, number_end - at);
    at = number_end;
    std::optional<Interval> part;
    if (number.find(':') != std::string_view::npos) {
      part = parse_clock(number);
    } else {
      if (number.starts_with('+')) number.remove_prefix(1);
      double quantity = 0;
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), quantity);
      if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
      skip_blanks();
      const size_t unit_end =
          word_end([](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
      part = make_interval(quantity, text.substr(at, unit_end - at));
      at = unit_end;
    }
    if (!part || !add(sum, *part)) return std::nullopt;
    any = true;
  }
  return any ? std::optional(sum) : std::nullopt;
}

}  // namespace millstream::sql
