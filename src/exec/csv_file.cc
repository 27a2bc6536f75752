// CSV files. One scan when a file is opened finds everything that later steps rely on: the types that its
// columns have over the whole file, where records begin near fixed strides (the entry points), how many rows
// each stretch has, and a hash of the content. Reading a stretch then parses just the columns that are asked
// for.

#include <algorithm>
#include <cstring>

#include <arrow/util/utf8.h>

#include "base/cpu_share.h"
#include "exec/csv_text.h"
#include "exec/data_file.h"
#include "sql/lexer.h"

namespace millstream::exec {
namespace {

constexpr int64_t kStride = int64_t{16} << 20;
constexpr size_t kSniffBytes = 256 * 1024;

expr::TypePtr arrow_type(uint8_t candidates) {
  if (candidates & kCsvBoolean) return arrow::boolean();
  if (candidates & kCsvInteger) return arrow::int64();
  if (candidates & kCsvDouble) return arrow::float64();
  if (candidates & kCsvDate) return arrow::date32();
  if (candidates & kCsvTimestamp) return arrow::timestamp(arrow::TimeUnit::MICRO);
  if (candidates & kCsvZoned) return arrow::timestamp(arrow::TimeUnit::MICRO, "UTC");
  return arrow::utf8();
}

bool is_parsed_type(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::INT64:
    case arrow::Type::DOUBLE:
    case arrow::Type::DATE32:
    case arrow::Type::STRING:
      return true;
    case arrow::Type::TIMESTAMP:
      return type.Equals(*arrow::timestamp(arrow::TimeUnit::MICRO)) ||
             type.Equals(*arrow::timestamp(arrow::TimeUnit::MICRO, "UTC"));
    default:
      return false;
  }
}

bool is_utf8(std::string_view text) {
  static const bool initialized = (arrow::util::InitializeUTF8(), true);
  return initialized && arrow::util::ValidateUTF8(text);
}

// A value for messages: short, and on one line.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 40));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text.size() > 40 ? out + "…" : out;
}

struct Stretch {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_line = 0;
};

class CsvFile;

class CsvBlockReader final : public plan::SourceTable::Reader {
 public:
  CsvBlockReader(std::shared_ptr<const CsvFile> file, int stretch, std::vector<ReadColumn> columns,
                 int file_number)
      : file_(std::move(file)), stretch_(stretch), wanted_(std::move(columns)), file_number_(file_number) {}
  Status open();
  Result<std::shared_ptr<arrow::RecordBatch>> next() override;

 private:
  struct Column {
    int field = -1;
    std::unique_ptr<arrow::ArrayBuilder> builder;  // null: a column that the file does not have
    ColumnCast cast;
  };
  // Appends a field to a builder; false where it is no value of the type.
  Result<bool> append(arrow::ArrayBuilder& builder, std::string_view text) const;

  std::shared_ptr<const CsvFile> file_;
  int stretch_;
  std::vector<ReadColumn> wanted_;
  int file_number_;
  std::optional<FileHandle> handle_;
  std::optional<CsvRecords> records_;
  std::vector<Column> columns_;
  std::shared_ptr<arrow::Schema> schema_;
  int64_t rows_ = 0, done_ = 0;
};

class CsvFile final : public DataFile, public std::enable_shared_from_this<CsvFile> {
 public:
  static Result<std::shared_ptr<const DataFile>> open(const std::string& path,
                                                      const plan::CsvOptions& options) {
    auto file = std::make_shared<CsvFile>();
    file->options_ = options;
    file->path_ = path;
    MILLSTREAM_ASSIGN(FileHandle handle, FileHandle::open(path));
    file->info_ = handle.info();
    MILLSTREAM_TRY(file->scan(handle));
    return file;
  }

  plan::FileFormat format() const override { return plan::FileFormat::kCsv; }
  const std::vector<FileColumn>& columns() const override { return columns_; }
  const std::vector<FileEntryPoint>& entry_points() const override { return entry_points_; }
  int64_t rows() const override { return rows_; }
  // All of a line is read whatever is asked for; it is shared among the columns.
  int64_t column_bytes(int entry_point, int column) const override {
    return entry_points_[static_cast<size_t>(entry_point)].bytes / static_cast<int64_t>(columns_.size());
  }
  const struct stat& info() const override { return info_; }
  const std::string& content_digest() const override { return digest_; }
  Result<std::unique_ptr<plan::SourceTable::Reader>> read(int entry_point, std::vector<ReadColumn> columns,
                                                          int file_number) const override {
    auto reader =
        std::make_unique<CsvBlockReader>(shared_from_this(), entry_point, std::move(columns), file_number);
    MILLSTREAM_TRY(reader->open());
    return reader;
  }

