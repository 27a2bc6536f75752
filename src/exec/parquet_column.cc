#include "exec/parquet_column.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <arrow/array/array_dict.h>
#include <arrow/array/concatenate.h>
#include <arrow/buffer.h>
#include <arrow/util/bit_util.h>
#include <parquet/column_reader.h>
#include <parquet/encoding.h>
#include <parquet/level_conversion.h>

#include "exec/entry_expressions.h"
#include "exec/parquet_guard.h"
#include "expr/type.h"

namespace millstream::exec {
namespace {

using arrow::Type;

Result<std::shared_ptr<arrow::ResizableBuffer>> new_buffer(int64_t bytes) {
  MILLSTREAM_ASSIGN(std::unique_ptr<arrow::ResizableBuffer> buffer,
                    arrow::AllocateResizableBuffer(bytes, GuardedPool::get()));
  return std::shared_ptr<arrow::ResizableBuffer>(std::move(buffer));
}

// The validity of an array while it is made: no bitmap until the first NULL.
class Validity {
 public:
  explicit Validity(int64_t rows) : rows_(rows) {}
  int64_t nulls() const { return nulls_; }
  void set_null(int64_t row) {
    ++nulls_;
    arrow::bit_util::ClearBit(bitmap_->mutable_data(), row);
  }
  /// Before the first set_null().
  Status begin() {
    if (bitmap_) return Status::OK();
    MILLSTREAM_ASSIGN(bitmap_, new_buffer(arrow::bit_util::BytesForBits(rows_)));
    std::memset(bitmap_->mutable_data(), 0xFF, static_cast<size_t>(bitmap_->size()));
    return Status::OK();
  }
  std::shared_ptr<arrow::Buffer> bitmap() const { return nulls_ > 0 ? bitmap_ : nullptr; }

 private:
  int64_t rows_;
  int64_t nulls_ = 0;
  std::shared_ptr<arrow::ResizableBuffer> bitmap_;
};

// What decoders have in common: the pages, where in them the next row stands, definition levels.
template <class DType>
class PagedDecoder : public ColumnDecoder {
 protected:
  using Value = typename DType::c_type;

  explicit PagedDecoder(const Request& request)
      : descriptor_(*request.descriptor),
        type_(request.type),
        scratch_(*request.scratch),
        rows_(request.rows) {
    nullable_ = descriptor_.max_definition_level() > 0;
  }

 public:
  Status open(const Request& request) {
    MILLSTREAM_ASSIGN(pages_, PageStream::make(request.place, request.codec, request.always_compressed,
                                               request.window_bytes));
    return Status::OK();
  }

  Status finish() override {
    while (page_end_ < rows_) {
      MILLSTREAM_ASSIGN(const bool more, next_page());
      if (!more) return too_few();
      if (is_data_page()) ++skipped_;
    }
    return Status::OK();
  }

  plan::ReadCounts counts() const override { return {read_, skipped_, pages_->bytes_read()}; }

 protected:
  /// Makes the page that holds `row` the current one, and `row` the next row in it.
  Status go_to(int64_t row) {
    while (row >= page_end_) {
      MILLSTREAM_ASSIGN(const bool more, next_page());
      if (!more) return too_few();
      if (pages_->header().kind == PageHeader::Kind::kDictionary) {
        MILLSTREAM_TRY(read_dictionary());
      } else if (is_data_page()) {
        if (page_end_ <= row) {
          ++skipped_;
        } else {
          MILLSTREAM_TRY(read_data());
        }
      }
    }
    return discard(row - position_);
  }

  int64_t left_in_page() const { return page_end_ - position_; }
  int64_t page_end() const { return page_end_; }
  int64_t position() const { return position_; }

  /// The next `count` rows of the current page: how many of them are not NULL. `*levels` is null where all are, else
  /// 1 for a value and 0 for a NULL each.
  Result<int64_t> next_levels(int64_t count, const int16_t** levels) {
    position_ += count;
    *levels = nullptr;
    if (!page_has_nulls_) return count;
    MILLSTREAM_ASSIGN(int16_t* const out, scratch_.levels.get<int16_t>(count));
    if (level_decoder_.Decode(static_cast<int>(count), out) != count)
      return Status::Invalid("a page has fewer definition levels than the values of its header");
    int64_t values = 0;
    for (int64_t i = 0; i < count; ++i) values += out[i];
    // Levels are of one bit: 0 or 1.
    if (values == count) return count;
    *levels = out;
    return values;
  }

