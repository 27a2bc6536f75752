#pragma once
// Orders rows in memory. Equal rows stay in their order. NaN is greater than every number, texts go by their bytes.

#include <memory>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"
#include "plan/relational.h"

namespace millstream::exec {

/// The rows in order; only the first `limit` of them (-1: all).
Result<std::shared_ptr<arrow::RecordBatch>> sort_rows(const std::shared_ptr<arrow::RecordBatch>& rows,
                                                      const std::vector<plan::SortKey>& keys, int64_t limit);

/// The numbers of the rows in order; only the first `limit` of them (-1: all).
Result<std::vector<int32_t>> sort_order(const arrow::RecordBatch& rows,
                                        const std::vector<plan::SortKey>& keys, int64_t limit);

/// One batch of all rows.
Result<std::shared_ptr<arrow::RecordBatch>> concatenate(
    const std::shared_ptr<arrow::Schema>& schema,
    const std::vector<std::shared_ptr<arrow::RecordBatch>>& batches);

}  // namespace millstream::exec
