#include "loader/feed_plan.h"

#include <algorithm>
#include <numeric>

namespace millstream::loader {
namespace {

// Schedules kept: the feeding threads of a rank are a ring's depth apart at most, mostly in the same pass.
constexpr size_t kRecentPasses = 3;
// A batch of a fully shuffled pass is filled by at most so many streams, each so many rows at least.
constexpr int64_t kMostStretches = 64;
constexpr int64_t kStretchRows = 128;

}  // namespace

PassParts::PassParts(const std::vector<int64_t>& counts, const ScheduleConfig& config)
    : schedule_(counts, config) {
  if (shuffled() || full()) return;
  starts_.push_back(0);
  for (const int entry_point : schedule_.lanes()[0].entry_points) {
    starts_.push_back(starts_.back() + counts[entry_point]);
  }
}

int PassParts::num_sources() const {
  if (full()) return kMostStretches;
  return static_cast<int>(shuffled() ? schedule_.lanes().size() : schedule_.lanes()[0].entry_points.size());
}

void PassParts::parts(int64_t batch, std::vector<BatchPart>* parts) const {
  parts->clear();
  if (shuffled()) {
    for (const LaneSegment& segment : schedule_.segments(batch)) {
      parts->push_back({segment.lane, segment.offset, segment.rows});
    }
    return;
  }
  if (full()) {
    const int64_t rows = schedule_.batch_rows(batch);
    const int64_t stretches = std::clamp<int64_t>(rows / kStretchRows, 1, kMostStretches);
    for (int64_t i = 0; i < stretches; ++i) {
      const RowRange range = trainer_share(rows, static_cast<int>(i), static_cast<int>(stretches));
      parts->push_back({static_cast<int>(i), range.begin, range.rows()});
    }
    return;
  }
  const int64_t begin = batch * schedule_.config().batch_size;
  const int64_t end = begin + schedule_.batch_rows(batch);
  auto source = std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1;
  for (int64_t row = begin; row < end; ++source) {
    const int64_t next = std::min(end, starts_[source + 1]);
    parts->push_back({static_cast<int>(source), row - begin, next - row});
    row = next;
  }
}

std::vector<int64_t> PassParts::rows_before(int64_t batch) const {
  const int64_t row = std::min(batch * schedule_.config().batch_size, schedule_.rows());
  if (shuffled()) return schedule_.bounds(row);
  std::vector<int64_t> rows;
  for (size_t i = 0; i + 1 < starts_.size(); ++i) {
    rows.push_back(std::clamp<int64_t>(row - starts_[i], 0, starts_[i + 1] - starts_[i]));
  }
  return rows;
}

FeedPlan::FeedPlan(const LoaderConfig& config, int64_t epochs, std::vector<int64_t> train_counts,
                   std::vector<int64_t> valid_counts)
    : config_(config),
      epochs_(epochs),
      train_counts_(std::move(train_counts)),
      valid_counts_(std::move(valid_counts)) {
  train_rows_ = std::accumulate(train_counts_.begin(), train_counts_.end(), int64_t{0});
  valid_rows_ = std::accumulate(valid_counts_.begin(), valid_counts_.end(), int64_t{0});
  const int64_t batch = config_.batch_size;
  train_batches_ = (train_rows_ + batch - 1) / batch;
  valid_batches_ = (valid_rows_ + batch - 1) / batch;
  first_batch_.push_back(0);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    passes_.push_back({PassKind::kTrain, epoch});
    first_batch_.push_back(first_batch_.back() + train_batches_);
    if (valid_batches_ == 0 || !config_.validation_passes) continue;
    passes_.push_back({PassKind::kValid, epoch});
    first_batch_.push_back(first_batch_.back() + valid_batches_);
  }
  ScheduleConfig in_file_order;
  in_file_order.shuffle = Shuffle::kNone;
  in_file_order.batch_size = batch;
  valid_parts_ = std::make_shared<PassParts>(valid_counts_, in_file_order);
}

int64_t FeedPlan::batch_rows(PassKind kind, int64_t step) const {
  return std::min(config_.batch_size, rows_of(kind) - step * config_.batch_size);
}

Result<int64_t> FeedPlan::batch_at(const StreamPosition& position) const {
  if (position.epoch < 0 || position.epoch > epochs_) {
    return usage_error("the start is in epoch {}, the loader has epochs 0 to {}", position.epoch,
                       epochs_ - 1);
  }
  const int64_t steps = position.epoch == epochs_ ? 0 : train_batches_;
  if (position.step < 0 || position.step > steps) {
    return usage_error("the start is after step {} of epoch {}, which has {} steps", position.step,
                       position.epoch, steps);
  }
  if (position.epoch == epochs_) return num_batches();
  for (size_t pass = 0;; ++pass) {
    if (passes_[pass].kind == PassKind::kTrain && passes_[pass].epoch == position.epoch) {
      return first_batch_[pass] + position.step;
    }
  }
}

StreamPosition FeedPlan::position_of(int64_t batch) const {
  if (batch == num_batches()) return {epochs_, 0};
  const int pass = pass_of(batch);
  const int64_t epoch = passes_[pass].epoch;
  if (passes_[pass].kind == PassKind::kValid) return {epoch, train_batches_};
  return {epoch, batch - first_batch_[pass]};
}

int FeedPlan::pass_of(int64_t batch) const {
  return static_cast<int>(std::upper_bound(first_batch_.begin(), first_batch_.end(), batch) -
                          first_batch_.begin()) -
         1;
}

std::shared_ptr<const PassParts> FeedPlan::parts(int pass) const {
  if (passes_[pass].kind == PassKind::kValid) return valid_parts_;
  std::lock_guard lock(mutex_);
  for (const auto& [known, parts] : recent_) {
    if (known == pass) return parts;
  }
  const ScheduleConfig schedule{.seed = config_.seed,
                                .epoch = passes_[pass].epoch,
                                .shuffle = config_.shuffle,
                                .lanes = config_.lanes,
                                .window = config_.window,
                                .batch_size = config_.batch_size};
  recent_.emplace_back(pass, std::make_shared<PassParts>(train_counts_, schedule));
  if (recent_.size() > kRecentPasses) recent_.pop_front();
  return recent_.back().second;
}

}  // namespace millstream::loader
