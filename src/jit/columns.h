#pragma once
// Between Arrow columns and the plain arrays that loops work on: bitmaps become bytes and bytes bitmaps, texts
// become views, selected rows are gathered. A chunk of rows at a time, so that what is made stays in the first-level
// cache.

#include <cstdint>

#include <arrow/api.h>

#include "jit/loop.h"

namespace millstream::jit {

/// bytes[i] = bit `offset` + i, for `rows` of them; never reads a byte without such a bit.
void expand_bits(const uint8_t* bits, int64_t offset, int64_t rows, uint8_t* bytes);
/// Bit i = bytes[i], which is 0 or 1; whole words are written.
void pack_bytes(const uint8_t* bytes, int64_t rows, uint64_t* words);
/// The positions of the ones of `words`, ascending, at `out`, where there is room for one more; how many there are.
int64_t select_rows(const uint64_t* words, int64_t count, int32_t* out);

/// rows[i * stride + c] = columns[c * column_stride + i], for `count` rows of `width` columns.
void spread_rows(const float* columns, int64_t column_stride, int64_t width, int64_t count, float* rows,
                 int64_t stride);

/// A column as a loop reads it.
class ChunkReader {
 public:
  ChunkReader(const arrow::ArrayData& data, Machine machine, bool with_validity);
  /// Bytes of scratch memory that values() needs for chunks of `rows`. Texts can't be selected.
  int64_t value_scratch(int64_t rows, bool selected) const;
  /// Rows first … first + count - 1, or `selected`[0 … count - 1] where that is not null. Of texts the offsets.
  const void* values(int64_t first, const int32_t* selected, int64_t count, uint8_t* scratch) const;
  const void* text_bytes() const { return text_bytes_; }
  /// Their validity; `scratch` has room for `count` bytes.
  const uint8_t* validity(int64_t first, const int32_t* selected, int64_t count, uint8_t* scratch) const;

 private:
  Machine machine_;
  int width_;
  const uint8_t* values_;  ///< of row 0; bits of booleans; offsets of texts
  const char* text_bytes_ = nullptr;
  const uint8_t* validity_;  ///< null: all valid
  int64_t offset_;           ///< in bits, of booleans and validity
};

}  // namespace millstream::jit
