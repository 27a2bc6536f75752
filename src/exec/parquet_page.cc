#include "exec/parquet_page.h"

#include <algorithm>
#include <cstring>

#include <arrow/util/crc32.h>
#include <fcntl.h>

#include "exec/parquet_guard.h"

namespace millstream::exec {
namespace {

// Headers hold statistics, whose values can be long.
constexpr int64_t kLargestHeader = int64_t{16} << 20;
constexpr int64_t kFirstHeaderRead = 8 * 1024;
constexpr int64_t kReadAhead = int64_t{4} << 20;

// Thrift's compact protocol, as much of it as page headers need. Reads never pass the end; running out is remembered.
class CompactReader {
 public:
  CompactReader(const uint8_t* data, int64_t size) : begin_(data), at_(data), end_(data + size) {}
  bool ran_out() const { return ran_out_; }
  bool is_wrong() const { return is_wrong_; }
  bool good() const { return !ran_out_ && !is_wrong_; }
  int64_t position() const { return at_ - begin_; }

  enum Type : uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kI16 = 4,
    kI32 = 5,
    kI64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
  };

  // The fields of a struct: calls `field(id, type)` for each, which returns whether it read the value.
  template <class F>
  void read_struct(F&& field) {
    if (++depth_ > kDeepest) {
      is_wrong_ = true;
      return;
    }
    int16_t id = 0;
    while (good()) {
      const uint8_t head = byte();
      const auto type = static_cast<Type>(head & 0x0F);
      if (!good() || type == kStop) break;
      id = static_cast<int16_t>((head >> 4) != 0 ? id + (head >> 4) : zigzag());
      if (good() && !field(id, type)) skip(type);
    }
    --depth_;
  }
  int32_t i32() { return static_cast<int32_t>(zigzag()); }

 private:
  static constexpr int kDeepest = 16;

  uint8_t byte() {
    if (at_ == end_) {
      ran_out_ = true;
      return 0;
    }
    return *at_++;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && good(); shift += 7) {
      const uint8_t b = byte();
      if (shift < 64) value |= uint64_t{b & 0x7Fu} << shift;
      if ((b & 0x80) == 0) return value;
    }
    if (good()) is_wrong_ = true;
    return 0;
  }
  int64_t zigzag() {
    const uint64_t value = varint();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  void skip_bytes(uint64_t count) {
    if (count > static_cast<uint64_t>(end_ - at_)) {
      ran_out_ = true;
      return;
    }
    at_ += count;
  }
  void skip(Type type) {
    switch (type) {
      case kTrue:
      case kFalse:
        return;
      case kByte:
        return skip_bytes(1);
      case kI16:
      case kI32:
      case kI64:
        varint();
        return;
      case kDouble:
        return skip_bytes(8);
      case kBinary:
        return skip_bytes(varint());
      case kList:
      case kSet: {
        const uint8_t head = byte();
        const uint64_t count = (head >> 4) == 15 ? varint() : head >> 4;
        skip_elements(count, static_cast<Type>(head & 0x0F));
        return;
      }
      case kMap: {
        const uint64_t count = varint();
        if (count == 0 || !good()) return;
        const uint8_t types = byte();
        for (uint64_t i = 0; i < count && good(); ++i) {
          skip_elements(1, static_cast<Type>(types >> 4));
          skip_elements(1, static_cast<Type>(types & 0x0F));
        }
        return;
      }
      case kStruct:
        read_struct([](int16_t, Type) { return false; });
        return;
      default:
        is_wrong_ = true;
    }
  }
  // In a list a boolean takes a byte. Every element takes at least one, so that counts end with the bytes.
  void skip_elements(uint64_t count, Type type) {
    if (++depth_ > kDeepest) is_wrong_ = true;
    for (uint64_t i = 0; i < count && good(); ++i) {
      if (type == kTrue || type == kFalse) {
        skip_bytes(1);
      } else {
        skip(type);
      }
    }
    --depth_;
  }

  const uint8_t* begin_;
  const uint8_t* at_;
  const uint8_t* end_;
  bool ran_out_ = false;
  bool is_wrong_ = false;
  int depth_ = 0;
};

parquet::Encoding::type encoding_of(int32_t number) {
  constexpr int32_t kMost = parquet::Encoding::BYTE_STREAM_SPLIT;
  if (number < 0 || number > kMost) return parquet::Encoding::UNKNOWN;
  return static_cast<parquet::Encoding::type>(number);
}

}  // namespace