  const std::string& path() const { return path_; }
  char delimiter() const { return delimiter_; }
  int quote() const { return options_.quote; }
  bool is_null(std::string_view text) const {
    return std::ranges::find(options_.null_texts, text) != options_.null_texts.end();
  }
  const Stretch& stretch(int i) const { return stretches_[static_cast<size_t>(i)]; }
  // A line without anything on it is no row, except where an empty line is how a NULL is written.
  bool is_row(bool blank) const { return !blank || columns_.size() == 1; }
  Status check_fields(size_t found, int64_t line) const {
    if (found == columns_.size()) return Status::OK();
    return data_error("{}, line {}: {} fields, but the header has {} (the delimiter is {})", path_, line,
                      found, columns_.size(),
                      delimiter_ == '\t' ? std::string("a tab") : fmt::format("'{}'", delimiter_));
  }

 private:
  Status scan(const FileHandle& handle) {
    const int64_t size = handle.size();
    if (size == 0)
      return file_error("'{}' is empty (0 bytes): a CSV file begins with a line of column names", path_);
    std::string beginning(std::min<size_t>(kSniffBytes, static_cast<size_t>(size)), '\0');
    MILLSTREAM_ASSIGN(const int64_t got,
                      handle.read_at(path_, 0, static_cast<int64_t>(beginning.size()), beginning.data()));
    beginning.resize(static_cast<size_t>(got));
    int64_t first = 0;
    if (beginning.starts_with("\xEF\xBB\xBF")) first = 3;
    if (beginning.starts_with("\xFF\xFE") || beginning.starts_with("\xFE\xFF")) {
      return file_error("'{}' is text in UTF-16; CSV files have to be in UTF-8", path_);
    }
    if (beginning.starts_with("PAR1"))
      return file_error("'{}' is a Parquet file, but its name says CSV", path_);
    if (beginning.starts_with("\x1F\x8B") || beginning.starts_with("\x28\xB5\x2F\xFD") ||
        beginning.starts_with("PK\x03\x04")) {
      return file_error("'{}' is compressed; CSV files are read uncompressed", path_);
    }
    delimiter_ = options_.delimiter;
    if (delimiter_ == 0) {
      delimiter_ = sniff_csv_delimiter(std::string_view(beginning).substr(static_cast<size_t>(first)),
                                       options_.quote, got == size);
    }

    Digest digest;
    if (const std::string key = options_.key(); !key.empty()) digest.add(key);
    if (!options_.header) {
      CsvRecords record(handle, path_, delimiter_, options_.quote, first, size, 1);
      std::vector<std::string_view> fields;
      MILLSTREAM_TRY(read_header(record, fields));
    }
    CsvRecords records(handle, path_, delimiter_, options_.quote, first, size, 1, &digest);
    std::vector<std::string_view> fields;
    if (options_.header) MILLSTREAM_TRY(read_header(records, fields));
    MILLSTREAM_TRY(name_columns());
    std::vector<uint8_t> candidates(columns_.size(), kCsvAll);
    std::vector<uint8_t> any(columns_.size(), 0);
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (!is_text_column(columns_[c].name)) continue;
      candidates[c] = 0;
      any[c] = 1;
    }
    for (FileColumn& column : columns_) column.nullable = false;
    int64_t next_stride = 0;
    while (true) {
      MILLSTREAM_ASSIGN(const bool more, records.next(fields));
      if (!more) break;
      if (!is_row(records.blank())) continue;
      MILLSTREAM_TRY(check_fields(fields.size(), records.line()));
      if (records.offset() >= next_stride) {
        if (!stretches_.empty()) stretches_.back().end = records.offset();
        stretches_.push_back({records.offset(), size, records.line()});
        entry_points_.push_back({rows_, 0, 0});
        next_stride = (records.offset() / kStride + 1) * kStride;
      }
      ++entry_points_.back().rows;
      ++rows_;
      for (size_t c = 0; c < fields.size(); ++c) {
        const std::string_view text = fields[c];
        if (is_null(text)) {
          columns_[c].nullable = true;
          continue;
        }
        any[c] = 1;
        const uint8_t before = candidates[c];
        if (before) candidates[c] = csv_types_of(text, before);
        if ((before & kCsvDouble) && !(candidates[c] & kCsvDouble)) {
          columns_[c].not_a_number = fmt::format("'{}' in line {} of {}", shown(text), records.line(), path_);
        }
        if (!candidates[c] && !is_utf8(text)) {
          return make_error(ErrorCategory::kData,
                            fmt::format("{}, line {}, column '{}': the text is not valid UTF-8", path_,
                                        records.line(), columns_[c].name));
        }
      }
    }
    for (size_t s = 0; s < stretches_.size(); ++s)
      entry_points_[s].bytes = stretches_[s].end - stretches_[s].begin;
    for (size_t c = 0; c < columns_.size(); ++c)
      columns_[c].type = any[c] ? arrow_type(candidates[c]) : arrow::null();
    digest_ = digest.hex();
    return Status::OK();
  }

  bool is_text_column(const std::string& name) const {
    return options_.all_text || std::ranges::any_of(options_.text_columns, [&](const std::string& text) {
             return sql::equals_ignoring_case(text, name);
           });
  }

  // The names that the options give.
  Status name_columns() {
    if (options_.names.size() > columns_.size()) {
      return data_error("'{}' has {} columns, and read_csv names {}", path_, columns_.size(),
                        options_.names.size());
    }
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c < options_.names.size()) {
        columns_[c].name = options_.names[c];
      } else if (!options_.header) {
        columns_[c].name = fmt::format("column{}", c);
      }
    }
    make_names_unique(columns_);
    return Status::OK();
  }

  // The columns of the first record, which gives them names.
  Status read_header(CsvRecords& records, std::vector<std::string_view>& fields) {
    do {
      MILLSTREAM_ASSIGN(const bool more, records.next(fields));
      if (!more)
        return file_error("'{}' has only empty lines: a CSV file begins with a line of column names", path_);
    } while (records.blank());
    bool all_numbers = true;
    for (size_t c = 0; c < fields.size(); ++c) {
      double number = 0;
      all_numbers = all_numbers && parse_csv_double(fields[c], &number);
      if (!is_utf8(fields[c])) {
        return data_error("{}, line {}: the name of column {} is not valid UTF-8", path_, records.line(),
                          c + 1);
      }
      FileColumn column;
      column.name = fields[c].empty() ? fmt::format("column{}", c) : std::string(fields[c]);
      column.text = true;
      columns_.push_back(std::move(column));
    }
    if (all_numbers && options_.header) {
      return data_error(
          "{}, line {}: '{}' and the other fields are numbers, not column names; a CSV file begins with a "
          "header",
          path_, records.line(), shown(fields[0]));
    }
    return Status::OK();
  }

  std::string path_;
  plan::CsvOptions options_;
  struct stat info_ {};
  std::string digest_;
  char delimiter_ = ',';
  std::vector<FileColumn> columns_;
  std::vector<FileEntryPoint> entry_points_;
  std::vector<Stretch> stretches_;
  int64_t rows_ = 0;
};

