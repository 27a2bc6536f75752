// Parquet files: footers, checked before anything trusts them, and row groups read block by block. The only
// file that reads Parquet. Nothing that a file says may crash, hang or fill the memory: sizes of the footer
// are held against the file, no single allocation may be absurd, and every exception becomes a Status at this
// edge.

#include <cmath>
#include <cstring>
#include <limits>

#include <arrow/array/concatenate.h>
#include <arrow/io/file.h>
#include <arrow/util/io_util.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/statistics.h>

#include "base/cpu_share.h"
#include "base/hash.h"
#include "exec/data_file.h"
#include "expr/type.h"

namespace millstream::exec {
namespace {

// A block is at most 64 Ki rows: more than this for one array of it means 16 KiB a value, or a damaged file.
constexpr int64_t kLargestAllocation = int64_t{1} << 30;
// Each open column holds a buffer of this size beside its pages.
constexpr int64_t kStreamBuffer = 128 * 1024;
constexpr int64_t kTrailer = 8;  // length of the footer and the magic number
constexpr int64_t kMagic = 4;

// Refuses single allocations that only a damaged file asks for. Lives for ever: batches outlive their reader.
class GuardedPool final : public arrow::MemoryPool {
 public:
  static GuardedPool* get() {
    static GuardedPool* pool = new GuardedPool;
    return pool;
  }
  Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override {
    MILLSTREAM_TRY(check(size));
    return inner_->Allocate(size, alignment, out);
  }
  Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** ptr) override {
    MILLSTREAM_TRY(check(new_size));
    return inner_->Reallocate(old_size, new_size, alignment, ptr);
  }
  void Free(uint8_t* buffer, int64_t size, int64_t alignment) override {
    inner_->Free(buffer, size, alignment);
  }
  int64_t bytes_allocated() const override { return inner_->bytes_allocated(); }
  int64_t max_memory() const override { return inner_->max_memory(); }
  int64_t total_bytes_allocated() const override { return inner_->total_bytes_allocated(); }
  int64_t num_allocations() const override { return inner_->num_allocations(); }
  std::string backend_name() const override { return inner_->backend_name(); }

 private:
  static Status check(int64_t size) {
    if (size <= kLargestAllocation) return Status::OK();
    return Status::OutOfMemory("decoding asks for ", size, " bytes at once, at most ",
                               format_bytes(kLargestAllocation),
                               " are given: the file is damaged or its values are too large");
  }
  arrow::MemoryPool* inner_ = arrow::default_memory_pool();
};

// Calls into Parquet, exceptions to Status.
template <class F>
auto without_exceptions(F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const parquet::ParquetStatusException& e) {
    return e.status();
  } catch (const parquet::ParquetException& e) {
    return Status::Invalid(e.what());
  } catch (const std::bad_alloc&) {
    return Status::OutOfMemory("out of memory");
  } catch (const std::exception& e) {
    return Status::Invalid(e.what());
  }
}

// Foreign errors of decoding are the data's fault, except where the operating system failed to read.
Status decoding_error(const Status& status, const std::string& place, SourcePosition position) {
  const bool io = arrow::internal::ErrnoFromStatus(status) != 0;
  std::string text = status.message();
  if (const size_t line = text.find('\n'); line != std::string::npos) text.resize(line);
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return make_error(io ? ErrorCategory::kFile : ErrorCategory::kData, fmt::format("{}: {}", place, text),
                    position);
}

parquet::ReaderProperties reader_properties() {
  parquet::ReaderProperties properties(GuardedPool::get());
  properties.enable_buffered_stream();
  properties.set_buffer_size(kStreamBuffer);
  properties.set_page_checksum_verification(true);
  return properties;
}

parquet::ArrowReaderProperties arrow_properties() {
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_pre_buffer(false);
  properties.set_batch_size(plan::kBlockRows);
  properties.set_coerce_int96_timestamp_unit(arrow::TimeUnit::MICRO);
  return properties;
}

void collect_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& out) {
  if (field.is_leaf()) out.push_back(field.column_index);
  for (const auto& child : field.children) collect_leaves(child, out);
}

class ParquetFile;

