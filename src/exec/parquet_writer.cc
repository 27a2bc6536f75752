#include "exec/parquet_writer.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <arrow/io/file.h>
#include <arrow/util/io_util.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace millstream::exec {
namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Status exists_error(const std::string& path) {
  return file_error("'{}' exists already; --overwrite replaces it", path);
}

// Renames without replacing: between a check and a plain rename another process could make the file.
int rename_new(const char* from, const char* to) {
#ifdef SYS_renameat2
  if (::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != ENOSYS && errno != EINVAL) return -1;
#endif
  // File systems without it: a hard link fails where the name is taken.
  if (::link(from, to) == 0) return ::unlink(from);
  if (errno == EEXIST) return -1;
  return ::rename(from, to);
}

Status sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Status::OK();  // readable folders only; the rename itself is done
  ::fsync(descriptor);
  ::close(descriptor);
  return Status::OK();
}

}  // namespace

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

Status check_output_path(const std::string& path, bool overwrite) {
  if (path.empty()) return usage_error("the name of the output file is empty");
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return file_error("'{}' is a folder; a file name is needed", path);
    if (!overwrite) return exists_error(path);
  }
  const std::string folder = folder_of(path);
  if (::stat(folder.c_str(), &info) != 0) {
    return file_error("cannot write '{}': there is no folder '{}'", path, folder);
  }
  if (!S_ISDIR(info.st_mode)) return file_error("cannot write '{}': '{}' is not a folder", path, folder);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return file_error("cannot write '{}': the folder '{}' is not writable ({})", path, folder,
                      std::strerror(errno));
  }
  return Status::OK();
}

ParquetFileWriter::ParquetFileWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<ParquetFileWriter>> ParquetFileWriter::open(
    const std::string& path, const std::shared_ptr<arrow::Schema>& schema,
    const ParquetWriteOptions& options) {
  MILLSTREAM_TRY(check_output_path(path, options.overwrite));
  static std::atomic<int> counter{0};
  auto state = std::make_unique<State>();
  state->path = path;
  state->temporary =
      fmt::format("{}/.{}.{}-{}.tmp", folder_of(path), std::filesystem::path(path).filename().string(),
                  ::getpid(), counter.fetch_add(1));
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
  const int renamed = state.options.overwrite ? ::rename(state.temporary.c_str(), state.path.c_str())
                                              : rename_new(state.temporary.c_str(), state.path.c_str());
  if (renamed != 0) {
    if (errno == EEXIST) return exists_error(state.path);
    return file_error("cannot write '{}': {}", state.path, std::strerror(errno));
  }
  state.closed = true;
  return sync_folder(folder_of(state.path));
}

int64_t ParquetFileWriter::rows_written() const {
  return state_->rows;
}

}  // namespace millstream::exec
