#include "comm/failure_board.h"

#include "base/futex.h"
#include "base/progress.h"
#include "base/trace.h"

namespace millstream::comm {
namespace {

Status as_peer_failure(const Status& status, int rank) {
  if (error_category(status) == ErrorCategory::kPeerFailed) return status;
  return make_error(ErrorCategory::kPeerFailed, fmt::format("rank {} failed: {}", rank, status.message()),
                    error_position(status), rank);
}

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void FailureBoard::attach(ControlSegment* segment, int rank) {
  segment_ = segment;
  rank_ = rank;
}

void FailureBoard::set_broadcast(std::function<void(const Status&, int rank)> broadcast) {
  std::lock_guard lock(mutex_);
  broadcast_ = std::move(broadcast);
}

void FailureBoard::fail(const Status& status) {
  if (status.ok()) return;
  std::function<void(const Status&, int)> broadcast;
  {
    std::lock_guard lock(mutex_);
    if (!own_.ok()) return;
    // A rank that stops because of another one adds no news.
    if (error_category(status) == ErrorCategory::kPeerFailed && failed()) return;
    own_ = status;
    broadcast = broadcast_;
  }
  if (segment_) {
    uint32_t none = 0;
    if (segment_->record_state.compare_exchange_strong(none, 1)) {
      segment_->record.set(encode_status(status), rank_);
      segment_->record_state.store(2, std::memory_order_release);
    }
    segment_->failed.store(1, std::memory_order_release);
  }
  failed_.store(true, std::memory_order_release);
  if (broadcast) broadcast(status, rank_);
}

void FailureBoard::note_peer_failure(const Status& status, int rank) {
  {
    std::lock_guard lock(mutex_);
    if (peer_.ok()) {
      peer_ = status;
      peer_rank_ = rank;
    }
  }
  if (segment_) {
    uint32_t none = 0;
    if (segment_->record_state.compare_exchange_strong(none, 1)) {
      segment_->record.set(encode_status(status), rank);
      segment_->record_state.store(2, std::memory_order_release);
    }
    segment_->failed.store(1, std::memory_order_release);
  }
  failed_.store(true, std::memory_order_release);
}

Status FailureBoard::failure() const {
  std::lock_guard lock(mutex_);
  if (!own_.ok()) return own_;
  if (!peer_.ok()) return as_peer_failure(peer_, peer_rank_);
  if (segment_ && segment_->failed.load(std::memory_order_acquire)) {
    // Its writer may be between the claim and the text, or dead there; the wait is for microseconds or
    // nothing.
    for (int i = 0; i < 100'000 && segment_->record_state.load(std::memory_order_acquire) == 1; ++i)
      pause_briefly();
    if (segment_->record_state.load(std::memory_order_acquire) == 2) {
      return as_peer_failure(decode_status(segment_->record.view()), segment_->record.rank);
    }
    return make_error(ErrorCategory::kPeerFailed, "another rank failed");
  }
  return Status::OK();
}

Status FailureBoard::own_failure() const {
  std::lock_guard lock(mutex_);
  return own_;
}

void FailureBoard::clear() {
  std::lock_guard lock(mutex_);
  own_ = peer_ = Status::OK();
  peer_rank_ = -1;
  failed_.store(false, std::memory_order_release);
}

bool FailureBoard::wait_while_equal(const std::atomic<uint32_t>& word, uint32_t expected, int64_t spin_ns,
                                    bool interruptible) const {
  auto changed = [&] { return word.load(std::memory_order_acquire) != expected; };
  if (changed()) return true;
  if (spin_ns > 0) {
    const int64_t until = monotonic_ns() + spin_ns;
    do {
      for (int i = 0; i < 32; ++i) {
        if (changed()) return true;
        pause_briefly();
      }
    } while (monotonic_ns() < until);
  }
  WaitingForPeers waiting;
  while (!changed()) {
    if (interruptible && failed()) return changed();
    futex_wait(word, expected, std::chrono::milliseconds(50));
  }
  return true;
}

}  // namespace millstream::comm
