#pragma once
// The feeding threads of a rank, and the transport of rows to the trainers.
//
// 1. A stream works through all passes batch by batch. What it has of a batch it writes into the trainers' slots:
//    in place where it shares memory with the trainer (or is in its process), else as one message a trainer and
//    batch, received straight into place.
// 2. Flow control is by slot: in place by the ring's `released` word; messages are sent synchronously and a trainer
//    posts receives only for free slots, so a stream has at most a ring's depth of them under way.
// 3. While it waits for room a stream fills the next windows of its lanes, and at the end of a pass those that the next
//    shuffled pass begins with (FeedContext::windows_ahead): a window that has to be read when it is needed would keep
//    the trainers waiting.
// 4. An error of a stream fails the job. stop() ends the streams early, where a loader is given up.
//
// For tests: MILLSTREAM_TEST_SLOW_FEEDER="rank:ms" makes the feeding threads of that rank sleep so long before each
// batch.

#include <array>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/job.h"
#include "comm/message_engine.h"
#include "features/row_packer.h"
#include "loader/feed_plan.h"
#include "loader/lane_reader.h"
#include "loader/ring.h"
#include "loader/row_source.h"
#include "loader/row_store.h"

namespace millstream::loader {

class FullOrder;

/// Tags of the loader's messages: kLoaderTagSets sets of kMaxStreams, a stream's number within the set.
inline constexpr int kLoaderTag = 1 << 18;
inline constexpr int kLoaderTagSets = 32;
inline constexpr int kMaxStreams = 1 << 14;

/// How this rank reaches one trainer.
struct TrainerLink {
  int rank = 0;
  bool direct = false;  ///< `ring` is memory of this process or of the node
  Ring ring;
};

/// What all streams of a rank share. Everything outlives them.
struct FeedContext {
  comm::Job* job = nullptr;
  const FeedPlan* plan = nullptr;
  const RowSource* train = nullptr;
  const RowSource* valid = nullptr;
  const features::RowPacker* packer = nullptr;        ///< of rows that train
  const features::RowPacker* valid_packer = nullptr;  ///< of others
  const RowStore* store = nullptr;                    ///< of the training rows, with shuffle = full
  SlotLayout layout;
  std::vector<TrainerLink> trainers;
  std::vector<int> stream_ranks;  ///< by stream
  int slots = 0;
  int64_t start_batch = 0;     ///< of the stream
  int first_tag = kLoaderTag;  ///< of this loader's set
  bool windows_ahead = true;   ///< there is memory for a second window of each lane
  std::atomic<uint32_t> stopping{0};
};

/// One feeding thread.
class FeedingStream {
 public:
  FeedingStream(FeedContext& context, int stream)
      : context_(context),
        stream_(stream),
        shape_{context.packer->num_features(), context.packer->num_ids(), context.packer->has_weight()},
        split_(split_rows_for(shape_)),
        gather_(gather_rows_for(shape_)) {}
  /// Feeds everything; returns when all of it has arrived, or the job failed, or is stopping.
  Status run();
  const FeedingTimes& times() const { return scratch_.times; }
  /// Nanoseconds of reading, computing, sending and waiting for room, by epoch; the one being fed is not in it.
  std::vector<std::array<int64_t, 4>> times_by_epoch() const;
  /// Wakes its private waits after `stopping` was set.
  void wake();

 private:
  struct Message;
  // The lanes of a shuffled pass that are this stream's: lane stream_ + i * (number of streams).
  struct Lanes {
    int pass = -1;
    std::shared_ptr<const PassParts> parts;  // outlives the readers
    std::vector<std::unique_ptr<LaneReader>> readers;
  };
  Lanes open_lanes(int pass);
  // Fills the window that is going to be needed next, or a chunk of it. False where nothing is left to do.
  Result<bool> prepare_ahead();
  // The rows at places first … first + count - 1 of a fully shuffled pass.
  void take_places(const FullOrder& order, int64_t first, int64_t count, const RowPlaces& to) const;
  Status feed_pass(int pass, int64_t first_step);
  Status wait_for_room(const Ring& ring, int64_t batch);
  Status wait_for_message(Message& message);
  Result<std::shared_ptr<Message>> new_message(int64_t floats);
  bool stopping() const { return context_.stopping.load(std::memory_order_acquire) != 0; }

  FeedContext& context_;
  int stream_;
  const RowShape shape_;
  const SplitRows split_;
  const GatherRows gather_;
  ReaderScratch scratch_;
  int pass_ = 0;              // that is being fed
  Lanes lanes_;               // of it, where it is shuffled
  Lanes ahead_;               // of the next pass that is
  mutable std::mutex mutex_;  // of in_flight_, for wake(), and of by_epoch_
  std::vector<std::array<int64_t, 4>> by_epoch_;
  std::deque<std::shared_ptr<Message>> in_flight_;
  std::vector<std::shared_ptr<Message>> spare_;
};

/// A trainer's receiving end for rows from ranks that it shares no memory with. One thread, the trainer's.
class MessageReceiver {
 public:
  /// `keep` keeps the ring's memory for as long as receives may write to it.
  MessageReceiver(FeedContext& context, int trainer, std::vector<int> remote_streams,
                  std::shared_ptr<void> keep)
      : context_(context), trainer_(trainer), remote_(std::move(remote_streams)), keep_(std::move(keep)) {}
  /// Posts the receives of batch `batch` of the stream; its slot is free.
  void post(int64_t batch);

 private:
  FeedContext& context_;
  int trainer_;
  std::vector<int> remote_;
  std::shared_ptr<void> keep_;
  std::vector<BatchPart> parts_;
  std::vector<SharePart> pieces_;
};

/// Sleeps on `word` while it holds `expected`; returns early when the job failed (its failure()) or `stopping` is set.
Status wait_on(comm::Job& job, const std::atomic<uint32_t>& stopping, const std::atomic<uint32_t>& word,
               uint32_t expected);

}  // namespace millstream::loader
