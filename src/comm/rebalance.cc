#include "comm/rebalance.h"

#include <algorithm>
#include <cstring>

#include <arrow/io/memory.h>
#include <arrow/ipc/api.h>

#include "comm/all_to_all.h"

namespace millstream::comm {
namespace {

/// What differs first between two schemas; empty when nothing does. Metadata is no part of a table's type.
std::string first_difference(const arrow::Schema& first, const arrow::Schema& other, int other_rank) {
  for (int i = 0; i < std::min(first.num_fields(), other.num_fields()); ++i) {
    if (!first.field(i)->Equals(*other.field(i), /*check_metadata=*/false)) {
      return fmt::format("column {} is '{}' on rank 0 and '{}' on rank {}", i + 1, first.field(i)->ToString(),
                         other.field(i)->ToString(), other_rank);
    }
  }
  if (first.num_fields() != other.num_fields()) {
    return fmt::format("rank 0 has {} columns and rank {} has {}", first.num_fields(), other_rank,
                       other.num_fields());
  }
  return "";
}

Result<std::shared_ptr<arrow::Buffer>> to_stream(const arrow::Table& table) {
  MILLSTREAM_ASSIGN(auto sink, arrow::io::BufferOutputStream::Create());
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  options.use_threads = false;
  MILLSTREAM_ASSIGN(auto writer, arrow::ipc::MakeStreamWriter(sink, table.schema(), options));
  MILLSTREAM_TRY(writer->WriteTable(table));
  MILLSTREAM_TRY(writer->Close());
  return sink->Finish();
}

Result<std::shared_ptr<arrow::Table>> from_stream(const std::shared_ptr<arrow::Buffer>& bytes) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  MILLSTREAM_ASSIGN(auto reader, arrow::ipc::RecordBatchStreamReader::Open(
                                     std::make_shared<arrow::io::BufferReader>(bytes), options));
  return reader->ToTable();
}

}  // namespace

Result<std::shared_ptr<arrow::Table>> rebalance(Job& job, const std::shared_ptr<arrow::Table>& table,
                                                const std::vector<int>& destinations) {
  const int size = job.size(), me = job.rank();
  std::vector<int> targets = destinations;
  if (targets.empty()) {
    for (int rank = 0; rank < size; ++rank) targets.push_back(rank);
  }
  std::vector<bool> listed(size, false);
  for (int rank : targets) {
    // The list is the same everywhere, so this error is too.
    if (rank < 0 || rank >= size) return bug_error("rebalance to rank {} in a job of {}", rank, size);
    if (listed[rank]) return bug_error("rebalance to rank {} twice", rank);
    listed[rank] = true;
  }
  auto agreed = [&](const Status& mine) { return job.agree(mine); };

  // Schemas and counts.
  auto encoded = arrow::ipc::SerializeSchema(*table->schema());
  MILLSTREAM_TRY(agreed(encoded.status()));
  const int64_t own_rows = table->num_rows();
  std::string packet(reinterpret_cast<const char*>(&own_rows), sizeof own_rows);
  packet.append(reinterpret_cast<const char*>((*encoded)->data()), (*encoded)->size());
  MILLSTREAM_ASSIGN(const auto packets, job.world().allgather_bytes(packet));
  std::vector<int64_t> first_row(size + 1, 0);
  std::shared_ptr<arrow::Schema> schema0;
  Status same;
  for (int rank = 0; rank < size; ++rank) {
    int64_t rows = 0;
    std::memcpy(&rows, packets[rank].data(), sizeof rows);
    first_row[rank + 1] = first_row[rank] + rows;
    if (!same.ok() ||
        (rank > 0 && packets[rank].compare(sizeof rows, std::string::npos, packets[0], sizeof rows) == 0))
      continue;
    arrow::io::BufferReader reader(
        std::make_shared<arrow::Buffer>(std::string_view(packets[rank]).substr(sizeof rows)));
    arrow::ipc::DictionaryMemo memo;
    auto schema = arrow::ipc::ReadSchema(&reader, &memo);
    if (!schema.ok()) {
      same = schema.status();
    } else if (rank == 0) {
      schema0 = *schema;
    } else if (const std::string difference = first_difference(*schema0, **schema, rank);
               !difference.empty()) {
      same = data_error("the tables to rebalance differ: {}", difference);
    }
  }
  MILLSTREAM_TRY(agreed(same));

  // Rows of the whole, in order, cut among the destinations; the part that goes from here to each rank.
  const int64_t total = first_row[size], num_targets = static_cast<int64_t>(targets.size());
  std::vector<std::pair<int64_t, int64_t>> range(size, {0, 0});
  for (int64_t t = 0, at = 0; t < num_targets; ++t) {
    const int64_t rows = total / num_targets + (t < total % num_targets);
    range[targets[t]] = {at, at + rows};
    at += rows;
  }
  std::vector<std::shared_ptr<arrow::Buffer>> outgoing(size);
  std::shared_ptr<arrow::Table> kept = table->Slice(0, 0);
  Status written;
  for (int rank = 0; rank < size && written.ok(); ++rank) {
    const int64_t begin = std::max(range[rank].first, first_row[me]),
                  end = std::min(range[rank].second, first_row[me + 1]);
    if (begin >= end) continue;
    auto part = table->Slice(begin - first_row[me], end - begin);
    if (rank == me) {
      kept = part;
      continue;
    }
    auto stream = to_stream(*part);
    written = stream.status();
    if (!written.ok()) break;
    outgoing[rank] = *stream;
  }
  MILLSTREAM_TRY(agreed(written));
  MILLSTREAM_ASSIGN(const auto incoming, all_to_all(job, outgoing));

  Status moved;
  std::vector<std::shared_ptr<arrow::Table>> parts;
  for (int rank = 0; rank < size && moved.ok(); ++rank) {
    if (rank == me) parts.push_back(kept);
    if (!incoming[rank]) continue;
    auto part = from_stream(incoming[rank]);
    moved = part.status();
    if (moved.ok())
      parts.push_back(arrow::Table::Make(table->schema(), (*part)->columns(), (*part)->num_rows()));
  }
  MILLSTREAM_TRY(agreed(moved));
  return arrow::ConcatenateTables(parts);
}

}  // namespace millstream::comm
