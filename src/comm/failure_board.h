#pragma once
// Who failed, and the waits that a failure interrupts.
//
// The first failure a rank learns of is what its waits return. Ranks of one host share a record in the node's
// control segment; news to and from other hosts goes through `broadcast` and note_peer_failure().

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "comm/control_segment.h"

namespace millstream::comm {

class FailureBoard {
 public:
  /// `segment` may be null: a rank alone on its host.
  void attach(ControlSegment* segment, int rank);
  /// Called once, outside locks, when this rank fails: tells the other hosts.
  void set_broadcast(std::function<void(const Status&, int rank)> broadcast);

  void fail(const Status& status);
  /// Another rank failed.
  void note_peer_failure(const Status& status, int rank);
  bool failed() const {
    return failed_.load(std::memory_order_acquire) ||
           (segment_ && segment_->failed.load(std::memory_order_acquire) != 0);
  }
  Status failure() const;
  /// This rank's own failure, OK when it has none.
  Status own_failure() const;
  /// Forgets this rank's part; the segment's is cleared by the node's leader.
  void clear();

  /// Waits until `word` != `expected` (true) or, with `interruptible`, the job failed (false). Spins for
  /// `spin_ns` first, then sleeps.
  bool wait_while_equal(const std::atomic<uint32_t>& word, uint32_t expected, int64_t spin_ns = 0,
                        bool interruptible = true) const;

 private:
  ControlSegment* segment_ = nullptr;
  int rank_ = 0;
  std::function<void(const Status&, int)> broadcast_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Status own_;
  Status peer_;
  int peer_rank_ = -1;
};

}  // namespace millstream::comm
