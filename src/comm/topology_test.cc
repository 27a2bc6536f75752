// Roles on tables of made-up hosts and devices, and over random ones.

#include "comm/topology.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "comm/devices.h"

namespace millstream::comm {
namespace {

RankInfo rank_on(const std::string& host, const std::vector<std::string>& uuids, int threads = 1) {
  RankInfo info;
  info.host = host;
  info.threads = threads;
  for (size_t i = 0; i < uuids.size(); ++i) info.devices.push_back({uuids[i], static_cast<int>(i), "a GPU"});
  return info;
}

std::vector<int> trainer_ranks(const Roles& roles) {
  std::vector<int> ranks;
  for (const Trainer& trainer : roles.trainers) ranks.push_back(trainer.rank);
  return ranks;
}

Roles roles_of(std::vector<RankInfo> ranks, const std::string& spec) {
  auto roles = assign_roles(make_topology(std::move(ranks)), spec);
  EXPECT_TRUE(roles.ok()) << roles.status().ToString();
  return roles.ok() ? *roles : Roles{};
}

using Ranks = std::vector<int>;

TEST(TopologyTableTest, HostsInOrderOfTheirLowestRank) {
  const Topology topology = make_topology({rank_on("b", {}), rank_on("a", {}), rank_on("b", {})});
  EXPECT_EQ(topology.hosts, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(topology.host_ranks, (std::vector<Ranks>{{0, 2}, {1}}));
  EXPECT_EQ(topology.host_of_rank, (Ranks{0, 1, 0}));
}

TEST(RolesTest, WithoutDevices) {
  const std::vector<RankInfo> ranks = {rank_on("a", {}), rank_on("a", {}), rank_on("b", {}),
                                       rank_on("b", {})};
  Roles roles = roles_of(ranks, "auto");
  EXPECT_EQ(trainer_ranks(roles), (Ranks{0, 2}));
  EXPECT_EQ(roles.feeders, (Ranks{1, 3}));
  EXPECT_EQ(roles.trainers[0].device, -1);
  EXPECT_TRUE(roles.notices.empty());
  EXPECT_EQ(roles.trainer_index(2), 1);
  EXPECT_EQ(roles.trainer_index(1), -1);
  roles = roles_of(ranks, "all");
  EXPECT_EQ(trainer_ranks(roles), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(roles.feeders, (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(trainer_ranks(roles_of(ranks, "1")), (Ranks{0}));
  EXPECT_EQ(trainer_ranks(roles_of(ranks, "2")), (Ranks{0, 2}));
  EXPECT_EQ(trainer_ranks(roles_of(ranks, "3")), (Ranks{0, 1, 2}));
  EXPECT_EQ(trainer_ranks(roles_of(ranks, "1, 3")), (Ranks{1, 3}));
}

TEST(RolesTest, TrainersWithThreadsFeedToo) {
  const Roles roles = roles_of({rank_on("a", {}, 2), rank_on("a", {}, 1), rank_on("a", {}, 4)}, "all");
  EXPECT_EQ(roles.feeders, (Ranks{0, 2}));
}

TEST(RolesTest, DevicesSpreadOverLocalRanks) {
  // Two GPUs, four ranks that all see both.
  std::vector<RankInfo> ranks(4, rank_on("a", {"u0", "u1"}));
  Roles roles = roles_of(ranks, "auto");
  EXPECT_EQ(trainer_ranks(roles), (Ranks{0, 2}));
  EXPECT_EQ(roles.trainers[0].device_uuid, "u0");
  EXPECT_EQ(roles.trainers[1].device_uuid, "u1");
  EXPECT_EQ(roles.trainers[1].device, 1);
  // A host without GPUs beside it only feeds.
  ranks.push_back(rank_on("b", {}));
  roles = roles_of(ranks, "auto");
  EXPECT_EQ(trainer_ranks(roles), (Ranks{0, 2}));
  EXPECT_EQ(roles.feeders, (Ranks{1, 3, 4}));
}

TEST(RolesTest, MoreDevicesThanRanks) {
  const Roles roles =
      roles_of({rank_on("a", {"u0", "u1", "u2", "u3"}), rank_on("a", {"u0", "u1", "u2", "u3"})}, "auto");
  EXPECT_EQ(trainer_ranks(roles), (Ranks{0, 1}));
  ASSERT_EQ(roles.notices.size(), 1u);
  EXPECT_EQ(roles.notices[0], "not used: 2 of the 4 GPUs of host a; 4 ranks (-n 4) would use them");
}

TEST(RolesTest, OneDeviceZeroEach) {
  // Slurm shows each rank its own device as number 0.
  Roles roles = roles_of({rank_on("a", {"u5"}), rank_on("a", {"u7"})}, "auto");
  EXPECT_EQ(trainer_ranks(roles), (Ranks{0, 1}));
  EXPECT_EQ(roles.trainers[1].device, 0);
  EXPECT_EQ(roles.trainers[1].device_uuid, "u7");
  // The same device for both is one device.
  roles = roles_of({rank_on("a", {"u5"}), rank_on("a", {"u5"})}, "auto");
  EXPECT_EQ(trainer_ranks(roles), (Ranks{0}));
}

TEST(RolesTest, ExchangesDevicesToReachAll) {
  // The first rank sees both; it must leave u0 to the second.
  const Roles roles = roles_of({rank_on("a", {"u0", "u1"}), rank_on("a", {"u0"})}, "auto");
  ASSERT_EQ(trainer_ranks(roles), (Ranks{0, 1}));
  EXPECT_EQ(roles.trainers[0].device_uuid, "u1");
  EXPECT_EQ(roles.trainers[0].device, 1);
  EXPECT_EQ(roles.trainers[1].device_uuid, "u0");
}

TEST(RolesTest, BadSpecs) {
  const Topology topology = make_topology({rank_on("a", {}), rank_on("a", {})});
  for (const char* spec :
       {"", "x", "-1", "0", "3", "0,2", "0,", ",", "0,0", "1.5", "auto,1", "99999999999"}) {
    const auto roles = assign_roles(topology, spec);
    ASSERT_FALSE(roles.ok()) << spec;
    EXPECT_EQ(error_category(roles.status()), ErrorCategory::kUsage) << spec;
  }
  EXPECT_EQ(assign_roles(topology, "0,2").status().message(),
            "trainers '0,2': there is no rank 2; the job has 2 ranks, 0 to 1");
  EXPECT_EQ(assign_roles(topology, "3").status().message(),
            "3 trainers were asked for, and the job has 2 ranks; it can be 1 to 2");
}

/// The greatest number of (rank, device) pairs, by trying everything.
int most_pairs(const std::vector<std::vector<int>>& sees, size_t rank, uint32_t used) {
  if (rank == sees.size()) return 0;
  int best = most_pairs(sees, rank + 1, used);
  for (int d : sees[rank]) {
    if (!(used >> d & 1)) best = std::max(best, 1 + most_pairs(sees, rank + 1, used | (1u << d)));
  }
  return best;
}

TEST(RolesTest, RandomTopologies) {
  std::mt19937 random(7);
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 3000; ++round) {
    const int num_hosts = 1 + below(4);
    std::vector<RankInfo> ranks;
    std::vector<std::vector<std::vector<int>>> sees(num_hosts);
    for (int h = 0; h < num_hosts; ++h) {
      const int gpus = below(3) == 0 ? 0 : below(5), kind = below(3), local = 1 + below(5);
      for (int r = 0; r < local; ++r) {
        std::vector<int> visible;
        for (int g = 0; g < gpus; ++g) {
          if (kind == 0 || (kind == 1 && g == r % gpus) || (kind == 2 && below(2))) visible.push_back(g);
        }
        std::shuffle(visible.begin(), visible.end(), random);
        std::vector<std::string> uuids;
        for (int g : visible) uuids.push_back(fmt::format("GPU-{}-{}", h, g));
        ranks.push_back(rank_on(fmt::format("host{}", h), uuids, 1 + below(2)));
        sees[h].push_back(visible);
      }
    }
    // Ranks come in any order over hosts; within a host the order of `sees` must follow.
    std::vector<int> order(ranks.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    if (below(2)) std::shuffle(order.begin(), order.end(), random);
    std::vector<RankInfo> mixed;
    for (int i : order) mixed.push_back(ranks[i]);
    const Topology topology = make_topology(mixed);
    const int size = static_cast<int>(mixed.size());
    bool any_device = false;
    for (const auto& rank : mixed) any_device |= !rank.devices.empty();

    const int wanted = 1 + below(size);
    for (const std::string& spec : {std::string("auto"), std::string("all"), std::to_string(wanted)}) {
      const auto made = assign_roles(topology, spec);
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      const Roles& roles = *made;
      ASSERT_FALSE(roles.trainers.empty());
      ASSERT_FALSE(roles.feeders.empty());
      ASSERT_TRUE(std::is_sorted(roles.feeders.begin(), roles.feeders.end()));
      std::set<std::string> devices;
      std::map<std::string, int> trainers_on, with_device_on;
      int before = -1;
      for (const Trainer& trainer : roles.trainers) {
        ASSERT_GT(trainer.rank, before);  // ascending, nobody twice
        before = trainer.rank;
        ASSERT_LT(trainer.rank, size);
        ++trainers_on[mixed[trainer.rank].host];
        if (trainer.device < 0) {
          ASSERT_EQ(trainer.device_uuid, "");
          continue;
        }
        ++with_device_on[mixed[trainer.rank].host];
        ASSERT_TRUE(devices.insert(trainer.device_uuid).second) << "a device twice";
        bool seen = false;
        for (const Device& device : mixed[trainer.rank].devices) {
          seen |= device.uuid == trainer.device_uuid && device.index == trainer.device;
        }
        ASSERT_TRUE(seen) << "a device that its rank does not see";
      }
      for (int h = 0; h < num_hosts; ++h) {
        const std::string host = fmt::format("host{}", h);
        const int most = most_pairs(sees[h], 0, 0);
        if (spec == "auto") {
          ASSERT_EQ(trainers_on[host], any_device ? most : 1);
          ASSERT_EQ(with_device_on[host], any_device ? most : 0);
        } else if (spec == "all") {
          ASSERT_EQ(trainers_on[host], static_cast<int>(sees[h].size()));
          ASSERT_EQ(with_device_on[host], most);
        } else {
          ASSERT_EQ(with_device_on[host], std::min(trainers_on[host], most));
        }
      }
      if (spec == std::to_string(wanted)) {
        ASSERT_EQ(static_cast<int>(roles.trainers.size()), wanted);
        for (int h = 0; h < num_hosts; ++h) {
          for (int k = 0; k < num_hosts; ++k) {
            // Even over hosts: one has two fewer than another only where it has no more ranks.
            const int here = trainers_on[fmt::format("host{}", h)],
                      there = trainers_on[fmt::format("host{}", k)];
            if (here + 1 < there) {
              ASSERT_EQ(here, static_cast<int>(sees[h].size()));
            }
          }
        }
      }
      for (int rank = 0; rank < size; ++rank) {
        if (!roles.is_trainer(rank)) {
          ASSERT_TRUE(roles.is_feeder(rank));
        }
      }
    }
  }
}

TEST(DevicesTest, VisibleDevices) {
  const std::vector<Device> all = {{"GPU-aa11", 0, "x"}, {"GPU-ab22", 1, "x"}, {"GPU-cc33", 2, "x"}};
  auto uuids = [&](const char* value) {
    std::string text;
    int expected_index = 0;
    for (const Device& device : visible_devices(all, value)) {
      EXPECT_EQ(device.index, expected_index++);
      text += device.uuid + " ";
    }
    return text;
  };
  EXPECT_EQ(uuids(nullptr), "GPU-aa11 GPU-ab22 GPU-cc33 ");
  EXPECT_EQ(uuids(""), "");
  EXPECT_EQ(uuids("-1"), "");
  EXPECT_EQ(uuids("2,0"), "GPU-cc33 GPU-aa11 ");
  EXPECT_EQ(uuids("1,9,0"), "GPU-ab22 ");
  EXPECT_EQ(uuids("GPU-cc,GPU-aa11"), "GPU-cc33 GPU-aa11 ");
  EXPECT_EQ(uuids("1,1"), "");
  EXPECT_EQ(uuids("MIG-5f"), "MIG-5f ");
  EXPECT_EQ(uuids("NoDevFiles"), "");
}

}  // namespace
}  // namespace millstream::comm