  Status decode(Value* out, int64_t count) {
    if (count == 0) return Status::OK();
    if (decoder_->Decode(out, static_cast<int>(count)) != count)
      return Status::Invalid("a page has fewer values than its header claims");
    return Status::OK();
  }

  /// Memory for `count` values, until the next call.
  Result<Value*> scratch_values(int64_t count) { return scratch_.values.get<Value>(count); }

  bool on_dictionary() const { return dictionary_ && decoder_ == dictionary_.get(); }
  parquet::DictDecoder<DType>& dictionary() { return *dictionary_; }

  const parquet::ColumnDescriptor& descriptor_;
  const expr::TypePtr type_;
  DecodeScratch& scratch_;

 private:
  bool is_data_page() const {
    return pages_->header().kind == PageHeader::Kind::kData ||
           pages_->header().kind == PageHeader::Kind::kDataV2;
  }

  Status too_few() const {
    return Status::Invalid("the column ends before the ", rows_,
                           " rows that the footer gives the row group (after ", page_end_, ")");
  }

  /// Steps to the next page, and counts its rows.
  Result<bool> next_page() {
    MILLSTREAM_ASSIGN(const bool more, pages_->next());
    if (!more || !is_data_page()) return more;
    const PageHeader& header = pages_->header();
    if (header.kind == PageHeader::Kind::kDataV2 && header.num_rows != header.num_values) {
      return Status::Invalid("a page claims ", header.num_values, " values in ", header.num_rows, " rows");
    }
    if (header.num_values > rows_ - page_end_) {
      return Status::Invalid("the column has more rows than the ", rows_,
                             " rows that the footer gives the row group");
    }
    position_ = page_end_;
    page_end_ += header.num_values;
    return true;
  }

  Status read_dictionary() {
    if (dictionary_) return Status::Invalid("the column has two dictionaries");
    const PageHeader& header = pages_->header();
    if (header.encoding != parquet::Encoding::PLAIN && header.encoding != parquet::Encoding::PLAIN_DICTIONARY)
      return Status::Invalid("the dictionary is encoded in a way that dictionaries are not");
    MILLSTREAM_ASSIGN(const PageStream::Body body, pages_->body());
    constexpr int64_t kLeast = std::is_same_v<DType, parquet::ByteArrayType> ? 4 : sizeof(Value);
    if (header.num_values > body.size / kLeast) {
      return Status::Invalid("the dictionary claims ", header.num_values, " values in ", body.size, " bytes");
    }
    auto plain = parquet::MakeTypedDecoder<DType>(parquet::Encoding::PLAIN, &descriptor_, GuardedPool::get());
    plain->SetData(header.num_values, body.data, static_cast<int>(body.size));
    dictionary_ = parquet::MakeDictDecoder<DType>(&descriptor_, GuardedPool::get());
    dictionary_->SetDict(plain.get());
    return Status::OK();
  }

  Status read_data() {
    const PageHeader& header = pages_->header();
    MILLSTREAM_ASSIGN(PageStream::Body body, pages_->body());
    ++read_;
    MILLSTREAM_TRY(read_levels(header, &body));
    if (header.encoding == parquet::Encoding::RLE_DICTIONARY ||
        header.encoding == parquet::Encoding::PLAIN_DICTIONARY) {
      if (!dictionary_) return Status::Invalid("a page refers to a dictionary, and the column has none");
      decoder_ = dictionary_.get();
    } else if (header.encoding == parquet::Encoding::UNKNOWN) {
      return Status::Invalid("a page is in an unknown encoding");
    } else {
      auto& decoder = decoders_[static_cast<size_t>(header.encoding)];
      if (!decoder)
        decoder = parquet::MakeTypedDecoder<DType>(header.encoding, &descriptor_, GuardedPool::get());
      decoder_ = decoder.get();
    }
    decoder_->SetData(header.num_values, body.data, static_cast<int>(body.size));
    return Status::OK();
  }

