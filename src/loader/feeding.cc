#include "loader/feeding.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/progress.h"
#include "base/trace.h"

namespace millstream::loader {
namespace {

// A wait looks this often whether the job failed or is given up meanwhile.
constexpr std::chrono::milliseconds kWaitSlice(100);

int slow_feeder_ms(int rank) {
  const char* text = std::getenv("MILLSTREAM_TEST_SLOW_FEEDER");
  int slow_rank = -1;
  int milliseconds = 0;
  if (text == nullptr || std::sscanf(text, "%d:%d", &slow_rank, &milliseconds) != 2) return 0;
  return slow_rank == rank ? milliseconds : 0;
}

// Adds the time of a scope.
class Timed {
 public:
  explicit Timed(std::atomic<int64_t>& into) : into_(into), began_(monotonic_ns()) {}
  ~Timed() { into_.fetch_add(monotonic_ns() - began_, std::memory_order_relaxed); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  std::atomic<int64_t>& into_;
  int64_t began_;
};

}  // namespace

Status wait_on(comm::Job& job, const std::atomic<uint32_t>& stopping, const std::atomic<uint32_t>& word,
               uint32_t expected) {
  if (word.load(std::memory_order_acquire) != expected) return Status::OK();
  WaitingForPeers waiting;
  while (word.load(std::memory_order_acquire) == expected) {
    if (job.failed()) return job.failure();
    if (stopping.load(std::memory_order_acquire)) return Status::OK();
    futex_wait(word, expected, kWaitSlice);
  }
  return Status::OK();
}

// Rows on their way to a trainer. The engine's callback shares it: a message that is never taken keeps its rows.
struct FeedingStream::Message {
  RowBuffer rows;
  std::atomic<uint32_t> done{1};
};

Status FeedingStream::wait_for_room(const Ring& ring, int64_t batch) {
  uint32_t released = ring.released().load(std::memory_order_acquire);
  if (ring.has_room(batch, released)) return Status::OK();
  Timed timed(times_.for_room);
  while (!ring.has_room(batch, released) && !stopping()) {
    MILLSTREAM_TRY(wait_on(*context_.job, context_.stopping, ring.released(), released));
    released = ring.released().load(std::memory_order_acquire);
  }
  return Status::OK();
}

Status FeedingStream::wait_for_message(Message& message) {
  Timed timed(times_.for_room);
  return wait_on(*context_.job, context_.stopping, message.done, 0);
}

Result<std::shared_ptr<FeedingStream::Message>> FeedingStream::new_message(int64_t floats) {
  size_t limit = 0;
  for (const TrainerLink& link : context_.trainers) limit += link.direct ? 0 : context_.slots;
  while (in_flight_.size() >= limit && !stopping()) {
    MILLSTREAM_TRY(wait_for_message(*in_flight_.front()));
    if (stopping()) break;
    std::lock_guard lock(mutex_);
    spare_.push_back(in_flight_.front());
    in_flight_.pop_front();
  }
  std::shared_ptr<Message> message;
  if (spare_.empty()) {
    message = std::make_shared<Message>();
  } else {
    message = std::move(spare_.back());
    spare_.pop_back();
  }
  message->rows.reserve(floats);
  return message;
}

void FeedingStream::wake() {
  std::lock_guard lock(mutex_);
  for (const auto& message : in_flight_) futex_wake_all(message->done);
}

Status FeedingStream::feed_pass(int pass, int64_t first_step) {
  const FeedPlan& plan = *context_.plan;
  const auto parts_of_pass = plan.parts(pass);
  const PassSchedule& schedule = parts_of_pass->schedule();
  const PassKind kind = plan.passes()[pass].kind;
  const RowSource& source = kind == PassKind::kTrain ? *context_.train : *context_.valid;
  const features::RowPacker& packer = *context_.packer;
  const int num_streams = static_cast<int>(context_.stream_ranks.size());
  const int num_trainers = static_cast<int>(context_.trainers.size());
  const RowShape shape{packer.num_features(), packer.num_ids(), packer.has_weight()};
  const SplitRows split = split_rows_for(shape);
  const int slow_ms = slow_feeder_ms(context_.job->rank());

  std::vector<std::unique_ptr<LaneReader>> lanes;  // source `stream_ + i * num_streams`
  std::unique_ptr<SequentialReader> sequential;
  if (parts_of_pass->shuffled()) {
    for (int lane = stream_; lane < parts_of_pass->num_sources(); lane += num_streams) {
      lanes.push_back(std::make_unique<LaneReader>(source, packer, schedule, lane, &scratch_, &times_));
      if (lanes.size() <= lane_buffers_.size())
        lanes.back()->set_buffers(std::move(lane_buffers_[lanes.size() - 1]));
    }
  } else {
    std::vector<int> mine;
    const auto& all = schedule.lanes()[0].entry_points;
    for (size_t i = stream_; i < all.size(); i += num_streams) mine.push_back(all[i]);
    sequential = std::make_unique<SequentialReader>(source, packer, std::move(mine), &scratch_, &times_);
    sequential->set_pending(std::move(pending_));
  }

  if (first_step > 0) {
    const std::vector<int64_t> before = parts_of_pass->rows_before(first_step);
    int64_t in_order = 0;
    for (int source = stream_; source < parts_of_pass->num_sources(); source += num_streams) {
      if (sequential == nullptr) {
        MILLSTREAM_TRY(lanes[source / num_streams]->seek(before[source]));
      }
      in_order += before[source];
    }
    if (sequential != nullptr) MILLSTREAM_TRY(sequential->skip(in_order));
  }

  struct Destination {
    int64_t rows = 0;                  // of this stream in this batch
    RowPlaces places;                  // in place
    std::shared_ptr<Message> message;  // else the rows so far
    float* cursor = nullptr;
  };
  std::vector<Destination> destinations(num_trainers);
  std::vector<BatchPart> parts;
  std::vector<SharePart> pieces;
  for (int64_t step = first_step; step < schedule.num_batches(); ++step) {
    if (stopping()) return Status::OK();
    if (context_.job->failed()) return context_.job->failure();
    const int64_t batch = plan.first_batch(pass) + step;
    const int64_t batch_rows = schedule.batch_rows(step);
    parts_of_pass->parts(step, &parts);
    cut_shares(
        parts, batch_rows, num_trainers, [&](int s) { return s % num_streams == stream_; }, &pieces);
    if (pieces.empty()) continue;
    if (slow_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(slow_ms));

    for (Destination& destination : destinations) destination = {};
    for (const SharePart& piece : pieces) destinations[piece.trainer].rows += piece.rows;
    for (int t = 0; t < num_trainers; ++t) {
      Destination& destination = destinations[t];
      const TrainerLink& link = context_.trainers[t];
      if (destination.rows == 0) continue;
      if (link.direct) {
        MILLSTREAM_TRY(wait_for_room(link.ring, batch));
        uint8_t* const slot = link.ring.slot(batch);
        const SlotLayout& layout = context_.layout;
        const auto at = [&](int segment) {
          return reinterpret_cast<float*>(slot + layout.segments[segment].offset);
        };
        destination.places.features = at(0);
        destination.places.targets = at(1);
        if (layout.ids >= 0) destination.places.ids = reinterpret_cast<int32_t*>(at(layout.ids));
        if (layout.weight >= 0) destination.places.weights = at(layout.weight);
      } else {
        MILLSTREAM_ASSIGN(destination.message, new_message(destination.rows * packer.row_floats()));
        destination.cursor = destination.message->rows.data();
      }
    }
    if (stopping()) return Status::OK();

    TraceSpan span("fill batch", batch);
    for (const SharePart& piece : pieces) {
      Destination& destination = destinations[piece.trainer];
      RowPlaces to;
      if (destination.message == nullptr) {
        to = destination.places.after(piece.offset, shape);
      } else {  // the segments of the piece, one after the other
        to.features = destination.cursor;
        to.targets = to.features + piece.rows * shape.features;
        to.ids = reinterpret_cast<int32_t*>(to.targets + piece.rows);
        to.weights = to.targets + piece.rows * (1 + shape.ids);
        destination.cursor += piece.rows * shape.words();
      }
      if (sequential != nullptr) {
        MILLSTREAM_TRY(sequential->split(piece.rows, split, shape, to));
      } else {
        MILLSTREAM_TRY(lanes[piece.source / num_streams]->take(piece.rows, split, shape, to));
      }
    }
    for (int t = 0; t < num_trainers; ++t) {
      Destination& destination = destinations[t];
      const TrainerLink& link = context_.trainers[t];
      if (destination.rows == 0) continue;
      if (link.direct) {
        link.ring.add(batch, destination.rows, trainer_share(batch_rows, t, num_trainers).rows());
        continue;
      }
      Timed timed(times_.sending);
      const auto message = destination.message;
      message->done.store(0, std::memory_order_relaxed);
      {
        std::lock_guard lock(mutex_);
        in_flight_.push_back(message);
      }
      comm::Job* const job = context_.job;
      context_.job->messages().send(
          link.rank, context_.first_tag + stream_,
          {{message->rows.data(), destination.rows * packer.row_bytes()}},
          [message, job](const Status& status) {
            if (!status.ok() && error_category(status) != ErrorCategory::kPeerFailed) job->fail(status);
            message->done.store(1, std::memory_order_release);
            futex_wake_all(message->done);
          });
    }
    beat();
  }

  for (size_t i = 0; i < lanes.size(); ++i) {
    if (i == lane_buffers_.size()) lane_buffers_.emplace_back();
    lane_buffers_[i] = lanes[i]->take_buffers();
  }
  if (sequential != nullptr) pending_ = std::move(sequential->pending());
  return Status::OK();
}

Status FeedingStream::run() {
  const FeedPlan& plan = *context_.plan;
  const int first_pass = plan.pass_of(context_.start_batch);
  for (int pass = first_pass; pass < static_cast<int>(plan.passes().size()); ++pass) {
    MILLSTREAM_TRY(feed_pass(pass, pass == first_pass ? context_.start_batch - plan.first_batch(pass) : 0));
    if (stopping()) return Status::OK();
  }
  while (!in_flight_.empty() && !stopping()) {
    MILLSTREAM_TRY(wait_for_message(*in_flight_.front()));
    std::lock_guard lock(mutex_);
    in_flight_.pop_front();
  }
  return Status::OK();
}

void MessageReceiver::post(int64_t batch) {
  const FeedPlan& plan = *context_.plan;
  if (batch >= plan.num_batches()) return;
  const int pass = plan.pass_of(batch);
  const int64_t step = batch - plan.first_batch(pass);
  const auto parts_of_pass = plan.parts(pass);
  const int64_t batch_rows = parts_of_pass->schedule().batch_rows(step);
  const int num_streams = static_cast<int>(context_.stream_ranks.size());
  const int num_trainers = static_cast<int>(context_.trainers.size());
  const int64_t share = trainer_share(batch_rows, trainer_, num_trainers).rows();
  parts_of_pass->parts(step, &parts_);
  cut_shares(
      parts_, batch_rows, num_trainers, [](int) { return true; }, &pieces_);

  struct Incoming {
    std::vector<comm::Span> spans;
    int64_t rows = 0;
  };
  std::vector<Incoming> incoming(num_streams);
  const Ring& ring = context_.trainers[trainer_].ring;
  uint8_t* const slot = ring.slot(batch);
  for (const SharePart& piece : pieces_) {
    if (piece.trainer != trainer_) continue;
    Incoming& from = incoming[piece.source % num_streams];
    from.rows += piece.rows;
    for (const Segment& segment : context_.layout.segments)
      from.spans.push_back(
          {slot + segment.offset + piece.offset * segment.row_bytes, piece.rows * segment.row_bytes});
  }
  for (const int stream : remote_) {
    Incoming& from = incoming[stream];
    if (from.rows == 0) continue;
    comm::Job* const job = context_.job;
    context_.job->messages().receive(
        context_.stream_ranks[stream], context_.first_tag + stream, std::move(from.spans),
        [job, ring, batch, rows = from.rows, share, keep = keep_](const Status& status) {
          if (status.ok()) {
            ring.add(batch, rows, share);
          } else if (error_category(status) != ErrorCategory::kPeerFailed) {
            job->fail(status);
          }
        });
  }
}

}  // namespace millstream::loader
