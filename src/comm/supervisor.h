#pragma once
// Behind --ranks N: the process that starts the ranks of a job on this machine and watches over them.

#include <string>
#include <vector>

#include "base/status.h"

namespace millstream::comm {

struct SupervisorOptions {
  std::string job_id;   ///< part of the names of the job's shared memory; empty: a random one
  double grace_s = 10;  ///< for the ranks to end after a signal
};

/// Runs `command` (program path, then arguments) as `ranks` ranks with the mpiexec that belongs to the MPI
/// built with, waits for them and returns the program's exit code: what the ranks agreed on (0, 1, 2, 3, 4,
/// 70, 130), 4 for a rank that died without a word, 130 after SIGINT or SIGTERM. Prints at most one message.
/// While it runs, SIGINT, SIGTERM, SIGHUP and SIGUSR1 are passed on to the ranks. A second one of the first three
/// kills them, and so does the end of the grace period after the first. Ranks that are all stopped (SIGSTOP) for the
/// deadline of the job are ended, with code 4. Shared memory that dead ranks left is removed, the MPI library's too. If this process is killed, the ranks end too. The
/// program must call enter_rank_process() first thing in main() (comm/supervisor_protocol.h). To be called
/// from a process without other threads; also again, for another job: a signal that came in between is its first.
int run_supervisor(int ranks, const std::vector<std::string>& command, const SupervisorOptions& options = {});

/// The mpiexec that would be used.
std::string mpiexec_path();
/// "MPICH 5.0.2": what was compiled in.
std::string mpi_compiled_in();
/// First line of the running library's own description.
std::string mpi_library_version();

}  // namespace millstream::comm
