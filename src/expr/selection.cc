// Gathering and scattering of columns.

#include "expr/selection.h"

#include <bit>
#include <cstring>

#include <arrow/compute/api.h>
#include <arrow/util/bitmap_ops.h>

#include "expr/kernel.h"

namespace millstream::expr {

namespace {

struct Wide {
  uint64_t words[2];
};

template <class F>
auto with_width(int width, F&& f) {
  switch (width) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return f(Wide{});
  }
}

/// Bytes of a value of a fixed width that `with_width` knows; 0 for other types.
int fixed_width(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::INT8:
    case arrow::Type::UINT8:
    case arrow::Type::INT16:
    case arrow::Type::UINT16:
    case arrow::Type::INT32:
    case arrow::Type::UINT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT64:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::DATE32:
    case arrow::Type::TIME64:
    case arrow::Type::TIMESTAMP:
    case arrow::Type::DECIMAL128:
    case arrow::Type::INTERVAL_MONTH_DAY_NANO:
      return static_cast<const arrow::FixedWidthType&>(type).bit_width() / 8;
    default:
      return 0;
  }
}

Result<std::shared_ptr<arrow::Buffer>> gather_bits(const uint8_t* bits, int64_t offset, const int32_t* rows,
                                                   int64_t count) {
  MILLSTREAM_ASSIGN(auto buffer, allocate_values(bitmap_bytes(count)));
  fill_bits(buffer->mutable_data(), count, [&](int64_t i) -> uint8_t {
    int64_t at = offset + rows[i];
    return bits[at >> 3] >> (at & 7) & 1;
  });
  return buffer;
}

Result<std::shared_ptr<arrow::ArrayData>> take_any(const std::shared_ptr<arrow::ArrayData>& data,
                                                   const int32_t* rows, int64_t count) {
  auto indices = arrow::ArrayData::Make(arrow::int32(), count,
                                        {nullptr, arrow::Buffer::Wrap(rows, static_cast<size_t>(count))}, 0);
  MILLSTREAM_ASSIGN(auto taken, arrow::compute::Take(arrow::Datum(data), arrow::Datum(indices),
                                                     arrow::compute::TakeOptions::NoBoundsCheck()));
  return taken.array();
}

}  // namespace

Rows rows_of(const std::vector<uint64_t>& words, int64_t rows) {
  int64_t count = 0;
  for (uint64_t word : words) count += std::popcount(word);
  Rows out(static_cast<size_t>(count));
  int32_t* at = out.data();
  for (size_t w = 0; w < words.size(); ++w) {
    uint64_t word = words[w];
    auto first = static_cast<int32_t>(w * 64);
    if (word == ~uint64_t{0}) {
      for (int j = 0; j < 64; ++j) at[j] = first + j;
      at += 64;
      continue;
    }
    while (word) {
      *at++ = first + std::countr_zero(word);
      word &= word - 1;
    }
  }
  return out;
}

Result<std::shared_ptr<arrow::ArrayData>> gather(const std::shared_ptr<arrow::ArrayData>& data,
                                                 const int32_t* rows, int64_t count) {
  const int width = fixed_width(*data->type);
  const bool boolean = data->type->id() == arrow::Type::BOOL;
  const bool string = data->type->id() == arrow::Type::STRING || data->type->id() == arrow::Type::BINARY;
  if (!width && !boolean && !string) return take_any(data, rows, count);
  std::shared_ptr<arrow::Buffer> validity;
  if (const uint8_t* bits = validity_of(*data)) {
    MILLSTREAM_ASSIGN(validity, gather_bits(bits, data->offset, rows, count));
  }
  auto out =
      arrow::ArrayData::Make(data->type, count, {validity, nullptr}, validity ? arrow::kUnknownNullCount : 0);
  if (boolean) {
    MILLSTREAM_ASSIGN(out->buffers[1], gather_bits(data->buffers[1]->data(), data->offset, rows, count));
    return out;
  }
  if (width) {
    MILLSTREAM_ASSIGN(out->buffers[1], allocate_values(count * width));
    with_width(width, [&]<class T>(T) {
      const T* in = data->GetValues<T>(1);
      T* to = reinterpret_cast<T*>(out->buffers[1]->mutable_data());
      for (int64_t i = 0; i < count; ++i) to[i] = in[rows[i]];
    });
    return out;
  }
  Column<std::string_view> in(*data);
  int64_t bytes = 0;
  for (int64_t i = 0; i < count; ++i) bytes += static_cast<int64_t>(in[rows[i]].size());
  StringWriter writer;
  MILLSTREAM_TRY(writer.start(count, bytes));
  for (int64_t i = 0; i < count; ++i) {
    writer.append(in[rows[i]]);
    writer.end_row();
  }
  MILLSTREAM_TRY(writer.finish(*out));
  return out;
}

