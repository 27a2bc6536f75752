#pragma once
// Any query as a pipeline that is read block by block: what the loader and predict work on.
//
// A query of scans, filters and projections is one already. One with a breaker (join, GROUP BY, DISTINCT, ORDER BY,
// LIMIT) is run once by all ranks; its rows are kept in the cache directory as a Parquet file, under a key of the
// files read and the query's text, and the pipeline reads that. The rows, their order and the blocks they stand in are
// the same on any number of ranks, and so is every batch made of them.

#include <string>
#include <vector>

#include "loader/survey.h"
#include "plan/logical_plan.h"
#include "plan/planner.h"

namespace millstream::loader {

struct StreamingQueryRequest {
  comm::Job* job = nullptr;
  PhaseAgreement* phase = nullptr;
  plan::Catalog* catalog = nullptr;
  std::string sql;
  plan::QueryOptions options;
  std::string cache_directory;  ///< see LoaderConfig
  int threads = 1;              ///< of this rank
  int64_t memory_bytes = 0;     ///< that this rank may hold while the query runs; 0: no bound
};

/// Collective over the world, main threads; the caller ends the phase with an agreement. Where several hosts take part,
/// one rank of each writes the rows to its host's cache directory.
Result<plan::Pipeline> make_streaming_query(const StreamingQueryRequest& request);

}  // namespace millstream::loader
