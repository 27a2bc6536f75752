#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace millstream {

uint64_t hash64(const void* data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

Digest::Digest() : state_(XXH3_createState()) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}
Digest::~Digest() {
  XXH3_freeState(static_cast<XXH3_state_t*>(state_));
}
void Digest::add(const void* data, size_t size) {
  if (size) XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data, size);
}
std::string Digest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace millstream