  Status read_levels(const PageHeader& header, PageStream::Body* body) {
    page_has_nulls_ = false;
    if (!nullable_) return Status::OK();
    if (header.kind == PageHeader::Kind::kDataV2) {
      if (all_valid(body->levels, header.definition_bytes, header.num_values)) return Status::OK();
      level_decoder_.SetDataV2(header.definition_bytes, 1, header.num_values, body->levels);
      page_has_nulls_ = true;
      return Status::OK();
    }
    if (header.level_encoding == parquet::Encoding::RLE && body->size >= 4) {
      int32_t length = 0;
      std::memcpy(&length, body->data, sizeof length);
      if (length >= 0 && length <= body->size - 4 && all_valid(body->data + 4, length, header.num_values)) {
        body->data += 4 + length;
        body->size -= 4 + length;
        return Status::OK();
      }
    }
    const int taken = level_decoder_.SetData(header.level_encoding, 1, header.num_values, body->data,
                                             static_cast<int32_t>(body->size));
    body->data += taken;
    body->size -= taken;
    page_has_nulls_ = true;
    return Status::OK();
  }

  // One run of ones over the whole page: the levels of a page without NULLs, as everybody writes them.
  static bool all_valid(const uint8_t* data, int64_t size, int32_t num_values) {
    uint64_t head = 0;
    int64_t at = 0;
    for (int shift = 0; at < size && shift < 35; shift += 7) {
      const uint8_t byte = data[at++];
      head |= uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80) == 0) {
        const bool is_run = (head & 1) == 0;
        return is_run && head >> 1 >= static_cast<uint64_t>(num_values) && at < size && data[at] == 1;
      }
    }
    return num_values == 0;
  }

  /// Steps over rows of the current page.
  Status discard(int64_t count) {
    while (count > 0) {
      const int64_t step = std::min<int64_t>(count, plan::kBlockRows);
      const int16_t* levels = nullptr;
      MILLSTREAM_ASSIGN(const int64_t values, next_levels(step, &levels));
      MILLSTREAM_ASSIGN(Value* const nobody_wants, scratch_values(values));
      MILLSTREAM_TRY(decode(nobody_wants, values));
      count -= step;
    }
    return Status::OK();
  }

  const int64_t rows_;
  bool nullable_ = false;
  std::unique_ptr<PageStream> pages_;
  int64_t position_ = 0;  // the next row of the current page
  int64_t page_end_ = 0;  // behind the current page's last row
  bool page_has_nulls_ = false;
  parquet::LevelDecoder level_decoder_;
  std::unique_ptr<parquet::DictDecoder<DType>> dictionary_;
  std::array<std::unique_ptr<parquet::TypedDecoder<DType>>, parquet::Encoding::BYTE_STREAM_SPLIT + 1>
      decoders_;
  parquet::TypedDecoder<DType>* decoder_ = nullptr;
  int64_t read_ = 0, skipped_ = 0;
};

// `Out`: what the array holds; narrower than `DType`'s values for small integers.
template <class DType, class Out>
class FixedDecoder final : public PagedDecoder<DType> {
  using Base = PagedDecoder<DType>;
  using Value = typename Base::Value;

 public:
  explicit FixedDecoder(const ColumnDecoder::Request& request) : Base(request) {}

  Result<std::shared_ptr<arrow::Array>> read(int64_t begin, const int32_t* rows, int64_t count) override {
    MILLSTREAM_ASSIGN(auto buffer, new_buffer(count * static_cast<int64_t>(sizeof(Out))));
    Out* out = reinterpret_cast<Out*>(buffer->mutable_data());
    Validity validity(count);
    MILLSTREAM_TRY(rows == nullptr ? read_run(begin, count, out, &validity)
                                   : read_some(begin, rows, count, out, &validity));
    auto data =
        arrow::ArrayData::Make(Base::type_, count, {validity.bitmap(), std::move(buffer)}, validity.nulls());
    return arrow::MakeArray(std::move(data));
  }

 private:
  Status read_run(int64_t begin, int64_t count, Out* out, Validity* validity) {
    for (int64_t done = 0; done < count;) {
      MILLSTREAM_TRY(Base::go_to(begin + done));
      const int64_t step = std::min(count - done, Base::left_in_page());
      const int16_t* levels = nullptr;
      MILLSTREAM_ASSIGN(const int64_t values, Base::next_levels(step, &levels));
      Out* to = out + done;
      if constexpr (std::is_same_v<Value, Out>) {
        MILLSTREAM_TRY(Base::decode(to, values));
      } else {
        MILLSTREAM_ASSIGN(Value* const wide, Base::scratch_values(values));
        MILLSTREAM_TRY(Base::decode(wide, values));
        for (int64_t i = 0; i < values; ++i) to[i] = static_cast<Out>(wide[i]);
      }
      if (levels != nullptr) {
        // Values move to their places from the last one on.
        MILLSTREAM_TRY(validity->begin());
        int64_t from = values;
        for (int64_t i = step; i-- > 0;) {
          if (levels[i] != 0) {
            to[i] = to[--from];
          } else {
            to[i] = Out{};
            validity->set_null(done + i);
          }
        }
      }
      done += step;
    }
    return Status::OK();
  }

