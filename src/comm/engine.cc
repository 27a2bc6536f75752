#include "comm/engine.h"

#include <cstring>

#include <pthread.h>
#include <sys/prctl.h>

#include "base/check.h"
#include "base/futex.h"
#include "comm/control_segment.h"
#include "comm/mpi_call.h"

namespace millstream::comm {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 30;  // MPI 3.1 counts in int
constexpr int kMaxPostedReceives = 256;
constexpr int64_t kPackBytes = 16 * 1024;  // smaller scattered sends are copied together
constexpr size_t kControlBytes = kStatusBytes + 256;

struct ControlHeader {
  uint32_t kind, generation, sequence;
  int32_t from;
};

}  // namespace

/// One request of a user: one MPI message, or several where it has more than kPieceBytes.
class Engine::Operation : public Request {
 public:
  Operation(const FailureBoard& board, Channel channel, bool is_send, int peer, int tag,
            std::vector<Span> spans, std::function<void(const Status&)> on_done)
      : board(board),
        channel(channel),
        is_send(is_send),
        peer(peer),
        tag(tag),
        spans(std::move(spans)),
        on_done(std::move(on_done)) {}

  bool done() const override { return word_.load(std::memory_order_acquire) != 0; }
  Status wait() override {
    // Not interrupted: after a failure the engine ends all requests, and then the spans are free.
    board.wait_while_equal(word_, 0, 0, /*interruptible=*/false);
    return status_;
  }
  void complete(const Status& status) {
    status_ = status;
    spans.clear();
    packed.clear();
    auto call = std::move(on_done);
    on_done = nullptr;
    if (call) call(status_);
    word_.store(1, std::memory_order_release);
    futex_wake_all(word_);
  }

  const FailureBoard& board;
  const Channel channel;
  const bool is_send;
  const int peer, tag;
  std::vector<Span> spans;
  std::function<void(const Status&)> on_done;
  std::string packed;
  int pieces_left = 0;
  Status first_error;

 private:
  std::atomic<uint32_t> word_{0};
  Status status_;
};

/// One MPI message under way; without an owner, a message that is thrown away.
struct Engine::Active {
  std::shared_ptr<Operation> owner;
  bool is_send = false;
  int64_t bytes = 0;
  std::vector<char> scratch;  // a moved vector keeps its place
};

Engine::Engine(FailureBoard& board, int rank, int size, ControlHandler on_control)
    : board_(board),
      rank_(rank),
      size_(size),
      on_control_(std::move(on_control)),
      heartbeat_pending_(size),
      control_buffer_(kControlBytes, '\0') {}

