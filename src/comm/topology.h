#pragma once
// Hosts, ranks and devices, and which ranks do what (design, section 9).

#include <string>
#include <vector>

#include "base/status.h"

namespace millstream::comm {

/// A GPU as one rank sees it. Slurm may show each rank its own "device 0", so devices are told apart by UUID.
struct Device {
  std::string uuid;
  int index = 0;  ///< as this rank numbers it
  std::string name;
};

/// What one rank says of itself.
struct RankInfo {
  std::string host;
  std::vector<Device> devices;
  int threads = 1;  ///< its share of the cores
};

struct Topology {
  std::vector<RankInfo> ranks;               ///< by world rank
  std::vector<std::string> hosts;            ///< in order of their lowest rank
  std::vector<std::vector<int>> host_ranks;  ///< by host, ascending
  std::vector<int> host_of_rank;
};
Topology make_topology(std::vector<RankInfo> ranks);

/// GPUs of this machine that this process may use, by NVML or libcuda opened at run time, never torch. None
/// where there is no driver.
std::vector<Device> local_devices();

struct Trainer {
  int rank = 0;
  int device = -1;  ///< index as that rank sees it; -1: CPU
  std::string device_uuid;
};
struct Roles {
  std::vector<Trainer> trainers;  ///< ascending by rank
  std::vector<int> feeders;       ///< ascending; ranks that prepare rows
  /// Notices for the user: unused GPUs, with the number of ranks that would use them.
  std::vector<std::string> notices;
  bool is_trainer(int rank) const;
  bool is_feeder(int rank) const;
  int trainer_index(int rank) const;  ///< -1: none
};

/// `spec`: "auto", "all", a number, or a comma-separated list of ranks. auto: a host with G distinct GPUs and
/// R ranks gives min(G, R) trainers, spread evenly over its local ranks and matched to devices that they see;
/// no GPU anywhere: one trainer a host (its first rank). A number N: N trainers spread evenly over hosts,
/// then local ranks, devices matched where there are some. Feeders are the ranks that don't train, and
/// trainers with more than one thread; where that leaves none, every trainer feeds. No device is given to two
/// ranks. Errors (usage): a rank that does not exist, N > ranks, an empty or malformed spec.
Result<Roles> assign_roles(const Topology& topology, const std::string& spec);

}  // namespace millstream::comm
