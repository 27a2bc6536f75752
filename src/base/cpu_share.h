#pragma once
// What part of the machine this process may use.

#include <cstdint>
#include <string>
#include <vector>

namespace millstream {

/// The CPUs of this process's affinity mask.
std::vector<int> affinity_cpus();
/// The CPU quota of this process's cgroup (v2 or v1), in CPUs; infinity where there is none.
double cgroup_cpu_quota();
/// Bytes of memory this process may use: the cgroup's limit or the machine's, whichever is less.
int64_t available_memory_bytes();
/// The greatest resident set of this process so far, in bytes.
int64_t peak_rss_bytes();
std::string host_name();

/// Worker threads for one of `ranks_sharing` ranks that share the affinity mask: at least 1.
int threads_of_share(int ranks_sharing);

/// "512MiB", "1.5GB", "4096" (bytes) as bytes; -1 where it is none of these.
int64_t parse_bytes(const std::string& text);
std::string format_bytes(int64_t bytes);

}  // namespace millstream