Result<std::unique_ptr<Engine>> Engine::make(FailureBoard& board, int rank, int size,
                                             ControlHandler on_control) {
  std::unique_ptr<Engine> engine(new Engine(board, rank, size, std::move(on_control)));
  for (MPI_Comm* comm : {&engine->comms_[0], &engine->comms_[1], &engine->control_}) {
    MILLSTREAM_MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    MILLSTREAM_MPI_TRY(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  return engine;
}

Engine::~Engine() {
  stop();
}

void Engine::start(bool listen) {
  std::lock_guard lock(mutex_);
  if (listen) listen_.store(true);
  if (running_.load()) return;
  running_.store(true, std::memory_order_release);
  thread_ = std::thread([this] { run(); });
}

void Engine::stop() {
  if (!running_.load()) return;
  stop_.store(true, std::memory_order_release);
  wake();
  thread_.join();
  running_.store(false);
}

void Engine::wake() {
  queue_word_.fetch_add(1, std::memory_order_release);
  futex_wake_all(queue_word_);
}

RequestPtr Engine::send(int to, int tag, std::vector<Span> spans,
                        std::function<void(const Status&)> on_done) {
  return post(Channel::kUser, true, to, tag, std::move(spans), std::move(on_done));
}

RequestPtr Engine::receive(int from, int tag, std::vector<Span> spans,
                           std::function<void(const Status&)> on_done) {
  return post(Channel::kUser, false, from, tag, std::move(spans), std::move(on_done));
}

RequestPtr Engine::post(Channel channel, bool is_send, int peer, int tag, std::vector<Span> spans,
                        std::function<void(const Status&)> on_done) {
  MILLSTREAM_CHECK(peer >= 0 && peer < size_, "a message to or from rank {} of {}", peer, size_);
  MILLSTREAM_CHECK(tag >= 0 && tag < (1 << 20), "message tag {}", tag);
  auto operation =
      std::make_shared<Operation>(board_, channel, is_send, peer, tag, std::move(spans), std::move(on_done));
  {
    std::lock_guard lock(mutex_);
    submitted_.push_back(operation);
  }
  wake();
  return operation;
}

void Engine::send_control(int to, ControlMessage message) {
  auto send = std::make_unique<ControlSend>();
  send->to = to;
  send->heartbeat = message.kind == ControlKind::kHeartbeat;
  const ControlHeader header{static_cast<uint32_t>(message.kind), message.generation, message.sequence,
                             rank_};
  send->bytes.assign(reinterpret_cast<const char*>(&header), sizeof header);
  send->bytes.append(message.bytes, 0, kControlBytes - sizeof header);
  {
    std::lock_guard lock(mutex_);
    if (send->heartbeat) {
      if (heartbeat_pending_[to] || draining_.load()) return;
      heartbeat_pending_[to] = 1;
    }
    submitted_control_.push_back(std::move(send));
  }
  wake();
}

void Engine::run() {
  pthread_setname_np(pthread_self(), "ms-messages");
  prctl(PR_SET_TIMERSLACK, 1000);  // naps of microseconds, not rounded up to fifty
  std::vector<std::shared_ptr<Operation>> operations;
  std::vector<std::unique_ptr<ControlSend>> controls;
  while (true) {
    const uint32_t seen = queue_word_.load(std::memory_order_acquire);
    const bool stopping = stop_.load(std::memory_order_acquire);
    {
      std::lock_guard lock(mutex_);
      operations.swap(submitted_);
      controls.swap(submitted_control_);
    }
    bool worked = !operations.empty() || !controls.empty();
    for (auto& operation : operations) start_operation(operation);
    operations.clear();
    for (auto& control : controls) {
      MPI_Isend(control->bytes.data(), static_cast<int>(control->bytes.size()), MPI_BYTE, control->to, 0,
                control_, &control->request);
      control_sends_.push_back(std::move(control));
    }
    controls.clear();
    if (refusing()) {
      cancel_receives();
      worked |= discard_incoming();
    }
    worked |= test_active();
    worked |= test_control();
    worked |= step_drain();
    if (stopping) break;
    nap(seen, worked);
  }
  // Of a message that has begun to come and that nobody is going to look at.
  if (control_receive_ != MPI_REQUEST_NULL) MPI_Request_free(&control_receive_);
}

void Engine::nap(uint32_t seen, bool worked) {
  if (worked) {
    idle_rounds_ = 0;
    return;
  }
  ++idle_rounds_;
  const bool under_way = !requests_.empty() || hurry.load(std::memory_order_relaxed) > 0 ||
                         draining_.load() || !control_sends_.empty();
  if (!under_way && idle_rounds_ > 300) {
    // Only listening, and what was sent and received long ago is settled: a failure elsewhere may wait this long.
    futex_wait(queue_word_, seen, std::chrono::milliseconds(20));
  } else if (idle_rounds_ > 16) {
    // Short sleeps, not sched_yield: beside busy threads a yield costs a whole time slice, a sleeper is let in at once.
    const int64_t nap_ns = std::min<int64_t>(1'000'000, 4'000ll << std::min((idle_rounds_ - 16) / 16, 8));
    futex_wait(queue_word_, seen, std::chrono::nanoseconds(nap_ns));
  }
}

void Engine::start_operation(const std::shared_ptr<Operation>& operation) {
  if (refusing()) {
    operation->complete(board_.failed() ? board_.failure() : bug_error("a message after the end of the job"));
    return;
  }
  const bool limited = !operation->is_send && operation->channel == Channel::kUser;
  if (limited && (user_receives_ >= kMaxPostedReceives || !queued_receives_.empty()) &&
      (queued_receives_.empty() || queued_receives_.front() != operation)) {
    queued_receives_.push_back(operation);
    return;
  }
  const MPI_Comm comm = comms_[static_cast<int>(operation->channel)];
  int64_t total = 0;
  for (const Span& span : operation->spans) total += span.bytes;
  if (operation->is_send && operation->spans.size() > 1 && total <= kPackBytes) {
    operation->packed.reserve(static_cast<size_t>(total));
    for (const Span& span : operation->spans)
      operation->packed.append(static_cast<const char*>(span.data), span.bytes);
    operation->spans = {{operation->packed.data(), total}};
  }
  // Pieces are cut at the same totals on both sides; messages of one tag between two ranks keep their order.
  size_t span = 0;
  int64_t offset = 0;
  int64_t left = total;
  do {
    const int64_t piece = std::min(left, kPieceBytes);
    std::vector<MPI_Aint> places;
    std::vector<int> lengths;
    for (int64_t need = piece; need > 0;) {
      const Span& current = operation->spans[span];
      const int64_t n = std::min(need, current.bytes - offset);
      if (n > 0) {
        MPI_Aint address;
        MPI_Get_address(static_cast<uint8_t*>(current.data) + offset, &address);
        places.push_back(address);
        lengths.push_back(static_cast<int>(n));
      }
      need -= n;
      offset += n;
      if (offset == current.bytes) {
        ++span;
        offset = 0;
      }
    }
    MPI_Datatype type = MPI_BYTE;
    void* base = nullptr;
    int count = 0;
    int code = MPI_SUCCESS;
    if (places.size() == 1) {
      base = reinterpret_cast<void*>(places[0]);
      count = lengths[0];
    } else if (places.size() > 1) {
      base = MPI_BOTTOM;
      count = 1;
      code = MPI_Type_create_hindexed(static_cast<int>(places.size()), lengths.data(), places.data(),
                                      MPI_BYTE, &type);
      if (code == MPI_SUCCESS) code = MPI_Type_commit(&type);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    if (code == MPI_SUCCESS) {
      if (!operation->is_send) {
        code = MPI_Irecv(base, count, type, operation->peer, operation->tag, comm, &request);
      } else if (operation->channel == Channel::kUser) {
        code = MPI_Issend(base, count, type, operation->peer, operation->tag, comm, &request);
      } else {
        code = MPI_Isend(base, count, type, operation->peer, operation->tag, comm, &request);
      }
    }
    if (type != MPI_BYTE) MPI_Type_free(&type);
    if (code != MPI_SUCCESS) {
      if (operation->first_error.ok())
        operation->first_error = mpi_status(code, operation->is_send ? "sending" : "receiving");
      break;
    }
    ++operation->pieces_left;
    if (limited) ++user_receives_;
    requests_.push_back(request);
    active_.push_back({operation, operation->is_send, piece, {}});
    left -= piece;
  } while (left > 0);
  if (operation->pieces_left == 0) {
    board_.fail(operation->first_error);
    operation->complete(operation->first_error);
  }
}

void Engine::start_queued_receives() {
  while (!queued_receives_.empty() && (user_receives_ < kMaxPostedReceives || refusing())) {
    start_operation(queued_receives_.front());
    queued_receives_.pop_front();
  }
}

void Engine::finish_piece(Active& active, int code, MPI_Status& status) {
  const auto& operation = active.owner;
  if (!operation) return;
  Status result;
  int cancelled = 0;
  if (!active.is_send) MPI_Test_cancelled(&status, &cancelled);
  if (cancelled) {
    result = board_.failed() ? board_.failure() : bug_error("a receive was still open at the end of the job");
  } else if (code != MPI_SUCCESS) {
    result = with_context(mpi_status(code, active.is_send ? "sending" : "receiving"),
                          fmt::format("rank {}, message {} rank {} with tag {}", rank_,
                                      active.is_send ? "to" : "from", operation->peer, operation->tag));
  } else if (!active.is_send) {
    int bytes = 0;
    MPI_Get_elements(&status, MPI_BYTE, &bytes);
    if (bytes != active.bytes) {
      result = bug_error("rank {} expected a message of {} bytes from rank {} (tag {}) and got {}", rank_,
                         active.bytes, operation->peer, operation->tag, bytes);
    }
  }
  if (!active.is_send && operation->channel == Channel::kUser) --user_receives_;
  if (!result.ok() && operation->first_error.ok()) operation->first_error = result;
  if (--operation->pieces_left == 0) {
    if (!operation->first_error.ok()) board_.fail(operation->first_error);
    operation->complete(operation->first_error);
  }
}

bool Engine::test_active() {
  if (requests_.empty()) {
    start_queued_receives();
    return false;
  }
  const int n = static_cast<int>(requests_.size());
  indices_.resize(n);
  statuses_.resize(n);
  int finished = 0;
  const int code = MPI_Testsome(n, requests_.data(), &finished, indices_.data(), statuses_.data());
  if (finished == MPI_UNDEFINED || finished == 0) return false;
  for (int i = 0; i < finished; ++i) {
    const int piece = code == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : code;
    // A callback may submit, never start: active_ stays as it is meanwhile.
    Active active = std::move(active_[indices_[i]]);
    finish_piece(active, piece, statuses_[i]);
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (kept != i) {
      requests_[kept] = requests_[i];
      active_[kept] = std::move(active_[i]);
    }
    ++kept;
  }
  requests_.resize(kept);
  active_.resize(kept);
  start_queued_receives();
  return true;
}

bool Engine::test_control() {
  bool worked = false;
  for (size_t i = 0; i < control_sends_.size();) {
    int done = 0;
    ControlSend& send = *control_sends_[i];
    if (send.request == MPI_REQUEST_NULL || MPI_Test(&send.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      done = 1;
    if (!done) {
      ++i;
      continue;
    }
    if (send.heartbeat) {
      std::lock_guard lock(mutex_);
      heartbeat_pending_[send.to] = 0;
    }
    control_sends_[i] = std::move(control_sends_.back());
    control_sends_.pop_back();
    worked = true;
  }
  if (!listen_.load(std::memory_order_relaxed)) {
    // MPI moves only when called, and owes other ranks answers (that a send was matched) when nothing is open here.
    int found = 0;
    if (requests_.empty()) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, control_, &found, MPI_STATUS_IGNORE);
    return worked;
  }
  while (true) {
    if (control_receive_ == MPI_REQUEST_NULL) {
      // Probed for, not waited for with a receive from any source: where some ranks are on this host and some are not,
      // such receives of MPICH 5 missed a message now and then (the job hung with it sent and not received). The likely
      // reason is that they are posted twice, once a network.
      int found = 0;
      MPI_Message message;
      int code = MPI_Improbe(MPI_ANY_SOURCE, 0, control_, &found, &message, MPI_STATUS_IGNORE);
      if (code == MPI_SUCCESS && !found) return worked;
      if (code == MPI_SUCCESS) {
        code = MPI_Imrecv(control_buffer_.data(), static_cast<int>(kControlBytes), MPI_BYTE, &message,
                          &control_receive_);
      }
      if (code != MPI_SUCCESS) {
        board_.fail(mpi_status(code, "receiving a control message"));
        listen_.store(false);
        return worked;
      }
    }
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&control_receive_, &done, &status);
    if (code != MPI_SUCCESS) {
      board_.fail(mpi_status(code, "receiving a control message"));
      listen_.store(false);
      return worked;
    }
    if (!done) return worked;
    worked = true;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    ControlHeader header{};
    if (bytes < static_cast<int>(sizeof header)) continue;
    std::memcpy(&header, control_buffer_.data(), sizeof header);
    on_control_({static_cast<ControlKind>(header.kind), header.generation, header.sequence, header.from,
                 control_buffer_.substr(sizeof header, bytes - sizeof header)});
  }
}

void Engine::cancel_receives() {
  if (cancelled_.exchange(true)) return;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (active_[i].owner && !active_[i].is_send) MPI_Cancel(&requests_[i]);
  }
  start_queued_receives();  // which ends them
}

bool Engine::discard_incoming() {
  bool worked = false;
  for (MPI_Comm comm : comms_) {
    while (true) {
      int found = 0, bytes = 0;
      MPI_Message message;
      MPI_Status status;
      if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &message, &status) != MPI_SUCCESS || !found)
        break;
      MPI_Get_elements(&status, MPI_BYTE, &bytes);
      Active active;
      active.bytes = bytes;
      active.scratch.resize(static_cast<size_t>(std::max(bytes, 1)));
      MPI_Request request;
      if (MPI_Imrecv(active.scratch.data(), bytes, MPI_BYTE, &message, &request) != MPI_SUCCESS) break;
      requests_.push_back(request);
      active_.push_back(std::move(active));
      worked = true;
    }
  }
  return worked;
}

bool Engine::step_drain() {
  if (!draining_.load(std::memory_order_acquire) || drained_.load() != 0) return false;
  if (!barrier_started_) {
    // Nonblocking consensus: a rank whose own messages have ended enters the barrier and goes on receiving.
    std::lock_guard lock(mutex_);
    if (!requests_.empty() || !control_sends_.empty() || !submitted_.empty() || !submitted_control_.empty())
      return false;
    barrier_started_ = true;
    if (MPI_Ibarrier(control_, &barrier_) != MPI_SUCCESS) barrier_ = MPI_REQUEST_NULL;
    return true;
  }
  int done = 0;
  if (barrier_ == MPI_REQUEST_NULL || MPI_Test(&barrier_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) done = 1;
  if (!done || !requests_.empty()) return false;
  drained_.store(1, std::memory_order_release);
  futex_wake_all(drained_);
  return true;
}

void Engine::drain() {
  start(false);
  draining_.store(true, std::memory_order_release);
  wake();
  board_.wait_while_equal(drained_, 0, 0, /*interruptible=*/false);
}

void Engine::resume() {
  // The thread touches none of these while drained_ is 1.
  cancelled_ = false;
  barrier_started_ = false;
  barrier_ = MPI_REQUEST_NULL;
  draining_.store(false, std::memory_order_release);
  drained_.store(0, std::memory_order_release);
}

}  // namespace millstream::comm
