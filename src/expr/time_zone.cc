#include "expr/time_zone.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "base/nearest_name.h"
#include "expr/calendar.h"

namespace millstream::expr {

namespace {

constexpr const char* kFolder = "/usr/share/zoneinfo";

// Names from before the Olson database; DuckDB's ICU has them still.
constexpr std::pair<std::string_view, const char*> kLegacy[] = {
    {"act", "Australia/Darwin"},    {"aet", "Australia/Sydney"},     {"agt", "America/Buenos_Aires"},
    {"art", "Africa/Cairo"},        {"ast", "America/Anchorage"},    {"bet", "America/Sao_Paulo"},
    {"bst", "Asia/Dhaka"},          {"cat", "Africa/Harare"},        {"cnt", "America/St_Johns"},
    {"cst", "America/Chicago"},     {"ctt", "Asia/Shanghai"},        {"eat", "Africa/Addis_Ababa"},
    {"ect", "Europe/Paris"},        {"iet", "America/Indianapolis"}, {"ist", "Asia/Kolkata"},
    {"jst", "Asia/Tokyo"},          {"mit", "Pacific/Apia"},         {"net", "Asia/Yerevan"},
    {"nst", "Pacific/Auckland"},    {"plt", "Asia/Karachi"},         {"pnt", "America/Phoenix"},
    {"prt", "America/Puerto_Rico"}, {"pst", "America/Los_Angeles"},  {"sst", "Pacific/Guadalcanal"},
    {"vst", "Asia/Ho_Chi_Minh"},
};

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

/// Lower case to the name as it is, of all zones.
const std::map<std::string, std::string>& zone_names() {
  static const auto* names = [] {
    auto* all = new std::map<std::string, std::string>;
    namespace fs = std::filesystem;
    std::error_code error;
    for (fs::recursive_directory_iterator it(kFolder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().string().substr(std::string_view(kFolder).size() + 1);
      // Zones begin with a capital; the rest are other forms of the same, and tables.
      if (name[0] < 'A' || name[0] > 'Z') {
        if (it->is_directory(error)) it.disable_recursion_pending();
        continue;
      }
      if (it->is_regular_file(error) && name.find('.') == std::string::npos)
        all->emplace(lower_case(name), name);
    }
    return all;
  }();
  return *names;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

bool take_number(std::string_view& text, int64_t& value, size_t most_digits) {
  value = 0;
  size_t n = 0;
  while (n < text.size() && n < most_digits && text[n] >= '0' && text[n] <= '9')
    value = value * 10 + (text[n++] - '0');
  text.remove_prefix(n);
  return n > 0;
}

/// h[h[h]][:mm[:ss]] with a sign, as seconds.
bool take_clock(std::string_view& text, int64_t& seconds) {
  const int64_t sign = take(text, '-') ? -1 : 1;
  if (sign > 0) take(text, '+');
  int64_t part = 0;
  if (!take_number(text, part, 3)) return false;
  seconds = part * 3600;
  for (const int64_t unit : {60, 1}) {
    if (!take(text, ':')) break;
    if (!take_number(text, part, 2)) return false;
    seconds += part * unit;
  }
  seconds *= sign;
  return true;
}

bool take_zone_letters(std::string_view& text) {
  if (take(text, '<')) {
    const size_t end = text.find('>');
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end + 1);
    return true;
  }
  size_t n = 0;
  while (n < text.size() && ((text[n] >= 'A' && text[n] <= 'Z') || (text[n] >= 'a' && text[n] <= 'z'))) ++n;
  text.remove_prefix(n);
  return n >= 3;
}

/// The offset of "UTC+3" or "GMT-03:30"; nothing where the name is not of that form.
std::optional<int64_t> fixed_offset(std::string_view lower_name) {
  if (lower_name == "utc" || lower_name == "gmt") return 0;
  if (!lower_name.starts_with("utc") && !lower_name.starts_with("gmt")) return {};
  const bool minutes_allowed = lower_name.starts_with("gmt");  // of UTC-03:30 DuckDB would make UTC-3
  lower_name.remove_prefix(3);
  if (lower_name[0] != '+' && lower_name[0] != '-') return {};
  const int64_t sign = lower_name[0] == '-' ? -1 : 1;
  lower_name.remove_prefix(1);
  int64_t hours = 0, minutes = 0;
  if (!take_number(lower_name, hours, 2) || hours > 23) return {};
  if (minutes_allowed) take(lower_name, ':');
  if (minutes_allowed && !lower_name.empty() && (!take_number(lower_name, minutes, 2) || minutes > 59))
    return {};
  if (!lower_name.empty()) return {};
  return sign * (hours * 3600 + minutes * 60);
}

}  // namespace

int64_t TimeZone::Change::in(int64_t year) const {
  int64_t days = days_from_civil(year, 1, 1);
  switch (kind) {
    case Kind::kMonthWeekDay: {
      const int64_t first = days_from_civil(year, month, 1);
      // Day 0 is Sunday. Week 5 is the last.
      int64_t found = first + floor_mod(day - iso_weekday(first) % 7, 7) + 7 * (week - 1);
      while (found >= first + days_in_month(year, month)) found -= 7;
      days = found;
      break;
    }
    case Kind::kDayWithoutLeapDay:
      days += day - 1 + (is_leap_year(year) && day >= 60);
      break;
    case Kind::kDay:
      days += day;
      break;
  }
  return days * 86400 + seconds;
}

bool TimeZone::parse_rule(std::string_view text, TimeZone& zone) {
  // Offsets of POSIX are those to be added to come to UTC.
  if (!take_zone_letters(text) || !take_clock(text, zone.standard_)) return false;
  zone.standard_ = -zone.standard_;
  zone.has_summer_ = !text.empty();
  if (!zone.has_summer_) return true;
  if (!take_zone_letters(text)) return false;
  zone.summer_ = zone.standard_ + 3600;
  if (!text.empty() && text.front() != ',') {
    if (!take_clock(text, zone.summer_)) return false;
    zone.summer_ = -zone.summer_;
  }
  for (Change* change : {&zone.to_summer_, &zone.to_standard_}) {
    if (!take(text, ',')) return false;
    int64_t number = 0;
    if (take(text, 'M')) {
      change->kind = Change::Kind::kMonthWeekDay;
      for (int* part : {&change->month, &change->week, &change->day}) {
        if (part != &change->month && !take(text, '.')) return false;
        if (!take_number(text, number, 2)) return false;
        *part = static_cast<int>(number);
      }
      if (change->month < 1 || change->month > 12 || change->week < 1 || change->week > 5 || change->day > 6)
        return false;
    } else {
      change->kind = take(text, 'J') ? Change::Kind::kDayWithoutLeapDay : Change::Kind::kDay;
      if (!take_number(text, number, 3)) return false;
      change->day = static_cast<int>(number);
    }
    if (take(text, '/') && !take_clock(text, change->seconds)) return false;
  }
  return text.empty();
}

Result<std::shared_ptr<const TimeZone>> TimeZone::read(const std::string& path, std::string_view name) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const Status broken = make_error(
      ErrorCategory::kFile, fmt::format("{} is no time zone file of RFC 8536, version 2 or later", path));
  const auto number = [&](size_t at, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  constexpr size_t kHeader = 44;
  struct Counts {
    uint64_t utc, standard, leaps, times, types, letters;
  };
  const auto counts_at = [&](size_t at) {
    return Counts{number(at + 20, 4), number(at + 24, 4), number(at + 28, 4),
                  number(at + 32, 4), number(at + 36, 4), number(at + 40, 4)};
  };
  if (bytes.size() < kHeader || !bytes.starts_with("TZif") || bytes[4] < '2') return broken;
  // The first block is of version 1, with 32 bits a time.
  const Counts old = counts_at(0);
  size_t at = kHeader + old.times * 5 + old.types * 6 + old.letters + old.leaps * 8 + old.standard + old.utc;
  if (bytes.size() < at + kHeader || std::string_view(bytes).substr(at, 4) != "TZif") return broken;
  const Counts counts = counts_at(at);
  at += kHeader;
  const size_t types_at = at + counts.times * 9;
  const size_t end =
      types_at + counts.types * 6 + counts.letters + counts.leaps * 12 + counts.standard + counts.utc;
  if (bytes.size() < end || counts.types == 0) return broken;
  const auto offset_of = [&](uint64_t type) -> int64_t {
    return static_cast<int32_t>(static_cast<uint32_t>(number(types_at + 6 * type, 4)));
  };
  auto zone = std::make_shared<TimeZone>();
  zone->offsets_.push_back(offset_of(0));
  for (uint64_t i = 0; i < counts.times; ++i) {
    const uint64_t type = number(at + counts.times * 8 + i, 1);
    if (type >= counts.types) return broken;
    zone->changes_.push_back(static_cast<int64_t>(number(at + 8 * i, 8)));
    zone->offsets_.push_back(offset_of(type));
  }
  std::string_view rule = std::string_view(bytes).substr(end);
  if (!take(rule, '\n')) return broken;
  rule = rule.substr(0, rule.find('\n'));
  zone->standard_ = zone->offsets_.back();
  if (!rule.empty() && !parse_rule(rule, *zone)) return broken;
  return zone;
}

Result<std::shared_ptr<const TimeZone>> TimeZone::find(std::string_view name) {
  static std::mutex mutex;
  static auto* known = new std::map<std::string, std::shared_ptr<const TimeZone>>;
  const std::string key = lower_case(name);
  const std::lock_guard lock(mutex);
  if (const auto found = known->find(key); found != known->end()) return found->second;
  std::shared_ptr<const TimeZone> zone;
  if (const auto offset = fixed_offset(key)) {
    auto fixed = std::make_shared<TimeZone>();
    fixed->offsets_ = {*offset};
    fixed->standard_ = *offset;
    zone = std::move(fixed);
  } else {
    std::string wanted = key;
    for (const auto& [legacy, modern] : kLegacy) {
      if (key == legacy) wanted = lower_case(modern);
    }
    const auto& names = zone_names();
    if (names.empty()) {
      return query_error(
          "the time zone '{}' is not known: there are no time zone files in {} (package tzdata)", name,
          kFolder);
    }
    const auto found = names.find(wanted);
    if (found == names.end()) {
      std::vector<std::string> all;
      for (const auto& [lower, written] : names) all.push_back(written);
      return query_error("unknown time zone '{}'{}", name, name_hint(name, all));
    }
    MILLSTREAM_ASSIGN(zone, read(fmt::format("{}/{}", kFolder, found->second), found->second));
  }
  known->emplace(key, zone);
  return zone;
}

int64_t TimeZone::offset_at(int64_t utc_seconds) const {
  const auto after = std::upper_bound(changes_.begin(), changes_.end(), utc_seconds);
  if (after != changes_.end()) return offsets_[static_cast<size_t>(after - changes_.begin())];
  if (!has_summer_) return standard_;
  const int64_t year = civil_from_days(floor_div(utc_seconds + standard_, 86400)).year;
  const int64_t summer_begins = to_summer_.in(year)-standard_;
  const int64_t summer_ends = to_standard_.in(year)-summer_;
  const bool north = summer_begins < summer_ends;
  const bool summer = north ? utc_seconds >= summer_begins && utc_seconds < summer_ends
                            : utc_seconds >= summer_begins || utc_seconds < summer_ends;
  return summer ? summer_ : standard_;
}

int64_t TimeZone::offset_at_local(int64_t local) const {
  const int64_t before = offset_at(local - 86400), after = offset_at(local + 86400);
  const bool after_holds = offset_at(local - after) == after,
             before_holds = offset_at(local - before) == before;
  if (after_holds && before_holds) return std::min(before, after);
  return after_holds ? after : before;  // before: of a time that is skipped, too
}

}  // namespace millstream::expr
