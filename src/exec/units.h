#pragma once
// Rows in order, cut into units that can be worked on apart: what the operators of a query read.
//
// 1. Unit after unit, and within a unit batch after batch, the rows stand in the order of the source.
// 2. How rows are cut into units is the same on every rank.
// 3. open() and the streams of different units may be used by several threads at once; one stream by one.

#include <memory>
#include <vector>

#include "exec/block_source.h"
#include "exec/group_table.h"

namespace millstream::exec {

class UnitStream {
 public:
  virtual ~UnitStream() = default;
  /// The next batch, null at the end.
  virtual Result<std::shared_ptr<arrow::RecordBatch>> next() = 0;
};

class Units {
 public:
  virtual ~Units() = default;
  virtual const std::shared_ptr<arrow::Schema>& schema() const = 0;
  virtual int count() const = 0;
  /// The rank of `ranks` that works on a unit; the others may not open it.
  virtual int owner(int unit, int ranks) const { return unit % ranks; }
  virtual Result<std::unique_ptr<UnitStream>> open(int unit) const = 0;

  /// The units of a rank, ascending.
  std::vector<int> of_rank(int rank, int ranks) const {
    std::vector<int> mine;
    for (int unit = 0; unit < count(); ++unit)
      if (owner(unit, ranks) == rank) mine.push_back(unit);
    return mine;
  }
};

/// A unit an entry point of the pipeline's table. Batches have `morsel_rows` rows at most.
std::unique_ptr<Units> units_of_pipeline(plan::Pipeline pipeline, int64_t morsel_rows);

/// Rows in memory, the same on every rank.
std::unique_ptr<Units> units_of_batches(std::shared_ptr<arrow::Schema> schema,
                                        std::vector<std::shared_ptr<arrow::RecordBatch>> batches,
                                        int64_t morsel_rows);

/// The rows of `first`, then those of `second`, which has the same types.
std::unique_ptr<Units> units_of_both(std::unique_ptr<Units> first, std::unique_ptr<Units> second,
                                     std::shared_ptr<arrow::Schema> schema);

/// `units` with a filter, or a projection, on top.
std::unique_ptr<Units> units_with_filter(std::unique_ptr<Units> units, expr::ExprPtr predicate);
std::unique_ptr<Units> units_with_projection(std::unique_ptr<Units> units,
                                             std::vector<expr::ExprPtr> expressions,
                                             std::shared_ptr<arrow::Schema> schema);

/// One boolean column more: is `key` among the values, which are at least one? NULL where it is not and the key or one of
/// the values is NULL.
std::unique_ptr<Units> units_with_membership(std::unique_ptr<Units> units, expr::ExprPtr key,
                                             std::shared_ptr<const GroupTable> values, bool has_null,
                                             std::shared_ptr<arrow::Schema> schema);

/// Of every batch the first `rows` rows by `keys`, sorted.
std::unique_ptr<Units> units_with_first(std::unique_ptr<Units> units, std::vector<plan::SortKey> keys,
                                        int64_t rows);

}  // namespace millstream::exec
