#include "loader/feeding.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/kill_point.h"
#include "base/progress.h"
#include "base/trace.h"
#include "loader/full_order.h"

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
  while (!ring.has_room(batch, released) && !stopping()) {
    MILLSTREAM_ASSIGN(const bool worked, prepare_ahead());
    Timed timed(scratch_.times.for_room);
    if (!worked) MILLSTREAM_TRY(wait_on(*context_.job, context_.stopping, ring.released(), released));
    released = ring.released().load(std::memory_order_acquire);
  }
  return Status::OK();
}

Status FeedingStream::wait_for_message(Message& message) {
  while (message.done.load(std::memory_order_acquire) == 0 && !stopping()) {
    MILLSTREAM_ASSIGN(const bool worked, prepare_ahead());
    if (!worked) break;
  }
  Timed timed(scratch_.times.for_room);
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

FeedingStream::Lanes FeedingStream::open_lanes(int pass) {
  const FeedPlan& plan = *context_.plan;
  Lanes lanes{.pass = pass, .parts = plan.parts(pass), .readers = {}};
  const RowSource& source = plan.passes()[pass].kind == PassKind::kTrain ? *context_.train : *context_.valid;
  const int num_streams = static_cast<int>(context_.stream_ranks.size());
  for (int lane = stream_; lane < lanes.parts->num_sources(); lane += num_streams) {
    lanes.readers.push_back(
        std::make_unique<LaneReader>(source, *context_.packer, lanes.parts->schedule(), lane, &scratch_));
  }
  return lanes;
}

Result<bool> FeedingStream::prepare_ahead() {
  if (!context_.windows_ahead) return false;
  LaneReader* first = nullptr;
  for (const auto& lane : lanes_.readers) {
    if (lane->can_prepare() && (first == nullptr || lane->ready_rows() < first->ready_rows()))
      first = lane.get();
  }
  if (first == nullptr) {
    // A lane of the next pass has the second buffer of its like in this one.
    const FeedPlan& plan = *context_.plan;
    if (ahead_.pass < 0) {
      const int num_passes = static_cast<int>(plan.passes().size());
      int next = pass_ + 1;
      while (next < num_passes && plan.passes()[next].kind != PassKind::kTrain) ++next;
      if (next == num_passes || !plan.parts(next)->shuffled()) return false;
      ahead_ = open_lanes(next);
    }
    for (size_t i = 0; i < ahead_.readers.size() && first == nullptr; ++i) {
      const bool free = i >= lanes_.readers.size() || lanes_.readers[i]->is_read();
      if (free && ahead_.readers[i]->can_prepare()) first = ahead_.readers[i].get();
    }
  }
  if (first == nullptr) return false;
  kill_point("window");
  TraceSpan span("fill window");
  MILLSTREAM_TRY(first->prepare(split_, shape_));
  return true;
}

void FeedingStream::take_places(const FullOrder& order, int64_t first, int64_t count,
                                const RowPlaces& to) const {
  constexpr int64_t kTogether = 1024;
  int64_t rows[kTogether];
  for (int64_t begin = 0; begin < count; begin += kTogether) {
    const int64_t n = std::min(kTogether, count - begin);
    order.rows_at(first + begin, n, rows);
    gather_(context_.store->data(), rows, n, shape_, to.after(begin, shape_));
  }
}

Status FeedingStream::feed_pass(int pass, int64_t first_step) {
  const FeedPlan& plan = *context_.plan;
  const auto parts_of_pass = plan.parts(pass);
  const PassSchedule& schedule = parts_of_pass->schedule();
  const PassKind kind = plan.passes()[pass].kind;
  const features::RowPacker& packer = kind == PassKind::kTrain ? *context_.packer : *context_.valid_packer;
  const int num_streams = static_cast<int>(context_.stream_ranks.size());
  const int num_trainers = static_cast<int>(context_.trainers.size());
  const RowShape& shape = shape_;
  const int slow_ms = slow_feeder_ms(context_.job->rank());

  pass_ = pass;
  std::unique_ptr<SequentialReader> sequential;
  if (parts_of_pass->shuffled()) {
    lanes_ = ahead_.pass == pass ? std::exchange(ahead_, {}) : open_lanes(pass);
  } else if (!parts_of_pass->full()) {
    std::vector<int> mine;
    const auto& all = schedule.lanes()[0].entry_points;
    for (size_t i = stream_; i < all.size(); i += num_streams) mine.push_back(all[i]);
    const RowSource& source = kind == PassKind::kTrain ? *context_.train : *context_.valid;
    sequential = std::make_unique<SequentialReader>(source, packer, std::move(mine), &scratch_);
  }

  const FullOrder order(schedule.config().seed, schedule.config().epoch,
                        parts_of_pass->full() ? schedule.rows() : 0);

  if (first_step > 0 && !parts_of_pass->full()) {
    const std::vector<int64_t> before = parts_of_pass->rows_before(first_step);
    int64_t in_order = 0;
    for (int source = stream_; source < parts_of_pass->num_sources(); source += num_streams) {
      if (parts_of_pass->shuffled()) {
        MILLSTREAM_TRY(lanes_.readers[source / num_streams]->seek(before[source]));
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
        kill_point("room");
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
    const auto prepared = [&] { return scratch_.times.reading.load() + scratch_.times.computing.load(); };
    const int64_t began = monotonic_ns(), prepared_before = prepared();
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
      if (parts_of_pass->full()) {
        const int64_t place = step * schedule.config().batch_size +
                              trainer_share(batch_rows, piece.trainer, num_trainers).begin + piece.offset;
        take_places(order, place, piece.rows, to);
      } else if (sequential != nullptr) {
        MILLSTREAM_TRY(sequential->take(piece.rows, split_, shape, to));
      } else {
        LaneReader& lane = *lanes_.readers[piece.source / num_streams];
        MILLSTREAM_TRY(lane.take(piece.rows, split_, shape, to));
      }
    }
    scratch_.times.sending.fetch_add(monotonic_ns() - began - (prepared() - prepared_before),
                                     std::memory_order_relaxed);
    for (int t = 0; t < num_trainers; ++t) {
      Destination& destination = destinations[t];
      const TrainerLink& link = context_.trainers[t];
      if (destination.rows == 0) continue;
      if (link.direct) {
        kill_point("filled");
        link.ring.add(batch, destination.rows, trainer_share(batch_rows, t, num_trainers).rows());
        kill_point("added");
        continue;
      }
      kill_point("send");
      Timed timed(scratch_.times.sending);
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
      kill_point("sent");
    }
    beat();
  }

  lanes_ = {};
  kill_point("pass.end");
  return Status::OK();
}

std::vector<std::array<int64_t, 4>> FeedingStream::times_by_epoch() const {
  std::lock_guard lock(mutex_);
  return by_epoch_;
}

Status FeedingStream::run() {
  kill_point("stream");
  std::array<int64_t, 4> before{};
  const FeedPlan& plan = *context_.plan;
  const int first_pass = plan.pass_of(context_.start_batch);
  for (int pass = first_pass; pass < static_cast<int>(plan.passes().size()); ++pass) {
    MILLSTREAM_TRY(feed_pass(pass, pass == first_pass ? context_.start_batch - plan.first_batch(pass) : 0));
    if (stopping()) return Status::OK();
    const FeedingTimes& t = scratch_.times;
    const std::array<int64_t, 4> now = {t.reading, t.computing, t.sending, t.for_room};
    const auto epoch = static_cast<size_t>(plan.passes()[pass].epoch);
    std::lock_guard lock(mutex_);
    if (by_epoch_.size() <= epoch) by_epoch_.resize(epoch + 1);
    for (size_t i = 0; i < now.size(); ++i) by_epoch_[epoch][i] += now[i] - before[i];
    before = now;
  }
  while (!in_flight_.empty() && !stopping()) {
    MILLSTREAM_TRY(wait_for_message(*in_flight_.front()));
    std::lock_guard lock(mutex_);
    in_flight_.pop_front();
  }
  return Status::OK();
}

void MessageReceiver::post(int64_t batch) {
  kill_point("post");
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
