#pragma once
// What ranks tell the supervisor that started them (comm/supervisor.h).
//
// The supervisor listens on a Unix socket of the abstract name in MILLSTREAM_SUPERVISOR (packets, so lines
// stay whole). A rank's process connects first thing in main(), by enter_rank_process(): it receives the
// supervisor's standard output and error and uses them as its own (mpiexec's forwarding is bypassed, so a
// terminal is still one), then forks. The child goes on as the rank. The parent stays as its *guard*: it
// reports how the rank ended, signal or exit code, always exits with 0, so that mpiexec neither kills the
// other ranks nor prints, and ends the rank when the supervisor is gone.
//
// Packets, one JSON object each:
//   {"hello": true, "rank": 1, "pid": 4711}                           by the guard: the rank runs as this
//   process
//   {"deadline": 300.0, "rank": 1}                                    by the rank: of JobOptions
//   {"end": true, "rank": 1, "code": 3, "message": "…", "said": true} by the rank: what the job ends with;
//   said:
//                                                                     the text is already on standard error,
//                                                                     or another rank puts it there
//   {"exit": true, "rank": 1, "code": 3} or {…, "signal": 9}          by the guard: the process has ended

#include <string>

#include "base/status.h"

namespace millstream::comm {

/// The environment of ranks that a supervisor starts.
inline constexpr const char* kSupervisorVariable = "MILLSTREAM_SUPERVISOR";  ///< name of the socket
inline constexpr const char* kJobIdVariable = "MILLSTREAM_JOB_ID";  ///< part of shared memory's names

/// To be called first in main(), before any thread is started, by every program whose processes can be ranks.
/// Does nothing where no supervisor started this process. May return in a forked child (see above).
void enter_rank_process();

/// True where a supervisor started this process and enter_rank_process() reached it.
bool has_supervisor();

/// Tells the supervisor how long the job may hang.
void report_deadline_to_supervisor(double deadline_s);

/// Tells the supervisor how this rank ends. Job::finish() and the watchdog do; call it where no job could be
/// started. `said`: the text needs no more printing. Returns false where there is no supervisor: the caller
/// prints.
bool report_end_to_supervisor(const Status& status, bool said);

}  // namespace millstream::comm
