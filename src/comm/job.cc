#include "comm/job.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpu_share.h"
#include "base/futex.h"
#include "base/kill_point.h"
#include "base/progress.h"
#include "base/trace.h"
#include "comm/job_state.h"
#include "comm/mpi_call.h"
#include "comm/shared_memory_file.h"
#include "comm/supervisor.h"
#include "comm/supervisor_protocol.h"

namespace millstream::comm {
namespace {

constexpr double kFinishSeconds = 5;
constexpr double kStartSeconds = 60;
constexpr int64_t kSpinNs = 12'000;

#if defined(OPEN_MPI)
constexpr MpiKind kBuiltWith = MpiKind::kOpenMpi;
#elif defined(MPICH_VERSION)
constexpr MpiKind kBuiltWith = MpiKind::kMpich;
#else
constexpr MpiKind kBuiltWith = MpiKind::kOther;
#endif

std::string random_job_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string affinity_text() {
  std::string text;
  for (int cpu : affinity_cpus()) text += fmt::format("{},", cpu);
  return text;
}

template <class T>
T* aligned_zeroed(int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<size_t>(round_to_pages(bytes)), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<T*>(memory);
}

/// MPI's own pieces of shared memory keep their names until MPI_Finalize, which a killed rank does not reach. All
/// ranks have mapped them when this is called, so the names can go.
void remove_names_of_mpi_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find("/dev/shm/mpich_shm_");
    if (path != std::string::npos && line.find(" (deleted)") == std::string::npos)
      unlink(line.c_str() + path);
  }
}

/// Fixed-size text from every rank, before there are communicators.
Result<std::vector<std::string>> gather_text(const std::string& mine, int size, size_t width) {
  std::string out(width, '\0'), all(width * size, '\0');
  mine.copy(out.data(), width - 1);
  MILLSTREAM_MPI_TRY(MPI_Allgather(out.data(), static_cast<int>(width), MPI_BYTE, all.data(),
                                   static_cast<int>(width), MPI_BYTE, MPI_COMM_WORLD),
                     "MPI_Allgather");
  std::vector<std::string> texts;
  for (int i = 0; i < size; ++i) texts.emplace_back(all.c_str() + i * width);
  return texts;
}

}  // namespace

