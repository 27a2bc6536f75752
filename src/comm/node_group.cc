#include "comm/node_group.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/futex.h"
#include "base/progress.h"
#include "base/trace.h"
#include "comm/reduction.h"

namespace millstream::comm {
namespace {

// Up to this size everybody reduces everything: one step instead of two.
constexpr int64_t kOneStepBytes = 16 * 1024;

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

int64_t NodeGroup::bytes_needed(int size, int64_t capacity) {
  return static_cast<int64_t>(size) * (sizeof(Member) + 2 * capacity);
}

int64_t NodeGroup::data_capacity(int size) {
  // Two buffers a member should stay in the caches; many members share a bounded piece of memory.
  return std::clamp<int64_t>((8 << 20) / std::max(size, 1), 32 << 10, 512 << 10) / 64 * 64;
}

NodeGroup::NodeGroup(const FailureBoard& board, uint8_t* memory, std::shared_ptr<void> keep, int index,
                     std::vector<int> world_ranks, int64_t capacity, int64_t spin_ns)
    : board_(board),
      memory_(memory),
      keep_(std::move(keep)),
      index_(index),
      size_(static_cast<int>(world_ranks.size())),
      world_ranks_(std::move(world_ranks)),
      capacity_(capacity),
      spin_ns_(spin_ns),
      sources_(size_) {
  MILLSTREAM_CHECK(capacity % 64 == 0);
}

void NodeGroup::reset() {
  member(index_).posted.store(0);
  step_ = 0;
}

Status NodeGroup::wait_posted(int i, uint32_t step) {
  Member& other = member(i);
  auto there = [&](uint32_t posted) { return static_cast<int32_t>(posted - step) >= 0; };
  uint32_t posted = other.posted.load(std::memory_order_acquire);
  if (there(posted)) return Status::OK();
  if (spin_ns_ > 0) {
    const int64_t until = monotonic_ns() + spin_ns_;
    do {
      for (int k = 0; k < 32; ++k) {
        posted = other.posted.load(std::memory_order_acquire);
        if (there(posted)) return Status::OK();
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
    } while (monotonic_ns() < until);
  }
  WaitingForPeers waiting;
  other.sleepers.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  while (!there(posted = other.posted.load(std::memory_order_seq_cst))) {
    if (board_.failed()) {
      status = board_.failure();
      break;
    }
    futex_wait(other.posted, posted, std::chrono::milliseconds(50));
  }
  other.sleepers.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

Result<uint8_t*> NodeGroup::begin_step() {
  if (board_.failed()) [[unlikely]]
    return board_.failure();
  for (int i = 0; i < size_; ++i) {
    if (i != index_) MILLSTREAM_TRY(wait_posted(i, step_));
  }
  ++step_;
  return buffer(index_, step_);
}

void NodeGroup::publish(uint64_t fingerprint) {
  Member& me = member(index_);
  me.fingerprint[step_ & 1].store(fingerprint, std::memory_order_relaxed);
  me.posted.store(step_, std::memory_order_seq_cst);
  if (me.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(me.posted);
}

Result<const uint8_t*> NodeGroup::await(int i, uint64_t fingerprint) {
  MILLSTREAM_TRY(wait_posted(i, step_));
  const uint64_t theirs = member(i).fingerprint[step_ & 1].load(std::memory_order_relaxed);
  if (theirs != fingerprint) [[unlikely]]
    return mismatch_error(world_ranks_[index_], fingerprint, world_ranks_[i], theirs);
  return buffer(i, step_);
}

Status NodeGroup::barrier() {
  if (size_ == 1) return Status::OK();
  const uint64_t fingerprint = Fingerprint{.operation = Operation::kBarrier}.packed();
  MILLSTREAM_TRY(begin_step());
  publish(fingerprint);
  for (int i = 0; i < size_; ++i) {
    if (i != index_) MILLSTREAM_TRY(await(i, fingerprint));
  }
  return Status::OK();
}

Result<std::vector<std::string>> NodeGroup::allgather_bytes(std::string_view mine) {
  std::vector<std::string> all(size_);
  all[index_] = std::string(mine);
  if (size_ == 1) return all;
  const uint64_t fingerprint = Fingerprint{.operation = Operation::kAllgatherBytes}.packed();
  // The first step carries every member's size, so that all know how many more there are.
  std::vector<uint64_t> sizes(size_);
  uint64_t longest = 0;
  uint64_t at = 0;
  for (uint64_t header = sizeof(uint64_t);; header = 0) {
    const uint64_t room = static_cast<uint64_t>(capacity_) - header;
    MILLSTREAM_ASSIGN(uint8_t * out, begin_step());
    const uint64_t own = mine.size();
    if (header) std::memcpy(out, &own, sizeof own);
    if (at < own) copy(out + header, mine.data() + at, std::min(room, own - at));
    publish(fingerprint);
    for (int i = 0; i < size_; ++i) {
      const uint8_t* in = out;
      if (i != index_) {
        MILLSTREAM_ASSIGN(in, await(i, fingerprint));
      }
      if (header) {
        std::memcpy(&sizes[i], in, sizeof(uint64_t));
        longest = std::max(longest, sizes[i]);
        if (i != index_) all[i].reserve(sizes[i]);
      }
      if (i != index_ && at < sizes[i]) {
        all[i].append(reinterpret_cast<const char*>(in + header), std::min(room, sizes[i] - at));
      }
    }
    at += room;
    if (at >= longest) return all;
  }
}

Result<std::string> NodeGroup::broadcast_bytes(std::string_view bytes, int root) {
  if (size_ == 1) return std::string(bytes);
  const uint64_t fingerprint = Fingerprint{.operation = Operation::kBroadcastBytes, .root = root}.packed();
  std::string all;
  if (index_ == root) all = std::string(bytes);
  uint64_t total = bytes.size();
  uint64_t at = 0;
  for (uint64_t header = sizeof(uint64_t);; header = 0) {
    const uint64_t room = static_cast<uint64_t>(capacity_) - header;
    MILLSTREAM_ASSIGN(uint8_t * out, begin_step());
    if (index_ == root) {
      if (header) std::memcpy(out, &total, sizeof total);
      if (at < total) copy(out + header, bytes.data() + at, std::min(room, total - at));
      publish(fingerprint);
    } else {
      publish(fingerprint);
      MILLSTREAM_ASSIGN(const uint8_t* in, await(root, fingerprint));
      if (header) {
        std::memcpy(&total, in, sizeof total);
        all.reserve(total);
      }
      if (at < total) all.append(reinterpret_cast<const char*>(in + header), std::min(room, total - at));
    }
    at += room;
    if (at >= total) return all;
  }
}

Status NodeGroup::broadcast(void* data, int64_t bytes, int root) {
  if (size_ == 1) return Status::OK();
  const uint64_t fingerprint =
      Fingerprint{.operation = Operation::kBroadcast, .root = root, .count = bytes}.packed();
  auto* place = static_cast<uint8_t*>(data);
  for (int64_t at = 0; at == 0 || at < bytes; at += capacity_) {
    const int64_t n = std::min(capacity_, bytes - at);
    MILLSTREAM_ASSIGN(uint8_t * out, begin_step());
    if (index_ == root) copy(out, place + at, n);
    publish(fingerprint);
    if (index_ != root) {
      MILLSTREAM_ASSIGN(const uint8_t* in, await(root, fingerprint));
      copy(place + at, in, n);
    }
  }
  return Status::OK();
}

Status NodeGroup::all_gather(const void* mine, int64_t bytes, void* out) {
  auto* all = static_cast<uint8_t*>(out);
  if (bytes > 0 && all + index_ * bytes != mine) std::memmove(all + index_ * bytes, mine, bytes);
  if (size_ == 1) return Status::OK();
  const uint64_t fingerprint = Fingerprint{.operation = Operation::kAllGather, .count = bytes}.packed();
  const uint8_t* own = all + index_ * bytes;
  for (int64_t at = 0; at == 0 || at < bytes; at += capacity_) {
    const int64_t n = std::min(capacity_, bytes - at);
    MILLSTREAM_ASSIGN(uint8_t * place, begin_step());
    copy(place, own + at, n);
    publish(fingerprint);
    for (int i = 0; i < size_; ++i) {
      if (i == index_) continue;
      MILLSTREAM_ASSIGN(const uint8_t* in, await(i, fingerprint));
      copy(all + i * bytes + at, in, n);
    }
  }
  return Status::OK();
}

Status NodeGroup::all_reduce(void* data, int64_t count, DataType type, ReduceOp op) {
  MILLSTREAM_TRY(check_reduction(type, op));
  if (size_ == 1) return Status::OK();
  const uint64_t fingerprint =
      Fingerprint{.operation = Operation::kAllReduce, .type = type, .op = op, .count = count}.packed();
  const int64_t bytes = count * size_of(type);
  if (bytes > kOneStepBytes)
    return reduce_in_slices(static_cast<uint8_t*>(data), count, type, op, -1, fingerprint);
  MILLSTREAM_ASSIGN(uint8_t * out, begin_step());
  copy(out, data, bytes);
  publish(fingerprint);
  for (int i = 0; i < size_; ++i) {
    sources_[i] = out;
    if (i != index_) {
      MILLSTREAM_ASSIGN(sources_[i], await(i, fingerprint));
    }
  }
  reduce_arrays(data, sources_.data(), size_, count, type, op);
  return Status::OK();
}

Status NodeGroup::reduce(void* data, int64_t count, DataType type, ReduceOp op, int root) {
  MILLSTREAM_TRY(check_reduction(type, op));
  if (size_ == 1) return Status::OK();
  const uint64_t fingerprint =
      Fingerprint{.operation = Operation::kReduce, .type = type, .op = op, .root = root, .count = count}
          .packed();
  const int64_t bytes = count * size_of(type);
  if (bytes > kOneStepBytes)
    return reduce_in_slices(static_cast<uint8_t*>(data), count, type, op, root, fingerprint);
  MILLSTREAM_ASSIGN(uint8_t * out, begin_step());
  copy(out, data, bytes);
  publish(fingerprint);
  if (index_ != root) return Status::OK();
  for (int i = 0; i < size_; ++i) {
    sources_[i] = out;
    if (i != index_) {
      MILLSTREAM_ASSIGN(sources_[i], await(i, fingerprint));
    }
  }
  reduce_arrays(data, sources_.data(), size_, count, type, op);
  return Status::OK();
}

Status NodeGroup::reduce_in_slices(uint8_t* data, int64_t count, DataType type, ReduceOp op, int root,
                                   uint64_t fingerprint) {
  // Each member makes one slice of each piece: it reads the others' parts from their buffers and its own from
  // its data; then the slices are exchanged (or go to the root).
  const int64_t width = size_of(type);
  const int64_t piece = capacity_ / width;
  for (int64_t at = 0; at < count; at += piece) {
    const int64_t n = std::min(piece, count - at);
    uint8_t* place = data + at * width;
    // Slice boundaries fall on cache lines, so that no two members write the same one.
    const int64_t line = 64 / width;
    auto slice_begin = [&](int i) { return std::min(n, (n + line - 1) / line * i / size_ * line); };
    const int64_t begin = slice_begin(index_), end = slice_begin(index_ + 1);

    MILLSTREAM_ASSIGN(uint8_t * out, begin_step());
    copy(out, place, begin * width);
    copy(out + end * width, place + end * width, (n - end) * width);
    publish(fingerprint);
    for (int i = 0; i < size_; ++i) {
      const uint8_t* in = place;
      if (i != index_) {
        MILLSTREAM_ASSIGN(in, await(i, fingerprint));
      }
      sources_[i] = in + begin * width;
    }
    MILLSTREAM_ASSIGN(out, begin_step());
    if (root < 0 || index_ == root) {
      reduce_arrays(place + begin * width, sources_.data(), size_, end - begin, type, op);
      if (root < 0) copy(out + begin * width, place + begin * width, (end - begin) * width);
    } else {
      reduce_arrays(out + begin * width, sources_.data(), size_, end - begin, type, op);
    }
    publish(fingerprint);
    if (root >= 0 && index_ != root) continue;
    for (int i = 0; i < size_; ++i) {
      if (i == index_) continue;
      MILLSTREAM_ASSIGN(const uint8_t* in, await(i, fingerprint));
      copy(place + slice_begin(i) * width, in + slice_begin(i) * width,
           (slice_begin(i + 1) - slice_begin(i)) * width);
    }
  }
  return Status::OK();
}

}  // namespace millstream::comm
