#pragma once
// Moving rows: gathering those of a selection, and putting values back to their places. The evaluator uses it
// for arms under a selection, filters for what survives.

#include <memory>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"
#include "expr/function.h"

namespace millstream::expr {

using Rows = std::vector<int32_t>;

/// Words of a bitmap from bit `offset` on, the last one padded with zeros; absent bitmaps read as all ones.
class BitReader {
 public:
  BitReader(const uint8_t* bits, int64_t offset, int64_t rows) : bits_(bits), offset_(offset), rows_(rows) {}
  uint64_t word(int64_t index) const {
    int64_t first = index * 64;
    int64_t count = std::min<int64_t>(64, rows_ - first);
    uint64_t mask = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    if (!bits_) return mask;
    int64_t at = offset_ + first;
    const uint8_t* byte = bits_ + at / 8;
    const int shift = static_cast<int>(at % 8);
    const int64_t bytes = (shift + count + 7) / 8;  // that may be read
    uint64_t low = 0;
    if (bytes >= 8) {
      std::memcpy(&low, byte, 8);
    } else {
      std::memcpy(&low, byte, static_cast<size_t>(bytes));
    }
    if (shift) {
      low >>= shift;
      if (bytes > 8) low |= static_cast<uint64_t>(byte[8]) << (64 - shift);
    }
    return low & mask;
  }

 private:
  const uint8_t* bits_;
  int64_t offset_;
  int64_t rows_;
};

/// The positions of the ones among the first `rows` bits of `words`.
Rows rows_of(const std::vector<uint64_t>& words, int64_t rows);

/// Does `data` have NULLs? Then buffers[0] says which.
inline bool has_nulls(const arrow::ArrayData& data) {
  return data.type->id() == arrow::Type::NA || (data.buffers[0] != nullptr && data.GetNullCount() > 0);
}
/// Its validity bitmap, to be read from bit data.offset on; null where nothing is NULL.
inline const uint8_t* validity_of(const arrow::ArrayData& data) {
  return has_nulls(data) && data.buffers[0] ? data.buffers[0]->data() : nullptr;
}

/// data[rows[0]], data[rows[1]], …
Result<std::shared_ptr<arrow::ArrayData>> gather(const std::shared_ptr<arrow::ArrayData>& data,
                                                 const int32_t* rows, int64_t count);

/// A column put together from pieces.
class Assembler {
 public:
  Assembler(TypePtr type, int64_t rows) : type_(std::move(type)), rows_(rows) {}
  Status start();
  /// Puts piece row k (dense), or piece row rows[k] (not dense), to row rows[k]. Later pieces replace earlier
  /// ones.
  Status place(const Value& piece, const Rows& rows, bool dense);
  /// Puts the whole piece.
  Status place_all(const Value& piece);
  /// Puts the piece's rows that are ones in `rows`, to the same rows.
  Status place_where(const Value& piece, const std::vector<uint64_t>& rows);
  /// Rows nobody placed are NULL.
  Result<std::shared_ptr<arrow::ArrayData>> finish();

 private:
  void mark_valid(const Value& piece, const Rows& rows, bool dense);

  TypePtr type_;
  int64_t rows_;
  int width_ = 0;  ///< bytes of a value; 0: put together at the end from pieces_
  std::shared_ptr<arrow::Buffer> values_;
  std::shared_ptr<arrow::Buffer> validity_;
  std::vector<Value> pieces_;
  std::vector<int32_t> piece_of_row_;
  std::vector<int32_t> row_in_piece_;
};

}  // namespace millstream::expr