  Status read_some(int64_t begin, const int32_t* rows, int64_t count, Out* out, Validity* validity) {
    for (int64_t done = 0; done < count;) {
      MILLSTREAM_TRY(Base::go_to(begin + rows[done]));
      // Of the rows that are wanted those in this page, as one stretch.
      const int32_t* end = std::lower_bound(rows + done, rows + count, Base::page_end() - begin,
                                            [](int64_t a, int64_t b) { return a < b; });
      const int64_t first = rows[done];
      const int64_t wanted = end - (rows + done);
      const int64_t step = rows[done + wanted - 1] - first + 1;
      const int16_t* levels = nullptr;
      MILLSTREAM_ASSIGN(const int64_t values, Base::next_levels(step, &levels));
      MILLSTREAM_ASSIGN(Value* const from, Base::scratch_values(step));
      MILLSTREAM_TRY(Base::decode(from, values));
      if (levels == nullptr) {
        for (int64_t i = 0; i < wanted; ++i) out[done + i] = static_cast<Out>(from[rows[done + i] - first]);
      } else {
        MILLSTREAM_TRY(validity->begin());
        int64_t at = 0, value = 0;
        for (int64_t i = 0; i < wanted; ++i) {
          for (const int64_t place = rows[done + i] - first; at < place; ++at) value += levels[at];
          if (levels[at] != 0) {
            out[done + i] = static_cast<Out>(from[value]);
          } else {
            out[done + i] = Out{};
            validity->set_null(done + i);
          }
        }
      }
      done += wanted;
    }
    return Status::OK();
  }
};

// Decodes stretches of values and gives each wanted row, or NULL, to `Builder`, for arrays that are not plain values.
template <class DType, class Builder>
class BuildingDecoder : public PagedDecoder<DType> {
  using Base = PagedDecoder<DType>;
  using Value = typename Base::Value;

 public:
  explicit BuildingDecoder(const ColumnDecoder::Request& request) : Base(request) {}

  Result<std::shared_ptr<arrow::Array>> read(int64_t begin, const int32_t* rows, int64_t count) override {
    Builder builder(count);
    MILLSTREAM_TRY(builder.open());
    Validity validity(count);
    for (int64_t done = 0; done < count;) {
      const int64_t first = rows == nullptr ? done : rows[done];
      MILLSTREAM_TRY(Base::go_to(begin + first));
      int64_t wanted = 0, step = 0;
      if (rows == nullptr) {
        wanted = step = std::min(count - done, Base::left_in_page());
      } else {
        wanted = std::lower_bound(rows + done, rows + count, Base::page_end() - begin,
                                  [](int64_t a, int64_t b) { return a < b; }) -
                 (rows + done);
        step = rows[done + wanted - 1] - first + 1;
      }
      const int16_t* levels = nullptr;
      MILLSTREAM_ASSIGN(const int64_t values, Base::next_levels(step, &levels));
      MILLSTREAM_ASSIGN(Value* const from, Base::scratch_values(step));
      MILLSTREAM_TRY(Base::decode(from, values));
      if (levels == nullptr && rows == nullptr) {
        MILLSTREAM_TRY(builder.append_run(from, wanted));
      } else if (levels == nullptr) {
        for (int64_t i = 0; i < wanted; ++i) MILLSTREAM_TRY(builder.append(from[rows[done + i] - first]));
      } else {
        MILLSTREAM_TRY(validity.begin());
        int64_t at = 0, value = 0;
        for (int64_t i = 0; i < wanted; ++i) {
          const int64_t place = rows == nullptr ? i : rows[done + i] - first;
          for (; at < place; ++at) value += levels[at];
          if (levels[at] != 0) {
            MILLSTREAM_TRY(builder.append(from[value]));
          } else {
            builder.append_null();
            validity.set_null(done + i);
          }
        }
      }
      done += wanted;
    }
    return builder.finish(Base::type_, validity);
  }
};