std::string mpi_compiled_in() {
#if defined(OPEN_MPI)
  return fmt::format("Open MPI {}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  return "MPICH " MPICH_VERSION;
#else
  return fmt::format("an MPI {}.{}", MPI_VERSION, MPI_SUBVERSION);
#endif
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  std::string line(text, static_cast<size_t>(std::max(length, 0)));
  line = line.substr(0, line.find('\n'));
  for (char& c : line) {
    if (c == '\t') c = ' ';
  }
  return line;
}

// ---- start
// -------------------------------------------------------------------------------------------------

Status Job::State::begin(const JobOptions& job_options) {
  options = job_options;
  if (!(options.deadline_s > 0))
    return usage_error("a deadline of {:g} seconds; it must be more than 0", options.deadline_s);
  report_deadline_to_supervisor(options.deadline_s);
  MILLSTREAM_ASSIGN(launch, detect_launch(process_environment(), kBuiltWith, mpi_compiled_in()));
  if (!launch.mpi) {
    make_single();
    return Status::OK();
  }
  rank = launch.rank;
  // Starting takes a while where there are many ranks, whatever deadline the work has. Rank 0 speaks first; the
  // others only where it can't.
  const double start_s = std::max(options.deadline_s, kStartSeconds);
  guard_against_hang(
      start_s + (rank == 0 ? 0 : 2), ErrorCategory::kCommunication, 4,
      fmt::format("rank {} (host {}, pid {}) has waited {:g} s for the other ranks of the job to start; "
                  "the job is ended",
                  rank, host_name(), getpid(), start_s));
  MILLSTREAM_TRY(start_mpi());
  if (size == 1) {
    guard_off();
    make_single();
    return Status::OK();
  }
  MILLSTREAM_TRY(find_nodes());
  MILLSTREAM_TRY(agree_at_start(make_control_segment()));
  // All have mapped it: from here on nothing is left behind, whoever dies.
  if (rank == leader && node_ranks().size() > 1) remove_shared_memory(shared_memory_name(job_id, leader, 0));
  auto made =
      Engine::make(board, rank, size, [this](ControlMessage message) { on_control(std::move(message)); });
  MILLSTREAM_TRY(agree_at_start(made.status()));
  engine = std::move(made).ValueUnsafe();
  remove_names_of_mpi_memory();
  board.attach(control, rank);
  if (several_nodes()) {
    board.set_broadcast([this](const Status& status, int) {
      tell_other_nodes(ControlKind::kFailure, encode_status(status));
    });
    engine->start(/*listen=*/true);
  }
  make_groups();
  guard_off();
  start_watchdog();
  return exchange_topology();
}

void Job::State::make_single() {
  rank = 0;
  size = 1;
  nodes = {{0}};
  node_of = {0};
  host_names = {host_name()};
  world = std::make_unique<GroupCommunicator>(std::vector<int>{0}, 0, std::vector<std::vector<int>>{{0}},
                                              nullptr, nullptr);
  RankInfo info;
  info.host = host_names[0];
  info.devices = local_devices();
  info.threads = threads_of_share(1);
  topology = make_topology({info});
}

Status Job::State::start_mpi() {
  // The libraries of one family share an interface; another family's under the same name would crash.
  const std::string library = mpi_library_version();
  const bool open_mpi_runs = library.find("Open MPI") != std::string::npos;
  if (open_mpi_runs != (kBuiltWith == MpiKind::kOpenMpi)) {
    return usage_error(
        "built with {}, but the MPI library that was loaded is \"{}\"; look at LD_LIBRARY_PATH, or build "
        "with the MPI you run with",
        mpi_compiled_in(), library);
  }
  int provided = 0;
  MILLSTREAM_MPI_TRY(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  mpi_started = true;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided < MPI_THREAD_MULTIPLE) {
    return usage_error(
        "the MPI library \"{}\" does not let several threads call it (MPI_THREAD_MULTIPLE); use one that "
        "does",
        library);
  }
  if (launch.size > 0 && size != launch.size) {
    return usage_error(
        "started by {} as one of {} ranks, but {} sees a job of {}: the launcher does not belong to this "
        "MPI; start with "
        "--ranks {}, or with {}'s own mpiexec (under Slurm: srun --mpi=list shows what there is)",
        launch.launcher, launch.size, mpi_compiled_in(), size, launch.size, mpi_compiled_in());
  }
  return Status::OK();
}

Status Job::State::agree_at_start(const Status& mine) {
  // As text, the category in front: a status in bytes holds zeros.
  MILLSTREAM_ASSIGN(
      auto texts,
      gather_text(mine.ok() ? "" : fmt::format("{:02}{}", int(error_category(mine)), mine.message()), size,
                  2048));
  for (int i = 0; i < size; ++i) {
    if (texts[i].empty()) continue;
    return make_error(static_cast<ErrorCategory>(std::atoi(texts[i].substr(0, 2).c_str())),
                      texts[i].substr(2), {}, i);
  }
  return Status::OK();
}

Status Job::State::find_nodes() {
  const std::string my_host = host_name(), my_key = host_key();
  MILLSTREAM_ASSIGN(auto names, gather_text(my_host, size, 256));
  MILLSTREAM_ASSIGN(auto keys, gather_text(my_key, size, 512));
  MILLSTREAM_ASSIGN(affinities,
                    gather_text(my_key.substr(my_key.find('/')) + " " + affinity_text(), size, 4096));
  const char* id = std::getenv(kJobIdVariable);
  MILLSTREAM_ASSIGN(auto ids, gather_text(id && *id ? std::string(id) : random_job_id(), size, 128));
  job_id = ids[0];
  node_of.assign(size, -1);
  std::map<std::string, int> by_key, hosts_named;
  for (int i = 0; i < size; ++i) {
    const std::string key = options.force_messages ? fmt::format("{}#{}", keys[i], i) : keys[i];
    const auto [place, fresh] = by_key.try_emplace(key, static_cast<int>(nodes.size()));
    if (fresh) nodes.emplace_back();
    node_of[i] = place->second;
    nodes[place->second].push_back(i);
  }
  // Two hosts of one name (containers of one machine) are told apart by a number. A rank's host is where it runs,
  // though with force_messages ranks of one host share no memory.
  host_names.resize(size);
  std::map<std::string, std::string> host_of_key;
  for (int i = 0; i < size; ++i) {
    std::string& host = host_of_key[keys[i]];
    if (host.empty()) {
      const int count = ++hosts_named[names[i]];
      host = count == 1 ? names[i] : fmt::format("{}#{}", names[i], count);
    }
    host_names[i] = host;
  }
  signs.resize(size);
  for (int i = 0; i < size; ++i) {
    signs[i].rank = i;
    signs[i].host = host_names[i];
  }
  node = node_of[rank];
  leader = nodes[node][0];
  node_index =
      static_cast<int>(std::find(nodes[node].begin(), nodes[node].end(), rank) - nodes[node].begin());
  // Spinning for microseconds is worth it only where every rank has a core.
  const auto sharing = std::count(affinities.begin(), affinities.end(), affinities[rank]);
  const double cpus = std::min<double>(static_cast<double>(affinity_cpus().size()), cgroup_cpu_quota());
  spin_ns = cpus >= static_cast<double>(sharing) ? kSpinNs : 0;
  next_piece = 1;
  return Status::OK();
}

Status Job::State::make_control_segment() {
  const int local = static_cast<int>(node_ranks().size());
  const int64_t group_bytes = NodeGroup::bytes_needed(local, NodeGroup::kControlCapacity);
  const int64_t head = (sizeof(ControlSegment) + local * sizeof(RankRecord) + 63) / 64 * 64;
  control_bytes = round_to_pages(head + 2 * group_bytes);
  uint8_t* memory = nullptr;
  if (local == 1) {
    memory = aligned_zeroed<uint8_t>(control_bytes);
    if (!memory) return failed_error("no memory for {}", format_bytes(control_bytes));
  }
  const std::string name = shared_memory_name(job_id, leader, 0);
  Status made;
  if (local > 1 && rank == leader) {
    auto created = create_shared_memory(name, control_bytes);
    if (created.ok()) memory = *created;
    made = created.status();
  }
  MILLSTREAM_TRY(agree_at_start(made));
  if (local > 1 && rank != leader) {
    MILLSTREAM_ASSIGN(memory, open_shared_memory(name, control_bytes));
  }
  control = reinterpret_cast<ControlSegment*>(memory);
  RankRecord& me = control->ranks()[node_index];
  me.pid.store(getpid());
  me.state.store(1);
  return Status::OK();
}

void Job::State::make_groups() {
  std::unique_ptr<NodeGroup> node_part;
  const int local = static_cast<int>(node_ranks().size());
  if (local > 1) {
    uint8_t* memory = reinterpret_cast<uint8_t*>(control) +
                      (sizeof(ControlSegment) + local * sizeof(RankRecord) + 63) / 64 * 64;
    node_group = std::make_unique<NodeGroup>(board, memory, nullptr, node_index, node_ranks(),
                                             NodeGroup::kControlCapacity, spin_ns);
    memory += NodeGroup::bytes_needed(local, NodeGroup::kControlCapacity);
    node_part = std::make_unique<NodeGroup>(board, memory, nullptr, node_index, node_ranks(),
                                            NodeGroup::kControlCapacity, spin_ns);
    world_node = node_part.get();
  }
  std::unique_ptr<MessageGroup> leaders;
  if (several_nodes() && rank == leader) {
    std::vector<int> first;
    for (const auto& ranks : nodes) first.push_back(ranks[0]);
    leaders = std::make_unique<MessageGroup>(board, *engine, node, first, 0);
    world_leaders = leaders.get();
  }
  std::vector<int> members(size);
  for (int i = 0; i < size; ++i) members[i] = i;
  world = std::make_unique<GroupCommunicator>(members, rank, nodes, std::move(node_part), std::move(leaders));
}

Status Job::State::exchange_topology() {
  RankInfo mine;
  mine.host = host_names[rank];
  mine.devices = local_devices();
  mine.threads =
      threads_of_share(static_cast<int>(std::count(affinities.begin(), affinities.end(), affinities[rank])));
  std::string text = fmt::format("{}\n", mine.threads);
  for (const Device& device : mine.devices)
    text += fmt::format("{}\n{}\n{}\n", device.uuid, device.index, device.name);
  MILLSTREAM_ASSIGN(auto all, world->allgather_bytes(text));
  std::vector<RankInfo> infos(size);
  for (int i = 0; i < size; ++i) {
    std::vector<std::string> lines;
    for (size_t at = 0; at < all[i].size();) {
      const size_t end = all[i].find('\n', at);
      lines.push_back(all[i].substr(at, end - at));
      at = end + 1;
    }
    infos[i].host = host_names[i];
    infos[i].threads = std::atoi(lines[0].c_str());
    for (size_t line = 1; line + 2 < lines.size(); line += 3) {
      infos[i].devices.push_back({lines[line], std::atoi(lines[line + 1].c_str()), lines[line + 2]});
    }
  }
  topology = make_topology(std::move(infos));
  return Status::OK();
}

// ---- failures and agreement
// --------------------------------------------------------------------------------

void Job::State::tell_other_nodes(ControlKind kind, const std::string& bytes) {
  if (!engine || !engine->running()) return;
  for (int other = 0; other < size; ++other) {
    if (node_of[other] != node) engine->send_control(other, {kind, generation.load(), 0, rank, bytes});
  }
}

void Job::State::on_control(ControlMessage message) {
  switch (message.kind) {
    case ControlKind::kHeartbeat: {
      std::lock_guard lock(signs_mutex);
      if (message.from < 0 || message.from >= static_cast<int>(signs.size())) return;
      RankSign& sign = signs[message.from];
      struct {
        uint64_t beats;
        uint32_t heartbeat;
        int32_t pid;
        uint32_t waiting, left;
      } packet{};
      if (message.bytes.size() < sizeof packet) return;
      std::memcpy(&packet, message.bytes.data(), sizeof packet);
      sign.beats = packet.beats;
      sign.heartbeat = packet.heartbeat;
      sign.pid = packet.pid;
      sign.waiting = packet.waiting;
      sign.left = packet.left;
      sign.phase = message.bytes.substr(sizeof packet);
      return;
    }
    case ControlKind::kFailure:
      if (message.generation == generation.load())
        board.note_peer_failure(decode_status(message.bytes), message.from);
      return;
    case ControlKind::kAgreePick:
    case ControlKind::kAgreeResult: {
      {
        std::lock_guard lock(inbox_mutex);
        inbox.push_back(std::move(message));
      }
      inbox_word.fetch_add(1, std::memory_order_release);
      futex_wake_all(inbox_word);
      return;
    }
    case ControlKind::kAbort:
      control->aborted.store(1);
      _exit(4);
  }
}

ControlMessage Job::State::next_control(ControlKind kind, uint32_t sequence) {
  engine->hurry.fetch_add(1);
  while (true) {
    const uint32_t seen = inbox_word.load(std::memory_order_acquire);
    {
      std::lock_guard lock(inbox_mutex);
      for (auto it = inbox.begin(); it != inbox.end(); ++it) {
        if (it->kind != kind || it->sequence != sequence) continue;
        ControlMessage message = std::move(*it);
        inbox.erase(it);
        engine->hurry.fetch_sub(1);
        return message;
      }
    }
    board.wait_while_equal(inbox_word, seen, 0, /*interruptible=*/false);
  }
}

Status Job::State::pick_one(const Status& mine, bool last) {
  if (concluded) return conclusion;
  const uint32_t sequence = ++agreements;
  Status best = mine;
  int best_rank = rank;
  // Ranks that go different ways after a failure may differ in how many agreements they meet on the way out. The
  // first that is in finish() makes this the job's last agreement, for those that meant another one too.
  int finishing = last ? rank : -1, staying = last ? -1 : rank;
  auto conclude = [&](const Status& agreed, bool over) {
    concluded = over;
    if (over) conclusion = agreed;
    return agreed;
  };
  auto merge = [&](std::string_view encoded, int from) {
    const Status other = decode_status(encoded);
    if (other.ok()) return;
    if (best.ok() || reported_before(other, from, best, best_rank)) {
      best = other;
      best_rank = from;
    }
  };
  RankRecord& me = control->ranks()[node_index];
  auto wait_for = [&](const std::atomic<uint32_t>& word) {
    for (uint32_t seen; (seen = word.load(std::memory_order_acquire)) != sequence;) {
      board.wait_while_equal(word, seen, spin_ns, /*interruptible=*/false);
    }
  };
  me.agree_status.set(encode_status(mine), rank);
  me.agree_last.store(last);
  me.agree_sequence.store(sequence, std::memory_order_release);
  futex_wake_all(me.agree_sequence);
  if (rank != leader) {
    wait_for(control->result_sequence);
    return conclude(decode_status(control->result.view()), control->result_last.load() != 0);
  }
  for (size_t i = 1; i < node_ranks().size(); ++i) {
    const RankRecord& other = control->ranks()[i];
    wait_for(other.agree_sequence);
    merge(other.agree_status.view(), other.agree_status.rank);
    (other.agree_last.load() != 0 ? finishing : staying) = node_ranks()[i];
  }
  // In messages this stands in front of the status.
  struct Head {
    int from, finishing, staying;
  };
  auto packed = [&] {
    const Head head{best_rank, finishing, staying};
    return std::string(reinterpret_cast<const char*>(&head), sizeof head) + encode_status(best);
  };
  auto head_of = [](const std::string& bytes) {
    Head head{-1, -1, -1};
    MILLSTREAM_CHECK(bytes.size() >= sizeof head);
    std::memcpy(&head, bytes.data(), sizeof head);
    return head;
  };
  auto take = [&](const std::string& bytes) {
    const Head head = head_of(bytes);
    if (head.finishing >= 0) finishing = head.finishing;
    if (head.staying >= 0) staying = head.staying;
    merge(std::string_view(bytes).substr(sizeof head), head.from);
  };
  if (several_nodes() && node != 0) {
    engine->send_control(nodes[0][0], {ControlKind::kAgreePick, generation.load(), sequence, rank, packed()});
    const std::string bytes = next_control(ControlKind::kAgreeResult, sequence).bytes;
    const Head head = head_of(bytes);
    best = decode_status(std::string_view(bytes).substr(sizeof head));
    finishing = head.finishing;
  } else {
    for (size_t i = 1; i < nodes.size(); ++i) take(next_control(ControlKind::kAgreePick, sequence).bytes);
    if (best.ok() && finishing >= 0 && staying >= 0) {
      best = bug_error("rank {} has finished, but rank {} goes on", finishing, staying);
      best_rank = finishing;
    }
    for (size_t i = 1; i < nodes.size(); ++i) {
      engine->send_control(nodes[i][0],
                           {ControlKind::kAgreeResult, generation.load(), sequence, rank, packed()});
    }
  }
  control->result.set(encode_status(best), rank);
  control->result_last.store(finishing >= 0);
  control->result_sequence.store(sequence, std::memory_order_release);
  futex_wake_all(control->result_sequence);
  return conclude(best, finishing >= 0);
}

Status Job::State::agree(Status mine, bool last) {
  const Status own = board.own_failure();
  if (!own.ok() && (mine.ok() || reported_before(own, rank, mine, rank))) mine = own;
  if (!mine.ok()) {
    // The category and the place stay; who met it is told along.
    if (error_category(mine) != ErrorCategory::kPeerFailed) {
      mine = make_error(error_category(mine), mine.message(), error_position(mine), rank);
    }
    board.fail(mine);
  }
  if (size == 1) return mine;
  Status agreed = pick_one(mine, last);
  if (!agreed.ok() && !board.failed()) board.note_peer_failure(agreed, rank);
  return agreed;
}

void Job::State::clear_failure() {
  if (size > 1) {
    (void)pick_one(Status::OK(), /*last=*/false);  // everybody is here: nothing is in use
    const bool engines = several_nodes() || control->engine_used.load() != 0;
    if (engines) engine->drain();
    if (node_group) node_group->reset();
    if (world_node) world_node->reset();
    const uint32_t now = generation.fetch_add(1) + 1;
    // World's messages use tag 0, 1, 2, 3 in turn.
    if (world_leaders) world_leaders->set_tag(static_cast<int>(now % 4));
    // Ranks that heard of the failure early made fewer pieces of shared memory: names are counted from here.
    next_piece = static_cast<int>(now % 32768) * 65536 + 1;
    if (rank == leader) {
      control->failed.store(0);
      control->record_state.store(0);
    }
    (void)pick_one(Status::OK(), /*last=*/false);  // the segment is clear before anybody looks at it again
    board.clear();
    if (engines) engine->resume();
    (void)pick_one(Status::OK(), /*last=*/false);
  } else {
    board.clear();
  }
}

// ---- the end
// -----------------------------------------------------------------------------------------------

Status Job::State::finish(const Status& mine) {
  set_phase("the end of the job");
  const Status agreed = agree(mine, /*last=*/true);
  report_end_to_supervisor(agreed, /*said=*/false);
  if (size == 1 && !mpi_started) return agreed;
  guard_against_hang(kFinishSeconds, agreed.ok() ? ErrorCategory::kBug : error_category(agreed),
                     exit_code(agreed), rank == 0 && !agreed.ok() ? agreed.message() : "");
  if (control) {
    control->ranks()[node_index].state.store(2);
    stop_watchdog();
    if (several_nodes() || control->engine_used.load() != 0) engine->drain();
    engine->stop();
  }
  const Status finalized = mpi_status(MPI_Finalize(), "MPI_Finalize");
  mpi_started = false;
  guard_off();
  return agreed.ok() ? finalized : agreed;
}

void Job::State::guard_against_hang(double seconds, ErrorCategory category, int code, std::string message) {
  guard_off();
  guard_word.store(0);
  guard = std::thread([this, seconds, category, code, message = std::move(message)] {
    const int64_t until = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
    for (int64_t now; guard_word.load() == 0 && (now = monotonic_ns()) < until;) {
      futex_wait(guard_word, 0, std::chrono::nanoseconds(until - now));
    }
    if (guard_word.load() != 0) return;
    if (!message.empty() && !report_end_to_supervisor(make_error(category, message), /*said=*/false)) {
      const std::string line = fmt::format("millstream: error: {}\n", message);
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    }
    _exit(code);
  });
}

void Job::State::guard_off() {
  if (!guard.joinable()) return;
  guard_word.store(1);
  futex_wake_all(guard_word);
  guard.join();
}

// ---- the watchdog's thread
// ---------------------------------------------------------------------------------

void Job::State::start_watchdog() {
  show_signs();
  watchdog = std::thread([this] { watch(); });
}

void Job::State::stop_watchdog() {
  if (!watchdog.joinable()) return;
  watchdog_stop.store(1);
  futex_wake_all(watchdog_stop);
  watchdog.join();
  show_signs();
  // Other nodes hear of the end, and look for no more signs.
  if (several_nodes()) watch_messages();
}

void Job::State::show_signs() {
  RankRecord& me = control->ranks()[node_index];
  char text[32] = {};
  std::string_view(progress().phase.load(std::memory_order_relaxed)).copy(text, sizeof text - 1);
  for (size_t i = 0; i < me.phase.size(); ++i) {
    uint64_t word;
    std::memcpy(&word, text + 8 * i, 8);
    me.phase[i].store(word, std::memory_order_relaxed);
  }
  me.beats.store(progress().beats.load(std::memory_order_relaxed), std::memory_order_relaxed);
  me.waiting.store(progress().waiting.load(std::memory_order_relaxed), std::memory_order_relaxed);
  me.heartbeat.fetch_add(1, std::memory_order_release);
}

void Job::State::watch_messages() {
  const RankSign mine = read_sign(node_index, rank);
  struct {
    uint64_t beats;
    uint32_t heartbeat;
    int32_t pid;
    uint32_t waiting, left;
  } packet{mine.beats, mine.heartbeat, mine.pid, mine.waiting, mine.left};
  tell_other_nodes(ControlKind::kHeartbeat,
                   std::string(reinterpret_cast<const char*>(&packet), sizeof packet) + mine.phase);
}

RankSign Job::State::read_sign(int index, int of_rank) const {
  const RankRecord& record = control->ranks()[index];
  RankSign sign;
  sign.rank = of_rank;
  sign.host = host_names[of_rank];
  sign.heartbeat = record.heartbeat.load(std::memory_order_acquire);
  sign.beats = record.beats.load(std::memory_order_relaxed);
  sign.waiting = record.waiting.load(std::memory_order_relaxed) != 0;
  sign.left = record.state.load(std::memory_order_acquire) == 2;
  sign.pid = record.pid.load(std::memory_order_relaxed);
  char text[33] = {};
  for (size_t i = 0; i < record.phase.size(); ++i) {
    const uint64_t word = record.phase[i].load(std::memory_order_relaxed);
    std::memcpy(text + 8 * i, &word, 8);
  }
  sign.phase = text;
  return sign;
}

std::vector<RankSign> Job::State::collect_signs() {
  std::vector<RankSign> all;
  {
    std::lock_guard lock(signs_mutex);
    all = signs;
  }
  for (size_t i = 0; i < node_ranks().size(); ++i)
    all[node_ranks()[i]] = read_sign(static_cast<int>(i), node_ranks()[i]);
  return all;
}

void Job::State::watch() {
  pthread_setname_np(pthread_self(), "ms-watchdog");
  const double period_s = std::clamp(options.deadline_s / 10, 0.02, 0.25);
  // Everybody tells everybody on other hosts: rarely, where there are many.
  const double message_period_s = std::max(std::clamp(options.deadline_s / 8, 0.05, 5.0), size / 200.0);
  WatchdogJudge judge(options.deadline_s);
  double next_message = 0;
  double verdict_since = -1;
  while (watchdog_stop.load() == 0) {
    show_signs();
    const double now = static_cast<double>(monotonic_ns()) * 1e-9;
    if (several_nodes() && now >= next_message) {
      watch_messages();
      next_message = now + message_period_s;
    }
    if (control->aborted.load() != 0) _exit(4);
    const auto signs_now = collect_signs();
    const auto verdict = judge.observe(now, signs_now);
    if (verdict) {
      if (verdict_since < 0) verdict_since = now;
      // The lowest living rank speaks for the job; where it does not, the next takes over a second later.
      int before = 0;
      for (const RankSign& sign : signs_now) {
        const bool lost =
            verdict->kind == Verdict::Kind::kLost &&
            std::find(verdict->ranks.begin(), verdict->ranks.end(), sign.rank) != verdict->ranks.end();
        before += !lost && !sign.left && sign.rank < rank;
      }
      if (now - verdict_since >= before) {
        end_job(verdict->message,
                verdict->kind == Verdict::Kind::kLost ? verdict->ranks : std::vector<int>{});
      }
    } else {
      verdict_since = -1;
    }
    futex_wait(watchdog_stop, 0, std::chrono::nanoseconds(static_cast<int64_t>(period_s * 1e9)));
  }
}

void Job::State::end_job(const std::string& message, const std::vector<int>& lost) {
  if (control->aborted.exchange(1) != 0) _exit(4);
  const std::string line = fmt::format("millstream: error: {}\n", message);
  // If standard error is gone there is nobody to tell.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  report_end_to_supervisor(communication_error("{}", message), /*said=*/true);
  tell_other_nodes(ControlKind::kAbort, message);
  for (int other : lost) {
    if (node_of[other] != node) continue;
    for (size_t i = 0; i < node_ranks().size(); ++i) {
      if (node_ranks()[i] == other) kill(control->ranks()[i].pid.load(), SIGKILL);
    }
  }
  if (several_nodes()) {
    // A moment for the news to leave; with force_messages the lost ranks are on this machine after all.
    usleep(200'000);
    if (options.force_messages) {
      std::lock_guard lock(signs_mutex);
      for (int other : lost) {
        if (signs[other].pid > 0) kill(signs[other].pid, SIGKILL);
      }
    }
  }
  _exit(4);
}

// ---- the face
// ----------------------------------------------------------------------------------------------

Job::State::~State() {
  guard_off();
  if (watchdog.joinable()) stop_watchdog();
  if (engine) engine->stop();
  world.reset();
  node_group.reset();
  unmap_shared_memory(reinterpret_cast<uint8_t*>(control), control_bytes);
}

Job::Job(std::unique_ptr<State> state) : state_(std::move(state)) {}
Job::~Job() = default;

Result<std::unique_ptr<Job>> Job::start(const JobOptions& options) {
  auto state = std::make_unique<State>();
  const Status status = state->begin(options);
  if (!status.ok()) {
    state->guard_off();
    return status;
  }
  arm_kill_points(state->rank);
  return std::unique_ptr<Job>(new Job(std::move(state)));
}

int Job::rank() const {
  return state_->rank;
}
int Job::size() const {
  return state_->size;
}
Communicator& Job::world() {
  return *state_->world;
}
const Topology& Job::topology() const {
  return state_->topology;
}
const std::vector<int>& Job::node_ranks() const {
  return state_->node_ranks();
}

MessageEngine& Job::messages() {
  MILLSTREAM_CHECK(state_->engine != nullptr, "messages in a job of one rank");
  if (!state_->engine->running()) {
    state_->control->engine_used.store(1);
    state_->engine->start(false);
  }
  return *state_->engine;
}

void Job::fail(const Status& status) {
  state_->board.fail(status);
}
bool Job::failed() const {
  return state_->board.failed();
}
Status Job::failure() const {
  return state_->board.failure();
}
Status Job::agree(const Status& mine) {
  return state_->agree(mine, /*last=*/false);
}
void Job::clear_failure() {
  state_->clear_failure();
}
Status Job::finish(const Status& mine) {
  return state_->finish(mine);
}
Result<std::unique_ptr<SharedMemory>> Job::make_shared_memory(int64_t bytes) {
  auto memory = state_->make_shared_memory(bytes);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<SharedMemory>(new SharedMemory(*memory, round_to_pages(bytes)));
}

Result<uint8_t*> Job::State::make_shared_memory(int64_t bytes) {
  if (bytes < 0) return bug_error("shared memory of {} bytes was asked for", bytes);
  bytes = round_to_pages(bytes);
  if (node_ranks().size() == 1) {
    uint8_t* memory = aligned_zeroed<uint8_t>(bytes);
    if (!memory) return failed_error("no memory for {}", format_bytes(bytes));
    return memory;
  }
  if (board.failed()) return board.failure();
  const std::string name = shared_memory_name(job_id, leader, next_piece++);
  Result<uint8_t*> memory = nullptr;
  // First the leader creates, then the others open; each time all learn of an error.
  auto all_ok = [&](const Status& mine) -> Status {
    MILLSTREAM_ASSIGN(auto all, node_group->allgather_bytes(encode_status(mine)));
    for (const auto& one : all) {
      Status status = decode_status(one);
      if (!status.ok()) return status;
    }
    return Status::OK();
  };
  if (rank == leader) memory = create_shared_memory(name, bytes);
  Status status = all_ok(memory.status());
  if (status.ok()) {
    if (rank != leader) memory = open_shared_memory(name, bytes);
    status = all_ok(memory.status());
  }
  if (rank == leader) remove_shared_memory(name);
  if (!status.ok()) {
    if (memory.ok()) unmap_shared_memory(*memory, bytes);
    return status;
  }
  return memory;
}

Result<std::unique_ptr<Communicator>> Job::make_communicator(const std::vector<int>& ranks) {
  State& s = *state_;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= s.size || (i && ranks[i] <= ranks[i - 1])) {
      return bug_error("a communicator of ranks {} of a job of {}: they must be ascending and exist",
                       fmt::join(ranks, ", "), s.size);
    }
  }
  if (ranks.empty()) return bug_error("a communicator of no ranks");
  const int tag = 4 * s.next_tag++;
  std::vector<std::vector<int>> hosts;  // members by node, as indices
  std::vector<int> first;               // world ranks of the leaders
  int my_host = -1, me = -1;
  std::vector<int> here;  // members of this node, as world ranks
  int my_index = -1;
  for (size_t n = 0; n < s.nodes.size(); ++n) {
    std::vector<int> on_node;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (s.node_of[ranks[i]] == static_cast<int>(n)) on_node.push_back(static_cast<int>(i));
    }
    if (static_cast<int>(n) == s.node) {
      for (size_t i = 0; i < on_node.size(); ++i) {
        here.push_back(ranks[on_node[i]]);
        if (ranks[on_node[i]] == s.rank) {
          my_index = static_cast<int>(i);
          me = on_node[i];
        }
      }
    }
    if (!on_node.empty()) hosts.push_back(std::move(on_node));
  }
  // Hosts in the order of their lowest member.
  std::sort(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) { return a[0] < b[0]; });
  for (size_t h = 0; h < hosts.size(); ++h) {
    first.push_back(ranks[hosts[h][0]]);
    if (me >= 0 && std::find(hosts[h].begin(), hosts[h].end(), me) != hosts[h].end())
      my_host = static_cast<int>(h);
  }
  std::unique_ptr<NodeGroup> node;
  Status status;
  if (here.size() > 1) {
    const int64_t capacity = NodeGroup::data_capacity(static_cast<int>(here.size()));
    // All ranks of the node take part in making the memory; those outside let go of it.
    auto made = make_shared_memory(NodeGroup::bytes_needed(static_cast<int>(here.size()), capacity));
    status = made.status();
    if (made.ok() && me >= 0) {
      std::shared_ptr<SharedMemory> memory = std::move(made).ValueUnsafe();
      node =
          std::make_unique<NodeGroup>(s.board, memory->data(), memory, my_index, here, capacity, s.spin_ns);
    }
  }
  MILLSTREAM_TRY(s.agree(status, /*last=*/false));
  if (me < 0) return std::unique_ptr<Communicator>();
  std::unique_ptr<MessageGroup> leaders;
  if (hosts.size() > 1 && my_index == 0)
    leaders = std::make_unique<MessageGroup>(s.board, *s.engine, my_host, first, tag);
  return std::make_unique<GroupCommunicator>(ranks, me, hosts, std::move(node), std::move(leaders));
}

SharedMemory::~SharedMemory() {
  unmap_shared_memory(data_, size_);
}

Status wait_while_equal(Job& job, const std::atomic<uint32_t>& word, uint32_t expected) {
  return job.state_->board.wait_while_equal(word, expected) ? Status::OK() : job.failure();
}

}  // namespace millstream::comm
