#pragma once
// Prepared rows in the cache, on disk or in memory. The survey writes each block's training rows (and validation rows) as a piece: the
// query's output columns that features and target need, before scaling, in small record batches of Arrow's IPC
// format, integers narrowed to the range that a batch has. Each rank appends to a file of its own; pieces are
// identified by the block that they came from, so their order and rows depend on the data alone. In memory the file
// is anonymous (memfd) and goes with the last process that has it open; the others of the host open it through
// /proc while its writer lives.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"

namespace millstream::loader {

inline constexpr int64_t kPieceBatchRows = 16 * 1024;

/// One record batch in a piece file.
struct PieceBatch {
  int32_t rows = 0;
  int32_t bytes = 0;
  int64_t offset = 0;
  std::string types;  ///< a character a column: '=' as declared, '1' int8, '2' int16, '4' int32, 'f' float
};

/// The rows of one block that one kind of pass reads.
struct Piece {
  int32_t entry_point = 0;  ///< of the block, in the source table
  int32_t block = 0;        ///< within the entry point
  int32_t file = 0;         ///< the rank whose file holds it
  int64_t rows = 0;
  std::vector<PieceBatch> batches;
};

/// A file of pieces being written. append() may be called by several threads.
class PieceWriter {
 public:
  static Result<std::unique_ptr<PieceWriter>> create(const std::string& path);
  /// In memory, at most `limit` bytes.
  static Result<std::unique_ptr<PieceWriter>> create_in_memory(int64_t limit);
  ~PieceWriter();
  /// Writes rows `rows` of `batch` (all where null) and describes them in piece->batches.
  /// Beyond the limit nothing is written any more, and full() is true.
  Status append(const arrow::RecordBatch& batch, const int32_t* rows, int64_t count, Piece* piece);
  bool full() const { return full_.load(std::memory_order_relaxed); }
  /// Where PieceFile::open() finds it, on this host and while the writer is open.
  std::string path() const;
  /// The file is complete; its bytes.
  Result<int64_t> close();

 private:
  PieceWriter(std::string path, int descriptor, int64_t limit)
      : path_(std::move(path)), descriptor_(descriptor), limit_(limit) {}
  const std::string path_;  // empty: in memory
  int descriptor_ = -1;
  const int64_t limit_;
  std::atomic<bool> full_{false};
  std::atomic<int64_t> end_{0};
};

/// A file of pieces that is read. Reads may come from several threads; the file stays readable after its removal.
class PieceFile {
 public:
  static Result<std::shared_ptr<PieceFile>> open(const std::string& path);
  /// One in memory: is mapped. (A file on disk is not: the system tells of a read that fails by a signal then.)
  static Result<std::shared_ptr<PieceFile>> open_in_memory(const std::string& path);
  ~PieceFile();
  int64_t size() const { return size_; }
  /// The batch, over the file's memory or that of `scratch`, which is used again by the next call: the batch must be
  /// gone by then.
  Result<std::shared_ptr<arrow::RecordBatch>> read(const PieceBatch& batch, const arrow::Schema& declared,
                                                   std::shared_ptr<arrow::ResizableBuffer>* scratch) const;

 private:
  PieceFile(std::string path, int descriptor, int64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  const uint8_t* mapped_ = nullptr;
};

}  // namespace millstream::loader
