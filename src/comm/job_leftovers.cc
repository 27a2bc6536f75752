#include "comm/job_leftovers.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace millstream::comm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "/dev/shm";
constexpr const char* kPrefixes[] = {"mpich_shm_", "ucx_shm_posix_", "vader_segment.", "sm_segment."};

bool is_mine(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && info.st_uid == geteuid();
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  return names;
}

std::vector<pid_t> my_processes() {
  std::vector<pid_t> pids;
  for (const std::string& name : names_in("/proc")) {
    const pid_t pid = std::atoi(name.c_str());
    if (pid > 0 && pid != getpid() && is_mine("/proc/" + name)) pids.push_back(pid);
  }
  return pids;
}

}  // namespace

bool is_stopped(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // The state follows the program's name, which is in parentheses and may hold some itself.
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  return text[name_end + 2] == 'T' || text[name_end + 2] == 't';
}

std::vector<pid_t> processes_with(const std::string& variable, const std::string& value) {
  const std::string entry = variable + "=" + value;
  std::vector<pid_t> found;
  for (const pid_t pid : my_processes()) {
    std::ifstream file(fmt::format("/proc/{}/environ", pid));
    for (std::string one; std::getline(file, one, '\0');) {
      if (one != entry) continue;
      found.push_back(pid);
      break;
    }
  }
  return found;
}

std::set<std::string> mpi_memory_files() {
  std::set<std::string> paths;
  for (const std::string& name : names_in(kFolder)) {
    const std::string path = fmt::format("{}/{}", kFolder, name);
    for (const char* prefix : kPrefixes) {
      if (name.starts_with(prefix) && is_mine(path)) paths.insert(path);
    }
  }
  return paths;
}

void remove_unused_mpi_memory(const std::set<std::string>& before) {
  std::set<std::string> unused = mpi_memory_files();
  for (const std::string& path : before) unused.erase(path);
  if (unused.empty()) return;
  // They may belong to another job that starts right now. Who makes one has it open, then maps it, then closes it: a
  // look at what is open before what is mapped misses nobody.
  for (const pid_t pid : my_processes()) {
    const std::string files = fmt::format("/proc/{}/fd", pid);
    for (const std::string& fd : names_in(files)) {
      std::error_code error;
      unused.erase(fs::read_symlink(files + "/" + fd, error).string());
    }
    std::ifstream maps(fmt::format("/proc/{}/maps", pid));
    for (std::string line; std::getline(maps, line);) {
      if (const size_t at = line.find(kFolder); at != std::string::npos) unused.erase(line.substr(at));
    }
  }
  for (const std::string& path : unused) unlink(path.c_str());
}

}  // namespace millstream::comm
