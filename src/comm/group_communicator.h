#pragma once
// A communicator over several hosts: a group of the members on this host, and a group of the leaders, one a
// host (the lowest member). Collectives go host, leaders, host; with one host, or one member on each, one of
// the two is all there is.

#include <memory>

#include "comm/group.h"

namespace millstream::comm {

class GroupCommunicator : public Communicator {
 public:
  /// `hosts`: for each host its members as indices into `members`, ascending, hosts in order of their lowest
  /// member. `node`: the group of this host's members, in that order; null where this rank is alone on its
  /// host. `leaders`: the group of the hosts' first members, in order of hosts; null with one host and on
  /// other ranks.
  GroupCommunicator(std::vector<int> members, int rank, std::vector<std::vector<int>> hosts,
                    std::unique_ptr<Group> node, std::unique_ptr<Group> leaders);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const override { return members_; }
  Status barrier() override;
  Result<std::vector<std::string>> allgather_bytes(std::string_view mine) override;
  Result<std::string> broadcast_bytes(std::string_view bytes, int root) override;
  Status all_reduce(void* data, int64_t count, DataType type, ReduceOp op) override;
  Status reduce(void* data, int64_t count, DataType type, ReduceOp op, int root) override;
  Status broadcast(void* data, int64_t bytes, int root) override;
  Status all_gather(const void* mine, int64_t bytes, void* out) override;

  Group* node() { return node_.get(); }

 private:
  Status check_root(int root) const;
  bool one_host() const { return hosts_.size() == 1; }
  bool one_each() const { return hosts_.size() == members_.size(); }

  std::vector<int> members_;
  int rank_;
  std::vector<std::vector<int>> hosts_;
  std::vector<int> host_of_;  // by member
  std::vector<int> index_on_host_;
  std::unique_ptr<Group> node_;
  std::unique_ptr<Group> leaders_;
};

}  // namespace millstream::comm
