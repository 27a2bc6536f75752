#pragma once
// What a query holds in memory on one rank, against what it may hold.

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/cpu_share.h"
#include "base/status.h"

namespace millstream::exec {

/// Counts bytes. Any thread.
class QueryMemory {
 public:
  /// `budget` 0: no bound. `waiting`: what rows that can be put on disk may make it hold; -1: half of the budget.
  explicit QueryMemory(int64_t budget, int64_t waiting = -1)
      : budget_(budget),
        waiting_(waiting >= 0 ? waiting
                 : budget > 0 ? budget / 2
                              : INT64_MAX) {}

  int64_t budget() const { return budget_; }
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

  /// An error where `bytes` more than what is held are over the budget.
  Status check(int64_t bytes, std::string_view what) const {
    const int64_t needed = held() + bytes;
    if (budget_ <= 0 || needed <= budget_) return Status::OK();
    return failed_error(
        "{} need more than {} of memory, and a rank may use {}; give it more with --memory, or make the "
        "query hold "
        "fewer rows or columns",
        what, format_bytes(needed), format_bytes(budget_));
  }
  /// Counts bytes that are kept until they are released.
  Status hold(int64_t bytes, std::string_view what) {
    MILLSTREAM_TRY(check(bytes, what));
    held_ += bytes;
    return Status::OK();
  }
  /// Counts the bytes of rows that may wait on disk as well; false where they have to.
  bool hold_waiting(int64_t bytes) {
    if (held_.fetch_add(bytes) + bytes <= waiting_) return true;
    held_ -= bytes;
    return false;
  }
  void release(int64_t bytes) { held_ -= bytes; }

 private:
  const int64_t budget_;
  const int64_t waiting_;
  std::atomic<int64_t> held_ = 0;
};

}  // namespace millstream::exec
