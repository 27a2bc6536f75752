#pragma once
// Pieces of shared memory by name, for the moment between their creation and the last rank's mapping.

#include <cstdint>
#include <string>

#include "base/status.h"

namespace millstream::comm {

/// Creates "/name" of `bytes` zeroed bytes with the space reserved (a promise: no fault later), and maps it.
/// Where there is no room the error says what the file system has and what was asked.
Result<uint8_t*> create_shared_memory(const std::string& name, int64_t bytes);
Result<uint8_t*> open_shared_memory(const std::string& name, int64_t bytes);
void remove_shared_memory(const std::string& name);
void unmap_shared_memory(uint8_t* data, int64_t bytes);
/// Removes what dead ranks of a job left: everything named "/millstream-<job id>-…".
void remove_shared_memory_of_job(const std::string& job_id);
/// The name of the n-th piece made by the node whose leader has this world rank.
std::string shared_memory_name(const std::string& job_id, int leader, int n);
/// Tells apart machines, and containers that share one but not its /dev/shm.
std::string host_key();
int64_t round_to_pages(int64_t bytes);

}  // namespace millstream::comm
