#pragma once
// The clocks of the hosts of a job, for traces of all ranks on one time line.

#include <cstdint>
#include <vector>

#include "comm/job.h"

namespace millstream::comm {

/// By rank, the nanoseconds to add to its monotonic_ns() for rank 0's. Ranks of one host share a clock, so those of rank
/// 0's host have 0 exactly; of others it is the median over some barriers of how far apart the clocks were when they
/// ended, right to about the time that a barrier takes. Collective over the world, main thread.
Result<std::vector<int64_t>> clock_offsets(Job& job);

}  // namespace millstream::comm