class ParquetBlockReader final : public plan::SourceTable::Reader {
 public:
  ParquetBlockReader(std::shared_ptr<const ParquetFile> file, int row_group, std::vector<ReadColumn> columns,
                     int file_number)
      : file_(std::move(file)),
        row_group_(row_group),
        wanted_(std::move(columns)),
        file_number_(file_number) {}
  Status open();
  Result<std::shared_ptr<arrow::RecordBatch>> next() override;

 private:
  struct Column {
    std::unique_ptr<arrow::RecordBatchReader> stream;  // null: a column that the file does not have
    ColumnCast cast;
    std::string name;
  };
  Result<std::shared_ptr<arrow::Array>> read_column(const Column& column, int64_t rows);
  std::string place(const std::string& column) const;
  SourcePosition position(int64_t row_in_group) const;

  std::shared_ptr<const ParquetFile> file_;
  int row_group_;
  std::vector<ReadColumn> wanted_;
  int file_number_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<Column> columns_;
  std::shared_ptr<arrow::Schema> schema_;
  int64_t rows_ = 0;
  int64_t done_ = 0;
};

class ParquetFile final : public DataFile, public std::enable_shared_from_this<ParquetFile> {
 public:
  static Result<std::shared_ptr<const DataFile>> open(const std::string& path) {
    auto file = std::make_shared<ParquetFile>();
    file->path_ = path;
    MILLSTREAM_ASSIGN(FileHandle handle, FileHandle::open(path));
    file->info_ = handle.info();
    MILLSTREAM_TRY(file->read_footer(handle));
    Status status = without_exceptions([&] { return file->understand_footer(); });
    if (!status.ok()) {
      if (status.detail()) return status;
      std::string text = status.message();
      if (const size_t line = text.find('\n'); line != std::string::npos) text.resize(line);
      return file_error("'{}' cannot be read as a Parquet file: {}", path, text);
    }
    return file;
  }

  plan::FileFormat format() const override { return plan::FileFormat::kParquet; }
  const std::vector<FileColumn>& columns() const override { return columns_; }
  const std::vector<FileEntryPoint>& entry_points() const override { return entry_points_; }
  int64_t rows() const override { return rows_; }
  int64_t column_bytes(int entry_point, int column) const override {
    return column_bytes_[static_cast<size_t>(entry_point) * columns_.size() + static_cast<size_t>(column)];
  }
  plan::ColumnClaims claims(int entry_point, int column) const override;
  const struct stat& info() const override { return info_; }
  const std::string& content_digest() const override { return digest_; }
  Result<std::unique_ptr<plan::SourceTable::Reader>> read(int entry_point, std::vector<ReadColumn> columns,
                                                          int file_number) const override {
    auto reader = std::make_unique<ParquetBlockReader>(shared_from_this(), entry_point, std::move(columns),
                                                       file_number);
    MILLSTREAM_TRY(reader->open());
    return reader;
  }

  const std::string& path() const { return path_; }
  const std::shared_ptr<parquet::FileMetaData>& metadata() const { return metadata_; }
  const std::vector<int>& leaves(int column) const { return leaves_[static_cast<size_t>(column)]; }
  const expr::TypePtr& stored_type(int column) const { return stored_types_[static_cast<size_t>(column)]; }