Status Assembler::start() {
  width_ = fixed_width(*type_);
  const bool boolean = type_->id() == arrow::Type::BOOL;
  if (!width_ && !boolean) {
    piece_of_row_.assign(static_cast<size_t>(rows_), -1);
    row_in_piece_.assign(static_cast<size_t>(rows_), 0);
    return Status::OK();
  }
  MILLSTREAM_ASSIGN(values_, allocate_values(boolean ? bitmap_bytes(rows_) : rows_ * width_));
  std::memset(values_->mutable_data(), 0, static_cast<size_t>(values_->size()));
  MILLSTREAM_ASSIGN(validity_, allocate_values(bitmap_bytes(rows_)));
  std::memset(validity_->mutable_data(), 0, static_cast<size_t>(validity_->size()));
  return Status::OK();
}

void Assembler::mark_valid(const Value& piece, const Rows& rows, bool dense) {
  const uint8_t* bits = validity_of(*piece.data);
  uint8_t* valid = validity_->mutable_data();
  if (piece.data->type->id() == arrow::Type::NA) {
    for (int32_t row : rows) arrow::bit_util::ClearBit(valid, row);
    return;
  }
  if (!bits) {
    for (int32_t row : rows) arrow::bit_util::SetBit(valid, row);
    return;
  }
  for (size_t k = 0; k < rows.size(); ++k) {
    int64_t from = piece.constant ? 0 : dense ? static_cast<int64_t>(k) : rows[k];
    arrow::bit_util::SetBitTo(valid, rows[k], arrow::bit_util::GetBit(bits, piece.data->offset + from));
  }
}

Status Assembler::place(const Value& piece, const Rows& rows, bool dense) {
  const arrow::ArrayData& data = *piece.data;
  if (!values_) {
    auto id = static_cast<int32_t>(pieces_.size());
    pieces_.push_back(piece);
    for (size_t k = 0; k < rows.size(); ++k) {
      auto row = static_cast<size_t>(rows[k]);
      piece_of_row_[row] = id;
      row_in_piece_[row] = piece.constant ? 0 : dense ? static_cast<int32_t>(k) : rows[k];
    }
    return Status::OK();
  }
  mark_valid(piece, rows, dense);
  if (!width_) {
    Column<bool> in(data);
    uint8_t* out = values_->mutable_data();
    for (size_t k = 0; k < rows.size(); ++k) {
      int64_t from = piece.constant ? 0 : dense ? static_cast<int64_t>(k) : rows[k];
      arrow::bit_util::SetBitTo(out, rows[k], in[from]);
    }
    return Status::OK();
  }
  with_width(width_, [&]<class T>(T) {
    const T* in = data.GetValues<T>(1);
    T* out = reinterpret_cast<T*>(values_->mutable_data());
    const int32_t* at = rows.data();
    const size_t count = rows.size();
    if (piece.constant) {
      const T value = in[0];
      for (size_t k = 0; k < count; ++k) out[at[k]] = value;
    } else if (dense) {
      for (size_t k = 0; k < count; ++k) out[at[k]] = in[k];
    } else {
      for (size_t k = 0; k < count; ++k) out[at[k]] = in[at[k]];
    }
  });
  return Status::OK();
}

