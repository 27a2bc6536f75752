#pragma once
// Hashes of bytes, by xxHash's XXH3. Values are stable over machines and versions: they name cache entries,
// split rows into training and validation, and digest batches.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millstream {

uint64_t hash64(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash64(std::string_view bytes, uint64_t seed = 0) {
  return hash64(bytes.data(), bytes.size(), seed);
}
/// A bijective mix of a 64-bit number (SplitMix64's finaliser), for hashing row numbers.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// XXH3-128 over a sequence of pieces, as 32 hexadecimal digits.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  void add(const void* data, size_t size);
  void add(std::string_view bytes) { add(bytes.data(), bytes.size()); }
  std::string hex() const;

 private:
  void* state_;
};

}  // namespace millstream
