#include "features/distinct_sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace millstream::features {
namespace {

constexpr int kBits = 12;
constexpr size_t kRegisters = size_t{1} << kBits;
constexpr int kLongest = 64 - kBits;  // zeros that the rest of a hash can begin with
constexpr size_t kSlots = 4 * kExactDistinct;

// Ertl's sigma and tau: what registers of 0, and of the greatest value, stand for.
double sigma(double x) {
  if (x == 1) return INFINITY;
  double y = 1, z = x, last = 0;
  do {
    x *= x;
    last = z;
    z += x * y;
    y += y;
  } while (z != last);
  return z;
}
double tau(double x) {
  if (x == 0 || x == 1) return 0;
  double y = 1, z = 1 - x, last = 0;
  do {
    x = std::sqrt(x);
    last = z;
    y *= 0.5;
    z -= (1 - x) * (1 - x) * y;
  } while (z != last);
  return z / 3;
}

}  // namespace

void DistinctSketch::add_dense(uint64_t hash) {
  const size_t index = hash >> (64 - kBits);
  const uint64_t rest = hash << kBits;
  const auto value = static_cast<uint8_t>(rest == 0 ? kLongest + 1 : std::countl_zero(rest) + 1);
  registers_[index] = std::max(registers_[index], value);
}

void DistinctSketch::become_dense() {
  registers_.assign(kRegisters, 0);
  for (const uint64_t hash : hashes_) {
    if (hash != 0) add_dense(hash);
  }
  hashes_.clear();
  num_hashes_ = 0;
}

void DistinctSketch::add(uint64_t hash) {
  hash = std::max<uint64_t>(hash, 1);
  if (!registers_.empty()) return add_dense(hash);
  if (hashes_.empty()) hashes_.assign(kSlots, 0);
  for (size_t slot = hash % kSlots;; slot = (slot + 1) % kSlots) {
    if (hashes_[slot] == hash) return;
    if (hashes_[slot] != 0) continue;
    hashes_[slot] = hash;
    if (++num_hashes_ > kExactDistinct) become_dense();
    return;
  }
}

void DistinctSketch::merge(const DistinctSketch& other) {
  if (other.registers_.empty()) {
    for (const uint64_t hash : other.hashes_) {
      if (hash != 0) add(hash);
    }
    return;
  }
  if (registers_.empty()) become_dense();
  for (size_t i = 0; i < kRegisters; ++i) registers_[i] = std::max(registers_[i], other.registers_[i]);
}

int64_t DistinctSketch::estimate() const {
  if (registers_.empty()) return num_hashes_;
  constexpr double kCount = kRegisters;
  int64_t counts[kLongest + 2] = {};
  for (const uint8_t value : registers_) ++counts[value];
  double z = kCount * tau(1 - static_cast<double>(counts[kLongest + 1]) / kCount);
  for (int k = kLongest; k >= 1; --k) z = 0.5 * (z + static_cast<double>(counts[k]));
  z += kCount * sigma(static_cast<double>(counts[0]) / kCount);
  return std::llround(kCount * kCount / (2 * std::log(2.0)) / z);
}

std::string DistinctSketch::encode() const {
  std::string bytes(1, registers_.empty() ? 'h' : 'r');
  if (!registers_.empty()) {
    bytes.append(reinterpret_cast<const char*>(registers_.data()), registers_.size());
    return bytes;
  }
  for (const uint64_t hash : hashes_) {
    if (hash != 0) bytes.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  }
  return bytes;
}

Result<DistinctSketch> DistinctSketch::decode(std::string_view bytes) {
  const auto bad = [] { return file_error("a summary of different values is not readable"); };
  DistinctSketch sketch;
  if (bytes.empty()) return bad();
  const char kind = bytes.front();
  bytes.remove_prefix(1);
  if (kind == 'r') {
    if (bytes.size() != kRegisters) return bad();
    sketch.registers_.assign(bytes.begin(), bytes.end());
    for (const uint8_t value : sketch.registers_) {
      if (value > kLongest + 1) return bad();
    }
    return sketch;
  }
  if (kind != 'h' || bytes.size() % sizeof(uint64_t) != 0) return bad();
  for (; !bytes.empty(); bytes.remove_prefix(sizeof(uint64_t))) {
    uint64_t hash = 0;
    std::memcpy(&hash, bytes.data(), sizeof(hash));
    sketch.add(hash);
  }
  return sketch;
}

}  // namespace millstream::features
