#pragma once
// Decodes a column chunk of a column without nesting, any rows of it in ascending order, straight into the buffers of
// the array that is wanted. Pages that hold none of them are passed over.
//
// 1. Definition levels are looked at only where a page has NULLs; that it has none is seen in the page, not believed
//    of a claim.
// 2. Rows in a page before, or between, those that are wanted are decoded into memory that is used again.
// 3. NULL slots are zero, so that arrays of equal values are equal bytes.

#include <memory>

#include <arrow/array.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include "exec/parquet_guard.h"
#include "exec/parquet_page.h"
#include "expr/expression.h"
#include "plan/catalog.h"

namespace millstream::exec {

/// Memory that is used again, without values to begin with.
class Scratch {
 public:
  /// For `count` values of T, until the next call.
  template <class T>
  Result<T*> get(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (!buffer_ || bytes > buffer_->size()) {
      buffer_.reset();
      MILLSTREAM_ASSIGN(buffer_, arrow::AllocateBuffer(bytes, GuardedPool::get()));
    }
    return reinterpret_cast<T*>(buffer_->mutable_data());
  }

 private:
  std::unique_ptr<arrow::Buffer> buffer_;
};

/// Needed only while a column is read: the decoders of a reader share it, so that wide tables need little.
struct DecodeScratch {
  Scratch values;
  Scratch levels;
};

class ColumnDecoder {
 public:
  virtual ~ColumnDecoder() = default;

  /// The type that arrays of the column have, null where this decoder does not know the column (nested, INT96,
  /// decimals and the like: those are read through Arrow's own reader).
  static expr::TypePtr type_of(const parquet::ColumnDescriptor& descriptor, const expr::TypePtr& stored);

  struct Request {
    const parquet::ColumnDescriptor* descriptor = nullptr;  ///< outlives the decoder
    expr::TypePtr type;                                     ///< of type_of()
    ChunkPlace place;
    arrow::Compression::type codec = arrow::Compression::UNCOMPRESSED;
    bool always_compressed = false;  ///< whatever headers say
    int64_t rows = 0;                ///< of the row group
    int64_t window_bytes = 0;
    DecodeScratch* scratch = nullptr;  ///< outlives the decoder
  };
  static Result<std::unique_ptr<ColumnDecoder>> make(const Request& request);

  /// `count` rows: begin + rows[0], begin + rows[1], …, ascending; where `rows` is null begin, begin + 1, …. All lie
  /// behind those read before. May throw what Parquet throws.
  virtual Result<std::shared_ptr<arrow::Array>> read(int64_t begin, const int32_t* rows, int64_t count) = 0;
  /// The same of text, as a dictionary with 32-bit numbers where the file has one for all of these rows.
  virtual Result<std::shared_ptr<arrow::Array>> read_entries(int64_t begin, const int32_t* rows,
                                                             int64_t count) {
    return read(begin, rows, count);
  }
  /// Looks through the headers of the pages that are left: do they have the rows that the row group should have?
  virtual Status finish() = 0;
  virtual plan::ReadCounts counts() const = 0;
};

}  // namespace millstream::exec
