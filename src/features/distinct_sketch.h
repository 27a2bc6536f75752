#pragma once
// How many different values a column has, in little memory: the hashes themselves while they are few, then
// HyperLogLog.
//
// 1. Up to kExactDistinct different hashes the count is exact (but for two values with one 64-bit hash).
// 2. Beyond that 4096 registers hold the longest run of zero bits seen (Flajolet et al. 2007), read by the estimator
//    of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), which has no bias at either
//    end. Its standard error is 1.04 / sqrt(4096) = 1.6 %.
// 3. The state is a function of the set of values alone, so order, ranks and threads do not matter.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millstream::features {

inline constexpr int64_t kExactDistinct = 1024;

class DistinctSketch {
 public:
  /// `hash` must be well mixed in all of its bits.
  void add(uint64_t hash);
  void merge(const DistinctSketch& other);

  bool exact() const { return registers_.empty(); }
  int64_t estimate() const;

  std::string encode() const;
  static Result<DistinctSketch> decode(std::string_view bytes);

 private:
  void add_dense(uint64_t hash);
  void become_dense();

  std::vector<uint64_t> hashes_;  ///< open addressing, 0: free; the hash 0 is kept as 1
  int64_t num_hashes_ = 0;
  std::vector<uint8_t> registers_;  ///< empty while exact
};

}  // namespace millstream::features
