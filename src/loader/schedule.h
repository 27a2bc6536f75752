#pragma once
// Which rows make up which batch: arithmetic on the counts of entry points, the seed and the epoch alone.
// Every rank computes it by itself.
//
// 1. Entry points with rows are permuted (Fisher–Yates on Philox) and dealt to lanes, each to the lane with
// the
//    fewest rows so far. `none` is one lane in file order, and so is `full`, whose order loader/full_order.h gives.
// 2. A lane is a sequence of rows, cut into windows; within a window the rows are permuted.
// 3. Row j of a lane of n rows stands at (j + 1/2) / n of the epoch, ties by lane number, compared exactly.
// Batch b
//    is rows b·B … (b+1)·B − 1 of that order: one range of each lane.
// 4. Inside batch b the lanes' ranges stand one after the other, beginning with lane b mod L. Trainer t of T
// has
//    rows floor(t·n/T) … floor((t+1)·n/T) − 1 of the n rows.

#include <cstdint>
#include <vector>

#include "loader/loader_config.h"

namespace millstream::loader {

struct ScheduleConfig {
  uint64_t seed = 0;
  int64_t epoch = 0;
  Shuffle shuffle = Shuffle::kWindow;
  int lanes = 64;
  int64_t window = int64_t{1} << 20;
  int64_t batch_size = 16384;
};

struct Lane {
  std::vector<int> entry_points;  ///< in the order they are read
  int64_t rows = 0;
};

/// A lane's part of a batch.
struct LaneSegment {
  int lane = 0;
  int64_t offset = 0;    ///< its first row's place in the batch
  int64_t rows = 0;      ///< > 0
  int64_t lane_row = 0;  ///< the first of them in the lane's (permuted) order
};

struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t rows() const { return end - begin; }
};

class PassSchedule {
 public:
  /// `counts`: rows that take part, by entry point; zeros are ordinary.
  PassSchedule(const std::vector<int64_t>& counts, const ScheduleConfig& config);

  int64_t rows() const { return rows_; }
  int64_t num_batches() const { return num_batches_; }
  int64_t batch_rows(int64_t batch) const;
  const std::vector<Lane>& lanes() const { return lanes_; }
  const ScheduleConfig& config() const { return config_; }

  /// How many rows of each lane are among the first `first_rows` of the epoch.
  std::vector<int64_t> bounds(int64_t first_rows) const;
  /// The parts of a batch in the order they stand in it; they cover it exactly.
  std::vector<LaneSegment> segments(int64_t batch) const;

  /// The rows of window `window` of a lane, as a range of its sequential rows.
  RowRange window_range(int lane, int64_t window) const;
  /// Its permutation: the window's k-th row to be used is its row permutation[k]. Empty unless `window`.
  void window_permutation(int lane, int64_t window, std::vector<int32_t>* permutation) const;

 private:
  ScheduleConfig config_;
  std::vector<Lane> lanes_;
  int64_t rows_ = 0;
  int64_t num_batches_ = 0;
  int64_t lane_window_ = 1;
};

/// Trainer t's rows of a batch of `rows` rows over `trainers` trainers.
RowRange trainer_share(int64_t rows, int trainer, int trainers);
/// The most rows that any trainer's share of a batch of up to `rows` rows has.
int64_t largest_share(int64_t rows, int trainers);

/// Rows of one window of a lane, when there are so many lanes.
int64_t window_rows_per_lane(const ScheduleConfig& config, int lanes);

}  // namespace millstream::loader
