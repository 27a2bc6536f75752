#include "loader/full_order.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/philox.h"

namespace millstream::loader {
namespace {

// Streams of Philox are named by (epoch, lane, window); this one is no lane.
constexpr uint32_t kFullPermutation = 0x80000002u;

// A number that looks random of `x` and the round's keys: the finaliser of MurmurHash3 (Appleby) over keyed input.
inline uint32_t scramble(uint32_t x, uint32_t key, uint32_t second) {
  x ^= key;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x += second;
  x *= 0xC2B2AE35u;
  x ^= x >> 16;
  return x;
}

// Adds a number below `modulus`, made of the scrambled one, to a digit below it.
inline uint32_t add_below(uint32_t digit, uint32_t scrambled, uint32_t modulus) {
  const uint32_t sum = digit + static_cast<uint32_t>((uint64_t{scrambled} * modulus) >> 32);
  return std::min(sum, sum - modulus);  // wraps to a large number where there is nothing to take off
}

}  // namespace

FullOrder::FullOrder(uint64_t seed, int64_t epoch, int64_t rows) : rows_(rows) {
  MILLSTREAM_CHECK(rows >= 0 && rows <= (int64_t{1} << 60));
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(rows)));
  while (root * root < rows) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= rows) --root;
  a_ = static_cast<uint32_t>(std::max<int64_t>(1, root));
  b_ = static_cast<uint32_t>(std::max<int64_t>(1, (rows + a_ - 1) / a_));
  PhiloxStream random(seed, static_cast<uint32_t>(epoch), kFullPermutation, 0);
  for (size_t i = 0; i < keys_.size(); i += 2) {
    const uint64_t number = random.next();
    keys_[i] = static_cast<uint32_t>(number);
    keys_[i + 1] = static_cast<uint32_t>(number >> 32);
  }
}

void FullOrder::permute(uint32_t* left, uint32_t* right, int count) const {
  for (int round = 0; round < kRounds; round += 2) {
    const uint32_t* const k = keys_.data() + 2 * round;
    for (int i = 0; i < count; ++i) {
      left[i] = add_below(left[i], scramble(right[i], k[0], k[1]), a_);
      right[i] = add_below(right[i], scramble(left[i], k[2], k[3]), b_);
    }
  }
}

void FullOrder::rows_at(int64_t first, int64_t count, int64_t* rows) const {
  MILLSTREAM_CHECK(first >= 0 && count >= 0 && first + count <= rows_);
  uint32_t left[kTogether], right[kTogether];
  for (int64_t begin = 0; begin < count; begin += kTogether) {
    const int n = static_cast<int>(std::min<int64_t>(kTogether, count - begin));
    int64_t quotient = (first + begin) / b_, remainder = (first + begin) % b_;
    for (int i = 0; i < n; ++i) {
      left[i] = static_cast<uint32_t>(quotient);
      right[i] = static_cast<uint32_t>(remainder);
      if (++remainder == b_) {
        remainder = 0;
        ++quotient;
      }
    }
    permute(left, right, n);
    for (int i = 0; i < n; ++i) {
      int64_t row = int64_t{left[i]} * b_ + right[i];
      while (row >= rows_) {
        permute(left + i, right + i, 1);
        row = int64_t{left[i]} * b_ + right[i];
      }
      rows[begin + i] = row;
    }
  }
}

}  // namespace millstream::loader