  // Holds what the footer says of a column chunk against the file.
  Status check_chunk(int row_group, int leaf) const {
    const auto group = metadata_->RowGroup(row_group);
    const auto chunk = group->ColumnChunk(leaf);
    int64_t begin = chunk->data_page_offset();
    if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0)
      begin = std::min(begin, chunk->dictionary_page_offset());
    const int64_t bytes = chunk->total_compressed_size();
    if (begin < 0 || bytes < 0 || begin > info_.st_size || bytes > info_.st_size - begin) {
      return Status::Invalid("the footer places ", bytes, " bytes of the column at offset ", begin,
                             " of a file of ", static_cast<int64_t>(info_.st_size), " bytes");
    }
    const bool repeated = metadata_->schema()->Column(leaf)->max_repetition_level() > 0;
    if (chunk->num_values() < 0 || (!repeated && chunk->num_values() != group->num_rows())) {
      return Status::Invalid("the footer says that the column has ", chunk->num_values(),
                             " values and the row group ", group->num_rows(), " rows");
    }
    return Status::OK();
  }

 private:
  Status read_footer(const FileHandle& handle) {
    const int64_t size = handle.size();
    if (size == 0) return file_error("'{}' is empty (0 bytes): not a Parquet file", path_);
    char trailer[kTrailer];
    if (size <= kTrailer) return file_error("'{}' is not a Parquet file: it has only {} bytes", path_, size);
    MILLSTREAM_ASSIGN(const int64_t got, handle.read_at(path_, size - kTrailer, kTrailer, trailer));
    if (got != kTrailer) return file_error("'{}' became shorter while it was read", path_);
    if (std::memcmp(trailer + 4, "PARE", 4) == 0) {
      return file_error("'{}' is an encrypted Parquet file; encrypted files cannot be read", path_);
    }
    if (std::memcmp(trailer + 4, "PAR1", 4) != 0) {
      char head[kMagic];
      MILLSTREAM_ASSIGN(const int64_t head_size, handle.read_at(path_, 0, kMagic, head));
      if (head_size == kMagic && std::memcmp(head, "PAR1", 4) == 0) {
        return file_error("'{}' is a truncated Parquet file: it begins as one but does not end with a footer",
                          path_);
      }
      return file_error(
          "'{}' is not a Parquet file (it does not end in \"PAR1\"); CSV files are known by their ending "
          ".csv or .tsv",
          path_);
    }
    uint32_t length = 0;
    std::memcpy(&length, trailer, sizeof length);
    if (length == 0 || int64_t{length} > size - kTrailer) {
      return file_error(
          "'{}' is a damaged or truncated Parquet file: its footer claims {} bytes of a file of {}", path_,
          length, size);
    }
    footer_.resize(length);
    MILLSTREAM_ASSIGN(const int64_t read,
                      handle.read_at(path_, size - kTrailer - length, length, footer_.data()));
    if (read != length) return file_error("'{}' became shorter while it was read", path_);
    Digest digest;
    digest.add(footer_);
    digest_ = digest.hex();
    return Status::OK();
  }

  Status understand_footer() {
    // Every element of a list and every character of a string takes at least a byte of the footer.
    parquet::ReaderProperties limits(GuardedPool::get());
    const auto length =
        static_cast<int32_t>(std::min<size_t>(footer_.size(), std::numeric_limits<int32_t>::max()));
    limits.set_thrift_string_size_limit(std::min(limits.thrift_string_size_limit(), length));
    limits.set_thrift_container_size_limit(std::min(limits.thrift_container_size_limit(), length));
    metadata_ = parquet::FileMetaData::Make(footer_.data(), static_cast<int64_t>(footer_.size()), limits);
    footer_ = {};
    if (metadata_->is_encryption_algorithm_set()) {
      return file_error("'{}' is an encrypted Parquet file; encrypted files cannot be read", path_);
    }
    parquet::arrow::SchemaManifest manifest;
    MILLSTREAM_TRY(parquet::arrow::SchemaManifest::Make(metadata_->schema(), metadata_->key_value_metadata(),
                                                        arrow_properties(), &manifest));
    for (const auto& field : manifest.schema_fields) {
      stored_types_.push_back(field.field->type());
      collect_leaves(field, leaves_.emplace_back());
      columns_.push_back(
          {field.field->name(), canonical_or_stored(field.field->type()), field.field->nullable(), false});
    }
    return understand_row_groups();
  }

  Status understand_row_groups() {
    std::vector<bool> may_be_null(columns_.size(), false);
    int64_t blocks = 0;
    for (int g = 0; g < metadata_->num_row_groups(); ++g) {
      const auto group = metadata_->RowGroup(g);
      const int64_t rows = group->num_rows();
      if (rows < 0) return Status::Invalid("row group ", g, " has ", rows, " rows");
      blocks += rows / plan::kBlockRows + 1;
      if (blocks > std::numeric_limits<int>::max() / 2)
        return Status::Invalid("row group ", g, " claims ", rows, " rows");
      if (group->num_columns() != metadata_->num_columns()) {
        return Status::Invalid("row group ", g, " has ", group->num_columns(), " columns and the schema ",
                               metadata_->num_columns());
      }
      FileEntryPoint entry{rows_, rows, 0};
      for (size_t c = 0; c < columns_.size(); ++c) {
        int64_t bytes = 0;
        for (int leaf : leaves_[c]) {
          const auto chunk = group->ColumnChunk(leaf);
          bytes += std::clamp<int64_t>(chunk->total_compressed_size(), 0, info_.st_size);
          if (columns_[c].nullable && !may_be_null[c]) {
            const auto statistics = chunk->encoded_statistics();
            may_be_null[c] = leaves_[c].size() != 1 || !statistics || !statistics->has_null_count ||
                             statistics->null_count != 0;
          }
        }
        entry.bytes += bytes;
        column_bytes_.push_back(bytes);
      }
      rows_ += rows;
      entry_points_.push_back(entry);
    }
    if (metadata_->num_rows() != rows_) {
      return Status::Invalid("it has ", metadata_->num_rows(), " rows and its row groups together ", rows_);
    }
    for (size_t c = 0; c < columns_.size(); ++c) {
      // A repeated or nested column's null count is of its leaves.
      const bool flat = leaves_[c].size() == 1 &&
                        metadata_->schema()->Column(leaves_[c][0])->max_repetition_level() == 0 &&
                        metadata_->schema()->GetColumnRoot(leaves_[c][0])->is_primitive();
      if (columns_[c].nullable)
        columns_[c].nullable = may_be_null[c] || !flat || stored_types_[c]->id() == arrow::Type::NA;
    }
    make_names_unique(columns_);
    return Status::OK();
  }

  std::string path_;
  struct stat info_ {};
  std::string footer_;
  std::string digest_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<FileColumn> columns_;
  std::vector<expr::TypePtr> stored_types_;
  std::vector<std::vector<int>> leaves_;
  std::vector<FileEntryPoint> entry_points_;
  std::vector<int64_t> column_bytes_;
  int64_t rows_ = 0;
};

