#pragma once
// "Did you mean …": the known name nearest to a mistyped one.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millstream {

/// Edit distance (Damerau–Levenshtein, adjacent swaps count one), ASCII case ignored.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `name`, where it is near enough to be a slip (distance at most a third of the
/// longer name, at least 1); the first among equals.
std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// "; did you mean 'x'?" or, with no near candidate, "; there are: a, b, c" (at most `max_listed` of them).
std::string name_hint(std::string_view name, const std::vector<std::string>& candidates,
                      size_t max_listed = 12);

}  // namespace millstream
