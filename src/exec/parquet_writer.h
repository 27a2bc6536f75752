#pragma once
// Writes record batches to one Parquet file, atomically: the rows go to a temporary file beside the target,
// which is synced and renamed when it is complete. Whatever happens before leaves no target and no temporary.

#include <memory>
#include <string>

#include <arrow/api.h>

#include "base/status.h"
#include "exec/atomic_file.h"

namespace millstream::exec {

struct ParquetWriteOptions {
  bool overwrite = false;                     ///< false: an existing target is an error
  int64_t row_group_rows = int64_t{1} << 20;  ///< rows of a row group at most
};

/// Used by one thread at a time. Errors name the target.
class ParquetFileWriter {
 public:
  /// Makes the temporary file. Errors: the target exists, its folder does not, it cannot be written.
  static Result<std::unique_ptr<ParquetFileWriter>> open(const std::string& path,
                                                         const std::shared_ptr<arrow::Schema>& schema,
                                                         const ParquetWriteOptions& options = {});
  /// Removes the temporary unless close() succeeded.
  ~ParquetFileWriter();
  ParquetFileWriter(const ParquetFileWriter&) = delete;
  ParquetFileWriter& operator=(const ParquetFileWriter&) = delete;

  /// Appends rows of the writer's schema. Batches may have any size; row groups are filled across them.
  Status write(const arrow::RecordBatch& batch);
  /// Completes the file: footer, fsync, rename, fsync of the folder. Call once.
  Status close();
  int64_t rows_written() const;

 private:
  struct State;
  explicit ParquetFileWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace millstream::exec