class BooleanBuilder {
 public:
  explicit BooleanBuilder(int64_t count) : count_(count) {}
  Status open() {
    MILLSTREAM_ASSIGN(bits_, new_buffer(arrow::bit_util::BytesForBits(count_)));
    std::memset(bits_->mutable_data(), 0, static_cast<size_t>(bits_->size()));
    return Status::OK();
  }
  Status append(bool value) {
    arrow::bit_util::SetBitTo(bits_->mutable_data(), at_++, value);
    return Status::OK();
  }
  Status append_run(const bool* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) MILLSTREAM_TRY(append(values[i]));
    return Status::OK();
  }
  void append_null() { ++at_; }
  Result<std::shared_ptr<arrow::Array>> finish(const expr::TypePtr& type, const Validity& validity) {
    return arrow::MakeArray(
        arrow::ArrayData::Make(type, count_, {validity.bitmap(), std::move(bits_)}, validity.nulls()));
  }

 private:
  int64_t count_;
  int64_t at_ = 0;
  std::shared_ptr<arrow::ResizableBuffer> bits_;
};

class TextBuilder {
 public:
  explicit TextBuilder(int64_t count) : count_(count) {}
  Status open() {
    MILLSTREAM_ASSIGN(offsets_buffer_, new_buffer((count_ + 1) * static_cast<int64_t>(sizeof(int32_t))));
    offsets_ = reinterpret_cast<int32_t*>(offsets_buffer_->mutable_data());
    offsets_[0] = 0;
    MILLSTREAM_ASSIGN(bytes_, new_buffer(0));
    return Status::OK();
  }
  Status append(const parquet::ByteArray& value) { return append_run(&value, 1); }
  Status append_run(const parquet::ByteArray* values, int64_t count) {
    int64_t length = 0;
    for (int64_t i = 0; i < count; ++i) length += values[i].len;
    MILLSTREAM_TRY(reserve(length));
    uint8_t* to = bytes_->mutable_data() + size_;
    for (int64_t i = 0; i < count; ++i) {
      if (values[i].len > 0) std::memcpy(to, values[i].ptr, values[i].len);
      to += values[i].len;
      size_ += values[i].len;
      offsets_[++at_] = static_cast<int32_t>(size_);
    }
    return Status::OK();
  }
  void append_null() {
    offsets_[at_ + 1] = offsets_[at_];
    ++at_;
  }
  Result<std::shared_ptr<arrow::Array>> finish(const expr::TypePtr& type, const Validity& validity) {
    MILLSTREAM_TRY(bytes_->Resize(size_, /*shrink_to_fit=*/false));
    return arrow::MakeArray(arrow::ArrayData::Make(
        type, count_, {validity.bitmap(), std::move(offsets_buffer_), std::move(bytes_)}, validity.nulls()));
  }

 private:
  Status reserve(int64_t more) {
    const int64_t size = size_ + more;
    if (size <= bytes_->size()) return Status::OK();
    if (size > kLargestAllocation) {
      return Status::OutOfMemory("the values of a block of ", count_, " rows have more than ",
                                 format_bytes(kLargestAllocation),
                                 " together: the file is damaged or its values are too large");
    }
    return bytes_->Resize(std::min(kLargestAllocation, std::max(size, 2 * bytes_->size())));
  }
  int64_t count_;
  int64_t at_ = 0;
  int64_t size_ = 0;
  int32_t* offsets_ = nullptr;
  std::shared_ptr<arrow::ResizableBuffer> offsets_buffer_, bytes_;
};

class TextDecoder final : public BuildingDecoder<parquet::ByteArrayType, TextBuilder> {
 public:
  using BuildingDecoder::BuildingDecoder;