// Does the chunk's pair of a least and a greatest value mean what the canonical type means by its values?
bool means_whole_values(const parquet::ColumnDescriptor& descriptor, const arrow::DataType& type) {
  const auto& logical = *descriptor.logical_type();
  if (expr::is_integer_type(type)) {
    if (logical.is_none()) return true;
    return logical.is_int() && static_cast<const parquet::IntLogicalType&>(logical).is_signed() ==
                                   expr::is_signed_integer_type(type);
  }
  if (expr::is_date_type(type)) return logical.is_date();
  if (expr::is_timestamp_type(type)) {
    if (!logical.is_timestamp()) return false;
    const auto stored = static_cast<const parquet::TimestampLogicalType&>(logical).time_unit();
    switch (static_cast<const arrow::TimestampType&>(type).unit()) {
      case arrow::TimeUnit::MILLI:
        return stored == parquet::LogicalType::TimeUnit::MILLIS;
      case arrow::TimeUnit::MICRO:
        return stored == parquet::LogicalType::TimeUnit::MICROS;
      case arrow::TimeUnit::NANO:
        return stored == parquet::LogicalType::TimeUnit::NANOS;
      case arrow::TimeUnit::SECOND:
        return false;
    }
  }
  if (expr::is_decimal_type(type)) {
    return logical.is_decimal() &&
           static_cast<const parquet::DecimalLogicalType&>(logical).scale() == expr::decimal_scale(type);
  }
  return false;
}

