#pragma once
// MPI's codes as statuses. MPI is set to return errors; every call's code passes through here.

#include <mpi.h>

#include "base/status.h"

namespace millstream::comm {

inline Status mpi_status(int code, const char* operation) {
  if (code == MPI_SUCCESS) return Status::OK();
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  std::string line(text, static_cast<size_t>(length));
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  return communication_error("{} failed: {}", operation, line);
}

#define MILLSTREAM_MPI_TRY(call, operation) MILLSTREAM_TRY(::millstream::comm::mpi_status(call, operation))

}  // namespace millstream::comm
