#include "exec/spill_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/compression.h>
#include <fcntl.h>
#include <unistd.h>

namespace millstream::exec {

SpillFile::SpillFile(std::string folder) : folder_(std::move(folder)) {
  if (!folder_.empty()) return;
  const char* variable = std::getenv("TMPDIR");
  folder_ = variable != nullptr && *variable != 0 ? variable : "/tmp";
}

SpillFile::~SpillFile() {
  if (file_ >= 0) ::close(file_);
}

Status SpillFile::open() {
  std::lock_guard lock(mutex_);
  if (file_ >= 0) return Status::OK();
  file_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file_ < 0) {
    // Not every file system has files without names.
    std::string name = folder_ + "/millstream-spill-XXXXXX";
    file_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (file_ >= 0) ::unlink(name.c_str());
  }
  if (file_ >= 0) return Status::OK();
  return file_error("cannot make a file in '{}' for what does not fit into memory: {}", folder_,
                    std::strerror(errno));
}

Result<SpillFile::Extent> SpillFile::write(const arrow::RecordBatch& rows) {
  MILLSTREAM_TRY(open());
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.use_threads = false;
  MILLSTREAM_ASSIGN(auto codec, arrow::util::Codec::Create(arrow::Compression::LZ4_FRAME));
  options.codec = std::move(codec);
  MILLSTREAM_ASSIGN(const auto buffer, arrow::ipc::SerializeRecordBatch(rows, options));
  Extent extent{end_.fetch_add(buffer->size()), buffer->size()};
  for (int64_t done = 0; done < extent.bytes;) {
    const ssize_t wrote = ::pwrite(file_, buffer->data() + done, static_cast<size_t>(extent.bytes - done),
                                   extent.offset + done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0)
      return file_error("cannot write what does not fit into memory to '{}': {}", folder_,
                        wrote < 0 ? std::strerror(errno) : "nothing was written");
    done += wrote;
  }
  return extent;
}

Result<std::shared_ptr<arrow::RecordBatch>> SpillFile::read(
    const Extent& extent, const std::shared_ptr<arrow::Schema>& schema) const {
  MILLSTREAM_ASSIGN(auto buffer, arrow::AllocateBuffer(extent.bytes));
  for (int64_t done = 0; done < extent.bytes;) {
    const ssize_t got = ::pread(file_, buffer->mutable_data() + done,
                                static_cast<size_t>(extent.bytes - done), extent.offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return file_error("cannot read again what was written to '{}': {}", folder_,
                        got < 0 ? std::strerror(errno) : "the file is shorter");
    done += got;
  }
  arrow::io::BufferReader reader(std::shared_ptr<arrow::Buffer>(std::move(buffer)));
  arrow::ipc::DictionaryMemo memo;
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  return arrow::ipc::ReadRecordBatch(schema, &memo, options, &reader);
}

}  // namespace millstream::exec
