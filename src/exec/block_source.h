#pragma once
// Runs a pipeline (scan, filter, project) block by block: what the survey, the loader and predict read from.
//
// 1. A block's surviving rows are a function of the files and the query alone.
// 2. open() and the streams of different entry points may be used by several threads at once; one stream by
// one.
//    An entry point that the files' claims rule out (plan/pruning.h) is not read: its blocks have no survivors.
//    In the others the filter's columns are decoded first, and of the rest only what rows that pass need.
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
  /// Whether the last error was one of reading and decoding the file, and not of the query.
  virtual bool read_failed() const { return false; }
};

/// What streams did so far: of those that came to their end, or were left. Counts depend on files and query alone
/// where all is read to the end.
struct ScanCounts {
  int64_t row_groups = 0;                  ///< opened
  int64_t row_groups_pruned = 0;           ///< of them not read: by statistics, or by what follows
  int64_t row_groups_pruned_by_bloom = 0;  ///< because of bloom filters
  int64_t row_groups_pruned_by_pages = 0;  ///< because no page of theirs has a row that passes
  int64_t rows = 0;                        ///< of the blocks, also those not read
  int64_t rows_pruned = 0;                 ///< in row groups that were not read
  int64_t rows_skipped = 0;   ///< in pages that the page index rules out, in row groups that were
  int64_t rows_filtered = 0;  ///< that were read and the filter dropped
  int64_t rows_passed = 0;
  int64_t pages_read = 0;     ///< decompressed, of columns without nesting
  int64_t pages_skipped = 0;  ///< of the columns that are read in row groups that are, where it is known
  int64_t bytes_read = 0;     ///< from files
};

class BlockSource {
 public:
  explicit BlockSource(plan::Pipeline pipeline);
  /// From now on blocks have one more column, last and so called: for each row a hash, at least 0, of its file's name
  /// and its row in the file.
  Status add_places(const std::string& name);
  const plan::Pipeline& pipeline() const { return pipeline_; }
  const plan::SourceTable& table() const { return *pipeline_.table; }
  const std::shared_ptr<arrow::Schema>& schema() const { return schema_; }
  Result<std::unique_ptr<BlockStream>> open(int entry_point) const;
  /// How many entry points statistics rule out.
  int entry_points_pruned() const;
  /// Of all streams of this source. Thread-safe.
  ScanCounts counts() const;

  struct Shared;

 private:
  Result<std::unique_ptr<BlockStream>> open_query(int entry_point) const;

  plan::Pipeline pipeline_;
  std::shared_ptr<arrow::Schema> schema_;
  bool places_ = false;
  std::shared_ptr<Shared> shared_;  // with the streams, which may outlive their source
};

/// "trips/a.parquet, row group 2, row 17" for messages; `row` in the file, -1: none.
std::string describe_place(const plan::SourceTable& table, int entry_point, int64_t row);

}  // namespace millstream::exec
