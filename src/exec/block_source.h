#pragma once
// Runs a pipeline (scan, filter, project) block by block: what the survey, the loader and predict read from.
//
// 1. A block's surviving rows are a function of the files and the query alone.
// 2. open() and the streams of different entry points may be used by several threads at once; one stream by
// one.
//    An entry point that the files' claims rule out (plan/pruning.h) is not read: its blocks have no survivors.
// 3. Errors name file, row group, column where there is one, and the row in the file, and carry the position.

#include <memory>
#include <optional>
#include <vector>

#include "plan/logical_plan.h"

namespace millstream::exec {

/// The rows of one block that survived the filter.
struct BlockRows {
  int block = 0;                             ///< index over the whole table
  int64_t first_row = 0;                     ///< of the block, in its file
  int64_t rows_read = 0;                     ///< before the filter
  std::shared_ptr<arrow::RecordBatch> rows;  ///< the pipeline's outputs
  /// For each surviving row its place in the block, ascending; empty when all survived.
  std::vector<int32_t> selection;
  /// Row in the file of surviving row i.
  int64_t row_in_file(int64_t i) const { return first_row + (selection.empty() ? i : selection[i]); }
};

class BlockStream {
 public:
  virtual ~BlockStream() = default;
  /// The next block of the entry point, nothing at its end.
  virtual Result<std::optional<BlockRows>> next() = 0;
};

class BlockSource {
 public:
  explicit BlockSource(plan::Pipeline pipeline) : pipeline_(std::move(pipeline)) {}
  const plan::Pipeline& pipeline() const { return pipeline_; }
  const plan::SourceTable& table() const { return *pipeline_.table; }
  const std::shared_ptr<arrow::Schema>& schema() const { return pipeline_.schema; }
  Result<std::unique_ptr<BlockStream>> open(int entry_point) const;
  /// How many entry points are not read.
  int entry_points_pruned() const;

 private:
  plan::Pipeline pipeline_;
};

/// "trips/a.parquet, row group 2, row 17" for messages; `row` in the file, -1: none.
std::string describe_place(const plan::SourceTable& table, int entry_point, int64_t row);

}  // namespace millstream::exec
