#pragma once
// The catalog of local files: Parquet and CSV, by glob.

#include <memory>

#include "plan/catalog.h"

namespace millstream::exec {

/// Footers are read by `threads` threads. Columns whose names differ only in case, and types that were
/// widened, are told in a notice once a table.
std::unique_ptr<plan::Catalog> make_file_catalog(int threads);

/// A digest of the files of a table (names and fingerprints) and of its schema: equal on two ranks: both see
/// the same data. 32 hexadecimal digits.
std::string table_fingerprint(const plan::SourceTable& table);

}  // namespace millstream::exec
