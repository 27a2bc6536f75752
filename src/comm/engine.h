#pragma once
// The thread that calls MPI. It drives point-to-point messages on three duplicates of MPI_COMM_WORLD: the
// users' (message_engine.h), the collectives' between hosts (message_group.h), and control messages
// (failures, heartbeats, agreement), which it also listens for.
//
// After a failure, receives are cancelled, new requests fail at once, and whatever arrives is taken and
// thrown away, so that the sends of other ranks end: every request ends soon, and its memory is free when it
// is done.

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <mpi.h>

#include "comm/failure_board.h"
#include "comm/message_engine.h"

namespace millstream::comm {

enum class ControlKind : uint32_t { kHeartbeat, kFailure, kAgreePick, kAgreeResult, kAbort };

struct ControlMessage {
  ControlKind kind = ControlKind::kHeartbeat;
  uint32_t generation =
      0;  ///< how often the job was made usable again after a failure: older news is dropped
  uint32_t sequence = 0;
  int32_t from = 0;
  std::string bytes;
};

class Engine : public MessageEngine {
 public:
  enum class Channel : uint8_t { kUser, kCollective };
  using ControlHandler = std::function<void(ControlMessage)>;  ///< in the engine's thread

  /// Duplicates MPI_COMM_WORLD three times: collective, at the start, main thread.
  static Result<std::unique_ptr<Engine>> make(FailureBoard& board, int rank, int size,
                                              ControlHandler on_control);
  ~Engine() override;

  /// Starts the thread if it isn't running. `listen`: take control messages.
  void start(bool listen);
  bool running() const { return running_.load(std::memory_order_acquire); }

  RequestPtr send(int to, int tag, std::vector<Span> spans,
                  std::function<void(const Status&)> on_done) override;
  RequestPtr receive(int from, int tag, std::vector<Span> spans,
                     std::function<void(const Status&)> on_done) override;
  /// The same on a channel; collectives send in MPI's standard mode.
  RequestPtr post(Channel channel, bool is_send, int peer, int tag, std::vector<Span> spans,
                  std::function<void(const Status&)> on_done = {});

  /// Any thread; returns at once. A heartbeat is left out while the one before is still on its way.
  void send_control(int to, ControlMessage message);
  /// While more than zero, control messages are looked for eagerly: somebody waits for one.
  std::atomic<int> hurry{0};

  /// Ends all requests of all ranks in order and empties the wires. Collective; after an agreement. New
  /// requests fail until resume().
  void drain();
  void resume();
  void stop();

 private:
  class Operation;
  struct Active;
  struct ControlSend {
    int to;
    bool heartbeat;
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  Engine(FailureBoard& board, int rank, int size, ControlHandler on_control);
  void run();
  void start_operation(const std::shared_ptr<Operation>& operation);
  void start_queued_receives();
  bool test_active();
  bool test_control();
  void cancel_receives();
  bool discard_incoming();
  bool step_drain();
  void finish_piece(Active& active, int code, MPI_Status& status);
  void wake();
  void nap(uint32_t seen, bool worked);
  bool refusing() const { return draining_.load(std::memory_order_acquire) || board_.failed(); }

  FailureBoard& board_;
  const int rank_, size_;
  ControlHandler on_control_;
  MPI_Comm comms_[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  MPI_Comm control_ = MPI_COMM_NULL;

  std::thread thread_;
  std::atomic<bool> running_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> listen_{false};
  std::atomic<uint32_t> queue_word_{0};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Operation>> submitted_;
  std::vector<std::unique_ptr<ControlSend>> submitted_control_;
  std::vector<uint8_t> heartbeat_pending_;  // by rank

  // Of the thread alone.
  std::vector<MPI_Request> requests_;
  std::vector<Active> active_;  // beside requests_
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::deque<std::shared_ptr<Operation>> queued_receives_;
  int user_receives_ = 0;
  std::vector<std::unique_ptr<ControlSend>> control_sends_;
  std::string control_buffer_;
  MPI_Request control_receive_ = MPI_REQUEST_NULL;
  std::atomic<bool> cancelled_{false};
  int idle_rounds_ = 0;

  std::atomic<bool> draining_{false};
  std::atomic<uint32_t> drained_{0};
  MPI_Request barrier_ = MPI_REQUEST_NULL;
  bool barrier_started_ = false;
};

}  // namespace millstream::comm
