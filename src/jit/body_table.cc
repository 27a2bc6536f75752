#include "jit/body_table.h"

#include <algorithm>
#include <iterator>

namespace millstream::jit {

#ifdef MILLSTREAM_JIT
namespace {
#include MILLSTREAM_BODY_LIST
}

uint8_t body_flags(std::string_view name) {
  const uint64_t hash = body_hash(name);
  const auto* at = std::lower_bound(std::begin(kBodies), std::end(kBodies), hash,
                                    [](const BodyEntry& entry, uint64_t h) { return entry.hash < h; });
  return at != std::end(kBodies) && at->hash == hash ? at->flags : 0;
}
uint64_t bodies_version() {
  return kBodiesVersion;
}
#else
uint8_t body_flags(std::string_view) {
  return 0;
}
uint64_t bodies_version() {
  return 0;
}
#endif

}  // namespace millstream::jit
