#pragma once
// Where the rows of a pass come from: the query's blocks, or the pieces that the survey wrote. Either way a list of
// entry points with known numbers of rows, each a sequential stream.

#include <memory>
#include <optional>
#include <vector>

#include "loader/pieces.h"
#include "loader/survey.h"

namespace millstream::loader {

/// Some rows of an entry point, not yet transformed.
struct RawRows {
  std::shared_ptr<arrow::RecordBatch> batch;
  const int32_t* rows =
      nullptr;        ///< which of its rows, `count` of them; null: all. Valid until the next next()
  int64_t first = 0;  ///< where `rows` is null: the first of its rows
  int64_t count = 0;
};

class RowStream {
 public:
  virtual ~RowStream() = default;
  /// The next rows, nothing at the end. What it gave before must be gone by then.
  virtual Result<std::optional<RawRows>> next() = 0;
  /// The last `count` of the rows last given come again with the next next(). False where they don't: whoever asks
  /// has to keep them.
  virtual bool give_again(int64_t count) = 0;
  /// An error about the rows last given, whose position's row is a row of their batch, with the place in the data.
  virtual Status locate(const Status& status) const = 0;
};

/// Thread-safe. Memory that a thread's streams share from one to the next.
struct ReadScratch {
  std::shared_ptr<arrow::ResizableBuffer> buffer;
  SelectedRows selected;
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Rows by entry point.
  const std::vector<int64_t>& counts() const { return counts_; }
  int64_t rows() const { return rows_; }
  /// The rows of one chunk at most.
  virtual int64_t largest_chunk() const = 0;
  /// Whether its streams can give rows again.
  virtual bool gives_again() const = 0;
  /// `scratch` is the calling thread's; of the streams over it one is read at a time, its rows used at once.
  virtual Result<std::unique_ptr<RowStream>> open(int entry_point, ReadScratch* scratch) const = 0;

 protected:
  explicit RowSource(std::vector<int64_t> counts);

 private:
  std::vector<int64_t> counts_;
  int64_t rows_ = 0;
};

/// The rows of a query that take part in training (`valid` false) or validation. Everything given must outlive it.
/// A block with other counts than the survey's is an error: the file changed.
std::unique_ptr<RowSource> make_query_source(const exec::BlockSource& source, const TableCounts& counts,
                                             const RowRules& rules, bool valid);

/// The same from the pieces of those rows. Entry points are the pieces, or those of the table, each the pieces of its
/// blocks. The query is read again only to name the row of an error.
std::unique_ptr<RowSource> make_piece_source(const std::vector<Piece>& pieces,
                                             const std::vector<std::shared_ptr<PieceFile>>& files,
                                             std::shared_ptr<arrow::Schema> declared,
                                             const exec::BlockSource& source, const TableCounts& counts,
                                             const RowRules& rules, bool valid, bool by_entry_point);

}  // namespace millstream::loader