Status CsvBlockReader::open() {
  rows_ = file_->entry_points()[static_cast<size_t>(stretch_)].rows;
  MILLSTREAM_ASSIGN(FileHandle handle, FileHandle::open(file_->path()));
  MILLSTREAM_TRY(check_unchanged(file_->path(), file_->info(), handle.info()));
  handle_.emplace(std::move(handle));
  const Stretch& stretch = file_->stretch(stretch_);
  records_.emplace(*handle_, file_->path(), file_->delimiter(), file_->quote(), stretch.begin, stretch.end,
                   stretch.first_line);
  arrow::FieldVector fields;
  for (const ReadColumn& wanted : wanted_) {
    fields.push_back(wanted.field);
    Column& column = columns_.emplace_back();
    column.field = wanted.column;
    if (column.field < 0) continue;
    const auto& target = wanted.field->type();
    const auto& own = file_->columns()[static_cast<size_t>(column.field)].type;
    const auto& parsed = is_parsed_type(*target) ? target : own;
    column.cast = ColumnCast(parsed, target);
    MILLSTREAM_TRY(arrow::MakeBuilder(arrow::default_memory_pool(), parsed, &column.builder));
    MILLSTREAM_TRY(column.builder->Reserve(std::min(rows_, plan::kBlockRows)));
  }
  schema_ = arrow::schema(std::move(fields));
  return Status::OK();
}

