#include "comm/message_group.h"

#include <cstring>

#include "comm/reduction.h"

namespace millstream::comm {
namespace {

// Up to this size everybody sends everything to everybody and reduces it all.
constexpr int64_t kDirectBytes = 32 * 1024;
// Larger data is reduced in pieces of this size, which bounds the memory for what the others send.
constexpr int64_t kReducePieceBytes = int64_t{16} << 20;

}  // namespace

MessageGroup::MessageGroup(const FailureBoard& board, Engine& engine, int index, std::vector<int> world_ranks,
                           int tag)
    : board_(board),
      engine_(engine),
      index_(index),
      size_(static_cast<int>(world_ranks.size())),
      world_ranks_(std::move(world_ranks)),
      tag_(tag) {}

Status MessageGroup::exchange(uint64_t fingerprint, const std::vector<Part>& outgoing,
                              const std::vector<Part>& incoming) {
  if (board_.failed()) return board_.failure();
  std::vector<uint64_t> seen(incoming.size(), 0);
  std::vector<RequestPtr> requests;
  requests.reserve(outgoing.size() + incoming.size());
  for (size_t i = 0; i < incoming.size(); ++i) {
    requests.push_back(engine_.post(Engine::Channel::kCollective, false, world_ranks_[incoming[i].member],
                                    tag_,
                                    {{&seen[i], sizeof(uint64_t)}, {incoming[i].data, incoming[i].bytes}}));
  }
  for (const Part& part : outgoing) {
    requests.push_back(engine_.post(Engine::Channel::kCollective, true, world_ranks_[part.member], tag_,
                                    {{&fingerprint, sizeof fingerprint}, {part.data, part.bytes}}));
  }
  Status status;
  for (auto& request : requests) {
    const Status one = request->wait();  // all of them: they use memory of this frame
    if (status.ok()) status = one;
  }
  for (size_t i = 0; i < incoming.size(); ++i) {
    // A message of another size failed above, but its fingerprint is the better explanation.
    if (seen[i] != fingerprint && seen[i] != 0) {
      return mismatch_error(world_ranks_[index_], fingerprint, world_ranks_[incoming[i].member], seen[i]);
    }
  }
  return status;
}

Status MessageGroup::barrier() {
  // Dissemination: in round k everybody hears from the one 2^k before it.
  const uint64_t fingerprint = Fingerprint{.operation = Operation::kBarrier}.packed();
  for (int distance = 1; distance < size_; distance *= 2) {
    MILLSTREAM_TRY(exchange(fingerprint, {{(index_ + distance) % size_, nullptr, 0}},
                            {{(index_ + size_ - distance) % size_, nullptr, 0}}));
  }
  return Status::OK();
}

Result<std::vector<std::string>> MessageGroup::allgather_bytes(std::string_view mine) {
  const uint64_t fingerprint = Fingerprint{.operation = Operation::kAllgatherBytes}.packed();
  std::vector<std::string> all(size_);
  all[index_] = std::string(mine);
  uint64_t own = mine.size();
  std::vector<uint64_t> sizes(size_, 0);
  std::vector<Part> outgoing, incoming;
  for (int i = 0; i < size_; ++i) {
    if (i == index_) continue;
    outgoing.push_back({i, &own, sizeof own});
    incoming.push_back({i, &sizes[i], sizeof own});
  }
  MILLSTREAM_TRY(exchange(fingerprint, outgoing, incoming));
  outgoing.clear();
  incoming.clear();
  for (int i = 0; i < size_; ++i) {
    if (i == index_) continue;
    all[i].resize(sizes[i]);
    if (own) outgoing.push_back({i, const_cast<char*>(mine.data()), static_cast<int64_t>(own)});
    if (sizes[i]) incoming.push_back({i, all[i].data(), static_cast<int64_t>(sizes[i])});
  }
  MILLSTREAM_TRY(exchange(fingerprint, outgoing, incoming));
  return all;
}

Result<std::string> MessageGroup::broadcast_bytes(std::string_view bytes, int root) {
  const uint64_t fingerprint = Fingerprint{.operation = Operation::kBroadcastBytes, .root = root}.packed();
  std::string all;
  uint64_t total = bytes.size();
  std::vector<Part> parts;
  if (index_ == root) {
    all = std::string(bytes);
    for (int i = 0; i < size_; ++i) {
      if (i != root) parts.push_back({i, &total, sizeof total});
    }
    MILLSTREAM_TRY(exchange(fingerprint, parts, {}));
  } else {
    MILLSTREAM_TRY(exchange(fingerprint, {}, {{root, &total, sizeof total}}));
    all.resize(total);
  }
  if (total) MILLSTREAM_TRY(broadcast(all.data(), static_cast<int64_t>(total), root));
  return all;
}

Status MessageGroup::broadcast(void* data, int64_t bytes, int root) {
  const uint64_t fingerprint =
      Fingerprint{.operation = Operation::kBroadcast, .root = root, .count = bytes}.packed();
  // A binomial tree: member v (counted from the root) hears from v without its lowest bit set.
  const int v = (index_ + size_ - root) % size_;
  int bit = 1;
  for (; bit < size_; bit *= 2) {
    if (v & bit) {
      MILLSTREAM_TRY(exchange(fingerprint, {}, {{(v - bit + root) % size_, data, bytes}}));
      break;
    }
  }
  std::vector<Part> outgoing;
  for (bit /= 2; bit > 0; bit /= 2) {
    if (v + bit < size_) outgoing.push_back({(v + bit + root) % size_, data, bytes});
  }
  return exchange(fingerprint, outgoing, {});
}

Status MessageGroup::all_gather(const void* mine, int64_t bytes, void* out) {
  const uint64_t fingerprint = Fingerprint{.operation = Operation::kAllGather, .count = bytes}.packed();
  auto* all = static_cast<uint8_t*>(out);
  uint8_t* own = all + index_ * bytes;
  if (bytes > 0 && own != mine) std::memmove(own, mine, bytes);
  std::vector<Part> outgoing, incoming;
  for (int i = 0; i < size_; ++i) {
    if (i == index_) continue;
    outgoing.push_back({i, own, bytes});
    incoming.push_back({i, all + i * bytes, bytes});
  }
  return exchange(fingerprint, outgoing, incoming);
}

Status MessageGroup::all_reduce(void* data, int64_t count, DataType type, ReduceOp op) {
  MILLSTREAM_TRY(check_reduction(type, op));
  return reduce_to(
      data, count, type, op, -1,
      Fingerprint{.operation = Operation::kAllReduce, .type = type, .op = op, .count = count}.packed());
}

Status MessageGroup::reduce(void* data, int64_t count, DataType type, ReduceOp op, int root) {
  MILLSTREAM_TRY(check_reduction(type, op));
  return reduce_to(
      data, count, type, op, root,
      Fingerprint{.operation = Operation::kReduce, .type = type, .op = op, .root = root, .count = count}
          .packed());
}

Status MessageGroup::reduce_to(void* data, int64_t count, DataType type, ReduceOp op, int root,
                               uint64_t fingerprint) {
  const int64_t width = size_of(type);
  auto* bytes = static_cast<uint8_t*>(data);
  std::vector<const void*> sources(size_);
  std::vector<Part> outgoing, incoming;
  if (count * width <= kDirectBytes) {
    std::vector<uint8_t> theirs(static_cast<size_t>(size_ * count * width));
    for (int i = 0; i < size_; ++i) {
      uint8_t* place = theirs.data() + i * count * width;
      sources[i] = i == index_ ? data : place;
      if (i == index_) continue;
      if (root < 0 || root == i) outgoing.push_back({i, data, count * width});
      if (root < 0 || root == index_) incoming.push_back({i, place, count * width});
    }
    MILLSTREAM_TRY(exchange(fingerprint, outgoing, incoming));
    if (root < 0 || root == index_) reduce_arrays(data, sources.data(), size_, count, type, op);
    return Status::OK();
  }
  // Each member makes one slice of each piece.
  const int64_t piece = kReducePieceBytes / width;
  std::vector<uint8_t> theirs;
  for (int64_t at = 0; at < count; at += piece) {
    const int64_t n = std::min(piece, count - at);
    uint8_t* place = bytes + at * width;
    auto begin = [&](int i) { return n * i / size_; };
    auto slice_bytes = [&](int i) { return (begin(i + 1) - begin(i)) * width; };
    const int64_t own = slice_bytes(index_);
    theirs.resize(static_cast<size_t>(own * size_));
    outgoing.clear();
    incoming.clear();
    for (int i = 0; i < size_; ++i) {
      sources[i] = i == index_ ? place + begin(i) * width : theirs.data() + i * own;
      if (i == index_) continue;
      outgoing.push_back({i, place + begin(i) * width, slice_bytes(i)});
      incoming.push_back({i, theirs.data() + i * own, own});
    }
    MILLSTREAM_TRY(exchange(fingerprint, outgoing, incoming));
    uint8_t* mine = place + begin(index_) * width;
    reduce_arrays(mine, sources.data(), size_, begin(index_ + 1) - begin(index_), type, op);
    outgoing.clear();
    incoming.clear();
    for (int i = 0; i < size_; ++i) {
      if (i == index_) continue;
      if (root < 0 || root == i) outgoing.push_back({i, mine, own});
      if (root < 0 || root == index_) incoming.push_back({i, place + begin(i) * width, slice_bytes(i)});
    }
    MILLSTREAM_TRY(exchange(fingerprint, outgoing, incoming));
  }
  return Status::OK();
}

}  // namespace millstream::comm
