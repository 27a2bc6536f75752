#include "comm/group_communicator.h"

#include <cstring>

#include "comm/reduction.h"

namespace millstream::comm {
namespace {

// Strings with their sizes, end to end.
std::string pack(const std::vector<std::string>& pieces) {
  std::string out;
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size() + sizeof(uint64_t);
  out.reserve(bytes);
  for (const auto& piece : pieces) {
    const uint64_t size = piece.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size).append(piece);
  }
  return out;
}

Status unpack(std::string_view bytes, std::vector<std::string>& pieces) {
  while (!bytes.empty()) {
    uint64_t size = 0;
    if (bytes.size() < sizeof size) return bug_error("a collective's packet is cut short");
    std::memcpy(&size, bytes.data(), sizeof size);
    bytes.remove_prefix(sizeof size);
    if (bytes.size() < size) return bug_error("a collective's packet is cut short");
    pieces.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return Status::OK();
}

}  // namespace

GroupCommunicator::GroupCommunicator(std::vector<int> members, int rank, std::vector<std::vector<int>> hosts,
                                     std::unique_ptr<Group> node, std::unique_ptr<Group> leaders)
    : members_(std::move(members)),
      rank_(rank),
      hosts_(std::move(hosts)),
      host_of_(members_.size()),
      index_on_host_(members_.size()),
      node_(std::move(node)),
      leaders_(std::move(leaders)) {
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (size_t i = 0; i < hosts_[host].size(); ++i) {
      host_of_[hosts_[host][i]] = static_cast<int>(host);
      index_on_host_[hosts_[host][i]] = static_cast<int>(i);
    }
  }
}

Status GroupCommunicator::check_root(int root) const {
  if (root >= 0 && root < size()) return Status::OK();
  return bug_error("a collective of {} ranks was given root {}", size(), root);
}

Status GroupCommunicator::barrier() {
  if (node_) MILLSTREAM_TRY(node_->barrier());
  if (leaders_) MILLSTREAM_TRY(leaders_->barrier());
  if (node_ && !one_host()) MILLSTREAM_TRY(node_->barrier());
  return Status::OK();
}

Result<std::vector<std::string>> GroupCommunicator::allgather_bytes(std::string_view mine) {
  std::vector<std::string> on_host;
  if (node_) {
    MILLSTREAM_ASSIGN(on_host, node_->allgather_bytes(mine));
  } else {
    on_host.emplace_back(mine);
  }
  if (one_host()) return on_host;
  std::string everything;
  if (leaders_) {
    MILLSTREAM_ASSIGN(auto packets, leaders_->allgather_bytes(pack(on_host)));
    for (const auto& packet : packets) everything += packet;
  }
  if (node_) {
    MILLSTREAM_ASSIGN(everything, node_->broadcast_bytes(everything, 0));
  }
  std::vector<std::string> by_host;
  MILLSTREAM_TRY(unpack(everything, by_host));
  if (by_host.size() != members_.size())
    return bug_error("a collective gathered {} parts of {}", by_host.size(), size());
  std::vector<std::string> all(members_.size());
  size_t next = 0;
  for (const auto& host : hosts_) {
    for (int member : host) all[member] = std::move(by_host[next++]);
  }
  return all;
}

Result<std::string> GroupCommunicator::broadcast_bytes(std::string_view bytes, int root) {
  MILLSTREAM_TRY(check_root(root));
  std::string all;
  if (rank_ == root) all = std::string(bytes);
  // On the root's host first, so that its leader has the bytes; then the leaders; then the other hosts.
  const bool root_host = host_of_[rank_] == host_of_[root];
  if (root_host && node_) {
    MILLSTREAM_ASSIGN(all, node_->broadcast_bytes(all, index_on_host_[root]));
  }
  if (leaders_) {
    MILLSTREAM_ASSIGN(all, leaders_->broadcast_bytes(all, host_of_[root]));
  }
  if (!root_host && node_) {
    MILLSTREAM_ASSIGN(all, node_->broadcast_bytes(all, 0));
  }
  return all;
}

Status GroupCommunicator::broadcast(void* data, int64_t bytes, int root) {
  MILLSTREAM_TRY(check_root(root));
  const bool root_host = host_of_[rank_] == host_of_[root];
  if (root_host && node_) MILLSTREAM_TRY(node_->broadcast(data, bytes, index_on_host_[root]));
  if (leaders_) MILLSTREAM_TRY(leaders_->broadcast(data, bytes, host_of_[root]));
  if (!root_host && node_) MILLSTREAM_TRY(node_->broadcast(data, bytes, 0));
  return Status::OK();
}

Status GroupCommunicator::all_reduce(void* data, int64_t count, DataType type, ReduceOp op) {
  MILLSTREAM_TRY(check_reduction(type, op));
  if (one_host()) return node_ ? node_->all_reduce(data, count, type, op) : Status::OK();
  if (node_) MILLSTREAM_TRY(node_->reduce(data, count, type, op, 0));
  if (leaders_) MILLSTREAM_TRY(leaders_->all_reduce(data, count, type, op));
  if (node_) MILLSTREAM_TRY(node_->broadcast(data, count * size_of(type), 0));
  return Status::OK();
}

Status GroupCommunicator::reduce(void* data, int64_t count, DataType type, ReduceOp op, int root) {
  MILLSTREAM_TRY(check_reduction(type, op));
  MILLSTREAM_TRY(check_root(root));
  if (one_host()) return node_ ? node_->reduce(data, count, type, op, root) : Status::OK();
  if (node_) MILLSTREAM_TRY(node_->reduce(data, count, type, op, 0));
  if (leaders_) MILLSTREAM_TRY(leaders_->reduce(data, count, type, op, host_of_[root]));
  // From the leader of the root's host to the root.
  if (node_ && host_of_[rank_] == host_of_[root] && index_on_host_[root] != 0) {
    MILLSTREAM_TRY(node_->broadcast(data, count * size_of(type), 0));
  }
  return Status::OK();
}

Status GroupCommunicator::all_gather(const void* mine, int64_t bytes, void* out) {
  if (one_host() && node_) return node_->all_gather(mine, bytes, out);
  if (one_each() && leaders_) return leaders_->all_gather(mine, bytes, out);
  MILLSTREAM_ASSIGN(auto all, allgather_bytes({static_cast<const char*>(mine), static_cast<size_t>(bytes)}));
  auto* place = static_cast<char*>(out);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() != static_cast<size_t>(bytes)) {
      return bug_error("ranks call different collectives: rank {} all_gather of {} bytes, rank {} of {}",
                       members_[rank_], bytes, members_[i], all[i].size());
    }
    if (bytes) std::memcpy(place + i * bytes, all[i].data(), bytes);
  }
  return Status::OK();
}

}  // namespace millstream::comm
