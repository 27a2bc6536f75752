#pragma once
// Rows on disk that a query has no room for in memory. The file has no name: it is gone with the process, however
// that ends.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include <arrow/api.h>

#include "base/status.h"

namespace millstream::exec {

class SpillFile {
 public:
  struct Extent {
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  /// Nothing is made before the first write. `folder` empty: $TMPDIR or /tmp.
  explicit SpillFile(std::string folder);
  ~SpillFile();

  /// Any thread. A file error that names the folder where there is no room.
  Result<Extent> write(const arrow::RecordBatch& rows);
  /// Any thread.
  Result<std::shared_ptr<arrow::RecordBatch>> read(const Extent& extent,
                                                   const std::shared_ptr<arrow::Schema>& schema) const;
  int64_t bytes_written() const { return end_; }

 private:
  Status open();

  std::string folder_;
  std::mutex mutex_;
  int file_ = -1;
  std::atomic<int64_t> end_ = 0;
};

}  // namespace millstream::exec
