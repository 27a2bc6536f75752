#pragma once
// The inside of a Job, shared by job.cc and the watchdog's thread.

#include <condition_variable>
#include <deque>
#include <thread>

#include "comm/control_segment.h"
#include "comm/engine.h"
#include "comm/failure_board.h"
#include "comm/group_communicator.h"
#include "comm/job.h"
#include "comm/launcher.h"
#include "comm/message_group.h"
#include "comm/node_group.h"
#include "comm/watchdog.h"

namespace millstream::comm {

struct Job::State {
  JobOptions options;
  Launch launch;
  std::vector<std::string> host_names;  // by rank
  std::vector<std::string> affinities;  // by rank: which CPUs, of which machine
  int rank = 0, size = 1;
  std::string job_id;
  bool mpi_started = false;

  // Nodes: sets of ranks that share memory.
  std::vector<std::vector<int>> nodes;  // in order of their lowest rank
  std::vector<int> node_of;
  int node = 0, node_index = 0;  // of this rank: which node, which of its ranks
  int leader = 0;                // world rank of this node's first
  int64_t spin_ns = 0;
  const std::vector<int>& node_ranks() const { return nodes[node]; }
  bool several_nodes() const { return nodes.size() > 1; }

  ControlSegment* control = nullptr;  // null in a job of one rank
  int64_t control_bytes = 0;
  int next_piece = 0;                   // of shared memory, for names
  int next_tag = 1;                     // of groups that talk by messages
  std::atomic<uint32_t> generation{0};  // how often a failure was cleared

  FailureBoard board;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<NodeGroup> node_group;  // of the node's own matters; null where this rank is alone on it
  std::unique_ptr<GroupCommunicator> world;
  NodeGroup* world_node = nullptr;  // the parts of world, where it has them
  MessageGroup* world_leaders = nullptr;
  Topology topology;

  uint32_t agreements = 0;
  bool concluded = false;  // the last agreement of the job has been
  Status conclusion;
  std::mutex inbox_mutex;
  std::deque<ControlMessage> inbox;  // picks and results of agreements
  std::atomic<uint32_t> inbox_word{0};

  // The watchdog.
  std::thread watchdog;
  std::atomic<uint32_t> watchdog_stop{0};
  std::mutex signs_mutex;
  std::vector<RankSign> signs;  // of all ranks; heard from other nodes by message

  // Ends a start or a finish that does not return.
  std::atomic<uint32_t> guard_word{0};
  std::thread guard;

  ~State();
  Status begin(const JobOptions& options);
  void make_single();
  Status start_mpi();
  Status find_nodes();
  Status make_control_segment();
  Status agree_at_start(const Status& mine);
  void make_groups();
  Status exchange_topology();
  void tell_other_nodes(ControlKind kind, const std::string& bytes);
  void on_control(ControlMessage message);
  Status agree(Status mine, bool last);
  /// One status for all by the agreement's own channel; the core of agree().
  Status pick_one(const Status& mine, bool last);
  Result<uint8_t*> make_shared_memory(int64_t bytes);
  void clear_failure();
  Status finish(const Status& mine);
  ControlMessage next_control(ControlKind kind, uint32_t sequence);

  void start_watchdog();
  void stop_watchdog();
  void watch();
  void show_signs();
  void watch_messages();
  RankSign read_sign(int index, int of_rank) const;
  std::vector<RankSign> collect_signs();
  [[noreturn]] void end_job(const std::string& message, const std::vector<int>& lost);
  void guard_against_hang(double seconds, ErrorCategory category, int code, std::string message);
  void guard_off();
};

}  // namespace millstream::comm
