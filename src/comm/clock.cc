#include "comm/clock.h"

#include <algorithm>

#include "base/trace.h"

namespace millstream::comm {

Result<std::vector<int64_t>> clock_offsets(Job& job) {
  constexpr int kRounds = 9;
  const auto size = static_cast<size_t>(job.size());
  std::vector<int64_t> offsets(size, 0);
  const Topology& topology = job.topology();
  if (topology.host_ranks.size() == 1) return offsets;
  std::vector<std::vector<int64_t>> ahead(size);
  for (int round = 0; round < kRounds; ++round) {
    MILLSTREAM_TRY(job.world().barrier());
    const int64_t now = monotonic_ns();
    std::vector<int64_t> all(size);
    MILLSTREAM_TRY(job.world().all_gather(&now, sizeof(now), all.data()));
    for (size_t rank = 0; rank < size; ++rank) ahead[rank].push_back(all[0] - all[rank]);
  }
  for (const std::vector<int>& ranks : topology.host_ranks) {
    if (topology.host_of_rank[static_cast<size_t>(ranks[0])] == topology.host_of_rank[0]) continue;
    auto& values = ahead[static_cast<size_t>(ranks[0])];
    std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
    for (const int rank : ranks) offsets[static_cast<size_t>(rank)] = values[kRounds / 2];
  }
  return offsets;
}

}  // namespace millstream::comm
