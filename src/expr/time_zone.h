#pragma once
// Time zones by name, from the system's time zone files (TZif, RFC 8536), as DuckDB means them: names in any case,
// "UTC+3" and "GMT-03:30" for fixed offsets, and the three-letter names that its library still knows.
//
// A local time that clocks show twice is the later one; one that they skip is read with the offset from before.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millstream::expr {

class TimeZone {
 public:
  /// The zone of that name; a query error names the nearest, or says where the files are missing. Zones are read once
  /// and kept. Thread-safe.
  static Result<std::shared_ptr<const TimeZone>> find(std::string_view name);

  /// Seconds that clocks are ahead of UTC at an instant.
  int64_t offset_at(int64_t utc_seconds) const;
  /// The same where clocks show a time, as seconds since they showed 1970.
  int64_t offset_at_local(int64_t local_seconds) const;

 private:
  /// A day of the year and a time at which the offset changes, of a rule such as "M3.2.0/2".
  struct Change {
    enum class Kind : uint8_t { kMonthWeekDay, kDayWithoutLeapDay, kDay } kind = Kind::kDay;
    int month = 1, week = 1, day = 0;
    int64_t seconds = 7200;  ///< after midnight, in the clock's time before the change
    int64_t in(int64_t year) const;
  };
  static Result<std::shared_ptr<const TimeZone>> read(const std::string& path, std::string_view name);
  static bool parse_rule(std::string_view text, TimeZone& zone);

  std::vector<int64_t> changes_;  ///< instants, ascending
  std::vector<int64_t> offsets_;  ///< from before the first change on: one more
  // What holds after the last of them.
  bool has_summer_ = false;
  int64_t standard_ = 0, summer_ = 0;
  Change to_summer_, to_standard_;
};

}  // namespace millstream::expr
