#include "exec/row_partitions.h"

#include <algorithm>

#include "exec/batch_bytes.h"
#include "exec/row_bytes.h"
#include "exec/sort.h"
#include "expr/expression.h"

namespace millstream::exec {

using Batch = std::shared_ptr<arrow::RecordBatch>;

Buckets bucket(const std::vector<uint32_t>& places, int count) {
  Buckets result;
  result.begin.assign(static_cast<size_t>(count) + 1, 0);
  for (const uint32_t place : places) ++result.begin[place + 1];
  for (size_t p = 1; p < result.begin.size(); ++p) result.begin[p] += result.begin[p - 1];
  result.items.resize(places.size());
  std::vector<int32_t> at(result.begin.begin(), result.begin.end() - 1);
  for (size_t i = 0; i < places.size(); ++i)
    result.items[static_cast<size_t>(at[places[i]]++)] = static_cast<int32_t>(i);
  return result;
}

RowPartitions::RowPartitions(std::shared_ptr<arrow::Schema> schema, std::shared_ptr<const KeyOrder> order,
                             std::vector<uint64_t> cuts, QueryMemory& memory, SpillFile& spill)
    : schema_(std::move(schema)),
      order_(std::move(order)),
      cuts_(std::move(cuts)),
      memory_(memory),
      spill_(spill) {
  spilled_.resize(static_cast<size_t>(count()));
  rows_.resize(static_cast<size_t>(count()), 0);
  bytes_.resize(static_cast<size_t>(count()), 0);
}

RowPartitions::~RowPartitions() {
  memory_.release(held_);
}

Status RowPartitions::places(const arrow::RecordBatch& rows, std::vector<uint32_t>& places) const {
  std::vector<uint64_t> codes;
  MILLSTREAM_TRY(order_->codes(rows, codes));
  places.resize(codes.size());
  // The number of cuts that are not greater, without a branch: a search in as many steps for every code.
  const uint64_t* const cuts = cuts_.data();
  for (size_t i = 0; i < codes.size(); ++i) {
    const uint64_t code = codes[i];
    size_t low = 0;
    for (size_t left = cuts_.size(); left > 0;) {
      const size_t half = (left + 1) / 2;
      low += cuts[low + half - 1] <= code ? half : 0;
      left -= half;
    }
    places[i] = static_cast<uint32_t>(low);
  }
  return Status::OK();
}

Status RowPartitions::add(const arrow::RecordBatch& rows) {
  if (rows.num_rows() == 0) return Status::OK();
  std::vector<uint32_t> places;
  MILLSTREAM_TRY(this->places(rows, places));
  Buckets buckets = bucket(places, count());
  Kept kept;
  MILLSTREAM_ASSIGN(kept.rows, expr::take_rows(rows, buckets.items));
  kept.begin = std::move(buckets.begin);
  return keep(std::move(kept));
}

Status RowPartitions::add(int partition, Batch rows) {
  Kept kept;
  kept.first = partition;
  kept.begin = {0, static_cast<int32_t>(rows->num_rows())};
  kept.rows = std::move(rows);
  return keep(std::move(kept));
}

Status RowPartitions::keep(Kept kept) {
  const int64_t total = kept.rows->num_rows();
  if (total == 0) return Status::OK();
  const int64_t bytes = bytes_of(*kept.rows);
  const bool fits = memory_.hold_waiting(bytes);
  std::vector<Spilled> written;
  const size_t partitions = kept.begin.size() - 1;
  if (!fits) {
    for (size_t p = 0; p < partitions; ++p) {
      const int64_t rows = kept.begin[p + 1] - kept.begin[p];
      Spilled spilled;
      spilled.rows = rows;
      if (rows > 0) {
        MILLSTREAM_ASSIGN(const auto written_rows,
                          to_bytes(*kept.rows->Slice(kept.begin[p], rows), /*compressed=*/true));
        spilled.bytes = written_rows->size();
        MILLSTREAM_ASSIGN(spilled.offset, spill_.append({reinterpret_cast<const char*>(written_rows->data()),
                                                         static_cast<size_t>(spilled.bytes)}));
      }
      written.push_back(spilled);
    }
  }
  std::lock_guard lock(mutex_);
  for (size_t p = 0; p < partitions; ++p) {
    const int64_t rows = kept.begin[p + 1] - kept.begin[p];
    const auto partition = static_cast<size_t>(kept.first) + p;
    rows_[partition] += rows;
    bytes_[partition] += bytes * rows / total;
    if (!fits && rows > 0) spilled_[partition].push_back(written[p]);
  }
  if (fits) {
    held_ += bytes;
    kept_.push_back(std::move(kept));
  }
  return Status::OK();
}

int64_t RowPartitions::rows(int partition) const {
  std::lock_guard lock(mutex_);
  return rows_[static_cast<size_t>(partition)];
}

int64_t RowPartitions::bytes(int partition) const {
  std::lock_guard lock(mutex_);
  return bytes_[static_cast<size_t>(partition)];
}

RowPartitions::Reader RowPartitions::read(int partition, int64_t batch_rows) const {
  Reader reader;
  reader.partitions_ = this;
  reader.partition_ = partition;
  reader.batch_rows_ = std::max<int64_t>(batch_rows, 1);
  return reader;
}

Result<Batch> RowPartitions::Reader::piece() {
  const RowPartitions& from = *partitions_;
  Spilled spilled;
  {
    std::lock_guard lock(from.mutex_);
    while (kept_ < from.kept_.size()) {
      const Kept& kept = from.kept_[kept_++];
      const int at = partition_ - kept.first;
      if (at < 0 || at + 1 >= static_cast<int>(kept.begin.size())) continue;
      const int32_t begin = kept.begin[static_cast<size_t>(at)],
                    end = kept.begin[static_cast<size_t>(at) + 1];
      if (begin < end) return kept.rows->Slice(begin, end - begin);
    }
    const auto& of_partition = from.spilled_[static_cast<size_t>(partition_)];
    if (spilled_ >= of_partition.size()) return nullptr;
    spilled = of_partition[spilled_++];
  }
  MILLSTREAM_ASSIGN(std::shared_ptr<arrow::Buffer> buffer, arrow::AllocateBuffer(spilled.bytes));
  MILLSTREAM_TRY(from.spill_.read(spilled.offset, spilled.bytes, buffer->mutable_data()));
  return from_bytes(from.schema_, std::move(buffer));
}

Result<Batch> RowPartitions::Reader::next() {
  std::vector<Batch> pieces;
  for (int64_t rows = 0; rows < batch_rows_;) {
    MILLSTREAM_ASSIGN(auto piece, this->piece());
    if (piece == nullptr) break;
    rows += piece->num_rows();
    pieces.push_back(std::move(piece));
  }
  if (pieces.empty()) return nullptr;
  return concatenate(partitions_->schema_, pieces);
}

}  // namespace millstream::exec