// The limits that the statistics claim, for types whose order everybody agrees on. Not for INT96 and strings.
expr::Bounds claimed_limits(const parquet::Statistics& statistics, const arrow::DataType& type) {
  constexpr auto kOrigin = expr::BoundOrigin::kClaimed;
  expr::Bounds bounds;
  const auto whole = [&](__int128 low, __int128 high) {
    if (low > high) return;  // says that it is wrong
    bounds.whole.low = {low, kOrigin};
    bounds.whole.high = {high, kOrigin};
  };
  // Statistics skip NaN, which is greater than everything: floating point numbers have no upper limit.
  const auto real = [&](double low, double high) {
    if (!std::isnan(low) && !std::isnan(high) && low <= high) bounds.real.low = {low, kOrigin};
  };
  const bool is_unsigned = expr::is_integer_type(type) && !expr::is_signed_integer_type(type);
  switch (statistics.physical_type()) {
    case parquet::Type::BOOLEAN: {
      const auto& typed = static_cast<const parquet::BoolStatistics&>(statistics);
      if (type.id() == arrow::Type::BOOL) whole(typed.min(), typed.max());
      break;
    }
    case parquet::Type::INT32: {
      const auto& typed = static_cast<const parquet::Int32Statistics&>(statistics);
      if (!means_whole_values(*statistics.descr(), type)) break;
      if (is_unsigned) {
        whole(static_cast<uint32_t>(typed.min()), static_cast<uint32_t>(typed.max()));
      } else {
        whole(typed.min(), typed.max());
      }
      break;
    }
    case parquet::Type::INT64: {
      const auto& typed = static_cast<const parquet::Int64Statistics&>(statistics);
      if (!means_whole_values(*statistics.descr(), type)) break;
      if (is_unsigned) {
        whole(static_cast<uint64_t>(typed.min()), static_cast<uint64_t>(typed.max()));
      } else {
        whole(typed.min(), typed.max());
      }
      break;
    }
    case parquet::Type::FLOAT: {
      const auto& typed = static_cast<const parquet::FloatStatistics&>(statistics);
      if (expr::is_floating_type(type)) real(typed.min(), typed.max());
      break;
    }
    case parquet::Type::DOUBLE: {
      const auto& typed = static_cast<const parquet::DoubleStatistics&>(statistics);
      if (expr::is_floating_type(type)) real(typed.min(), typed.max());
      break;
    }
    default:
      break;
  }
  // A value that the type does not have is no claim.
  const expr::Bounds of_type = expr::bounds_of_type(type);
  if (of_type.whole.low && bounds.whole.low &&
      (bounds.whole.low->value < of_type.whole.low->value ||
       bounds.whole.high->value > of_type.whole.high->value))
    bounds = {};
  return bounds;
}

plan::ColumnClaims ParquetFile::claims(int entry_point, int column) const {
  plan::ColumnClaims result;
  const auto& leaves = leaves_[static_cast<size_t>(column)];
  const FileColumn& field = columns_[static_cast<size_t>(column)];
  // Footers are the files' own: what cannot be understood claims nothing.
  const Status status = without_exceptions([&]() -> Status {
    if (leaves.size() != 1) return Status::OK();
    const parquet::ColumnDescriptor& descriptor = *metadata_->schema()->Column(leaves[0]);
    if (descriptor.max_repetition_level() > 0 ||
        !metadata_->schema()->GetColumnRoot(leaves[0])->is_primitive())
      return Status::OK();
    // Without a declared order the pair is the legacy one, which writers ordered as they liked.
    if (descriptor.column_order().get_order() != parquet::ColumnOrder::TYPE_DEFINED_ORDER)
      return Status::OK();
    const auto statistics = metadata_->RowGroup(entry_point)->ColumnChunk(leaves[0])->statistics();
    if (!statistics) return Status::OK();
    const int64_t rows = entry_points_[static_cast<size_t>(entry_point)].rows;
    if (statistics->HasNullCount() && statistics->null_count() >= 0 && statistics->null_count() <= rows)
      result.null_count = statistics->null_count();
    if (statistics->HasMinMax()) result.bounds = claimed_limits(*statistics, *field.type);
    if (rows > 0 && result.null_count == rows && !statistics->HasMinMax())
      result.bounds.none = expr::BoundOrigin::kClaimed;
    return Status::OK();
  });
  return status.ok() ? result : plan::ColumnClaims{};
}

std::string ParquetBlockReader::place(const std::string& column) const {
  if (column.empty()) return fmt::format("{}, row group {}", file_->path(), row_group_);
  return fmt::format("{}, row group {}, column '{}'", file_->path(), row_group_, column);
}

SourcePosition ParquetBlockReader::position(int64_t row_in_group) const {
  return {file_number_, file_->entry_points()[static_cast<size_t>(row_group_)].first_row + row_in_group};
}

