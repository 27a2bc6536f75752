#pragma once
// `millstream query`: runs one query on all ranks and prints, or writes, its rows.

#include "cli/options.h"
#include "comm/job.h"
#include "plan/catalog.h"

namespace millstream::cli {

/// Every rank calls it. `threads` are this rank's; `memory_bytes` what it may hold.
Status run_query_command(const Options& options, comm::Job& job, plan::Catalog& catalog, int threads,
                         int64_t memory_bytes);

}  // namespace millstream::cli
