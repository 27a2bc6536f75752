#pragma once
// Rows dealt to partitions, in memory while there is room and on disk behind it: what grouping, sorting and exchanging
// are made of. Partitions are ranges of keys, so that results of partitions put one behind the other are in order.

#include <memory>
#include <mutex>
#include <vector>

#include <arrow/api.h>

#include "base/spill_file.h"
#include "exec/key_order.h"
#include "exec/query_memory.h"

namespace millstream::exec {

/// The numbers of things by where they go: those of place p are items[begin[p] .. begin[p + 1]), ascending.
struct Buckets {
  std::vector<int32_t> items;
  std::vector<int32_t> begin;
};
Buckets bucket(const std::vector<uint32_t>& places, int count);

class RowPartitions {
 public:
  /// `cuts` are those of `order`'s codes; there is one partition more. The memory and the file outlive this.
  RowPartitions(std::shared_ptr<arrow::Schema> schema, std::shared_ptr<const KeyOrder> order,
                std::vector<uint64_t> cuts, QueryMemory& memory, SpillFile& spill);
  ~RowPartitions();

  int count() const { return static_cast<int>(cuts_.size()) + 1; }
  const std::shared_ptr<arrow::Schema>& schema() const { return schema_; }
  /// The partition of each row. Any thread.
  Status places(const arrow::RecordBatch& rows, std::vector<uint32_t>& places) const;

  /// Takes rows of any partitions. Any thread.
  Status add(const arrow::RecordBatch& rows);
  /// Takes rows of one. Any thread.
  Status add(int partition, std::shared_ptr<arrow::RecordBatch> rows);

  int64_t rows(int partition) const;
  /// About as many as the rows need in memory.
  int64_t bytes(int partition) const;

  /// Hands the rows of a partition over in batches of about `batch_rows` rows, in no order. One thread a reader; what
  /// is added meanwhile may or may not be among them.
  class Reader {
   public:
    /// Null at the end.
    Result<std::shared_ptr<arrow::RecordBatch>> next();

   private:
    friend class RowPartitions;
    Result<std::shared_ptr<arrow::RecordBatch>> piece();
    const RowPartitions* partitions_ = nullptr;
    int partition_ = 0;
    int64_t batch_rows_ = 0;
    size_t kept_ = 0, spilled_ = 0;
  };
  Reader read(int partition, int64_t batch_rows) const;

 private:
  struct Kept {
    std::shared_ptr<arrow::RecordBatch> rows;
    int first = 0;               // partition
    std::vector<int32_t> begin;  // of partitions from it on, and the end
  };
  struct Spilled {
    int64_t offset = 0, bytes = 0;
    int64_t rows = 0;
  };
  Status keep(Kept kept);

  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<const KeyOrder> order_;
  std::vector<uint64_t> cuts_;
  QueryMemory& memory_;
  SpillFile& spill_;
  mutable std::mutex mutex_;
  std::vector<Kept> kept_;
  std::vector<std::vector<Spilled>> spilled_;
  std::vector<int64_t> rows_;
  std::vector<int64_t> bytes_;
  int64_t held_ = 0;
};

}  // namespace millstream::exec
