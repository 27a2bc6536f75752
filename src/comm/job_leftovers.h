#pragma once
// What Linux says of the processes of a job, and what they leave behind when they are killed: for the supervisor.

#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

namespace millstream::comm {

/// True where the process is stopped (SIGSTOP, a debugger).
bool is_stopped(pid_t pid);

/// This user's processes that were started with `variable`=`value` in their environment, this one left out.
std::vector<pid_t> processes_with(const std::string& variable, const std::string& value);

/// This user's files in shared memory that MPI libraries made for the start of a job. They keep their names until
/// MPI_Finalize, or until all ranks have mapped them: not where ranks are killed before.
std::set<std::string> mpi_memory_files();

/// Removes those that are not in `before` and that no process uses.
void remove_unused_mpi_memory(const std::set<std::string>& before);

}  // namespace millstream::comm