Result<int64_t> parse_page_header(const uint8_t* data, int64_t size, PageHeader* out) {
  using Type = CompactReader::Type;
  PageHeader header;
  CompactReader reader(data, size);
  int32_t type = -1;
  const auto number = [&](Type given, int32_t* value) {
    if (given != CompactReader::kI32) return false;
    *value = reader.i32();
    return true;
  };
  const auto encoding = [&](Type given, parquet::Encoding::type* value) {
    int32_t code = -1;
    if (!number(given, &code)) return false;
    *value = encoding_of(code);
    return true;
  };
  const auto data_page = [&](int16_t id, Type given) {
    if (id == 1) return number(given, &header.num_values);
    if (id == 2) return encoding(given, &header.encoding);
    if (id == 3) return encoding(given, &header.level_encoding);
    return false;
  };
  const auto dictionary_page = [&](int16_t id, Type given) {
    if (id == 1) return number(given, &header.num_values);
    if (id == 2) return encoding(given, &header.encoding);
    return false;
  };
  const auto data_page_v2 = [&](int16_t id, Type given) {
    if (id == 1) return number(given, &header.num_values);
    if (id == 3) return number(given, &header.num_rows);
    if (id == 4) return encoding(given, &header.encoding);
    if (id == 5) return number(given, &header.definition_bytes);
    if (id == 6) return number(given, &header.repetition_bytes);
    if (id == 7) {
      header.is_compressed = given != CompactReader::kFalse;
      return given == CompactReader::kTrue || given == CompactReader::kFalse;
    }
    return false;
  };
  bool has_data = false, has_dictionary = false, has_data_v2 = false;
  reader.read_struct([&](int16_t id, Type given) {
    if (id == 1) return number(given, &type);
    if (id == 2) return number(given, &header.uncompressed_bytes);
    if (id == 3) return number(given, &header.compressed_bytes);
    if (id == 4) {
      int32_t crc = 0;
      if (!number(given, &crc)) return false;
      header.crc = static_cast<uint32_t>(crc);
      header.has_crc = true;
      return true;
    }
    if (given != CompactReader::kStruct) return false;
    if (id == 5) {
      has_data = true;
      reader.read_struct(data_page);
    } else if (id == 7) {
      has_dictionary = true;
      reader.read_struct(dictionary_page);
    } else if (id == 8) {
      has_data_v2 = true;
      reader.read_struct(data_page_v2);
    } else {
      return false;
    }
    return true;
  });
  if (reader.ran_out()) return -1;
  if (reader.is_wrong()) return Status::Invalid("the header of a page cannot be read");
  if (header.compressed_bytes < 0 || header.uncompressed_bytes < 0) {
    return Status::Invalid("the header of a page claims ", header.compressed_bytes, " bytes, ",
                           header.uncompressed_bytes, " uncompressed");
  }
  bool complete = true;
  switch (type) {
    case 0:
      header.kind = PageHeader::Kind::kData;
      complete = has_data;
      break;
    case 2:
      header.kind = PageHeader::Kind::kDictionary;
      complete = has_dictionary;
      break;
    case 3:
      header.kind = PageHeader::Kind::kDataV2;
      complete = has_data_v2;
      break;
    default:
      header.kind = PageHeader::Kind::kOther;
  }
  if (!complete) return Status::Invalid("the header of a page does not describe its kind of page");
  if (header.num_values < 0)
    return Status::Invalid("the header of a page claims ", header.num_values, " values");
  *out = header;
  return reader.position();
}

Result<std::unique_ptr<PageStream>> PageStream::make(const ChunkPlace& place, arrow::Compression::type codec,
                                                     bool always_compressed, int64_t window_bytes) {
  std::unique_ptr<PageStream> stream(new PageStream(place));
  stream->always_compressed_ = always_compressed;
  stream->window_bytes_ = window_bytes;
  stream->next_fill_ = window_bytes;
  if (codec == arrow::Compression::UNCOMPRESSED) return stream;
  MILLSTREAM_TRY(without_exceptions([&]() -> Status {
    stream->codec_ = parquet::GetCodec(codec);
    return Status::OK();
  }));
  if (codec == arrow::Compression::ZSTD) {
    MILLSTREAM_ASSIGN(stream->decompressor_, stream->codec_->MakeDecompressor());
  }
  return stream;
}

Status PageStream::fill(int64_t size) {
  size = std::min(size, place_.bytes - at_);
  if (at_ < window_begin_ || at_ > window_end_) window_begin_ = window_end_ = at_;
  if (available() >= size) return Status::OK();
  const int64_t kept = available();
  const int64_t wanted = std::min(std::max(size, next_fill_), place_.bytes - at_);
  next_fill_ = std::min(window_bytes_, next_fill_ * 4);
  if (!window_ || wanted > window_->size()) {
    MILLSTREAM_ASSIGN(
        std::unique_ptr<arrow::Buffer> larger,
        arrow::AllocateBuffer(std::max(wanted, std::min(window_bytes_, place_.bytes)), GuardedPool::get()));
    if (kept > 0) std::memcpy(larger->mutable_data(), here(), static_cast<size_t>(kept));
    window_ = std::move(larger);
  } else if (kept > 0) {
    std::memmove(window_->mutable_data(), here(), static_cast<size_t>(kept));
  }
  window_begin_ = at_;
  window_end_ = at_ + kept;
  MILLSTREAM_ASSIGN(const int64_t got, place_.file->read_at(*place_.path, place_.begin + window_end_,
                                                            wanted - kept, window_->mutable_data() + kept));
  bytes_read_ += got;
  read_ahead();
  window_end_ += got;
  if (available() < size) return file_error("'{}' became shorter while it was read", *place_.path);
  return Status::OK();
}

