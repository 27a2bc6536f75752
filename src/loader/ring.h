#pragma once
// A trainer's ring of slots, in memory shared with the feeders of its node or in its own.
//
// 1. Batch g of the stream has slot g mod slots. Feeders write a batch once the trainer has released batch
//    g - slots; they wait on the `released` word.
// 2. Whoever has written rows adds them to the slot's count; who completes the trainer's share stores g + 1 to the
//    slot's `ready` word and wakes the trainer. Rows are written before the count (release), read after (acquire).
// 3. The trainer sets the count to zero before it releases.

#include <atomic>
#include <cstdint>

#include "base/futex.h"
#include "loader/data_loader.h"

namespace millstream::loader {

class Ring {
 public:
  Ring() = default;
  Ring(uint8_t* memory, int slots, const SlotLayout& layout)
      : memory_(memory), slots_(slots), stride_(stride(layout)) {}

  /// Memory must be zeroed and aligned to 4096.
  static int64_t bytes_needed(int slots, const SlotLayout& layout) {
    return align(kWordBytes * (slots + 1)) + slots * stride(layout);
  }

  int slots() const { return slots_; }
  std::atomic<uint32_t>& released() const { return word(0); }
  std::atomic<uint32_t>& ready(int64_t batch) const { return word(1 + batch % slots_); }
  std::atomic<uint32_t>& filled(int64_t batch) const { return (&ready(batch))[1]; }
  uint8_t* slot(int64_t batch) const {
    return memory_ + align(kWordBytes * (slots_ + 1)) + (batch % slots_) * stride_;
  }
  /// Whether batch `batch` may be written, given the value of released().
  bool has_room(int64_t batch, uint32_t released) const {
    return static_cast<int32_t>(static_cast<uint32_t>(batch) - released) < slots_;
  }
  /// `rows` more rows of the batch are written, of the trainer's `share`.
  void add(int64_t batch, int64_t rows, int64_t share) const {
    const uint32_t before = filled(batch).fetch_add(static_cast<uint32_t>(rows), std::memory_order_acq_rel);
    if (before + static_cast<uint32_t>(rows) != static_cast<uint32_t>(share)) return;
    ready(batch).store(static_cast<uint32_t>(batch + 1), std::memory_order_release);
    futex_wake_all(ready(batch));
  }
  /// The trainer is done with the batch.
  void release(int64_t batch) const {
    filled(batch).store(0, std::memory_order_relaxed);
    released().store(static_cast<uint32_t>(batch + 1), std::memory_order_release);
    futex_wake_all(released());
  }

 private:
  static constexpr int64_t kWordBytes = 64;  // a cache line for each slot's words
  static int64_t align(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  static int64_t stride(const SlotLayout& layout) { return align(layout.bytes); }
  std::atomic<uint32_t>& word(int64_t i) const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(memory_ + i * kWordBytes);
  }
  uint8_t* memory_ = nullptr;
  int slots_ = 0;
  int64_t stride_ = 0;
};

}  // namespace millstream::loader
