#include "comm/rebalance.h"

#include <algorithm>
#include <cstring>

#include <arrow/io/memory.h>
#include <arrow/ipc/api.h>

#include "comm/job_state.h"

namespace millstream::comm {
namespace {

// Shared memory that rows of one host pass through, at a time.
constexpr int64_t kWindowBytes = int64_t{32} << 20;

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
  Job::State& state = *job.state_;
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
  std::vector<uint64_t> out_bytes(size, 0);
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
    out_bytes[rank] = static_cast<uint64_t>(outgoing[rank]->size());
  }
  MILLSTREAM_TRY(agreed(written));
  MILLSTREAM_ASSIGN(const auto all_sizes,
                    job.world().allgather_bytes({reinterpret_cast<const char*>(out_bytes.data()),
                                                 out_bytes.size() * sizeof(uint64_t)}));
  auto bytes_between = [&](int from, int to) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, all_sizes[from].data() + to * sizeof bytes, sizeof bytes);
    return static_cast<int64_t>(bytes);
  };
  std::vector<std::shared_ptr<arrow::Buffer>> incoming(size);
  Status allocated;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == me || bytes_between(rank, me) == 0) continue;
    auto buffer = arrow::AllocateBuffer(bytes_between(rank, me));
    if (!buffer.ok()) {
      allocated = buffer.status();
      break;
    }
    incoming[rank] = std::move(*buffer);
  }
  MILLSTREAM_TRY(agreed(allocated));

  // Between hosts, by messages.
  Status moved;
  std::vector<RequestPtr> requests;
  const int tag = 4 * state.next_tag++;
  for (int rank = 0; rank < size; ++rank) {
    if (state.node_of[rank] == state.node) continue;
    if (incoming[rank]) {
      requests.push_back(state.engine->post(Engine::Channel::kCollective, false, rank, tag,
                                            {{incoming[rank]->mutable_data(), incoming[rank]->size()}}));
    }
    if (outgoing[rank]) {
      requests.push_back(
          state.engine->post(Engine::Channel::kCollective, true, rank, tag,
                             {{const_cast<uint8_t*>(outgoing[rank]->data()), outgoing[rank]->size()}}));
    }
  }
  // On this host through a window of shared memory: all that goes from rank to rank is one line of bytes, and the
  // window slides along it.
  const auto& here = state.node_ranks();
  int64_t line = 0;
  for (int from : here) {
    for (int to : here) line += from == to ? 0 : bytes_between(from, to);
  }
  if (line > 0) {
    const int64_t window_bytes = std::min(line, kWindowBytes);
    auto window = job.make_shared_memory(window_bytes);
    moved = window.status();
    for (int64_t window_at = 0; window_at < line && moved.ok(); window_at += window_bytes) {
      // The part of this rank's outgoing or incoming bytes that lies in the window.
      auto each = [&](bool sending) {
        int64_t at = 0;
        for (int from : here) {
          for (int to : here) {
            const int64_t bytes = from == to ? 0 : bytes_between(from, to);
            const int64_t begin = std::max(at, window_at),
                          end = std::min(at + bytes, window_at + window_bytes);
            if (begin < end && (sending ? from : to) == me) {
              uint8_t* place = (*window)->data() + (begin - window_at);
              if (sending) {
                std::memcpy(place, outgoing[to]->data() + (begin - at), end - begin);
              } else {
                std::memcpy(incoming[from]->mutable_data() + (begin - at), place, end - begin);
              }
            }
            at += bytes;
          }
        }
      };
      each(true);
      moved = state.node_group->barrier();
      if (!moved.ok()) break;
      each(false);
      moved = state.node_group->barrier();
    }
  }
  for (auto& request : requests) {
    const Status one = request->wait();
    if (moved.ok()) moved = one;
  }

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
