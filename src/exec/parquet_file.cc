// Parquet files: footers, checked before anything trusts them, and row groups read block by block. Nothing that a
// file says may crash, hang or fill the memory: sizes of the footer are held against the file, no single allocation
// may be absurd, and every exception becomes a Status at this edge. Columns without nesting are decoded by
// parquet_column.h, rows and pages that nobody asks for passed over; the others by Arrow's own reader.

#include <cstring>
#include <limits>

#include <arrow/array/concatenate.h>
#include <arrow/io/file.h>
#include <arrow/util/io_util.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/statistics.h>

#include "base/hash.h"
#include "exec/data_file.h"
#include "exec/parquet_claims.h"
#include "exec/parquet_column.h"
#include "exec/parquet_guard.h"
#include "expr/type.h"

namespace millstream::exec {
namespace {

// Each column that Arrow's reader reads holds a buffer of this size beside its pages.
constexpr int64_t kStreamBuffer = 128 * 1024;
// How much of a column is read at once: less for wide tables.
constexpr int64_t kLargestWindow = 256 * 1024;
constexpr int64_t kLeastWindow = 16 * 1024;
constexpr int64_t kWindowsBytes = int64_t{16} << 20;
constexpr int64_t kTrailer = 8;  // length of the footer and the magic number
constexpr int64_t kMagic = 4;

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
  Result<int64_t> next_block() override;
  Result<std::shared_ptr<arrow::RecordBatch>> read_columns(const std::vector<int>& positions,
                                                           const std::vector<int32_t>* rows) override;
  void keep_dictionaries(const std::vector<int>& positions) override;
  plan::ReadCounts counts() const override;

 private:
  struct Column {
    std::string name;
    ColumnCast cast;
    expr::TypePtr decoded;  // null: Arrow's reader reads it
    bool keep_dictionary = false;
    std::unique_ptr<ColumnDecoder> decoder;
    std::unique_ptr<arrow::RecordBatchReader> stream;
    int64_t streamed = 0;  // rows that the stream gave
  };
  Result<std::shared_ptr<arrow::Array>> read_column(int position, const std::vector<int32_t>* rows);
  Result<std::shared_ptr<arrow::Array>> decode(Column& column, int in_file, const std::vector<int32_t>* rows);
  Result<std::shared_ptr<arrow::Array>> read_stream(Column& column, int in_file,
                                                    const std::vector<int32_t>* rows);
  Result<std::shared_ptr<arrow::Array>> next_of_stream(Column& column) const;
  Status open_arrow_reader();
  std::string place(const std::string& column) const;
  SourcePosition position(int64_t row_in_group) const;

  std::shared_ptr<const ParquetFile> file_;
  int row_group_;
  std::vector<ReadColumn> wanted_;
  int file_number_;
  std::optional<FileHandle> handle_;
  DecodeScratch scratch_;
  std::unique_ptr<parquet::arrow::FileReader> arrow_reader_;
  std::vector<Column> columns_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<int> all_;
  int64_t rows_ = 0;
  int64_t block_begin_ = 0;  // in the row group
  int64_t block_rows_ = 0;
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
  std::vector<plan::PageClaims> page_claims(int entry_point, int column) const override;
  bool may_hold(int entry_point, int column,
                const std::vector<std::shared_ptr<arrow::Scalar>>& values) const override;
  const struct stat& info() const override { return info_; }
  const std::string& content_digest() const override { return digest_; }
  Result<std::unique_ptr<plan::SourceTable::Reader>> read(int entry_point, std::vector<ReadColumn> columns,
                                                          int file_number) const override {
    auto reader = std::make_unique<ParquetBlockReader>(shared_from_this(), entry_point, std::move(columns),
                                                       file_number);
    MILLSTREAM_TRY(reader->open());
    return reader;
  }

  // How many data pages the footer gives a column that is not nested; 0 where it does not say.
  int64_t pages_claimed(int row_group, int column) const {
    int64_t pages = 0;
    const Status ignored = without_exceptions([&]() -> Status {
      for (const int leaf : leaves(column)) {
        const auto chunk = metadata_->RowGroup(row_group)->ColumnChunk(leaf);
        for (const auto& stats : chunk->encoding_stats()) {
          if (stats.page_type == parquet::PageType::DATA_PAGE ||
              stats.page_type == parquet::PageType::DATA_PAGE_V2)
            pages += std::max(stats.count, 0);
        }
      }
      return Status::OK();
    });
    return ignored.ok() ? pages : 0;
  }

