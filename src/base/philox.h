#pragma once
// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
// easy as 1, 2, 3" (SC 2011). Any element of any stream is computed from its key and counter alone, so a
// shuffle needs no state: that is what makes batches independent of ranks and resume exact.

#include <array>
#include <cstdint>

namespace millstream {

using Philox4x32 = std::array<uint32_t, 4>;

/// The block of four 32-bit words at `counter` of the stream `key`.
constexpr Philox4x32 philox(Philox4x32 counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// A sequence of 64-bit numbers of one stream. The stream is named by a seed and three numbers (for the
/// loader: epoch, lane, window); equal names give equal sequences on every machine.
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint32_t a, uint32_t b, uint32_t c)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, name_{a, b, c} {}

  uint64_t next() {
    if (used_ == 2) refill();
    const uint64_t value = (uint64_t{block_[2 * used_ + 1]} << 32) | block_[2 * used_];
    ++used_;
    return value;
  }
  /// Uniform in [0, bound), exactly: Lemire's multiply with rejection (ACM TOMACS 29(1), 2019). bound > 0.
  uint64_t below(uint64_t bound) {
    unsigned __int128 product = static_cast<unsigned __int128>(next()) * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = -bound % bound;
      while (static_cast<uint64_t>(product) < threshold)
        product = static_cast<unsigned __int128>(next()) * bound;
    }
    return static_cast<uint64_t>(product >> 64);
  }
  /// Uniform in [0, 1) with 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  void refill() {
    block_ = philox({counter_++, name_[0], name_[1], name_[2]}, key_);
    used_ = 0;
  }
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 3> name_;
  uint32_t counter_ = 0;
  Philox4x32 block_{};
  int used_ = 2;
};

}  // namespace millstream
