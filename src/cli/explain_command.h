#pragma once
// `millstream explain`: what is known of a recipe's queries, or of one query, before they run; with --analyze what
// reading them shows.

#include "cli/options.h"
#include "comm/job.h"
#include "loader/loader_config.h"
#include "plan/catalog.h"

namespace millstream::cli {

/// Every rank calls it; rank 0 reads and prints. `data` is the recipe's, null with --query.
Status run_explain_command(const Options& options, comm::Job& job, plan::Catalog& catalog, int threads,
                           const loader::DataConfig* data);

}  // namespace millstream::cli
