#pragma once
// A table of few rows that a query brings with it: what DESCRIBE gives.

#include <memory>
#include <string>

#include "plan/catalog.h"

namespace millstream::plan {

/// `name` is what messages call the table. The rows are one block.
std::shared_ptr<const SourceTable> make_memory_table(std::string name,
                                                     std::shared_ptr<arrow::RecordBatch> rows);

}  // namespace millstream::plan
