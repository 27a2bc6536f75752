#pragma once
// How much memory rows hold.

#include <arrow/api.h>

namespace millstream::exec {

/// Bytes of the buffers that a column or a batch keeps alive.
inline int64_t bytes_of(const arrow::ArrayData& data) {
  int64_t bytes = 0;
  for (const auto& buffer : data.buffers) bytes += buffer == nullptr ? 0 : buffer->size();
  for (const auto& child : data.child_data) bytes += bytes_of(*child);
  return bytes;
}
inline int64_t bytes_of(const arrow::RecordBatch& batch) {
  int64_t bytes = 0;
  for (int i = 0; i < batch.num_columns(); ++i) bytes += bytes_of(*batch.column_data(i));
  return bytes;
}

}  // namespace millstream::exec
