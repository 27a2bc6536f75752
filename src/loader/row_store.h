#pragma once
// All training rows of a job, packed, where every feeding thread of the host reaches each of them: what shuffle =
// "full" draws its rows from. In memory it is an anonymous file (memfd) that goes with the last rank that has it
// mapped; where memory does not suffice a file in the cache directory, its room reserved first, without a name from
// the moment that all ranks have it open.

#include <cstdint>
#include <memory>
#include <string>

#include "comm/job.h"
#include "features/row_packer.h"
#include "loader/lane_reader.h"
#include "loader/row_source.h"

namespace millstream::loader {

/// Copies `count` rows of `store` apart.
using GatherRows = void (*)(const float* store, const int64_t* rows, int64_t count, const RowShape& shape,
                            const RowPlaces& to);
GatherRows gather_rows_for(const RowShape& shape);

class RowStore {
 public:
  ~RowStore();
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  /// Room for `floats` numbers. Collective over the job, whose ranks are all on one host. `directory` is empty for
  /// memory. Errors are this rank's; the caller agrees.
  static Result<std::unique_ptr<RowStore>> make(comm::Job& job, int64_t floats, const std::string& directory);
  /// Packs the rows of the source's entry points that fall to this rank, in `threads` threads.
  Status fill(comm::Job& job, const RowSource& source, const features::RowPacker& packer, int threads);
  const float* data() const { return data_; }

 private:
  RowStore(float* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  float* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace millstream::loader
