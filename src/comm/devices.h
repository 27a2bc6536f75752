#pragma once
// The GPUs that a process may use, of those the driver lists.

#include <vector>

#include "comm/topology.h"

namespace millstream::comm {

/// What the value of CUDA_VISIBLE_DEVICES (null: not set) leaves of `all`, numbered anew, by CUDA's rules:
/// numbers or beginnings of UUIDs; the list ends before the first that does not exist; empty or "-1" hides
/// all.
std::vector<Device> visible_devices(const std::vector<Device>& all, const char* value);

}  // namespace millstream::comm
