#pragma once
// Collectives among a set of ranks. Calls are matched by order: every member makes the same calls in the same
// order, from one thread at a time a communicator (which thread may change). They block the calling thread on
// a futex or a completion, never spin, and return kPeerFailed when the job fails meanwhile. In debug builds
// each call's fingerprint (operation, sequence number, type, count) is checked over the members.
//
// On one host data goes through shared memory: sums are made in rank order, so the bits do not depend on
// timing. Between hosts one leader a host takes part, by MPI.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millstream::comm {

enum class DataType : uint8_t {
  kFloat,
  kDouble,
  kHalf,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool
};
enum class ReduceOp : uint8_t { kSum, kProduct, kMin, kMax, kBitAnd, kBitOr, kBitXor };
int64_t size_of(DataType type);

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  ///< within this communicator
  virtual int size() const = 0;
  /// World ranks of the members, ascending.
  virtual const std::vector<int>& members() const = 0;

  virtual Status barrier() = 0;
  /// Every member's bytes, by rank. Sizes may differ.
  virtual Result<std::vector<std::string>> allgather_bytes(std::string_view mine) = 0;
  /// The root's bytes, on every member.
  virtual Result<std::string> broadcast_bytes(std::string_view bytes, int root) = 0;

  /// In place: `count` elements at `data` become the reduction over the members. half and bfloat16 are summed
  /// in float.
  virtual Status all_reduce(void* data, int64_t count, DataType type, ReduceOp op) = 0;
  /// The same; only the root's data is defined afterwards.
  virtual Status reduce(void* data, int64_t count, DataType type, ReduceOp op, int root) = 0;
  virtual Status broadcast(void* data, int64_t bytes, int root) = 0;
  /// `bytes` from each member, in rank order, to out[0 .. size*bytes).
  virtual Status all_gather(const void* mine, int64_t bytes, void* out) = 0;
};

}  // namespace millstream::comm