  Result<std::shared_ptr<arrow::Array>> read_entries(int64_t begin, const int32_t* rows,
                                                     int64_t count) override {
    MILLSTREAM_ASSIGN(std::shared_ptr<arrow::Buffer> buffer,
                      new_buffer(count * static_cast<int64_t>(sizeof(int32_t))));
    auto* const out = reinterpret_cast<int32_t*>(buffer->mutable_data());
    Validity validity(count);
    const auto finish = [&](int64_t length) -> Result<std::shared_ptr<arrow::Array>> {
      const auto type = arrow::dictionary(arrow::int32(), type_);
      auto data =
          arrow::ArrayData::Make(type, length, {validity.bitmap(), std::move(buffer)}, validity.nulls());
      MILLSTREAM_ASSIGN(const auto entries, this->entries());
      data->dictionary = entries->data();
      return std::make_shared<arrow::DictionaryArray>(std::move(data));
    };
    for (int64_t done = 0; done < count;) {
      const int64_t first = rows == nullptr ? done : rows[done];
      MILLSTREAM_TRY(go_to(begin + first));
      if (!on_dictionary()) {
        // Writers give up a dictionary that grows too long: from here on there are values.
        const auto rest = [&] {
          return rows == nullptr ? read(begin + done, nullptr, count - done)
                                 : read(begin, rows + done, count - done);
        };
        if (done == 0) return rest();
        MILLSTREAM_ASSIGN(const auto numbers, finish(done));
        MILLSTREAM_ASSIGN(const auto before, without_dictionary(numbers));
        MILLSTREAM_ASSIGN(const auto behind, rest());
        return arrow::Concatenate({before, behind}, GuardedPool::get());
      }
      int64_t wanted = 0, step = 0;
      if (rows == nullptr) {
        wanted = step = std::min(count - done, left_in_page());
      } else {
        wanted = std::lower_bound(rows + done, rows + count, page_end() - begin) - (rows + done);
        step = rows[done + wanted - 1] - first + 1;
      }
      const int16_t* levels = nullptr;
      MILLSTREAM_ASSIGN(const int64_t values, next_levels(step, &levels));
      const bool straight = rows == nullptr && levels == nullptr;
      int32_t* from = out + done;
      if (!straight) {
        MILLSTREAM_ASSIGN(from, scratch_.values.get<int32_t>(step));
      }
      MILLSTREAM_TRY(decode_numbers(from, values));
      if (!straight) {
        if (levels != nullptr) MILLSTREAM_TRY(validity.begin());
        int64_t at = 0, value = 0;
        for (int64_t i = 0; i < wanted; ++i) {
          const int64_t place = rows == nullptr ? i : rows[done + i] - first;
          if (levels == nullptr) {
            out[done + i] = from[place];
            continue;
          }
          for (; at < place; ++at) value += levels[at];
          out[done + i] = levels[at] != 0 ? from[value] : 0;
          if (levels[at] == 0) validity.set_null(done + i);
        }
      }
      done += wanted;
    }
    return finish(count);
  }

 private:
  Status decode_numbers(int32_t* out, int64_t count) {
    if (count == 0) return Status::OK();
    if (dictionary().DecodeIndices(static_cast<int>(count), out) != count)
      return Status::Invalid("a page has fewer values than its header claims");
    uint32_t greatest = 0;
    for (int64_t i = 0; i < count; ++i) greatest = std::max(greatest, static_cast<uint32_t>(out[i]));
    MILLSTREAM_ASSIGN(const auto entries, this->entries());
    if (static_cast<int64_t>(greatest) >= entries->length())
      return Status::Invalid("a page refers to entry ", greatest, " of a dictionary of ", entries->length());
    return Status::OK();
  }

  // The dictionary of the chunk: the same array each time.
  Result<std::shared_ptr<arrow::Array>> entries() {
    if (entries_) return entries_;
    const parquet::ByteArray* values = nullptr;
    int32_t count = 0;
    dictionary().GetDictionary(&values, &count);
    TextBuilder builder(count);
    MILLSTREAM_TRY(builder.open());
    MILLSTREAM_TRY(builder.append_run(values, count));
    MILLSTREAM_ASSIGN(entries_, builder.finish(type_, Validity(count)));
    return entries_;
  }

  std::shared_ptr<arrow::Array> entries_;
};

template <class Decoder>
Result<std::unique_ptr<ColumnDecoder>> make_decoder(const ColumnDecoder::Request& request) {
  auto decoder = std::make_unique<Decoder>(request);
  MILLSTREAM_TRY(decoder->open(request));
  return decoder;
}

bool has_unit(const parquet::LogicalType& logical, arrow::TimeUnit::type unit) {
  using Unit = parquet::LogicalType::TimeUnit;
  Unit::unit stored = Unit::UNKNOWN;
  if (logical.is_timestamp()) stored = static_cast<const parquet::TimestampLogicalType&>(logical).time_unit();
  if (logical.is_time()) stored = static_cast<const parquet::TimeLogicalType&>(logical).time_unit();
  switch (unit) {
    case arrow::TimeUnit::MILLI:
      return stored == Unit::MILLIS;
    case arrow::TimeUnit::MICRO:
      return stored == Unit::MICROS;
    case arrow::TimeUnit::NANO:
      return stored == Unit::NANOS;
    case arrow::TimeUnit::SECOND:
      return false;
  }
  return false;
}

}  // namespace

