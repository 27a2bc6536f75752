#include "base/cpu_share.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

namespace millstream {
namespace {

/// The folders of this process's cgroup and its ancestors, for a v1 controller or (controller empty) v2.
std::vector<std::string> cgroup_folders(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(file, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controller.empty() ? names == ",," : names.find("," + controller + ",") != std::string::npos) {
      path = line.substr(second + 1);
    }
  }
  const std::string mount = controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(mount);
  return folders;
}

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

std::vector<int> affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

double cgroup_cpu_quota() {
  double quota = std::numeric_limits<double>::infinity();
  for (const std::string& folder : cgroup_folders("")) {
    std::ifstream file(folder + "/cpu.max");
    std::string limit;
    double period = 0;
    if (file >> limit >> period && limit != "max" && period > 0)
      quota = std::min(quota, std::atof(limit.c_str()) / period);
  }
  for (const std::string& folder : cgroup_folders("cpu")) {
    const double limit = std::atof(first_word(folder + "/cpu.cfs_quota_us").c_str());
    const double period = std::atof(first_word(folder + "/cpu.cfs_period_us").c_str());
    if (limit > 0 && period > 0) quota = std::min(quota, limit / period);
  }
  return quota;
}

int64_t available_memory_bytes() {
  struct sysinfo info {};
  sysinfo(&info);
  int64_t bytes = static_cast<int64_t>(info.totalram) * info.mem_unit;
  auto consider = [&](const std::string& word) {
    if (word.empty() || !std::isdigit(static_cast<unsigned char>(word[0]))) return;
    const double limit = std::atof(word.c_str());
    if (limit > 0 && limit < static_cast<double>(bytes)) bytes = static_cast<int64_t>(limit);
  };
  for (const std::string& folder : cgroup_folders("")) consider(first_word(folder + "/memory.max"));
  for (const std::string& folder : cgroup_folders("memory"))
    consider(first_word(folder + "/memory.limit_in_bytes"));
  return bytes;
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

int threads_of_share(int ranks_sharing) {
  const double cpus = std::min(static_cast<double>(affinity_cpus().size()), std::ceil(cgroup_cpu_quota()));
  return std::max(1, static_cast<int>(cpus) / std::max(1, ranks_sharing));
}

int64_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(number >= 0)) return -1;
  std::string unit;
  for (; *end; ++end) {
    if (*end != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*end)));
  }
  static constexpr std::pair<const char*, double> kUnits[] = {{"", 1},
                                                              {"b", 1},
                                                              {"k", 1024.0},
                                                              {"kib", 1024.0},
                                                              {"kb", 1e3},
                                                              {"m", 1048576.0},
                                                              {"mib", 1048576.0},
                                                              {"mb", 1e6},
                                                              {"g", 1073741824.0},
                                                              {"gib", 1073741824.0},
                                                              {"gb", 1e9},
                                                              {"t", 1099511627776.0},
                                                              {"tib", 1099511627776.0},
                                                              {"tb", 1e12}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && number * factor < 9e18) return static_cast<int64_t>(number * factor);
  }
  return -1;
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  for (const char* unit : {"KiB", "MiB", "GiB"}) {
    value /= 1024;
    if (value < 1024) return fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, unit);
  }
  return fmt::format("{:.1f} TiB", value / 1024);
}

}  // namespace millstream
