#pragma once
// How this process was started, read from the launcher's environment variables before MPI_Init: with the
// wrong launcher MPI_Init does not fail, it makes N jobs of one rank, or hangs.

#include <functional>
#include <string>

#include "base/status.h"

namespace millstream::comm {

enum class MpiKind : uint8_t { kMpich, kOpenMpi, kOther };

/// The environment; null where a variable is not set. A parameter so that tests can use tables.
using Environment = std::function<const char*(const char*)>;
Environment process_environment();

struct Launch {
  bool mpi = false;  ///< started as one rank of several; otherwise a job of one rank that never calls MPI
  int rank = 0;
  int size = 1;          ///< -1: not known before MPI_Init
  std::string launcher;  ///< "mpiexec", "mpirun of Open MPI", "srun"; empty without one
};

/// `mpi_name` is what the program was built with ("MPICH 5.0.2"), for the text. A usage error where the
/// launcher is not one of that MPI's.
Result<Launch> detect_launch(const Environment& environment, MpiKind built_with, const std::string& mpi_name);

}  // namespace millstream::comm
