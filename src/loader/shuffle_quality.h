#pragma once
// How well a pass is shuffled, measured so that it is right for sorted input
// too: by the places that the rows of a batch come from, not by their values.

#include <cstdint>
#include <vector>

#include "loader/schedule.h"

namespace millstream::loader {

/// The spread (standard deviation) of the source positions of a batch's rows
/// around their mean, over that which a uniform shuffle of all rows gives on
/// average: sqrt(mean of the batches' variances / (N (N + 1) / 12)) for N rows.
/// 1 is as spread as a uniform shuffle, n / N is what batches of n rows in file
/// order have. Up to `max_batches` batches, evenly over the epoch, are looked
/// at. `counts` are the rows of the entry points in file order.
double shuffle_quality(const std::vector<int64_t>& counts, const ScheduleConfig& config, int max_batches = 8);

}  // namespace millstream::loader
