#include "base/spill_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

namespace millstream {

SpillFile::SpillFile(std::string directory) : directory_(std::move(directory)) {
  if (!directory_.empty()) return;
  const char* variable = std::getenv("TMPDIR");
  directory_ = variable != nullptr && *variable != 0 ? variable : "/tmp";
}

SpillFile::~SpillFile() {
  if (file_ >= 0) ::close(file_);
}

Status SpillFile::open() {
  std::lock_guard lock(mutex_);
  if (file_ >= 0) return Status::OK();
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  std::string name = directory_ + "/spill-XXXXXX";
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) {
    return file_error(
        "what does not fit in memory can't be written to {}: {}; give another place with --cache or "
        "$MILLSTREAM_CACHE, "
        "or more memory with --memory",
        directory_, std::strerror(errno));
  }
  ::unlink(name.c_str());
  return Status::OK();
}

Result<int64_t> SpillFile::append(std::string_view bytes) {
  MILLSTREAM_TRY(open());
  const int64_t offset = end_.fetch_add(static_cast<int64_t>(bytes.size()));
  for (int64_t at = offset; !bytes.empty();) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return file_error(
          "what does not fit in memory finds no room in {}: {}; give another place with --cache or "
          "$MILLSTREAM_CACHE, "
          "or more memory with --memory",
          directory_, std::strerror(written < 0 ? errno : ENOSPC));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
    at += written;
  }
  return offset;
}

Status SpillFile::read(int64_t offset, int64_t size, void* out) const {
  for (auto* to = static_cast<char*>(out); size > 0;) {
    const ssize_t got = ::pread(file_, to, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return file_error("what did not fit in memory can't be read back from {}: {}", directory_,
                        got < 0 ? std::strerror(errno) : "the file is shorter than what was written");
    offset += got;
    to += got;
    size -= got;
  }
  return Status::OK();
}

}  // namespace millstream
