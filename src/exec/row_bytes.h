#pragma once
// Rows as bytes and back: how they go to other ranks and to disk.

#include <memory>

#include <arrow/api.h>

#include "base/status.h"

namespace millstream::exec {

/// Without the schema, which the reader has.
Result<std::shared_ptr<arrow::Buffer>> to_bytes(const arrow::RecordBatch& rows, bool compressed = false);

/// The rows keep `bytes`, which Arrow wants aligned.
Result<std::shared_ptr<arrow::RecordBatch>> from_bytes(const std::shared_ptr<arrow::Schema>& schema,
                                                       std::shared_ptr<arrow::Buffer> bytes);
/// Of a copy of the bytes.
Result<std::shared_ptr<arrow::RecordBatch>> from_bytes(const std::shared_ptr<arrow::Schema>& schema,
                                                       const void* data, int64_t size);

}  // namespace millstream::exec
