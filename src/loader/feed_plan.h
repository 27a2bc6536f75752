#pragma once
// The whole stream of a job: its passes, their schedules, and which stream of rows writes which part of a batch.
//
// The feeding threads of the job are streams 0 … S − 1, in rank order. A part of a batch comes from one source: a
// lane of a pass with windows, an entry point of a pass in file order, or a stretch of the batch of a fully shuffled
// one. Source i belongs to stream i mod S. Feeders
// and trainers compute the same parts, so nothing about them is ever sent.

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "loader/data_loader.h"
#include "loader/schedule.h"

namespace millstream::loader {

struct BatchPart {
  int source = 0;  ///< a lane, the position among entry points with rows (in file order), or a stretch (full)
  int64_t offset = 0;  ///< of its first row in the batch
  int64_t rows = 0;
};

/// The schedule of one pass by sources.
class PassParts {
 public:
  PassParts(const std::vector<int64_t>& counts, const ScheduleConfig& config);
  const PassSchedule& schedule() const { return schedule_; }
  /// By lanes and windows.
  bool shuffled() const { return schedule_.config().shuffle == Shuffle::kWindow; }
  bool full() const { return schedule_.config().shuffle == Shuffle::kFull; }
  int num_sources() const;
  /// In the order they stand in the batch.
  void parts(int64_t batch, std::vector<BatchPart>* parts) const;
  /// By source, its rows that stand in batches before `batch`. Not of a fully shuffled pass.
  std::vector<int64_t> rows_before(int64_t batch) const;

 private:
  PassSchedule schedule_;
  std::vector<int64_t> starts_;  // in file order: the first row of each source, and the end
};

/// Thread-safe.
class FeedPlan {
 public:
  FeedPlan(const LoaderConfig& config, int64_t epochs, std::vector<int64_t> train_counts,
           std::vector<int64_t> valid_counts);

  const std::vector<Pass>& passes() const { return passes_; }
  int64_t num_batches() const { return first_batch_.back(); }
  int64_t first_batch(int pass) const { return first_batch_[pass]; }
  /// The batch of the stream that stands at a position; an error where the stream has no such place.
  Result<int64_t> batch_at(const StreamPosition& position) const;
  /// The position before a batch of the stream.
  StreamPosition position_of(int64_t batch) const;
  int64_t batches_of(PassKind kind) const {
    return kind == PassKind::kTrain ? train_batches_ : valid_batches_;
  }
  int64_t rows_of(PassKind kind) const { return kind == PassKind::kTrain ? train_rows_ : valid_rows_; }
  int64_t batch_rows(PassKind kind, int64_t step) const;
  /// The pass that batch `batch` of the stream belongs to.
  int pass_of(int64_t batch) const;
  std::shared_ptr<const PassParts> parts(int pass) const;

 private:
  LoaderConfig config_;
  int64_t epochs_ = 0;
  std::vector<int64_t> train_counts_, valid_counts_;
  int64_t train_rows_ = 0, valid_rows_ = 0, train_batches_ = 0, valid_batches_ = 0;
  std::vector<Pass> passes_;
  std::vector<int64_t> first_batch_;  // by pass, and the end
  std::shared_ptr<const PassParts> valid_parts_;
  mutable std::mutex mutex_;
  mutable std::deque<std::pair<int, std::shared_ptr<const PassParts>>> recent_;
};

/// The parts of one stream that fall into one trainer's share, row by row of its slot.
struct SharePart {
  int source = 0;
  int trainer = 0;
  int64_t offset = 0;  ///< of its first row in the trainer's share
  int64_t rows = 0;
};
/// Cuts the parts of streams for which `wanted(source)` holds at the trainers' shares.
template <class Wanted>
void cut_shares(const std::vector<BatchPart>& parts, int64_t batch_rows, int trainers, Wanted wanted,
                std::vector<SharePart>* out) {
  out->clear();
  int trainer = 0;
  RowRange share = trainer_share(batch_rows, 0, trainers);
  for (const BatchPart& part : parts) {
    if (!wanted(part.source)) continue;
    int64_t offset = part.offset;
    const int64_t end = part.offset + part.rows;
    while (offset < end) {
      while (share.end <= offset) share = trainer_share(batch_rows, ++trainer, trainers);
      const int64_t rows = std::min(end, share.end) - offset;
      out->push_back({part.source, trainer, offset - share.begin, rows});
      offset += rows;
    }
  }
}

}  // namespace millstream::loader
