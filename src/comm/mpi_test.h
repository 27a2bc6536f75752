#pragma once
// For rank tests (*_mpi_test.cc): the job that mpi_test_main.cc started. Every test runs on all ranks. A
// failure on one rank wakes and fails the others; a failed job is made usable again before the next test.

#include "comm/job.h"

namespace millstream::comm {

Job& test_job();

}  // namespace millstream::comm
