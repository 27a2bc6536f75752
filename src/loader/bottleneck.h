#pragma once
// What a run spent its time on, and what would help: the one line at its end.

#include <string>
#include <vector>

#include "loader/data_loader.h"

namespace millstream::loader {

/// What one rank did.
struct RankAccount {
  LoaderCounters loader;
  int feeding_threads = 0;
  bool trained = false;
  double seconds_training = 0;  ///< from the first batch on
  double seconds_reducing = 0;  ///< of those: averaging gradients with the other trainers
};

struct RunFacts {
  int64_t epochs = 1;
  int64_t batch_size = 0;
  int64_t sources = 0;  ///< that an epoch's rows come from side by side: lanes, or entry points in file order
  Shuffle shuffle = Shuffle::kWindow;
  Cache cache = Cache::kNone;  ///< where rows were read from
};

/// "the trainers: …" or "the feeders: …", with the rank and what would help. Below 5 % of waiting it is the trainers.
std::string describe_bottleneck(const std::vector<RankAccount>& ranks, const RunFacts& facts);

}  // namespace millstream::loader
