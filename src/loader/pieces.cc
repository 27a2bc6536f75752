#include "loader/pieces.h"

#include <bit>
#include <cerrno>
#include <cstring>

#include <arrow/io/memory.h>
#include <arrow/ipc/api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expr/expression.h"

namespace millstream::loader {
namespace {

std::string system_error() {
  return std::strerror(errno);
}

template <class From, class To>
std::shared_ptr<arrow::Array> convert(const arrow::Array& array, std::shared_ptr<arrow::DataType> type,
                                      std::shared_ptr<arrow::Buffer> out) {
  const auto* from = array.data()->GetValues<From>(1);
  auto* to = reinterpret_cast<To*>(out->mutable_data());
  for (int64_t i = 0; i < array.length(); ++i) to[i] = static_cast<To>(from[i]);
  return arrow::MakeArray(
      arrow::ArrayData::Make(std::move(type), array.length(), {nullptr, std::move(out)}, 0));
}

// An integer array without nulls in the narrowest signed type that its values fit; null where that is no gain.
template <class T>
Result<std::shared_ptr<arrow::Array>> narrow_integers(const arrow::Array& array, char* type) {
  const auto* values = array.data()->GetValues<T>(1);
  T low = 0, high = 0;
  for (int64_t i = 0; i < array.length(); ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  const auto fits = [&](auto limit) {
    using N = decltype(limit);
    return sizeof(N) < sizeof(T) && std::in_range<N>(low) && std::in_range<N>(high);
  };
  const auto make = [&](auto limit, std::shared_ptr<arrow::DataType> narrow,
                        char code) -> Result<std::shared_ptr<arrow::Array>> {
    using N = decltype(limit);
    MILLSTREAM_ASSIGN(std::shared_ptr<arrow::Buffer> out, arrow::AllocateBuffer(array.length() * sizeof(N)));
    *type = code;
    return convert<T, N>(array, std::move(narrow), std::move(out));
  };
  if (fits(int8_t{})) return make(int8_t{}, arrow::int8(), '1');
  if (fits(int16_t{})) return make(int16_t{}, arrow::int16(), '2');
  if (fits(int32_t{})) return make(int32_t{}, arrow::int32(), '4');
  return nullptr;
}

Result<std::shared_ptr<arrow::Array>> narrow_doubles(const arrow::Array& array, char* type) {
  const auto* values = array.data()->GetValues<double>(1);
  for (int64_t i = 0; i < array.length(); ++i) {
    if (std::bit_cast<uint64_t>(static_cast<double>(static_cast<float>(values[i]))) !=
        std::bit_cast<uint64_t>(values[i])) {
      return nullptr;
    }
  }
  MILLSTREAM_ASSIGN(std::shared_ptr<arrow::Buffer> out,
                    arrow::AllocateBuffer(array.length() * sizeof(float)));
  *type = 'f';
  return convert<double, float>(array, arrow::float32(), std::move(out));
}

Result<std::shared_ptr<arrow::Array>> narrowed(const std::shared_ptr<arrow::Array>& array, char* type) {
  *type = '=';
  std::shared_ptr<arrow::Array> narrow;
  if (array->null_count() == 0) {
    switch (array->type_id()) {
      case arrow::Type::INT16: {
        MILLSTREAM_ASSIGN(narrow, narrow_integers<int16_t>(*array, type));
        break;
      }
      case arrow::Type::INT32: {
        MILLSTREAM_ASSIGN(narrow, narrow_integers<int32_t>(*array, type));
        break;
      }
      case arrow::Type::INT64: {
        MILLSTREAM_ASSIGN(narrow, narrow_integers<int64_t>(*array, type));
        break;
      }
      case arrow::Type::UINT16: {
        MILLSTREAM_ASSIGN(narrow, narrow_integers<uint16_t>(*array, type));
        break;
      }
      case arrow::Type::UINT32: {
        MILLSTREAM_ASSIGN(narrow, narrow_integers<uint32_t>(*array, type));
        break;
      }
      case arrow::Type::UINT64: {
        MILLSTREAM_ASSIGN(narrow, narrow_integers<uint64_t>(*array, type));
        break;
      }
      case arrow::Type::DOUBLE: {
        MILLSTREAM_ASSIGN(narrow, narrow_doubles(*array, type));
        break;
      }
      default:
        break;
    }
  }
  return narrow ? narrow : array;
}

std::shared_ptr<arrow::DataType> stored_type(char code, const std::shared_ptr<arrow::DataType>& declared) {
  switch (code) {
    case '1':
      return arrow::int8();
    case '2':
      return arrow::int16();
    case '4':
      return arrow::int32();
    case 'f':
      return arrow::float32();
    default:
      return declared;
  }
}

}  // namespace

Result<std::unique_ptr<PieceWriter>> PieceWriter::create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return file_error(
        "the cache file {} can't be written: {}; give another place with --cache or $MILLSTREAM_CACHE", path,
        system_error());
  }
  return std::unique_ptr<PieceWriter>(new PieceWriter(path, descriptor, INT64_MAX));
}

Result<std::unique_ptr<PieceWriter>> PieceWriter::create_in_memory(int64_t limit) {
  const int descriptor = ::memfd_create("millstream-rows", MFD_CLOEXEC);
  if (descriptor < 0) return file_error("no memory for prepared rows: {}", system_error());
  return std::unique_ptr<PieceWriter>(new PieceWriter("", descriptor, limit));
}