expr::TypePtr ColumnDecoder::type_of(const parquet::ColumnDescriptor& descriptor,
                                     const expr::TypePtr& stored) {
  if (descriptor.max_repetition_level() > 0 || descriptor.max_definition_level() > 1) return nullptr;
  if (!descriptor.schema_node()->is_primitive() || descriptor.path()->ToDotVector().size() != 1)
    return nullptr;
  const parquet::LogicalType& logical = *descriptor.logical_type();
  const Type::type id = stored->id();
  switch (descriptor.physical_type()) {
    case parquet::Type::BOOLEAN:
      return id == Type::BOOL ? stored : nullptr;
    case parquet::Type::INT32:
      switch (id) {
        case Type::INT8:
        case Type::INT16:
        case Type::INT32:
        case Type::UINT8:
        case Type::UINT16:
        case Type::UINT32:
          return logical.is_none() || logical.is_int() ? stored : nullptr;
        case Type::DATE32:
          return logical.is_date() ? stored : nullptr;
        case Type::TIME32:
          return has_unit(logical, static_cast<const arrow::Time32Type&>(*stored).unit()) ? stored : nullptr;
        default:
          return nullptr;
      }
    case parquet::Type::INT64:
      switch (id) {
        case Type::INT64:
        case Type::UINT64:
          return logical.is_none() || logical.is_int() ? stored : nullptr;
        case Type::TIMESTAMP:
          return has_unit(logical, static_cast<const arrow::TimestampType&>(*stored).unit()) ? stored
                                                                                             : nullptr;
        case Type::TIME64:
          return has_unit(logical, static_cast<const arrow::Time64Type&>(*stored).unit()) ? stored : nullptr;
        default:
          return nullptr;
      }
    case parquet::Type::FLOAT:
      return id == Type::FLOAT ? stored : nullptr;
    case parquet::Type::DOUBLE:
      return id == Type::DOUBLE ? stored : nullptr;
    case parquet::Type::BYTE_ARRAY: {
      // Long, dictionary and view forms are one type to the user: decoded as the plain one at once.
      const arrow::DataType* of = stored.get();
      if (id == Type::DICTIONARY) of = static_cast<const arrow::DictionaryType&>(*stored).value_type().get();
      switch (of->id()) {
        case Type::STRING:
        case Type::LARGE_STRING:
        case Type::STRING_VIEW:
          return arrow::utf8();
        case Type::BINARY:
        case Type::LARGE_BINARY:
        case Type::BINARY_VIEW:
          return arrow::binary();
        default:
          return nullptr;
      }
    }
    default:
      return nullptr;
  }
}

Result<std::unique_ptr<ColumnDecoder>> ColumnDecoder::make(const Request& request) {
  using parquet::Int32Type, parquet::Int64Type;
  switch (request.descriptor->physical_type()) {
    case parquet::Type::BOOLEAN:
      return make_decoder<BuildingDecoder<parquet::BooleanType, BooleanBuilder>>(request);
    case parquet::Type::INT32:
      switch (request.type->id()) {
        case Type::INT8:
        case Type::UINT8:
          return make_decoder<FixedDecoder<Int32Type, int8_t>>(request);
        case Type::INT16:
        case Type::UINT16:
          return make_decoder<FixedDecoder<Int32Type, int16_t>>(request);
        default:
          return make_decoder<FixedDecoder<Int32Type, int32_t>>(request);
      }
    case parquet::Type::INT64:
      return make_decoder<FixedDecoder<Int64Type, int64_t>>(request);
    case parquet::Type::FLOAT:
      return make_decoder<FixedDecoder<parquet::FloatType, float>>(request);
    case parquet::Type::DOUBLE:
      return make_decoder<FixedDecoder<parquet::DoubleType, double>>(request);
    case parquet::Type::BYTE_ARRAY:
      return make_decoder<TextDecoder>(request);
    default:
      return bug_error("no decoder for columns of {}", request.type->ToString());
  }
}

}  // namespace millstream::exec