Result<bool> CsvBlockReader::append(arrow::ArrayBuilder& builder, std::string_view text) const {
  if (file_->is_null(text)) {
    MILLSTREAM_TRY(builder.AppendNull());
    return true;
  }
  switch (builder.type()->id()) {
    case arrow::Type::STRING:
      MILLSTREAM_TRY(static_cast<arrow::StringBuilder&>(builder).Append(text));
      return true;
    case arrow::Type::INT64: {
      int64_t value = 0;
      if (!parse_csv_integer(text, &value)) return false;
      MILLSTREAM_TRY(static_cast<arrow::Int64Builder&>(builder).Append(value));
      return true;
    }
    case arrow::Type::DOUBLE: {
      double value = 0;
      if (!parse_csv_double(text, &value)) return false;
      MILLSTREAM_TRY(static_cast<arrow::DoubleBuilder&>(builder).Append(value));
      return true;
    }
    case arrow::Type::BOOL: {
      bool value = false;
      if (!parse_csv_boolean(text, &value)) return false;
      MILLSTREAM_TRY(static_cast<arrow::BooleanBuilder&>(builder).Append(value));
      return true;
    }
    case arrow::Type::DATE32: {
      int32_t value = 0;
      if (!parse_csv_date(text, &value)) return false;
      MILLSTREAM_TRY(static_cast<arrow::Date32Builder&>(builder).Append(value));
      return true;
    }
    case arrow::Type::TIMESTAMP: {
      int64_t value = 0;
      const bool zoned = !static_cast<const arrow::TimestampType&>(*builder.type()).timezone().empty();
      if (!(zoned ? parse_csv_zoned(text, &value) : parse_csv_timestamp(text, &value))) return false;
      MILLSTREAM_TRY(static_cast<arrow::TimestampBuilder&>(builder).Append(value));
      return true;
    }
    default:
      return false;
  }
}

Result<std::shared_ptr<arrow::RecordBatch>> CsvBlockReader::next() {
  if (done_ == rows_) return nullptr;
  const int64_t rows = std::min(plan::kBlockRows, rows_ - done_);
  const int64_t first_row = file_->entry_points()[static_cast<size_t>(stretch_)].first_row + done_;
  std::vector<std::string_view> fields;
  for (int64_t row = 0; row < rows;) {
    MILLSTREAM_ASSIGN(const bool more, records_->next(fields));
    if (!more)
      return file_error("'{}' changed while it was in use: a stretch has fewer rows than it had",
                        file_->path());
    if (!file_->is_row(records_->blank())) continue;
    MILLSTREAM_TRY(file_->check_fields(fields.size(), records_->line()));
    for (size_t i = 0; i < columns_.size(); ++i) {
      Column& column = columns_[i];
      if (!column.builder) continue;
      const std::string_view text = fields[static_cast<size_t>(column.field)];
      MILLSTREAM_ASSIGN(const bool fits, append(*column.builder, text));
      if (!fits) {
        return make_error(ErrorCategory::kData,
                          fmt::format("{}, line {}, column '{}': '{}' is not a value of {}", file_->path(),
                                      records_->line(), wanted_[i].field->name(), shown(text),
                                      column.builder->type()->ToString()),
                          SourcePosition{file_number_, first_row + row});
      }
    }
    ++row;
  }
  arrow::ArrayVector arrays;
  for (size_t i = 0; i < columns_.size(); ++i) {
    Column& column = columns_[i];
    const auto& type = wanted_[i].field->type();
    std::shared_ptr<arrow::Array> array;
    if (column.builder) {
      MILLSTREAM_ASSIGN(array, column.builder->Finish());
      auto converted = column.cast.apply(std::move(array));
      if (!converted.ok()) {
        const int64_t row = first_row + error_position(converted.status()).value_or(SourcePosition{}).row;
        return make_error(ErrorCategory::kData,
                          fmt::format("{}, row {}, column '{}': {}", file_->path(), row,
                                      wanted_[i].field->name(), converted.status().message()),
                          SourcePosition{file_number_, row});
      }
      array = *std::move(converted);
      MILLSTREAM_TRY(column.builder->Reserve(std::min(rows_ - done_ - rows, plan::kBlockRows)));
    } else {
      MILLSTREAM_ASSIGN(array, arrow::MakeArrayOfNull(type, rows));
    }
    arrays.push_back(std::move(array));
  }
  done_ += rows;
  return arrow::RecordBatch::Make(schema_, rows, std::move(arrays));
}

}  // namespace

Result<std::shared_ptr<const DataFile>> open_csv_file(const std::string& path,
                                                      const plan::CsvOptions& options) {
  return CsvFile::open(path, options);
}

}  // namespace millstream::exec
