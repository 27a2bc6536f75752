#include "exec/row_bytes.h"

#include <cstring>

#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/compression.h>

namespace millstream::exec {

Result<std::shared_ptr<arrow::Buffer>> to_bytes(const arrow::RecordBatch& rows, bool compressed) {
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.use_threads = false;
  if (compressed) {
    MILLSTREAM_ASSIGN(auto codec, arrow::util::Codec::Create(arrow::Compression::LZ4_FRAME));
    options.codec = std::move(codec);
  }
  return arrow::ipc::SerializeRecordBatch(rows, options);
}

Result<std::shared_ptr<arrow::RecordBatch>> from_bytes(const std::shared_ptr<arrow::Schema>& schema,
                                                       std::shared_ptr<arrow::Buffer> bytes) {
  arrow::io::BufferReader reader(std::move(bytes));
  arrow::ipc::DictionaryMemo memo;
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  return arrow::ipc::ReadRecordBatch(schema, &memo, options, &reader);
}

Result<std::shared_ptr<arrow::RecordBatch>> from_bytes(const std::shared_ptr<arrow::Schema>& schema,
                                                       const void* data, int64_t size) {
  MILLSTREAM_ASSIGN(auto buffer, arrow::AllocateBuffer(size));
  if (size > 0) std::memcpy(buffer->mutable_data(), data, static_cast<size_t>(size));
  return from_bytes(schema, std::shared_ptr<arrow::Buffer>(std::move(buffer)));
}

}  // namespace millstream::exec
