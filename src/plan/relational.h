#pragma once
// What the nodes of a plan that need all of their input carry: aggregation and sorting.

#include <cstdint>
#include <vector>

#include "expr/aggregate.h"
#include "expr/window.h"

namespace millstream::plan {

using expr::AggregateKind;

/// An aggregate over columns of the node's input.
struct AggregateCall {
  AggregateKind kind = AggregateKind::kCountStar;
  int argument = -1;      ///< -1: count(*)
  int filter = -1;        ///< a boolean column: only rows where it is true; -1: all rows
  bool distinct = false;  ///< every value once
  expr::TypePtr result;
  int second = -1;      ///< the other argument of an aggregate of two
  double fraction = 0;  ///< of quantiles
};

enum class JoinKind : uint8_t {
  kInner,
  kLeft,
  kRight,
  kFull,
  kSemi,  ///< left rows that have a partner
  kAnti,  ///< left rows that have none
};

enum class AttachKind : uint8_t {
  kValue,   ///< the value of the one row, NULL where there is none
  kExists,  ///< is there a row?
  kIn,      ///< is the key among the values? With SQL's rules for NULL
};

struct SortKey {
  int column = 0;
  bool descending = false;
  bool nulls_first = false;
  bool operator==(const SortKey&) const = default;
};

/// A window function over columns of the node's input.
struct WindowCall {
  expr::WindowFunction function = expr::WindowFunction::kRowNumber;
  AggregateKind aggregate = AggregateKind::kCountStar;
  int argument = -1;   ///< -1: none
  int otherwise = -1;  ///< of lag and lead, where the row lies beyond the partition; -1: NULL
  int filter = -1;     ///< of an aggregate, as AggregateCall's
  int second = -1;
  double fraction = 0;
  int64_t number = 1;  ///< rows of lag and lead, parts of ntile, the row of nth_value
  std::vector<int> partition_by;
  std::vector<SortKey> order_by;
  expr::WindowFrame frame;
  expr::TypePtr result;
};

}  // namespace millstream::plan
