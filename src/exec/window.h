#pragma once
// Window functions, of rows in memory.
//
// 1. Rows stay in their order; a result is one more column. Within a partition, rows that are equal in ORDER BY count in
//    the order in which they came, so that results do not depend on who brought them together.
// 2. Sums and averages are exact and rounded once, whatever the frame: rows that leave it are subtracted exactly.

#include <memory>

#include <arrow/api.h>

#include "plan/logical_plan.h"

namespace millstream::exec {

/// `rows` are all those of the node's input.
Result<std::shared_ptr<arrow::RecordBatch>> compute_windows(const plan::Node& node,
                                                            const std::shared_ptr<arrow::RecordBatch>& rows);

}  // namespace millstream::exec