// Asks the kernel for what comes next, so that it is there when it is wanted: into its cache, which takes none of our
// memory. Not after a jump, when who knows what comes next.
void PageStream::read_ahead() {
  if (next_fill_ < window_bytes_ || advised_ > window_end_ + kReadAhead / 2) return;
  const int64_t begin = std::max(advised_, window_end_);
  const int64_t end = std::min(window_end_ + kReadAhead, place_.bytes);
  if (begin < end)
    ::posix_fadvise(place_.file->descriptor(), place_.begin + begin, end - begin, POSIX_FADV_WILLNEED);
  advised_ = end;
}

Result<bool> PageStream::next() {
  if (body_left_ > 0) {
    at_ += body_left_;
    body_left_ = 0;
    // The place after a body that was not read: only a header is wanted, and another may follow it.
    if (at_ >= window_end_) next_fill_ = std::min(kFirstHeaderRead, window_bytes_);
  }
  if (at_ >= place_.bytes) return false;
  MILLSTREAM_TRY(fill(1));
  while (true) {
    MILLSTREAM_ASSIGN(const int64_t taken, parse_page_header(here(), available(), &header_));
    if (taken >= 0) {
      at_ += taken;
      break;
    }
    const int64_t known = available();
    if (known >= place_.bytes - at_ || known >= kLargestHeader)
      return Status::Invalid("the column ends within the header of a page");
    MILLSTREAM_TRY(fill(known * 2));
  }
  if (header_.compressed_bytes > place_.bytes - at_) {
    return Status::Invalid("a page claims ", header_.compressed_bytes, " bytes, the column has ",
                           place_.bytes - at_, " left");
  }
  body_left_ = header_.compressed_bytes;
  return true;
}

Status PageStream::decompress(const uint8_t* input, int64_t size, uint8_t* output, int64_t output_size) {
  int64_t written = 0;
  if (decompressor_) {
    // A page may be several frames.
    while (size > 0 && written < output_size) {
      MILLSTREAM_TRY(decompressor_->Reset());
      MILLSTREAM_ASSIGN(const auto step,
                        decompressor_->Decompress(size, input, output_size - written, output + written));
      if (step.bytes_read <= 0 || step.bytes_read > size) break;
      input += step.bytes_read;
      size -= step.bytes_read;
      written += step.bytes_written;
      if (!decompressor_->IsFinished() && step.bytes_written == 0) break;
    }
    if (written < output_size || !decompressor_->IsFinished())
      return Status::Invalid("a page decompresses to ", written, " bytes, not to the ", output_size,
                             " of its header");
    return Status::OK();
  }
  MILLSTREAM_ASSIGN(written, codec_->Decompress(size, input, output_size, output));
  if (written != output_size)
    return Status::Invalid("a page decompresses to ", written, " bytes, not to the ", output_size,
                           " of its header");
  return Status::OK();
}

Result<PageStream::Body> PageStream::body() {
  next_fill_ = window_bytes_;
  const int64_t bytes = header_.compressed_bytes;
  MILLSTREAM_TRY(fill(bytes));
  const uint8_t* data = here();
  at_ += bytes;
  body_left_ = 0;
  if (header_.has_crc && arrow::internal::crc32(0, data, static_cast<size_t>(bytes)) != header_.crc)
    return Status::Invalid("a page fails its checksum (CRC): the file is damaged");
  Body body;
  int64_t levels = 0;
  if (header_.kind == PageHeader::Kind::kDataV2) {
    levels = int64_t{header_.definition_bytes} + header_.repetition_bytes;
    if (header_.definition_bytes < 0 || header_.repetition_bytes < 0 || levels > bytes ||
        levels > header_.uncompressed_bytes) {
      return Status::Invalid("a page of ", bytes, " bytes claims ", header_.definition_bytes, " and ",
                             header_.repetition_bytes, " bytes of levels");
    }
    body.levels = data + header_.repetition_bytes;
  }
  const int64_t compressed = bytes - levels;
  body.size = header_.uncompressed_bytes - levels;
  if (!codec_ || !(header_.is_compressed || always_compressed_)) {
    body.data = data + levels;
    body.size = compressed;  // some writers get the other number wrong
    return body;
  }
  if (!page_ || body.size > page_->size()) {
    page_.reset();
    MILLSTREAM_ASSIGN(page_, arrow::AllocateBuffer(body.size, GuardedPool::get()));
  }
  body.data = page_->data();
  if (body.size > 0) MILLSTREAM_TRY(decompress(data + levels, compressed, page_->mutable_data(), body.size));
  return body;
}

}  // namespace millstream::exec