  const std::string& path() const { return path_; }
  const std::shared_ptr<parquet::FileMetaData>& metadata() const { return metadata_; }
  const std::vector<int>& leaves(int column) const { return leaves_[static_cast<size_t>(column)]; }
  const expr::TypePtr& stored_type(int column) const { return stored_types_[static_cast<size_t>(column)]; }

  // Where a column chunk lies, held against the file.
  Result<std::pair<int64_t, int64_t>> chunk_range(int row_group, int leaf) const {
    const auto group = metadata_->RowGroup(row_group);
    const auto chunk = group->ColumnChunk(leaf);
    int64_t begin = chunk->data_page_offset();
    if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0)
      begin = std::min(begin, chunk->dictionary_page_offset());
    int64_t bytes = chunk->total_compressed_size();
    if (begin < 0 || bytes < 0 || begin > info_.st_size || bytes > info_.st_size - begin) {
      return Status::Invalid("the footer places ", bytes, " bytes of the column at offset ", begin,
                             " of a file of ", static_cast<int64_t>(info_.st_size), " bytes");
    }
    const bool repeated = metadata_->schema()->Column(leaf)->max_repetition_level() > 0;
    if (chunk->num_values() < 0 || (!repeated && chunk->num_values() != group->num_rows())) {
      return Status::Invalid("the footer says that the column has ", chunk->num_values(),
                             " values and the row group ", group->num_rows(), " rows");
    }
    // Old writers forgot the dictionary's header when they counted bytes (PARQUET-816).
    if (metadata_->writer_version().VersionLt(parquet::ApplicationVersion::PARQUET_816_FIXED_VERSION()))
      bytes += std::min<int64_t>(100, info_.st_size - begin - bytes);
    return std::pair(begin, bytes);
  }

 private:
  std::optional<ClaimedChunk> claimed_chunk(int entry_point, int column) const;

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

// Of a column without nesting.
std::optional<ClaimedChunk> ParquetFile::claimed_chunk(int entry_point, int column) const {
  const auto& leaves = leaves_[static_cast<size_t>(column)];
  if (leaves.size() != 1) return std::nullopt;
  const ClaimedChunk chunk{metadata_.get(), entry_point, leaves[0],
                           columns_[static_cast<size_t>(column)].type.get(),
                           entry_points_[static_cast<size_t>(entry_point)].rows};
  if (!can_claim(chunk)) return std::nullopt;
  return chunk;
}

// Claims are the files' own: what cannot be understood claims nothing.
plan::ColumnClaims ParquetFile::claims(int entry_point, int column) const {
  const auto result = without_exceptions([&]() -> Result<plan::ColumnClaims> {
    const auto chunk = claimed_chunk(entry_point, column);
    return chunk ? statistics_claims(*chunk) : plan::ColumnClaims{};
  });
  return result.ok() ? *result : plan::ColumnClaims{};
}

std::vector<plan::PageClaims> ParquetFile::page_claims(int entry_point, int column) const {
  const auto result = without_exceptions([&]() -> Result<std::vector<plan::PageClaims>> {
    const auto chunk = claimed_chunk(entry_point, column);
    if (!chunk) return std::vector<plan::PageClaims>();
    MILLSTREAM_ASSIGN(const FileHandle handle, FileHandle::open(path_));
    MILLSTREAM_TRY(check_unchanged(path_, info_, handle.info()));
    return page_index_claims(*chunk, handle, path_);
  });
  return result.ok() ? *result : std::vector<plan::PageClaims>();
}

bool ParquetFile::may_hold(int entry_point, int column,
                           const std::vector<std::shared_ptr<arrow::Scalar>>& values) const {
  const auto result = without_exceptions([&]() -> Result<bool> {
    const auto chunk = claimed_chunk(entry_point, column);
    if (!chunk) return true;
    return bloom_filter_may_hold(*chunk, path_, info_.st_size, values);
  });
  return !result.ok() || *result;
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
  for (size_t i = 0; i < wanted_.size(); ++i) all_.push_back(static_cast<int>(i));

  MILLSTREAM_ASSIGN(handle_, FileHandle::open(file_->path()));
  MILLSTREAM_TRY(check_unchanged(file_->path(), file_->info(), handle_->info()));
  for (size_t i = 0; i < wanted_.size(); ++i) {
    Column& column = columns_[i];
    column.name = wanted_[i].field->name();
    const int in_file = wanted_[i].column;
    if (in_file < 0) continue;
    const expr::TypePtr& stored = file_->stored_type(in_file);
    const auto& leaves = file_->leaves(in_file);
    const Status status = without_exceptions([&]() -> Status {
      for (int leaf : leaves) MILLSTREAM_TRY(file_->chunk_range(row_group_, leaf));
      if (leaves.size() == 1)
        column.decoded = ColumnDecoder::type_of(*file_->metadata()->schema()->Column(leaves[0]), stored);
      return Status::OK();
    });
    if (!status.ok()) return decoding_error(status, place(column.name), position(0));
    column.cast = ColumnCast(column.decoded ? column.decoded : stored, wanted_[i].field->type());
  }
  return Status::OK();
}

Status ParquetBlockReader::open_arrow_reader() {
  MILLSTREAM_ASSIGN(FileHandle handle, FileHandle::open(file_->path()));
  MILLSTREAM_TRY(check_unchanged(file_->path(), file_->info(), handle.info()));
  const int descriptor = handle.release();
  MILLSTREAM_ASSIGN(std::shared_ptr<arrow::io::RandomAccessFile> input,
                    arrow::io::ReadableFile::Open(descriptor, GuardedPool::get()));
  auto parquet_reader =
      parquet::ParquetFileReader::Open(std::move(input), reader_properties(), file_->metadata());
  MILLSTREAM_ASSIGN(arrow_reader_, parquet::arrow::FileReader::Make(
                                       GuardedPool::get(), std::move(parquet_reader), arrow_properties()));
  return Status::OK();
}

// The stream's next block.
Result<std::shared_ptr<arrow::Array>> ParquetBlockReader::next_of_stream(Column& column) const {
  // One batch is one block, except where a column of long strings comes in pieces.
  const int64_t rows = std::min(plan::kBlockRows, rows_ - column.streamed);
  arrow::ArrayVector pieces;
  int64_t got = 0;
  const bool last = column.streamed + rows == rows_;
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
                           got > rows ? "" : fmt::format(" (after {})", column.streamed + got));
  }
  column.streamed += rows;
  if (pieces.size() == 1) return pieces[0];
  return arrow::Concatenate(pieces, GuardedPool::get());
}

