#include "comm/topology.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "comm/matching.h"

namespace millstream::comm {

Topology make_topology(std::vector<RankInfo> ranks) {
  Topology topology;
  topology.ranks = std::move(ranks);
  std::map<std::string, int> by_name;
  for (size_t rank = 0; rank < topology.ranks.size(); ++rank) {
    const std::string& host = topology.ranks[rank].host;
    const auto [place, fresh] = by_name.try_emplace(host, static_cast<int>(topology.hosts.size()));
    if (fresh) {
      topology.hosts.push_back(host);
      topology.host_ranks.emplace_back();
    }
    topology.host_ranks[place->second].push_back(static_cast<int>(rank));
    topology.host_of_rank.push_back(place->second);
  }
  return topology;
}

bool Roles::is_trainer(int rank) const {
  return trainer_index(rank) >= 0;
}
bool Roles::is_feeder(int rank) const {
  return std::binary_search(feeders.begin(), feeders.end(), rank);
}
int Roles::trainer_index(int rank) const {
  for (size_t i = 0; i < trainers.size(); ++i) {
    if (trainers[i].rank == rank) return static_cast<int>(i);
  }
  return -1;
}

namespace {

Result<int> parse_rank(std::string_view text, const std::string& spec) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size() || value < 0) {
    return usage_error(
        "trainers '{}': it can be auto, all, a number of trainers, or a list of ranks such as 0,2", spec);
  }
  return value;
}

/// `count` of `size` places, evenly: 0, size/count, …
std::vector<int> spread(int count, int size) {
  std::vector<int> places;
  for (int i = 0; i < count; ++i) places.push_back(static_cast<int>(int64_t{i} * size / count));
  return places;
}

/// One host's ranks and the devices that they see and nobody has yet.
class HostDevices {
 public:
  HostDevices(const Topology& topology, const std::vector<int>& ranks, const std::set<std::string>& taken)
      : ranks_(ranks) {
    std::map<std::string, int> number;
    for (int rank : ranks) {
      auto& sees = sees_.emplace_back();
      for (const Device& device : topology.ranks[rank].devices) {
        if (taken.count(device.uuid)) continue;
        const int d = number.try_emplace(device.uuid, static_cast<int>(number.size())).first->second;
        if (std::find(sees.begin(), sees.end(), d) == sees.end()) sees.push_back(d);
      }
    }
    for (const auto& [uuid, d] : number) {
      uuids_.resize(number.size());
      uuids_[d] = uuid;
    }
  }
  int count() const { return static_cast<int>(uuids_.size()); }
  const std::string& uuid(int d) const { return uuids_[d]; }
  /// How many of the host's ranks can have a device of their own at once.
  int most() const {
    Matching matching(sees_, count());
    for (size_t i = 0; i < ranks_.size(); ++i) matching.add(static_cast<int>(i));
    return matching.size();
  }
  /// Local ranks of `count` trainers: as many with devices as can be, at even places where the devices allow.
  std::vector<int> choose(int count) const {
    const int size = static_cast<int>(ranks_.size());
    std::vector<int> chosen;
    Matching matching(sees_, this->count());
    const int with_device = std::min(count, most());
    // Sets of ranks that can have devices together form a matroid: taking them greedily in the order of
    // preference is best, and reaches the greatest number.
    auto consider = [&](int local) {
      if (static_cast<int>(chosen.size()) < with_device && !contains(chosen, local) && matching.add(local)) {
        chosen.push_back(local);
      }
    };
    for (int local : spread(count, size)) consider(local);
    for (int local = 0; local < size; ++local) consider(local);
    for (int local : spread(count, size)) {
      if (static_cast<int>(chosen.size()) < count && !contains(chosen, local)) chosen.push_back(local);
    }
    for (int local = 0; local < size; ++local) {
      if (static_cast<int>(chosen.size()) < count && !contains(chosen, local)) chosen.push_back(local);
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }
  /// For each of these local ranks, in this order, its device or -1; as many devices as can be.
  std::vector<int> match(const std::vector<int>& locals) const {
    Matching matching(sees_, count());
    for (int local : locals) matching.add(local);
    std::vector<int> devices;
    for (int local : locals) devices.push_back(matching.of(local));
    return devices;
  }

 private:
  static bool contains(const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }
  const std::vector<int>& ranks_;
  std::vector<std::vector<int>> sees_;
  std::vector<std::string> uuids_;
};

}  // namespace

