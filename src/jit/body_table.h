#pragma once
// What the build knows of the bodies that generated code can call (make_bodies.cc lists them), by their names'
// hashes.

#include <cstdint>
#include <string_view>

namespace millstream::jit {

inline constexpr uint8_t kBodyUsable = 1;    ///< generated code may call it
inline constexpr uint8_t kBodyStraight = 2;  ///< no branches, no calls: loops over it become vector code

struct BodyEntry {
  uint64_t hash;
  uint8_t flags;
};

/// FNV-1a; the build and the program must agree.
constexpr uint64_t body_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

/// The name in the bitcode of what expr::Binding::body names: without the letter that ends the class's name.
constexpr std::string_view bitcode_name(const char* body) {
  const std::string_view name(body);
  return name.substr(0, name.size() - 1);
}

/// Flags of the body of this name in the bitcode; 0: there is none.
uint8_t body_flags(std::string_view name);
/// Changes when bodies or the code generator do.
uint64_t bodies_version();

}  // namespace millstream::jit
