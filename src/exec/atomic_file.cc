#include "exec/atomic_file.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <linux/fs.h>
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

Status check_output_is_no_input(const std::string& path, const plan::SourceTable& table) {
  struct stat output {};
  if (::stat(path.c_str(), &output) != 0) return Status::OK();
  for (const plan::SourceFile& file : table.files()) {
    struct stat input {};
    if (::stat(file.path.c_str(), &input) == 0 && input.st_ino == output.st_ino &&
        input.st_dev == output.st_dev)
      return usage_error("the output '{}' is the input '{}'; an input is not replaced, name another file",
                         path, file.path);
  }
  return Status::OK();
}

std::string temporary_beside(const std::string& path) {
  static std::atomic<int> counter{0};
  return fmt::format("{}/.{}.{}-{}.tmp", folder_of(path), std::filesystem::path(path).filename().string(),
                     ::getpid(), counter.fetch_add(1));
}

Status publish_file(const std::string& temporary, const std::string& path, bool overwrite) {
  const int renamed =
      overwrite ? ::rename(temporary.c_str(), path.c_str()) : rename_new(temporary.c_str(), path.c_str());
  if (renamed != 0) {
    if (errno == EEXIST) return exists_error(path);
    return file_error("cannot write '{}': {}", path, std::strerror(errno));
  }
  return sync_folder(folder_of(path));
}

}  // namespace millstream::exec
