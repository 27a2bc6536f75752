#include "loader/shuffle_quality.h"

#include <algorithm>
#include <cmath>

#include "loader/full_order.h"

namespace millstream::loader {

double shuffle_quality(const std::vector<int64_t>& counts, const ScheduleConfig& config, int max_batches) {
  const PassSchedule schedule(counts, config);
  if (schedule.rows() < 2) return 1;
  std::vector<int64_t> first_position = {0};  // by entry point
  for (const int64_t rows : counts) first_position.push_back(first_position.back() + rows);
  std::vector<std::vector<int64_t>> lane_starts;  // by lane: the sequential row that each entry point begins
                                                  // with
  for (const Lane& lane : schedule.lanes()) {
    auto& starts = lane_starts.emplace_back();
    int64_t row = 0;
    for (const int entry_point : lane.entry_points) {
      starts.push_back(row);
      row += counts[entry_point];
    }
  }
  const int64_t sampled = std::min<int64_t>(max_batches, schedule.num_batches());
  const FullOrder order(config.seed, config.epoch, config.shuffle == Shuffle::kFull ? schedule.rows() : 0);
  double variances = 0;
  int64_t measured = 0;
  std::vector<int32_t> permutation;
  std::vector<double> positions;
  for (int64_t sample = 0; sample < sampled; ++sample) {
    positions.clear();
    if (config.shuffle == Shuffle::kFull) {
      const int64_t batch = sample * schedule.num_batches() / sampled;
      std::vector<int64_t> rows(static_cast<size_t>(schedule.batch_rows(batch)));
      order.rows_at(batch * config.batch_size, static_cast<int64_t>(rows.size()), rows.data());
      positions.assign(rows.begin(), rows.end());
    }
    for (const LaneSegment& segment : schedule.segments(sample * schedule.num_batches() / sampled)) {
      if (config.shuffle == Shuffle::kFull) break;
      const Lane& lane = schedule.lanes()[segment.lane];
      const auto& starts = lane_starts[segment.lane];
      int64_t row = segment.lane_row;
      const int64_t end = row + segment.rows;
      for (int64_t window = 0; row < end; ++window) {
        const RowRange range = schedule.window_range(segment.lane, window);
        if (range.end <= row) continue;
        schedule.window_permutation(segment.lane, window, &permutation);
        for (; row < std::min(end, range.end); ++row) {
          const int64_t in_window = row - range.begin;
          const int64_t sequential = range.begin + (permutation.empty() ? in_window : permutation[in_window]);
          const auto place = std::upper_bound(starts.begin(), starts.end(), sequential) - starts.begin() - 1;
          positions.push_back(
              static_cast<double>(first_position[lane.entry_points[place]] + sequential - starts[place]));
        }
      }
    }
    if (positions.size() < 2) continue;
    double mean = 0, squares = 0;
    for (const double position : positions) mean += position;
    mean /= static_cast<double>(positions.size());
    for (const double position : positions) squares += (position - mean) * (position - mean);
    variances += squares / static_cast<double>(positions.size() - 1);
    ++measured;
  }
  const auto rows = static_cast<double>(schedule.rows());
  return measured ? std::sqrt(variances / static_cast<double>(measured) / (rows * (rows + 1) / 12)) : 1;
}

}  // namespace millstream::loader
