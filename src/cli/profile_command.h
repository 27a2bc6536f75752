#pragma once
// `millstream profile` and `millstream init`: one look at a table, and a recipe made from it.

#include "cli/options.h"
#include "comm/job.h"
#include "plan/catalog.h"

namespace millstream::cli {

/// Every rank calls them; the status is agreed. `threads` are this rank's; `memory_bytes` what it may hold.
Status run_profile_command(const Options& options, comm::Job& job, plan::Catalog& catalog, int threads,
                           int64_t memory_bytes);
Status run_init_command(const Options& options, comm::Job& job, plan::Catalog& catalog, int threads,
                        int64_t memory_bytes);

}  // namespace millstream::cli