std::string PieceWriter::path() const {
  return path_.empty() ? fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_) : path_;
}

PieceWriter::~PieceWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status PieceWriter::append(const arrow::RecordBatch& batch, const int32_t* rows, int64_t count,
                           Piece* piece) {
  piece->rows = count;
  for (int64_t first = 0; first < count; first += kPieceBatchRows) {
    const int64_t n = std::min(kPieceBatchRows, count - first);
    std::shared_ptr<arrow::RecordBatch> part;
    if (rows == nullptr) {
      part = batch.Slice(first, n);
    } else {
      MILLSTREAM_ASSIGN(part, expr::take_rows(batch, std::vector<int32_t>(rows + first, rows + first + n)));
    }
    PieceBatch described{.rows = static_cast<int32_t>(n)};
    std::vector<std::shared_ptr<arrow::Field>> fields;
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (int i = 0; i < part->num_columns(); ++i) {
      char type = '=';
      MILLSTREAM_ASSIGN(auto array, narrowed(part->column(i), &type));
      described.types += type;
      fields.push_back(arrow::field(part->schema()->field(i)->name(), array->type()));
      arrays.push_back(std::move(array));
    }
    const auto stored = arrow::RecordBatch::Make(arrow::schema(fields), n, arrays);
    MILLSTREAM_ASSIGN(const auto buffer,
                      arrow::ipc::SerializeRecordBatch(*stored, arrow::ipc::IpcWriteOptions::Defaults()));
    described.bytes = static_cast<int32_t>(buffer->size());
    described.offset = end_.fetch_add(buffer->size());
    if (described.offset + buffer->size() > limit_) full_.store(true, std::memory_order_relaxed);
    if (full()) return Status::OK();
    for (int64_t done = 0; done < buffer->size();) {
      const ssize_t written =
          ::pwrite(descriptor_, buffer->data() + done, buffer->size() - done, described.offset + done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return file_error("writing the cache file {}: {}", path(), system_error());
      done += written;
    }
    piece->batches.push_back(std::move(described));
  }
  return Status::OK();
}

Result<int64_t> PieceWriter::close() {
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) return file_error("writing the cache file {}: {}", path_, system_error());
  return end_.load();
}

Result<std::shared_ptr<PieceFile>> PieceFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return file_error("the cache file {} can't be read: {}", path, system_error());
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) {
    ::close(descriptor);
    return file_error("the cache file {} can't be read: {}", path, system_error());
  }
  return std::shared_ptr<PieceFile>(new PieceFile(path, descriptor, info.st_size));
}

Result<std::shared_ptr<PieceFile>> PieceFile::open_in_memory(const std::string& path) {
  MILLSTREAM_ASSIGN(auto file, open(path));
  if (file->size_ == 0) return file;
  void* const memory = ::mmap(nullptr, file->size_, PROT_READ, MAP_SHARED, file->descriptor_, 0);
  if (memory == MAP_FAILED) return file_error("prepared rows can't be mapped: {}", system_error());
  file->mapped_ = static_cast<const uint8_t*>(memory);
  return file;
}

PieceFile::~PieceFile() {
  if (mapped_ != nullptr) ::munmap(const_cast<uint8_t*>(mapped_), size_);
  ::close(descriptor_);
}

Result<std::shared_ptr<arrow::RecordBatch>> PieceFile::read(
    const PieceBatch& batch, const arrow::Schema& declared,
    std::shared_ptr<arrow::ResizableBuffer>* scratch) const {
  std::shared_ptr<arrow::Buffer> stored;
  if (mapped_ != nullptr) {
    if (batch.offset < 0 || batch.offset + batch.bytes > size_)
      return bug_error("a batch of prepared rows beyond their end");
    stored = std::make_shared<arrow::Buffer>(mapped_ + batch.offset, batch.bytes);
  } else if (*scratch == nullptr) {
    MILLSTREAM_ASSIGN(*scratch, arrow::AllocateResizableBuffer(batch.bytes));
  } else {
    MILLSTREAM_TRY((*scratch)->Resize(batch.bytes, /*shrink_to_fit=*/false));
  }
  if (stored == nullptr) stored = *scratch;
  uint8_t* const bytes = mapped_ != nullptr ? nullptr : (*scratch)->mutable_data();
  for (int64_t done = 0; mapped_ == nullptr && done < batch.bytes;) {
    const ssize_t got = ::pread(descriptor_, bytes + done, batch.bytes - done, batch.offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return file_error("the cache file {} can't be read at {}: {}; remove it", path_, batch.offset + done,
                        got == 0 ? "it ends there" : system_error());
    }
    done += got;
  }
  std::vector<std::shared_ptr<arrow::Field>> fields;
  for (int i = 0; i < declared.num_fields(); ++i) {
    fields.push_back(
        arrow::field(declared.field(i)->name(), stored_type(batch.types[i], declared.field(i)->type())));
  }
  arrow::io::BufferReader reader(stored);
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  auto rows = arrow::ipc::ReadRecordBatch(arrow::schema(fields), nullptr, options, &reader);
  if (!rows.ok() || (*rows)->num_rows() != batch.rows) {
    return file_error("the cache file {} is damaged at {}; remove it", path_, batch.offset);
  }
  return rows;
}

}  // namespace millstream::loader
