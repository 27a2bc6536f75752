#include "comm/shared_memory_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cpu_share.h"

namespace millstream::comm {
namespace {

constexpr char kFolder[] = "/dev/shm";

std::string room_in_shared_memory() {
  struct statvfs info {};
  if (statvfs(kFolder, &info) != 0) return "an unknown amount";
  return format_bytes(static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize));
}

Result<uint8_t*> map(int fd, const std::string& name, int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return failed_error("can't map {} of shared memory {}: {}", format_bytes(bytes), name,
                        std::strerror(errno));
  }
  return static_cast<uint8_t*>(data);
}

}  // namespace

int64_t round_to_pages(int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  return (std::max<int64_t>(bytes, 1) + page - 1) / page * page;
}

Result<uint8_t*> create_shared_memory(const std::string& name, int64_t bytes) {
  const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return failed_error("can't make shared memory {} in {}: {}", name, kFolder, std::strerror(errno));
  Result<uint8_t*> result = nullptr;
  // Not ftruncate alone: it promises nothing, and the first touch beyond the room is a bus error.
  int code = ftruncate(fd, bytes) != 0 ? errno : 0;
  if (code == 0) {
    do {
      code = posix_fallocate(fd, 0, bytes);
    } while (code == EINTR);
  }
  if (code != 0) {
    if (ftruncate(fd, 0) != 0) code = errno;  // what was reserved so far is not "available" in the message
    result = failed_error(
        "shared memory of {} was asked for, and the shared-memory file system {} has {} available ({}); "
        "enlarge it "
        "(docker run --shm-size=…, mount -o remount,size=… {}) or ask for less",
        format_bytes(bytes), kFolder, room_in_shared_memory(), std::strerror(code), kFolder);
  } else {
    result = map(fd, name, bytes);
  }
  close(fd);
  if (!result.ok()) shm_unlink(name.c_str());
  return result;
}

Result<uint8_t*> open_shared_memory(const std::string& name, int64_t bytes) {
  const int fd = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0)
    return failed_error("can't open shared memory {} in {}: {}", name, kFolder, std::strerror(errno));
  struct stat info {};
  Result<uint8_t*> result = nullptr;
  if (fstat(fd, &info) != 0 || info.st_size != bytes) {
    result = bug_error("shared memory {} has {} bytes where {} were expected", name, info.st_size, bytes);
  } else {
    result = map(fd, name, bytes);
  }
  close(fd);
  return result;
}

void remove_shared_memory(const std::string& name) {
  shm_unlink(name.c_str());
}

void unmap_shared_memory(uint8_t* data, int64_t bytes) {
  if (data) munmap(data, static_cast<size_t>(bytes));
}

void remove_shared_memory_of_job(const std::string& job_id) {
  const std::string prefix = "millstream-" + job_id + "-";
  DIR* folder = opendir(kFolder);
  if (!folder) return;
  while (const dirent* entry = readdir(folder)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0) {
      shm_unlink((std::string("/") + entry->d_name).c_str());
    }
  }
  closedir(folder);
}

std::string shared_memory_name(const std::string& job_id, int leader, int n) {
  return fmt::format("/millstream-{}-{}-{}", job_id, leader, n);
}

std::string host_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat info {};
  stat(kFolder, &info);
  return fmt::format("{}/{}/{}:{}", host_name(), boot, info.st_dev, info.st_ino);
}

}  // namespace millstream::comm