Result<Roles> assign_roles(const Topology& topology, const std::string& spec) {
  const int size = static_cast<int>(topology.ranks.size());
  const int num_hosts = static_cast<int>(topology.hosts.size());
  bool any_device = false;
  for (const RankInfo& rank : topology.ranks) any_device |= !rank.devices.empty();

  // Which ranks train, by host (local indices). For auto with devices, -1 trainers: as many as the devices
  // allow.
  std::vector<std::vector<int>> chosen(num_hosts);
  std::vector<int> counts(num_hosts, 0);
  bool by_count = true;
  if (spec == "auto") {
    for (int h = 0; h < num_hosts; ++h) counts[h] = any_device ? -1 : 1;
  } else if (spec == "all") {
    for (int h = 0; h < num_hosts; ++h) counts[h] = static_cast<int>(topology.host_ranks[h].size());
  } else if (spec.find(',') == std::string::npos) {
    MILLSTREAM_ASSIGN(const int wanted, parse_rank(spec, spec));
    if (wanted < 1 || wanted > size) {
      return usage_error("{} trainers were asked for, and the job has {} rank{}; it can be 1 to {}", wanted,
                         size, size == 1 ? "" : "s", size);
    }
    // One more for each host in turn, those with more devices first.
    std::vector<int> order(num_hosts), devices(num_hosts);
    for (int h = 0; h < num_hosts; ++h) {
      order[h] = h;
      devices[h] = HostDevices(topology, topology.host_ranks[h], {}).count();
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return devices[a] > devices[b]; });
    for (int left = wanted; left > 0;) {
      for (int h : order) {
        if (left > 0 && counts[h] < static_cast<int>(topology.host_ranks[h].size())) {
          ++counts[h];
          --left;
        }
      }
    }
  } else {
    by_count = false;
    std::set<int> listed;
    for (size_t at = 0; at <= spec.size();) {
      const size_t end = std::min(spec.find(',', at), spec.size());
      MILLSTREAM_ASSIGN(const int rank, parse_rank(std::string_view(spec).substr(at, end - at), spec));
      if (rank >= size) {
        return usage_error("trainers '{}': there is no rank {}; the job has {} rank{}, 0 to {}", spec, rank,
                           size, size == 1 ? "" : "s", size - 1);
      }
      if (!listed.insert(rank).second)
        return usage_error("trainers '{}': rank {} is there twice", spec, rank);
      at = end + 1;
    }
    for (int rank : listed) {
      const auto& on_host = topology.host_ranks[topology.host_of_rank[rank]];
      chosen[topology.host_of_rank[rank]].push_back(
          static_cast<int>(std::find(on_host.begin(), on_host.end(), rank) - on_host.begin()));
    }
  }

  Roles roles;
  std::set<std::string> taken;
  int would_use = 0;
  std::string unused_on;
  for (int h = 0; h < num_hosts; ++h) {
    const auto& ranks = topology.host_ranks[h];
    const HostDevices devices(topology, ranks, taken);
    if (by_count) chosen[h] = devices.choose(counts[h] < 0 ? devices.most() : counts[h]);
    const std::vector<int> matched = devices.match(chosen[h]);
    int used = 0;
    for (size_t i = 0; i < chosen[h].size(); ++i) {
      Trainer trainer;
      trainer.rank = ranks[chosen[h][i]];
      if (matched[i] >= 0) {
        trainer.device_uuid = devices.uuid(matched[i]);
        for (const Device& device : topology.ranks[trainer.rank].devices) {
          if (device.uuid == trainer.device_uuid) {
            trainer.device = device.index;
            break;
          }
        }
        taken.insert(trainer.device_uuid);
        ++used;
      }
      roles.trainers.push_back(trainer);
    }
    would_use += std::max(static_cast<int>(ranks.size()), devices.count());
    if (used < devices.count()) {
      unused_on += fmt::format("{}{} of the {} GPU{} of host {}", unused_on.empty() ? "" : ", ",
                               devices.count() - used, devices.count(), devices.count() == 1 ? "" : "s",
                               topology.hosts[h]);
    }
  }
  if (!unused_on.empty()) {
    roles.notices.push_back(
        would_use > size
            ? fmt::format("not used: {}; {} ranks (-n {}) would use them", unused_on, would_use, would_use)
            : fmt::format(
                  "not used: {}; with {} ranks and --trainers auto, as many are used as the ranks can see",
                  unused_on, size));
  }
  std::sort(roles.trainers.begin(), roles.trainers.end(),
            [](const Trainer& a, const Trainer& b) { return a.rank < b.rank; });
  if (roles.trainers.empty()) return usage_error("no rank can train: no rank sees a GPU that is its own");
  for (int rank = 0; rank < size; ++rank) {
    if (!roles.is_trainer(rank) || topology.ranks[rank].threads > 1) roles.feeders.push_back(rank);
  }
  if (roles.feeders.empty()) {
    for (const Trainer& trainer : roles.trainers) roles.feeders.push_back(trainer.rank);
  }
  return roles;
}

}  // namespace millstream::comm
