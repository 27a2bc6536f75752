#include "exec/parquet_writer.h"

#include <cerrno>
#include <cstring>

#include <arrow/io/file.h>
#include <arrow/util/io_util.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>
#include <unistd.h>

namespace millstream::exec {
struct ParquetFileWriter::State {
  std::string path;
  std::string temporary;
  ParquetWriteOptions options;
  std::shared_ptr<arrow::Schema> schema;
  std::shared_ptr<arrow::io::FileOutputStream> out;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  int64_t rows = 0;
  bool closed = false;

  Status failed(const Status& status) const {
    const int error = arrow::internal::ErrnoFromStatus(status);
    return file_error("cannot write '{}': {}", path, error ? std::strerror(error) : status.message());
  }
  template <class F>
  Status guarded(F&& call) const {
    try {
      const Status status = call();
      return status.ok() ? status : failed(status);
    } catch (const parquet::ParquetStatusException& e) {
      return failed(e.status());
    } catch (const std::exception& e) {
      return file_error("cannot write '{}': {}", path, e.what());
    }
  }
};

ParquetFileWriter::ParquetFileWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<ParquetFileWriter>> ParquetFileWriter::open(
    const std::string& path, const std::shared_ptr<arrow::Schema>& schema,
    const ParquetWriteOptions& options) {
  MILLSTREAM_TRY(check_output_path(path, options.overwrite));
  auto state = std::make_unique<State>();
  state->path = path;
  state->temporary = temporary_beside(path);
  state->options = options;
  state->schema = schema;
  std::unique_ptr<ParquetFileWriter> out(new ParquetFileWriter(std::move(state)));
  State& made = *out->state_;
  MILLSTREAM_TRY(made.guarded([&]() -> Status {
    MILLSTREAM_ASSIGN(made.out, arrow::io::FileOutputStream::Open(made.temporary));
    auto properties = parquet::WriterProperties::Builder()
                          .compression(parquet::Compression::ZSTD)
                          ->compression_level(1)
                          ->max_row_group_length(options.row_group_rows)
                          ->created_by("millstream")
                          ->build();
    auto arrow_properties = parquet::ArrowWriterProperties::Builder().set_use_threads(false)->build();
    MILLSTREAM_ASSIGN(made.writer, parquet::arrow::FileWriter::Open(*schema, arrow::default_memory_pool(),
                                                                    made.out, properties, arrow_properties));
    return Status::OK();
  }));
  return out;
}

ParquetFileWriter::~ParquetFileWriter() {
  if (!state_ || state_->closed) return;
  // Dropped before it was complete: nothing of it may stay. The footer that the writer would add goes with it.
  try {
    state_->writer.reset();
    if (state_->out) (void)state_->out->Close();
  } catch (const std::exception&) {
  }
  if (state_->out) ::unlink(state_->temporary.c_str());
}

Status ParquetFileWriter::write(const arrow::RecordBatch& batch) {
  if (!batch.schema()->Equals(*state_->schema, /*check_metadata=*/false)) {
    return bug_error("a batch for '{}' has the schema {} instead of {}", state_->path,
                     batch.schema()->ToString(), state_->schema->ToString());
  }
  if (batch.num_rows() == 0) return Status::OK();
  MILLSTREAM_TRY(state_->guarded([&] { return state_->writer->WriteRecordBatch(batch); }));
  state_->rows += batch.num_rows();
  return Status::OK();
}

Status ParquetFileWriter::close() {
  State& state = *state_;
  MILLSTREAM_TRY(state.guarded([&]() -> Status {
    MILLSTREAM_TRY(state.writer->Close());
    state.writer.reset();
    MILLSTREAM_TRY(state.out->Flush());
    if (::fsync(state.out->file_descriptor()) != 0) return arrow::internal::IOErrorFromErrno(errno, "fsync");
    return state.out->Close();
  }));
  MILLSTREAM_TRY(publish_file(state.temporary, state.path, state.options.overwrite));
  state.closed = true;
  return Status::OK();
}

int64_t ParquetFileWriter::rows_written() const {
  return state_->rows;
}

}  // namespace millstream::exec