Result<std::shared_ptr<arrow::Array>> ParquetBlockReader::read_stream(Column& column, int in_file,
                                                                      const std::vector<int32_t>* rows) {
  if (!column.stream) {
    if (!arrow_reader_) MILLSTREAM_TRY(open_arrow_reader());
    MILLSTREAM_ASSIGN(column.stream,
                      arrow_reader_->GetRecordBatchReader({row_group_}, file_->leaves(in_file)));
  }
  // Arrow's reader cannot pass rows over.
  std::shared_ptr<arrow::Array> array;
  do {
    MILLSTREAM_ASSIGN(array, next_of_stream(column));
  } while (column.streamed <= block_begin_);
  if (rows == nullptr) return array;
  const auto schema = arrow::schema({arrow::field(column.name, array->type())});
  MILLSTREAM_ASSIGN(auto taken,
                    expr::take_rows(*arrow::RecordBatch::Make(schema, array->length(), {array}), *rows));
  return taken->column(0);
}

Result<std::shared_ptr<arrow::Array>> ParquetBlockReader::decode(Column& column, int in_file,
                                                                 const std::vector<int32_t>* rows) {
  if (!column.decoder) {
    const int leaf = file_->leaves(in_file)[0];
    MILLSTREAM_ASSIGN(const auto range, file_->chunk_range(row_group_, leaf));
    ColumnDecoder::Request request;
    request.descriptor = file_->metadata()->schema()->Column(leaf);
    request.type = column.decoded;
    request.place = {&*handle_, &file_->path(), range.first, range.second};
    request.codec = file_->metadata()->RowGroup(row_group_)->ColumnChunk(leaf)->compression();
    // Old writers of pages of version 2 say that they are not compressed when they are (ARROW-10353).
    request.always_compressed = file_->metadata()->writer_version().VersionLt(
        parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION());
    request.rows = rows_;
    request.window_bytes = std::clamp<int64_t>(kWindowsBytes / static_cast<int64_t>(columns_.size()),
                                               kLeastWindow, kLargestWindow);
    request.scratch = &scratch_;
    MILLSTREAM_ASSIGN(column.decoder, ColumnDecoder::make(request));
  }
  const int32_t* const wanted = rows == nullptr ? nullptr : rows->data();
  const int64_t count = rows == nullptr ? block_rows_ : static_cast<int64_t>(rows->size());
  if (column.keep_dictionary) return column.decoder->read_entries(block_begin_, wanted, count);
  return column.decoder->read(block_begin_, wanted, count);
}

