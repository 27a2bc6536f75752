#include "base/nearest_name.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace millstream {

int edit_distance(std::string_view a, std::string_view b) {
  auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  const size_t n = b.size();
  std::vector<int> before(n + 1), previous(n + 1), row(n + 1);
  for (size_t j = 0; j <= n; ++j) previous[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= n; ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(previous);
    previous.swap(row);
  }
  return previous[n];
}

std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    if (name.empty() || candidate.empty()) continue;
    const int distance = edit_distance(name, candidate);
    // Names without a letter in common, of one letter each, are no misspellings of each other.
    if (distance == static_cast<int>(std::max(name.size(), candidate.size()))) continue;
    const int allowed = std::max<int>(1, static_cast<int>(std::max(name.size(), candidate.size())) / 3);
    if (distance <= allowed && (!best || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string name_hint(std::string_view name, const std::vector<std::string>& candidates, size_t max_listed) {
  if (auto near = nearest_name(name, candidates)) return fmt::format("; did you mean '{}'?", *near);
  if (candidates.empty()) return "";
  std::string out = "; there are: ";
  for (size_t i = 0; i < candidates.size() && i < max_listed; ++i) out += (i ? ", " : "") + candidates[i];
  if (candidates.size() > max_listed) out += fmt::format(" and {} more", candidates.size() - max_listed);
  return out;
}

}  // namespace millstream
