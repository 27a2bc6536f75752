#pragma once
// The pages of a column chunk, one after another: their headers, their bytes, decompression. Pages can be passed over
// without reading and decompressing them, and buffers and decompression contexts are used again for every page (a
// fresh zstd context a page is a tenth of decoding). For columns without nesting, whose pages hold whole rows.
//
// A header is believed as far as bytes and limits allow; places come from headers alone, never from a page index.

#include <memory>
#include <string>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/util/compression.h>
#include <parquet/types.h>

#include "exec/data_file.h"

namespace millstream::exec {

/// What stands before a page's bytes.
struct PageHeader {
  enum class Kind : uint8_t { kData, kDataV2, kDictionary, kOther };
  Kind kind = Kind::kOther;
  int32_t uncompressed_bytes = 0;
  int32_t compressed_bytes = 0;
  bool has_crc = false;
  uint32_t crc = 0;
  int32_t num_values = 0;
  parquet::Encoding::type encoding = parquet::Encoding::UNKNOWN;
  parquet::Encoding::type level_encoding = parquet::Encoding::UNKNOWN;  ///< kData
  int32_t num_rows = 0;                                                 ///< kDataV2
  int32_t definition_bytes = 0;                                         ///< kDataV2
  int32_t repetition_bytes = 0;                                         ///< kDataV2
  bool is_compressed = true;                                            ///< kDataV2
};

/// Reads a header in Thrift's compact protocol; the bytes that it takes, or -1 where `size` bytes are too few of it.
/// Errors: not a page header.
Result<int64_t> parse_page_header(const uint8_t* data, int64_t size, PageHeader* out);

/// Where a column chunk lies in an open file.
struct ChunkPlace {
  const FileHandle* file = nullptr;
  const std::string* path = nullptr;
  int64_t begin = 0;
  int64_t bytes = 0;
};

class PageStream {
 public:
  /// `always_compressed`: whatever headers say. `window_bytes`: how much is read at once where pages follow one another.
  static Result<std::unique_ptr<PageStream>> make(const ChunkPlace& place, arrow::Compression::type codec,
                                                  bool always_compressed, int64_t window_bytes);

  /// Steps to the next page, past the body of the one before; false at the chunk's end.
  Result<bool> next();
  const PageHeader& header() const { return header_; }

  /// The page's bytes. They stay until next().
  struct Body {
    const uint8_t* levels = nullptr;  ///< kDataV2: definition levels, header().definition_bytes of them
    const uint8_t* data = nullptr;
    int64_t size = 0;
  };
  Result<Body> body();

  int64_t bytes_read() const { return bytes_read_; }

 private:
  explicit PageStream(const ChunkPlace& place) : place_(place) {}
  /// Makes at least `size` bytes from the current place on available, fewer at the chunk's end.
  Status fill(int64_t size);
  void read_ahead();
  const uint8_t* here() const { return window_->data() + (at_ - window_begin_); }
  int64_t available() const { return window_end_ - at_; }
  Status decompress(const uint8_t* input, int64_t size, uint8_t* output, int64_t output_size);

  ChunkPlace place_;
  std::shared_ptr<arrow::util::Codec> codec_;                // null: not compressed
  std::shared_ptr<arrow::util::Decompressor> decompressor_;  // where a context can be used again
  bool always_compressed_ = false;
  int64_t window_bytes_ = 0;  // of a read when reading on
  int64_t next_fill_ = 0;     // of the next read: little after a jump
  std::unique_ptr<arrow::Buffer> window_;
  int64_t window_begin_ = 0, window_end_ = 0;  // in the chunk
  int64_t at_ = 0;                             // in the chunk: of the header, then of the body
  int64_t advised_ = 0;                        // the kernel knows that up to here is wanted
  int64_t body_left_ = 0;                      // bytes of the body that were not passed
  std::unique_ptr<arrow::Buffer> page_;
  PageHeader header_;
  int64_t bytes_read_ = 0;
};

}  // namespace millstream::exec
