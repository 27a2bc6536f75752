#pragma once
// The commands, run by every rank of a job.

#include "base/status.h"
#include "cli/options.h"
#include "comm/job.h"

namespace millstream::cli {

/// Runs options.command. Collective; the status is agreed: the same on every rank. Results go to standard output,
/// from rank 0 (digest lines: from the first trainer's rank).
Status run_command(const Options& options, comm::Job& job);

}  // namespace millstream::cli
