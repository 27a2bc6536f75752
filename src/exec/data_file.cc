#include "exec/data_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace millstream::exec {

Result<FileHandle> FileHandle::open(const std::string& path) {
  FileHandle handle;
  // Nonblocking, so that a named pipe cannot hold us up.
  handle.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (handle.descriptor_ < 0) {
    if (errno == ENOENT) return file_error("no such file: '{}'", path);
    if (errno == EMFILE || errno == ENFILE) {
      return file_error("cannot open '{}': {}; raise the limit (ulimit -n)", path, std::strerror(errno));
    }
    return file_error("cannot open '{}': {}", path, std::strerror(errno));
  }
  if (::fstat(handle.descriptor_, &handle.info_) != 0)
    return file_error("cannot read '{}': {}", path, std::strerror(errno));
  if (S_ISDIR(handle.info_.st_mode)) return file_error("'{}' is a folder, not a file", path);
  if (!S_ISREG(handle.info_.st_mode)) return file_error("'{}' is not a regular file", path);
  return handle;
}

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<int64_t> FileHandle::read_at(const std::string& path, int64_t offset, int64_t size, void* out) const {
  int64_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::pread(descriptor_, static_cast<char*>(out) + done, static_cast<size_t>(size - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error("cannot read '{}': {}", path, std::strerror(errno));
    if (got == 0) break;
    done += got;
  }
  return done;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_ino == b.st_ino && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

Status check_unchanged(const std::string& path, const struct stat& before, const struct stat& now) {
  if (same_file(before, now)) return Status::OK();
  if (before.st_size != now.st_size) {
    return file_error("'{}' changed while it was in use: it had {} bytes and has {} now", path,
                      before.st_size, now.st_size);
  }
  return file_error("'{}' changed while it was in use: it was written again or replaced", path);
}

}  // namespace millstream::exec
