#pragma once
// The inside of communicators. A Group is a set of processes that share one way of talking: the ranks of one
// host through shared memory (NodeGroup), or one rank of each host by messages (MessageGroup). A communicator
// composes the two (group_communicator.h).
//
// Members are numbered 0 .. size-1 in the order of their world ranks. All members make the same calls in the
// same order, one thread at a time. Calls block; they return the job's failure when it fails meanwhile.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"

namespace millstream::comm {

/// What is called, to tell apart calls that do not match.
enum class Operation : uint8_t {
  kBarrier = 1,
  kAllgatherBytes,
  kBroadcastBytes,
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather
};

/// Operation, element type, reduction, root and the low bits of the size, in one number.
struct Fingerprint {
  Operation operation = Operation::kBarrier;
  DataType type = DataType::kInt8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int64_t count = 0;
  uint64_t packed() const {
    return (uint64_t(operation) << 60) | (uint64_t(type) << 56) | (uint64_t(op) << 52) |
           (uint64_t(root & 0xFFFFF) << 32) | (uint64_t(count) & 0xFFFFFFFFu);
  }
};
/// "all_reduce of 12 float elements (sum)", for the error when members' calls differ.
std::string describe_fingerprint(uint64_t packed);
Status mismatch_error(int mine, uint64_t my_fingerprint, int other, uint64_t other_fingerprint);

class Group {
 public:
  virtual ~Group() = default;
  virtual int index() const = 0;
  virtual int size() const = 0;
  virtual Status barrier() = 0;
  virtual Result<std::vector<std::string>> allgather_bytes(std::string_view mine) = 0;
  virtual Result<std::string> broadcast_bytes(std::string_view bytes, int root) = 0;
  virtual Status all_reduce(void* data, int64_t count, DataType type, ReduceOp op) = 0;
  virtual Status reduce(void* data, int64_t count, DataType type, ReduceOp op, int root) = 0;
  virtual Status broadcast(void* data, int64_t bytes, int root) = 0;
  virtual Status all_gather(const void* mine, int64_t bytes, void* out) = 0;
};

}  // namespace millstream::comm
