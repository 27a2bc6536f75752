#pragma once
// What a query means, as a tree of relational nodes over bound expressions. Built from SQL (plan/planner.h)
// or from lazy frames (plan/frame.h); rewritten; executed by `exec`.

#include <memory>
#include <string>
#include <vector>

#include "expr/expression.h"
#include "plan/catalog.h"
#include "plan/relational.h"

namespace millstream::plan {

enum class NodeKind : uint8_t {
  kScan,
  kFilter,
  kProject,
  kLimit,
  kAggregate,
  kSort,
  kJoin,
  kUnion,
  kAttach,
  kWindow
};

class Node;
using NodePtr = std::shared_ptr<const Node>;

/// Immutable. `schema` describes the rows that the node gives; expressions refer to the input node's schema.
class Node {
 public:
  NodeKind kind = NodeKind::kScan;
  std::shared_ptr<arrow::Schema> schema;
  NodePtr input;                 ///< of all but kScan
  expr::QueryPosition position;  ///< of the clause that a breaker came from

  std::shared_ptr<const SourceTable> table;  ///< kScan
  std::vector<int> columns;                  ///< kScan: columns of the table that are read

  expr::ExprPtr predicate;                 ///< kFilter
  std::vector<expr::ExprPtr> expressions;  ///< kProject: one a field of schema

  int64_t limit = -1;  ///< kLimit: rows at most; -1: all
  int64_t offset = 0;  ///< kLimit: rows left out before

  /// kAggregate: the first `num_keys` columns of the input are the keys; the schema is they and one field an
  /// aggregate. Groups come in the order of their keys; without keys there is one group, also of no rows.
  int num_keys = 0;
  std::vector<AggregateCall> aggregates;
  /// kJoin: rows of `input` and `right` whose keys are equal, pair by pair, and for which `predicate` (over both,
  /// null: none) is true. pair_schema: the fields of both; schema: those, or with kSemi and kAnti the left ones.
  JoinKind join = JoinKind::kInner;
  NodePtr right;
  std::vector<expr::ExprPtr> left_keys, right_keys;
  std::shared_ptr<arrow::Schema> pair_schema;

  std::vector<SortKey> sort_keys;  ///< kSort; rows that are equal stay in their order

  /// kWindow: the input's columns and one more a call; rows stay in their order, and rows that are equal in the order of
  /// a window count in that order.
  std::vector<WindowCall> windows;

  // kUnion: the rows of `input`, then those of `right`, whose columns have the same types.

  /// kAttach: `input` with one column more, which comes from all rows of `right`. kIn: left_keys[0] against the one
  /// column of `right`, which has every value once; kValue: `right` has one column and at most two rows, of which the
  /// second is an error; kExists: has it rows?
  AttachKind attach = AttachKind::kValue;
};

/// The order that the rows of a node are known to have: by the first key, where that is equal by the second, and so
/// on. Without keys none is known.
struct RowOrder {
  std::vector<SortKey> keys;
  bool is_total = false;  ///< no two rows have equal keys
};
RowOrder order_of(const Node& node);
/// Whether rows in the order of `known` are in that of `wanted`.
bool is_ordered(const RowOrder& known, const std::vector<SortKey>& wanted, const arrow::Schema& schema);

/// The streaming form that block sources execute: one scan, one filter, one projection. Every plan without a
/// breaker rewrites to it (subqueries inlined, filters merged in order, columns pruned).
struct Pipeline {
  std::shared_ptr<const SourceTable> table;
  std::vector<int> columns;               ///< of the table, that are read, ascending
  expr::ExprPtr predicate;                ///< over `columns`; null: all rows
  std::vector<expr::ExprPtr> outputs;     ///< over `columns`
  std::shared_ptr<arrow::Schema> schema;  ///< of the outputs
  /// The query in a normal form, the same for two texts that mean the same; without file names.
  std::string normal_form() const;
};

}  // namespace millstream::plan
