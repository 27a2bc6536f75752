#pragma once
// Brings the rows of units together in their order: threads of every rank make units ahead, and the rows are
// handed over one batch after the other.

#include <functional>

#include "comm/job.h"
#include "exec/units.h"

namespace millstream::exec {

struct OrderedStreamOptions {
  int threads = 1;
  int64_t limit = -1;       ///< rows at most; -1: all
  int64_t offset = 0;       ///< rows left out before
  bool everywhere = false;  ///< true: every rank gets the rows; false: rank 0
};

using BatchConsumer = std::function<Status(const std::shared_ptr<arrow::RecordBatch>& batch)>;

/// Every rank of `job` (null: this process alone) calls it with the same units; a unit is made by
/// its owner. `consume` runs on the calling thread. Each rank reads at most a few units ahead and holds a few
/// batches of each. Returns the number of rows handed over (on every rank, whether it got them or not). An error of
/// a unit comes to every rank, at its place in the order; what lies behind the limit is not looked at.
Result<int64_t> stream_in_order(comm::Job* job, const Units& units, const OrderedStreamOptions& options,
                                const BatchConsumer& consume);

}  // namespace millstream::exec
