#pragma once
// A wait on a 32-bit word, also between processes that share the memory. Waiting costs nothing and a wake
// takes microseconds; there is no polling.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace millstream {

/// Sleeps while `word` holds `expected`, at most `timeout`. Wakes may be spurious: test the condition again.
/// The word may lie in memory shared between processes.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds timeout);
/// Wakes every waiter on `word`. Call after storing the new value.
void futex_wake_all(const std::atomic<uint32_t>& word);

}  // namespace millstream
