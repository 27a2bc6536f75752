#pragma once
// Hash joins: the right side is in memory on every rank, the left side streams past it.
//
// 1. Rows come in the order of the left side, and those of one left row in the order of the right side. Right rows
//    without a partner (RIGHT, FULL) come last.
// 2. NULL keys equal nothing; NaN equals NaN.
// 3. What the equalities leave is held against the residual condition, pair by pair, in pieces of bounded size.

#include <memory>
#include <vector>

#include "exec/group_table.h"
#include "exec/units.h"

namespace millstream::exec {

/// The right side, ready to be probed by several threads.
class JoinTable {
 public:
  /// `rows` are those of the right input; `node` is the join.
  static Result<std::unique_ptr<JoinTable>> make(const plan::Node& node,
                                                 std::shared_ptr<arrow::RecordBatch> rows);

  /// The left units joined with the table, without the right rows that have no partner.
  std::unique_ptr<Units> probe(std::unique_ptr<Units> left, int64_t morsel_rows) const;

  /// For RIGHT and FULL: one byte a right row, 1 where it had a partner so far.
  std::string partners() const;
  /// The rows that no rank found a partner for, with NULLs on the left.
  Result<std::shared_ptr<arrow::RecordBatch>> without_partner(const std::vector<std::string>& partners) const;
  int64_t memory() const;

 private:
  friend class JoinStream;
  explicit JoinTable(const plan::Node& node) : node_(node) {}

  const plan::Node& node_;
  std::shared_ptr<arrow::RecordBatch> rows_;  // and one row of NULLs behind them
  int64_t num_rows_ = 0;
  std::unique_ptr<GroupTable> groups_;
  // The rows of group g are order_[begin_[g] .. begin_[g + 1]).
  std::vector<int32_t> begin_;
  std::vector<int32_t> order_;
  mutable std::vector<uint8_t> partner_;  // written by all threads, only ever to 1
};

}  // namespace millstream::exec
