#pragma once
// Runs a whole query on all ranks of a job: what `millstream query` does.
//
// 1. Every rank calls run_query() with the same plan. The result's rows come to rank 0, in order.
// 2. The rows, their order and every bit of them are a function of the files and the query alone, whatever the
//    number of ranks and threads.
// 3. An error is the same on every rank: that of the first failing place in the order of the source.
// 4. Rows in memory are bounded: a few blocks a thread for what streams. What must be held is counted against
//    `memory_bytes`; grouping and sorting put what does not fit into half of it on disk. The right side of a join and a
//    result that is larger must fit: a query that needs more fails with an error that says so.

#include <functional>
#include <string>

#include "comm/job.h"
#include "plan/logical_plan.h"

namespace millstream::exec {

struct QueryRunStatistics {
  int64_t spilled_bytes = 0;  ///< by this rank
};

struct QueryRunOptions {
  int threads = 1;                         ///< of this rank
  int64_t memory_bytes = 0;                ///< that this rank may hold; 0: no bound
  int64_t morsel_rows = plan::kBlockRows;  ///< rows that operators work on at once
  bool everywhere = false;                 ///< the rows come to every rank, not to rank 0 alone
  std::string spill_directory;             ///< for what does not fit into memory; empty: $TMPDIR or /tmp
  int64_t groups_of_a_thread = 1 << 15;    ///< groups that a thread holds before it deals rows to partitions
  int64_t waiting_bytes = -1;  ///< of rows that wait in memory for grouping and sorting, the others wait on
                               ///< disk; -1: half of memory_bytes
  QueryRunStatistics* statistics = nullptr;
};

/// Takes the result's rows, batch after batch. A failure ends the query.
using RowSink = std::function<Status(const std::shared_ptr<arrow::RecordBatch>& batch)>;

/// `job` null: this process alone. `sink` is called on rank 0 (or everywhere), from the calling thread. Returns the number of
/// rows on every rank.
Result<int64_t> run_query(comm::Job* job, const plan::NodePtr& plan, const QueryRunOptions& options,
                          const RowSink& sink);

}  // namespace millstream::exec
