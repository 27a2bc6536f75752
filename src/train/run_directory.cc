#include "train/run_directory.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace millstream::train {
namespace {

namespace fs = std::filesystem;

Status system_error(std::string_view doing, const std::string& path) {
  return file_error("{} {}: {}", doing, path, std::strerror(errno));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  int close() {
    const int result = number_ < 0 ? 0 : ::close(number_);
    number_ = -1;
    return result;
  }

 private:
  int number_;
};

/// Removes what an earlier run left under `names` and makes sure that more can be written.
Status clean_run_directory(const std::string& path, std::initializer_list<const char*> names) {
  std::error_code error;
  for (const char* name : names) {
    fs::remove_all(fs::path(path) / name, error);
    if (error) return file_error("removing {}/{} of an earlier run: {}", path, name, error.message());
  }
  // Permissions lie (root, read-only mounts): only writing tells.
  const std::string probe = (fs::path(path) / ".writable").string();
  Descriptor file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return system_error("the run directory can't be written:", path);
  ::unlink(probe.c_str());
  return Status::OK();
}

}  // namespace

Status prepare_run_directory(const std::string& path, bool overwrite) {
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (exists && !fs::is_directory(path, error))
    return usage_error("the run directory {} is a file; name another with --out", path);
  if (exists && !overwrite && !fs::is_empty(path, error) && !error)
    return usage_error(
        "the run directory {} is not empty; name another with --out, or add --overwrite to replace the run "
        "in it",
        path);
  fs::create_directories(path, error);
  if (error) return file_error("making the run directory {}: {}", path, error.message());
  return clean_run_directory(path, {"metrics.jsonl", "recipe.toml", "accounting.json", "trace.json", "bundle",
                                    "checkpoints", "tensorboard"});
}

Status reopen_run_directory(const std::string& path) {
  return clean_run_directory(path, {"accounting.json", "trace.json", "bundle"});
}

Status sync_directory(const std::string& path) {
  Descriptor folder(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return system_error("opening the folder", path);
  // Some file systems refuse to sync a folder; the file's own sync has been done.
  if (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    return system_error("syncing the folder", path);
  return Status::OK();
}

Status write_file_durably(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".part";
  auto fail = [&](const Status& status) {
    ::unlink(temporary.c_str());
    return status;
  };
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return system_error("writing", path);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail(system_error("writing", path));
    done += static_cast<size_t>(written);
  }
  if (::fsync(file.get()) != 0 || file.close() != 0) return fail(system_error("writing", path));
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail(system_error("writing", path));
  return sync_directory(fs::path(path).parent_path().string());
}

Result<std::string> read_whole_file(const std::string& path, int64_t limit_bytes) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error("opening", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return system_error("reading", path);
  if (!S_ISREG(info.st_mode)) return file_error("reading {}: it is not a file", path);
  if (info.st_size > limit_bytes)
    return file_error("{} has {} bytes; at most {} are expected", path, static_cast<int64_t>(info.st_size),
                      limit_bytes);
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("reading", path);
    if (got == 0) return file_error("reading {}: it became shorter meanwhile", path);
    done += static_cast<size_t>(got);
  }
  return bytes;
}

LineFile::~LineFile() {
  if (file_ != nullptr) std::fclose(file_);
}

Status LineFile::open(const std::string& path) {
  path_ = path;
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
  file_ = std::fopen(path.c_str(), "we");
  return file_ != nullptr ? Status::OK() : system_error("writing", path);
}

Status LineFile::reopen(const std::string& path, int64_t bytes) {
  path_ = path;
  // A file that is gone or shorter (another disk, an older copy) is no reason not to train on.
  std::error_code missing;
  const auto size = fs::file_size(path, missing);
  bytes_ = missing ? 0 : std::min<int64_t>(bytes, static_cast<int64_t>(size));
  if (!missing && ::truncate(path.c_str(), bytes_) != 0) return system_error("writing", path);
  file_ = std::fopen(path.c_str(), "ae");
  return file_ != nullptr ? Status::OK() : system_error("writing", path);
}

Status LineFile::write(std::string_view line) {
  if (file_ == nullptr) return Status::OK();
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fputc('\n', file_) == EOF ||
      std::fflush(file_) != 0)
    return system_error("writing", path_);
  bytes_ += static_cast<int64_t>(line.size()) + 1;
  return Status::OK();
}

}  // namespace millstream::train
