#include "comm/all_to_all.h"

#include <algorithm>
#include <cstring>

#include "comm/job_state.h"

namespace millstream::comm {
namespace {

// Shared memory that bytes of one host pass through, at a time.
constexpr int64_t kWindowBytes = int64_t{32} << 20;

}  // namespace

Result<std::vector<std::shared_ptr<arrow::Buffer>>> all_to_all(
    Job& job, const std::vector<std::shared_ptr<arrow::Buffer>>& outgoing) {
  Job::State& state = *job.state_;
  const int size = job.size(), me = job.rank();
  std::vector<uint64_t> out_bytes(static_cast<size_t>(size), 0);
  for (int rank = 0; rank < size; ++rank)
    if (rank != me && outgoing[rank]) out_bytes[rank] = static_cast<uint64_t>(outgoing[rank]->size());
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
  MILLSTREAM_TRY(job.agree(allocated));

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
  MILLSTREAM_TRY(job.agree(moved));
  return incoming;
}

}  // namespace millstream::comm