Status ParquetBlockReader::open() {
  rows_ = file_->entry_points()[static_cast<size_t>(row_group_)].rows;
  arrow::FieldVector fields;
  for (const ReadColumn& wanted : wanted_) fields.push_back(wanted.field);
  schema_ = arrow::schema(std::move(fields));
  columns_.resize(wanted_.size());

  MILLSTREAM_ASSIGN(FileHandle handle, FileHandle::open(file_->path()));
  MILLSTREAM_TRY(check_unchanged(file_->path(), file_->info(), handle.info()));
  Status status = without_exceptions([&]() -> Status {
    const int descriptor = handle.release();
    MILLSTREAM_ASSIGN(std::shared_ptr<arrow::io::RandomAccessFile> input,
                      arrow::io::ReadableFile::Open(descriptor, GuardedPool::get()));
    auto parquet_reader =
        parquet::ParquetFileReader::Open(std::move(input), reader_properties(), file_->metadata());
    MILLSTREAM_ASSIGN(reader_, parquet::arrow::FileReader::Make(GuardedPool::get(), std::move(parquet_reader),
                                                                arrow_properties()));
    return Status::OK();
  });
  if (!status.ok()) return decoding_error(status, place(""), position(0));

  for (size_t i = 0; i < wanted_.size(); ++i) {
    Column& column = columns_[i];
    column.name = wanted_[i].field->name();
    const int in_file = wanted_[i].column;
    if (in_file < 0) continue;
    column.cast = ColumnCast(file_->stored_type(in_file), wanted_[i].field->type());
    status = without_exceptions([&]() -> Status {
      for (int leaf : file_->leaves(in_file)) MILLSTREAM_TRY(file_->check_chunk(row_group_, leaf));
      if (rows_ == 0) return Status::OK();
      MILLSTREAM_ASSIGN(column.stream, reader_->GetRecordBatchReader({row_group_}, file_->leaves(in_file)));
      return Status::OK();
    });
    if (!status.ok()) return decoding_error(status, place(column.name), position(0));
  }
  return Status::OK();
}

Result<std::shared_ptr<arrow::Array>> ParquetBlockReader::read_column(const Column& column, int64_t rows) {
  // One batch is one block, except where a column of long strings comes in pieces.
  arrow::ArrayVector pieces;
  int64_t got = 0;
  const bool last = done_ + rows == rows_;
  while (got < rows || last) {
    std::shared_ptr<arrow::RecordBatch> batch;
    MILLSTREAM_TRY(column.stream->ReadNext(&batch));
    if (!batch) break;
    if (batch->num_columns() != 1)
      return Status::Invalid("the column decodes to ", batch->num_columns(), " columns");
    got += batch->num_rows();
    if (got > rows) break;
    if (batch->num_rows() > 0) pieces.push_back(batch->column(0));
  }
  if (got != rows) {
    return Status::Invalid("the column ", got > rows ? "has more rows than the " : "ends before the ", rows_,
                           " rows that the footer gives the row group",
                           got > rows ? "" : fmt::format(" (after {})", done_ + got));
  }
  if (pieces.size() == 1) return pieces[0];
  return arrow::Concatenate(pieces, GuardedPool::get());
}

Result<std::shared_ptr<arrow::RecordBatch>> ParquetBlockReader::next() {
  if (done_ == rows_) return nullptr;
  const int64_t rows = std::min(plan::kBlockRows, rows_ - done_);
  arrow::ArrayVector arrays;
  arrays.reserve(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    const arrow::Field& field = *wanted_[i].field;
    auto array = without_exceptions([&]() -> Result<std::shared_ptr<arrow::Array>> {
      if (!column.stream) return arrow::MakeArrayOfNull(field.type(), rows, GuardedPool::get());
      MILLSTREAM_ASSIGN(auto stored, read_column(column, rows));
      return column.cast.apply(std::move(stored));
    });
    if (!array.ok()) {
      const auto row = error_position(array.status());
      if (row)
        return decoding_error(array.status(),
                              fmt::format("{}, row {}", place(column.name), position(done_ + row->row).row),
                              position(done_ + row->row));
      return decoding_error(array.status(), place(column.name), position(done_));
    }
    if (!field.nullable() && (*array)->null_count() > 0) {
      int64_t row = 0;
      while ((*array)->IsValid(row)) ++row;
      return decoding_error(
          Status::Invalid("the value is NULL, but the file's footer says that the column holds no NULL"),
          fmt::format("{}, row {}", place(column.name), position(done_ + row).row), position(done_ + row));
    }
    arrays.push_back(*std::move(array));
  }
  done_ += rows;
  return arrow::RecordBatch::Make(schema_, rows, std::move(arrays));
}

}  // namespace

Result<std::shared_ptr<const DataFile>> open_parquet_file(const std::string& path) {
  return ParquetFile::open(path);
}

}  // namespace millstream::exec
