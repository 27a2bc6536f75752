#pragma once
// What a Parquet file claims of the values in a column chunk and its pages: statistics of the footer, the page index,
// bloom filters. Claims may choose plans and prune, nothing else rests on them; what cannot be understood, or says of
// itself that it is wrong, claims nothing.

#include <optional>
#include <vector>

#include <parquet/metadata.h>
#include <parquet/page_index.h>
#include <parquet/schema.h>

#include "exec/data_file.h"
#include "plan/catalog.h"

namespace millstream::exec {

/// A column chunk of a column without nesting, whose canonical type is `type`.
struct ClaimedChunk {
  const parquet::FileMetaData* metadata = nullptr;
  int row_group = 0;
  int leaf = 0;
  const arrow::DataType* type = nullptr;
  int64_t rows = 0;
};

/// Is it one whose claims mean something: no nesting, and the order that the format defines?
bool can_claim(const ClaimedChunk& chunk);

// These may throw what Parquet throws.
plan::ColumnClaims statistics_claims(const ClaimedChunk& chunk);
Result<std::vector<plan::PageClaims>> page_index_claims(const ClaimedChunk& chunk, const FileHandle& file,
                                                        const std::string& path);
/// False where the chunk has a bloom filter that holds none of the values, which are of `chunk.type`.
Result<bool> bloom_filter_may_hold(const ClaimedChunk& chunk, const std::string& path, int64_t file_bytes,
                                   const std::vector<std::shared_ptr<arrow::Scalar>>& values);

}  // namespace millstream::exec
