#include "expr/window.h"

#include <array>
#include <utility>

namespace millstream::expr {

std::optional<WindowFunction> find_window_function(std::string_view name) {
  static constexpr auto kNames = std::to_array<std::pair<std::string_view, WindowFunction>>({
      {"row_number", WindowFunction::kRowNumber},
      {"rank", WindowFunction::kRank},
      {"dense_rank", WindowFunction::kDenseRank},
      {"rank_dense", WindowFunction::kDenseRank},
      {"percent_rank", WindowFunction::kPercentRank},
      {"cume_dist", WindowFunction::kCumeDist},
      {"ntile", WindowFunction::kNtile},
      {"lag", WindowFunction::kLag},
      {"lead", WindowFunction::kLead},
      {"first_value", WindowFunction::kFirstValue},
      {"first", WindowFunction::kFirstValue},
      {"last_value", WindowFunction::kLastValue},
      {"last", WindowFunction::kLastValue},
      {"nth_value", WindowFunction::kNthValue},
  });
  for (const auto& [known, function] : kNames)
    if (known == name) return function;
  return std::nullopt;
}

}  // namespace millstream::expr
