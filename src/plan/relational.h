#pragma once
// What the nodes of a plan that need all of their input carry: aggregation and sorting.

#include <cstdint>
#include <vector>

#include "expr/aggregate.h"

namespace millstream::plan {

using expr::AggregateKind;

/// An aggregate over columns of the node's input.
struct AggregateCall {
  AggregateKind kind = AggregateKind::kCountStar;
  int argument = -1;      ///< -1: count(*)
  int filter = -1;        ///< a boolean column: only rows where it is true; -1: all rows
  bool distinct = false;  ///< every value once
  expr::TypePtr result;
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
};

}  // namespace millstream::plan
