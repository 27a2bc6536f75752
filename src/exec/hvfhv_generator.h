#pragma once
// Synthetic New York for-hire trips ("HVFHV") at the schema that the city publishes, with plausible
// distributions, for demonstrations, tests and benchmarks. A value depends on the seed, the file and the row
// alone, so equal arguments give equal tables whoever writes which file.

#include <cstdint>
#include <string>

#include <arrow/api.h>

#include "base/status.h"

namespace millstream::exec {

struct HvfhvOptions {
  int64_t rows = 0;       ///< of all files together; they differ by one row at most
  int files = 1;          ///< one a month, from 2022-01 on
  std::string directory;  ///< made where it is missing
  uint64_t seed = 0;
  int threads = 1;
  bool overwrite = false;  ///< false: an existing file is an error, found before anything is written
};

/// The 24 columns.
std::shared_ptr<arrow::Schema> hvfhv_schema();
/// "fhvhv_tripdata_2022-01.parquet" for file 0.
std::string hvfhv_file_name(int file);
/// Rows of file `file`.
int64_t hvfhv_file_rows(const HvfhvOptions& options, int file);
/// Rows [first_row, first_row + rows) of file `file`.
Result<std::shared_ptr<arrow::RecordBatch>> hvfhv_batch(const HvfhvOptions& options, int file,
                                                        int64_t first_row, int64_t rows);

/// Checks the options and the target directory (usage and file errors).
Status check_hvfhv_options(const HvfhvOptions& options);
/// Writes one file (zstd, row groups of at most 2^20 rows, pickup times ascending), atomically.
Status write_hvfhv_file(const HvfhvOptions& options, int file);
/// All files, by options.threads threads.
Status generate_hvfhv(const HvfhvOptions& options);

}  // namespace millstream::exec
