#pragma once
// The profile of a table: one pass over a query's rows by all ranks and threads (features/column_profile.h).
//
// The entry points are cut into at most kProfileStretches stretches, by the data alone; a thread reads a stretch at a
// time, and the stretches' states are merged in their order on every rank. Queries that do not stream (joins,
// grouping, ordering) are run by exec::run_query and profiled on rank 0.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/job.h"
#include "features/column_profile.h"
#include "plan/logical_plan.h"

namespace millstream::loader {

inline constexpr int kProfileStretches = 128;

struct TableProfile {
  std::shared_ptr<arrow::Schema> schema;
  int64_t rows = 0;
  std::vector<features::ColumnProfile> columns;  ///< as in the schema
  int target = -1;                               ///< column
};

struct ProfileRequest {
  comm::Job* job = nullptr;
  plan::NodePtr plan;
  int target = -1;  ///< a column of the plan's output that the others are compared with; -1: none
  int threads = 1;
  int64_t memory_bytes = 0;
};

/// Collective over the world, main threads. The status is agreed.
Result<TableProfile> profile_table(const ProfileRequest& request);

}  // namespace millstream::loader
