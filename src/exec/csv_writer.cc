#include "exec/csv_writer.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "exec/value_text.h"

namespace millstream::exec {
namespace {

constexpr size_t kFlushBytes = size_t{1} << 20;

void append_field(std::string& out, std::string_view text) {
  const bool plain = !text.empty() && text.find_first_of(",\"\r\n") == std::string_view::npos &&
                     text.front() != ' ' && text.back() != ' ';
  if (plain) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

}  // namespace

Result<std::unique_ptr<CsvFileWriter>> CsvFileWriter::open(const std::string& path,
                                                           const std::shared_ptr<arrow::Schema>& schema,
                                                           bool overwrite) {
  MILLSTREAM_TRY(check_output_path(path, overwrite));
  std::unique_ptr<CsvFileWriter> writer(new CsvFileWriter(path, overwrite));
  writer->temporary_ = temporary_beside(path);
  writer->descriptor_ = ::open(writer->temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (writer->descriptor_ < 0) return writer->failed();
  for (int i = 0; i < schema->num_fields(); ++i) {
    if (i > 0) writer->text_ += ',';
    append_field(writer->text_, schema->field(i)->name());
  }
  writer->text_ += '\n';
  return writer;
}

CsvFileWriter::~CsvFileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Status CsvFileWriter::failed() const {
  return file_error("cannot write '{}': {}", path_, std::strerror(errno));
}

Status CsvFileWriter::flush() {
  size_t done = 0;
  while (done < text_.size()) {
    const ssize_t written = ::write(descriptor_, text_.data() + done, text_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed();
    done += static_cast<size_t>(written);
  }
  text_.clear();
  return Status::OK();
}

Status CsvFileWriter::write(const arrow::RecordBatch& batch) {
  std::string value;
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    for (int column = 0; column < batch.num_columns(); ++column) {
      if (column > 0) text_ += ',';
      const arrow::Array& array = *batch.column(column);
      // One column of NULLs would be lines without anything, which readers take for no lines.
      if (array.IsNull(row)) {
        if (batch.num_columns() == 1) text_ += "NULL";
        continue;
      }
      value.clear();
      append_value_text(value, array, row);
      append_field(text_, value);
    }
    text_ += '\n';
    if (text_.size() > kFlushBytes) MILLSTREAM_TRY(flush());
  }
  return Status::OK();
}

Status CsvFileWriter::close() {
  MILLSTREAM_TRY(flush());
  if (::fsync(descriptor_) != 0) return failed();
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  Status status = closed == 0 ? publish_file(temporary_, path_, overwrite_) : failed();
  if (!status.ok()) ::unlink(temporary_.c_str());
  return status;
}

}  // namespace millstream::exec
