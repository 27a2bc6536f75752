#pragma once
// What this process is doing, for the watchdog that keeps a job from hanging and for the messages it prints.
// Deadlines measure lack of progress, not time: whoever does work beats the counter (a block read, a batch
// filled, a step done), and whoever waits for other ranks says for whom.

#include <atomic>
#include <cstdint>
#include <string>

namespace millstream {

struct Progress {
  /// Counts pieces of work done. Any thread.
  std::atomic<uint64_t> beats{0};
  /// Threads of this process that wait for another rank right now.
  std::atomic<uint32_t> waiting{0};
  /// The phase, a string literal: "survey", "training".
  std::atomic<const char*> phase{"starting"};
};

/// The process's own record.
Progress& progress();

/// One piece of work is done.
inline void beat() {
  progress().beats.fetch_add(1, std::memory_order_relaxed);
}
inline void set_phase(const char* literal) {
  progress().phase.store(literal, std::memory_order_relaxed);
  beat();
}

/// Marks this thread as waiting for other ranks while it lives.
class WaitingForPeers {
 public:
  WaitingForPeers() { progress().waiting.fetch_add(1, std::memory_order_relaxed); }
  ~WaitingForPeers() {
    progress().waiting.fetch_sub(1, std::memory_order_relaxed);
    beat();
  }
  WaitingForPeers(const WaitingForPeers&) = delete;
  WaitingForPeers& operator=(const WaitingForPeers&) = delete;
};

}  // namespace millstream
