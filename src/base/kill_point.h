#pragma once
// Places where a test can have a rank killed, as the system's out-of-memory killer would: nothing is cleaned up.
// MILLSTREAM_TEST_KILL_AT="NAME@RANK:N" kills rank RANK when it comes to the place NAME for the N-th time. Unset, a place
// costs a load and a branch.

#include <atomic>

namespace millstream {

namespace internal {
extern std::atomic<bool> kill_points_armed;
void kill_if_here(const char* name);
}  // namespace internal

/// This process is rank `rank`. Reads the variable.
void arm_kill_points(int rank);

inline void kill_point(const char* name) {
  if (internal::kill_points_armed.load(std::memory_order_relaxed)) [[unlikely]]
    internal::kill_if_here(name);
}

}  // namespace millstream
