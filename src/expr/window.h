#pragma once
// The window functions: their names, and the frames that they look at. `exec` computes them.

#include <cstdint>
#include <optional>
#include <string_view>

namespace millstream::expr {

enum class WindowFunction : uint8_t {
  kRowNumber,
  kRank,
  kDenseRank,
  kPercentRank,
  kCumeDist,
  kNtile,
  kLag,
  kLead,
  kFirstValue,
  kLastValue,
  kNthValue,
  kAggregate,  ///< an aggregate of the rows of the frame
};

/// By name in lower case; aggregates have names of their own (expr/aggregate.h).
std::optional<WindowFunction> find_window_function(std::string_view name);

enum class FrameUnit : uint8_t {
  kRange,  ///< rows that are equal in ORDER BY come and go together
  kRows,
  kGroups,  ///< counts groups of equal rows
};

enum class FrameEdge : uint8_t {
  kUnboundedPreceding,
  kPreceding,
  kCurrentRow,
  kFollowing,
  kUnboundedFollowing
};

struct FrameEnd {
  FrameEdge edge = FrameEdge::kCurrentRow;
  int64_t count = 0;  ///< of kPreceding and kFollowing: rows or groups
  bool operator==(const FrameEnd&) const = default;
};

/// The rows of the partition that a window function sees from a row.
struct WindowFrame {
  FrameUnit unit = FrameUnit::kRange;
  FrameEnd begin = {FrameEdge::kUnboundedPreceding, 0};
  FrameEnd end;
  bool operator==(const WindowFrame&) const = default;
  bool is_whole_partition() const {
    return begin.edge == FrameEdge::kUnboundedPreceding && end.edge == FrameEdge::kUnboundedFollowing;
  }
};

}  // namespace millstream::expr
