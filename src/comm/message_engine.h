#pragma once
// Point-to-point messages between ranks: one thread of the process calls MPI, nonblocking only, naps in
// proportion to how long nothing came, and completes requests by callback or wait. At most 256 receives are
// posted at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"

namespace millstream::comm {

/// A piece of a message's place in memory: receives may scatter, sends may gather.
struct Span {
  void* data;
  int64_t bytes;
};

class Request {
 public:
  virtual ~Request() = default;
  virtual bool done() const = 0;
  /// Blocks until done, or the job failed.
  virtual Status wait() = 0;
};
using RequestPtr = std::shared_ptr<Request>;

class MessageEngine {
 public:
  virtual ~MessageEngine() = default;
  /// Sends the spans as one message to world rank `to`. Synchronous mode (MPI_Issend): done only when the
  /// receiver has matched it, so a receiver that posts no receive holds the sender back. `tag` < 2^20. The
  /// spans must stay valid and unchanged until done. `on_done` (may be empty) runs in the engine's thread:
  /// short, no blocking. Any thread.
  virtual RequestPtr send(int to, int tag, std::vector<Span> spans,
                          std::function<void(const Status&)> on_done) = 0;
  /// Receives one message of exactly the spans' bytes from world rank `from` into the spans. Receives beyond
  /// the limit are queued in order. Any thread.
  virtual RequestPtr receive(int from, int tag, std::vector<Span> spans,
                             std::function<void(const Status&)> on_done) = 0;
};

}  // namespace millstream::comm
