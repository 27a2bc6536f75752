#pragma once
// Collectives of the ranks of one host through a piece of shared memory.
//
// Everything is made of one primitive, the *step*. Each member has two buffers and a word `posted`, the
// number of steps it has published. In step s a member
//   1. waits until every member's `posted` is at least s-1, then may write its buffer s%2: whoever has
//   published
//      s-1 has finished reading step s-2, which used the same buffer;
//   2. stores `posted` = s and wakes sleepers;
//   3. waits for `posted` >= s of whom it wants to read, and reads their buffers s%2.
// Sums are made in member order by whoever makes them, so bits do not depend on timing.

#include <atomic>
#include <memory>

#include "comm/failure_board.h"
#include "comm/group.h"

namespace millstream::comm {

class NodeGroup : public Group {
 public:
  /// Bytes of shared memory for a group; `capacity` is the size of one buffer, a multiple of 64.
  static int64_t bytes_needed(int size, int64_t capacity);
  /// A buffer size that suits a group for data (large) or control (small).
  static int64_t data_capacity(int size);
  static constexpr int64_t kControlCapacity = 16 * 1024;

  /// `memory` is zeroed, at the same offset for all members, and outlives the group (or is kept by `keep`).
  /// `world_ranks` of the members, for messages.
  NodeGroup(const FailureBoard& board, uint8_t* memory, std::shared_ptr<void> keep, int index,
            std::vector<int> world_ranks, int64_t capacity, int64_t spin_ns);

  int index() const override { return index_; }
  int size() const override { return size_; }
  Status barrier() override;
  Result<std::vector<std::string>> allgather_bytes(std::string_view mine) override;
  Result<std::string> broadcast_bytes(std::string_view bytes, int root) override;
  Status all_reduce(void* data, int64_t count, DataType type, ReduceOp op) override;
  Status reduce(void* data, int64_t count, DataType type, ReduceOp op, int root) override;
  Status broadcast(void* data, int64_t bytes, int root) override;
  Status all_gather(const void* mine, int64_t bytes, void* out) override;

  /// Back to the first step, after a failure; no member may be inside a call or make one before all did this.
  void reset();

 private:
  struct alignas(64) Member {
    std::atomic<uint32_t> posted;
    std::atomic<uint32_t> sleepers;
    std::atomic<uint64_t> fingerprint[2];
  };

  Member& member(int i) const { return reinterpret_cast<Member*>(memory_)[i]; }
  uint8_t* buffer(int i, uint32_t step) const {
    return memory_ + sizeof(Member) * size_ + (2 * i + (step & 1)) * capacity_;
  }
  /// Part 1 of a step; returns this member's buffer.
  Result<uint8_t*> begin_step();
  void publish(uint64_t fingerprint);
  /// Part 3: the buffer of member i.
  Result<const uint8_t*> await(int i, uint64_t fingerprint);
  Status wait_posted(int i, uint32_t step);
  Status reduce_in_slices(uint8_t* data, int64_t count, DataType type, ReduceOp op, int root,
                          uint64_t fingerprint);

  const FailureBoard& board_;
  uint8_t* memory_;
  std::shared_ptr<void> keep_;
  int index_;
  int size_;
  std::vector<int> world_ranks_;
  int64_t capacity_;
  int64_t spin_ns_;
  uint32_t step_ = 0;
  std::vector<const void*> sources_;
};

}  // namespace millstream::comm