Result<std::shared_ptr<arrow::Array>> ParquetBlockReader::read_column(int position_in_wanted,
                                                                      const std::vector<int32_t>* rows) {
  Column& column = columns_[static_cast<size_t>(position_in_wanted)];
  const int in_file = wanted_[static_cast<size_t>(position_in_wanted)].column;
  const arrow::Field& field = *wanted_[static_cast<size_t>(position_in_wanted)].field;
  const int64_t count = rows == nullptr ? block_rows_ : static_cast<int64_t>(rows->size());
  const auto row_in_block = [&](int64_t i) { return rows == nullptr ? i : (*rows)[static_cast<size_t>(i)]; };
  auto array = without_exceptions([&]() -> Result<std::shared_ptr<arrow::Array>> {
    if (in_file < 0) return arrow::MakeArrayOfNull(field.type(), count, GuardedPool::get());
    MILLSTREAM_ASSIGN(auto stored,
                      column.decoded ? decode(column, in_file, rows) : read_stream(column, in_file, rows));
    if (column.keep_dictionary) return stored;
    return column.cast.apply(std::move(stored));
  });
  if (!array.ok()) {
    if (error_category(array.status()) == ErrorCategory::kFile && array.status().detail())
      return array.status();
    const auto row = error_position(array.status());
    if (!row) return decoding_error(array.status(), place(column.name), position(block_begin_));
    const SourcePosition at = position(block_begin_ + row_in_block(row->row));
    return decoding_error(array.status(), fmt::format("{}, row {}", place(column.name), at.row), at);
  }
  if (!field.nullable() && (*array)->null_count() > 0) {
    int64_t i = 0;
    while ((*array)->IsValid(i)) ++i;
    const SourcePosition at = position(block_begin_ + row_in_block(i));
    return decoding_error(
        Status::Invalid("the value is NULL, but the file's footer says that the column holds no NULL"),
        fmt::format("{}, row {}", place(column.name), at.row), at);
  }
  return array;
}

Result<int64_t> ParquetBlockReader::next_block() {
  block_begin_ += block_rows_;
  block_rows_ = std::min(plan::kBlockRows, rows_ - block_begin_);
  if (block_rows_ > 0) return block_rows_;
  for (const Column& column : columns_) {
    if (!column.decoder) continue;
    const Status status = without_exceptions([&] { return column.decoder->finish(); });
    if (!status.ok())
      return decoding_error(status, place(column.name), position(std::max<int64_t>(0, rows_ - 1)));
  }
  return -1;
}

Result<std::shared_ptr<arrow::RecordBatch>> ParquetBlockReader::read_columns(
    const std::vector<int>& positions, const std::vector<int32_t>* rows) {
  const int64_t count = rows == nullptr ? block_rows_ : static_cast<int64_t>(rows->size());
  bool as_they_are = positions.size() == columns_.size();
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const int at : positions) {
    MILLSTREAM_ASSIGN(auto array, read_column(at, rows));
    const bool is_dictionary = array->type_id() == arrow::Type::DICTIONARY;
    as_they_are = as_they_are && !is_dictionary;
    fields.push_back(is_dictionary ? schema_->field(at)->WithType(array->type()) : schema_->field(at));
    arrays.push_back(std::move(array));
  }
  return arrow::RecordBatch::Make(as_they_are ? schema_ : arrow::schema(std::move(fields)), count,
                                  std::move(arrays));
}

Result<std::shared_ptr<arrow::RecordBatch>> ParquetBlockReader::next() {
  MILLSTREAM_ASSIGN(const int64_t rows, next_block());
  if (rows < 0) return nullptr;
  return read_columns(all_, nullptr);
}

void ParquetBlockReader::keep_dictionaries(const std::vector<int>& positions) {
  for (const int at : positions) {
    Column& column = columns_[static_cast<size_t>(at)];
    column.keep_dictionary = column.decoded && column.decoded->id() == arrow::Type::STRING &&
                             schema_->field(at)->type()->id() == arrow::Type::STRING;
  }
}

plan::ReadCounts ParquetBlockReader::counts() const {
  plan::ReadCounts counts;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    if (column.decoder) {
      const plan::ReadCounts one = column.decoder->counts();
      counts.pages_read += one.pages_read;
      counts.pages_skipped += one.pages_skipped;
      counts.bytes_read += one.bytes_read;
    } else if (column.stream) {
      counts.bytes_read += file_->column_bytes(row_group_, wanted_[i].column);
    } else if (wanted_[i].column >= 0) {
      counts.pages_skipped += file_->pages_claimed(row_group_, wanted_[i].column);
    }
  }
  return counts;
}

}  // namespace

Result<std::shared_ptr<const DataFile>> open_parquet_file(const std::string& path) {
  return ParquetFile::open(path);
}

}  // namespace millstream::exec