Status Assembler::place_all(const Value& piece) {
  const arrow::ArrayData& data = *piece.data;
  if (!values_ || piece.constant || !width_) {
    Rows all(static_cast<size_t>(rows_));
    for (int64_t i = 0; i < rows_; ++i) all[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    return place(piece, all, true);
  }
  std::memcpy(values_->mutable_data(), data.buffers[1]->data() + data.offset * width_,
              static_cast<size_t>(rows_ * width_));
  if (const uint8_t* bits = validity_of(data)) {
    arrow::internal::CopyBitmap(bits, data.offset, rows_, validity_->mutable_data(), 0);
  } else {
    arrow::bit_util::SetBitsTo(validity_->mutable_data(), 0, rows_, true);
  }
  return Status::OK();
}

Status Assembler::place_where(const Value& piece, const std::vector<uint64_t>& rows) {
  const arrow::ArrayData& data = *piece.data;
  const bool null = data.type->id() == arrow::Type::NA;
  if (!values_ || null) return place(piece, rows_of(rows, rows_), false);
  auto* valid = reinterpret_cast<uint64_t*>(validity_->mutable_data());
  const bool nulls = has_nulls(data);
  const BitReader known(validity_of(data), data.offset, rows_);
  for (size_t w = 0; w < rows.size(); ++w) {
    uint64_t v = !nulls ? ~uint64_t{0} : piece.constant ? 0 : known.word(static_cast<int64_t>(w));
    valid[w] = (valid[w] & ~rows[w]) | (v & rows[w]);
  }
  if (!width_) {
    auto* out = reinterpret_cast<uint64_t*>(values_->mutable_data());
    const BitReader bits(data.buffers[1]->data(), data.offset, piece.constant ? 1 : rows_);
    const uint64_t constant = piece.constant && bits.word(0) ? ~uint64_t{0} : 0;
    for (size_t w = 0; w < rows.size(); ++w) {
      uint64_t v = piece.constant ? constant : bits.word(static_cast<int64_t>(w));
      out[w] = (out[w] & ~rows[w]) | (v & rows[w]);
    }
    return Status::OK();
  }
  with_width(width_, [&]<class T>(T) {
    const T* in = data.GetValues<T>(1);
    T* out = reinterpret_cast<T*>(values_->mutable_data());
    for (size_t w = 0; w < rows.size(); ++w) {
      const uint64_t chosen = rows[w];
      if (!chosen) continue;
      const auto first = static_cast<int64_t>(w) * 64;
      const int64_t count = std::min<int64_t>(64, rows_ - first);
      T* to = out + first;
      if (piece.constant) {
        const T value = in[0];
        for (int64_t j = 0; j < count; ++j) to[j] = chosen >> j & 1 ? value : to[j];
      } else {
        const T* from = in + first;
        for (int64_t j = 0; j < count; ++j) to[j] = chosen >> j & 1 ? from[j] : to[j];
      }
    }
  });
  return Status::OK();
}

Result<std::shared_ptr<arrow::ArrayData>> Assembler::finish() {
  if (values_) {
    int64_t valid = arrow::internal::CountSetBits(validity_->data(), 0, rows_);
    return arrow::ArrayData::Make(type_, rows_, {valid == rows_ ? nullptr : validity_, values_},
                                  rows_ - valid);
  }
  // All pieces behind one another, then one row that is NULL; then take.
  arrow::ArrayVector arrays;
  std::vector<int32_t> start;
  int32_t total = 0;
  for (const Value& piece : pieces_) {
    start.push_back(total);
    total += static_cast<int32_t>(piece.data->length);
    if (piece.data->type->id() == arrow::Type::NA && type_->id() != arrow::Type::NA) {
      MILLSTREAM_ASSIGN(auto nulls, arrow::MakeArrayOfNull(type_, piece.data->length));
      arrays.push_back(std::move(nulls));
    } else {
      arrays.push_back(arrow::MakeArray(piece.data));
    }
  }
  MILLSTREAM_ASSIGN(auto null, arrow::MakeArrayOfNull(type_, 1));
  arrays.push_back(std::move(null));
  MILLSTREAM_ASSIGN(auto all, arrow::Concatenate(arrays));
  Rows rows(static_cast<size_t>(rows_));
  for (size_t i = 0; i < rows.size(); ++i) {
    int32_t piece = piece_of_row_[i];
    rows[i] = piece < 0 ? total : start[static_cast<size_t>(piece)] + row_in_piece_[i];
  }
  return gather(all->data(), rows.data(), rows_);
}

}  // namespace millstream::expr
