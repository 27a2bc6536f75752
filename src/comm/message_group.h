#pragma once
// Collectives by messages, among one rank of each host. Point-to-point only, so that a failure can interrupt
// them: pieces go directly from everybody to everybody, and sums are made in member order by whoever makes
// them.

#include "comm/engine.h"
#include "comm/group.h"

namespace millstream::comm {

class MessageGroup : public Group {
 public:
  /// `tag` is this group's own among all groups of the job.
  MessageGroup(const FailureBoard& board, Engine& engine, int index, std::vector<int> world_ranks, int tag);

  int index() const override { return index_; }
  int size() const override { return size_; }
  Status barrier() override;
  Result<std::vector<std::string>> allgather_bytes(std::string_view mine) override;
  Result<std::string> broadcast_bytes(std::string_view bytes, int root) override;
  Status all_reduce(void* data, int64_t count, DataType type, ReduceOp op) override;
  Status reduce(void* data, int64_t count, DataType type, ReduceOp op, int root) override;
  Status broadcast(void* data, int64_t bytes, int root) override;
  Status all_gather(const void* mine, int64_t bytes, void* out) override;

  /// Another tag after a failure, so that what is left of the past matches nothing.
  void set_tag(int tag) { tag_ = tag; }

 private:
  struct Part {
    int member;
    void* data;
    int64_t bytes;
  };
  /// Sends and receives all parts, each with the fingerprint before it.
  Status exchange(uint64_t fingerprint, const std::vector<Part>& outgoing, const std::vector<Part>& incoming);
  Status reduce_to(void* data, int64_t count, DataType type, ReduceOp op, int root, uint64_t fingerprint);

  const FailureBoard& board_;
  Engine& engine_;
  int index_;
  int size_;
  std::vector<int> world_ranks_;
  int tag_;
};

}  // namespace millstream::comm
