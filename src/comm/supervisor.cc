#include "comm/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <random>
#include <set>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu_share.h"
#include "base/trace.h"
#include "comm/job_leftovers.h"
#include "comm/shared_memory_file.h"
#include "comm/supervisor_protocol.h"

namespace millstream::comm {
namespace {

constexpr double kSilentExitSeconds = 0.7;  // a rank ended without a word: perhaps another one says why
constexpr double kAfterEndSeconds = 7;  // ranks finish together; Job::finish() gives up after five seconds
constexpr double kMpiexecSeconds = 1;   // for mpiexec to end after its ranks
constexpr double kStartSeconds = 60;    // ranks have this long to start, whatever deadline the work has
constexpr double kLookSeconds = 1;      // between looks at ranks that may be stopped
constexpr int kCrowd = 8;               // so many ranks a core are worth a word
constexpr size_t kKeptOutput = 16 * 1024;

double now_s() {
  return static_cast<double>(monotonic_ns()) * 1e-9;
}

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? fmt::format("signal {} (SIG{})", signal, name) : fmt::format("signal {}", signal);
}

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

constexpr const char* kLauncherBanner = "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES";

/// How mpiexec says that a process it started was killed.
struct LauncherDeath {
  pid_t pid = 0;
  int signal = 0;
};

std::optional<LauncherDeath> parse_launcher_death(const std::string& text) {
  if (text.find(kLauncherBanner) == std::string::npos) return std::nullopt;
  auto number_after = [&](const char* word) {
    const size_t at = text.find(word);
    return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + std::strlen(word));
  };
  const LauncherDeath death{number_after("  PID "), number_after("(signal ")};
  return death.signal > 0 ? std::optional(death) : std::nullopt;
}

struct RankState {
  pid_t pid = 0;       // of the rank itself; 0 until it said hello
  bool ended = false;  // said what the job ends with
  int end_code = 0;
  std::string message;
  bool said = false;
  bool exited = false;  // its process is gone
  int exit_code = 0;
  int signal = 0;
};

struct Connection {
  int fd = -1;
  pid_t guard = 0;
  int rank = -1;
};

class Supervisor {
 public:
  Supervisor(int ranks, const std::vector<std::string>& command, const SupervisorOptions& options)
      : ranks_(ranks),
        command_(command),
        job_id_(options.job_id.empty() ? random_id() : options.job_id),
        grace_s_(options.grace_s),
        states_(ranks) {}
  ~Supervisor() {
    for (int fd : {listener_, signals_, output_}) {
      if (fd >= 0) close(fd);
    }
    for (const Connection& connection : connections_) close(connection.fd);
  }

  int run() {
    const Status started = start();
    if (!started.ok()) {
      print(started.message());
      return exit_code(started);
    }
    int code = 70;
    while (!step(code)) wait_for_events();
    end_everything();
    remove_shared_memory_of_job(job_id_);
    if (code != 0) end_leftovers();
    return code;
  }

 private:
  static void print(const std::string& message, const char* kind = "error") {
    const std::string line = fmt::format("millstream: {}: {}\n", kind, message);
    // Where standard error is gone there is nobody to tell.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  }

  Status start() {
    const int cores = static_cast<int>(affinity_cpus().size());
    if (ranks_ >= kCrowd * cores)
      print(fmt::format("{} ranks share {} core{}", ranks_, cores, cores == 1 ? "" : "s"), "note");
    mpi_memory_before_ = mpi_memory_files();
    // An abstract name: nothing is left in a file system.
    const std::string name = "millstream-" + job_id_;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener_ < 0 ||
        bind(listener_, reinterpret_cast<sockaddr*>(&address),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) != 0 ||
        listen(listener_, ranks_ + 8) != 0) {
      return failed_error("can't open a socket for the ranks: {}", std::strerror(errno));
    }
    sigset_t taken;
    sigemptyset(&taken);
    for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&taken, signal);
    // A blocked signal arrives even where it was to be ignored: nohup means it.
    struct sigaction hangup {};
    if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN) sigaddset(&taken, SIGHUP);
    sigprocmask(SIG_BLOCK, &taken, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    signals_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    int pipe_fds[2];
    if (signals_ < 0 || pipe2(pipe_fds, O_CLOEXEC) != 0)
      return failed_error("can't start the ranks: {}", std::strerror(errno));
    output_ = pipe_fds[0];
    fcntl(output_, F_SETFL, O_NONBLOCK);

    std::vector<std::string> line = {mpiexec_path()};
    const std::string flags = MILLSTREAM_MPIEXEC_FLAGS;
    for (size_t at = 0; at < flags.size();) {
      const size_t end = std::min(flags.find(' ', at), flags.size());
      if (end > at) line.push_back(flags.substr(at, end - at));
      at = end + 1;
    }
    line.push_back("-n");
    line.push_back(std::to_string(ranks_));
    line.insert(line.end(), command_.begin(), command_.end());
    std::vector<char*> arguments;
    for (auto& argument : line) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    setenv(kSupervisorVariable, name.c_str(), 1);
    setenv(kJobIdVariable, job_id_.c_str(), 1);
    const pid_t parent = getpid();
    mpiexec_ = fork();
    if (mpiexec_ < 0) return failed_error("can't start the ranks: {}", std::strerror(errno));
    if (mpiexec_ == 0) {
      setpgid(0, 0);  // ^C reaches the ranks through us alone
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(4);
      sigprocmask(SIG_UNBLOCK, &taken, nullptr);  // a job before this one has left them blocked
      std::signal(SIGPIPE, SIG_DFL);
      dup2(pipe_fds[1], STDOUT_FILENO);
      dup2(pipe_fds[1], STDERR_FILENO);
      const int null = open("/dev/null", O_RDONLY);
      if (null >= 0) dup2(null, STDIN_FILENO);
      execv(arguments[0], arguments.data());
      const std::string why = fmt::format("{}: {}\n", line[0], std::strerror(errno));
      _exit(write(STDERR_FILENO, why.data(), why.size()) < 0 ? 126 : 127);
    }
    setpgid(mpiexec_, mpiexec_);
    unsetenv(kSupervisorVariable);
    unsetenv(kJobIdVariable);
    close(pipe_fds[1]);
    return Status::OK();
  }

  void wait_for_events() {
    std::vector<pollfd> watched = {{signals_, POLLIN, 0}, {listener_, POLLIN, 0}, {output_, POLLIN, 0}};
    for (const Connection& connection : connections_) watched.push_back({connection.fd, POLLIN, 0});
    poll(watched.data(), watched.size(),
         deadline_ > 0 ? std::max(1, static_cast<int>((deadline_ - now_s()) * 1000) + 1) : -1);
    take_signals();
    take_output();
    take_connections();
    // All that is queued is read before anything is decided: who is killed by a watchdog is named by it first.
    for (size_t i = 0; i < connections_.size();) {
      if (take_packets(connections_[i])) {
        ++i;
      } else {
        close(connections_[i].fd);
        connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_, &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        int state = 0;
        if (!mpiexec_gone_ && waitpid(mpiexec_, &state, WNOHANG) == mpiexec_) {
          mpiexec_gone_ = true;
          mpiexec_gone_at_ = now_s();
        }
        continue;
      }
      if (signal != SIGUSR1) {
        if (interrupted_ != 0 && interrupted_again_ == 0) interrupted_again_ = signal;
        if (interrupted_ == 0) {
          interrupted_ = signal;
          interrupted_at_ = now_s();
        }
      }
      for (const RankState& rank : states_) {
        if (rank.pid > 0 && !rank.exited) kill(rank.pid, signal);
      }
      if (signal == SIGUSR1) continue;
      // Who is stopped would not see it.
      for (const RankState& rank : states_) {
        if (rank.pid > 0 && !rank.exited) kill(rank.pid, SIGCONT);
      }
      for (const Connection& connection : connections_) {
        if (connection.guard > 0) kill(connection.guard, SIGCONT);
      }
    }
  }

  void take_output() {
    if (output_ < 0) return;
    char buffer[4096];
    ssize_t got;
    while ((got = read(output_, buffer, sizeof buffer)) > 0) {
      launcher_output_.append(buffer, static_cast<size_t>(got));
      if (launcher_output_.size() > kKeptOutput)
        launcher_output_.erase(0, launcher_output_.size() - kKeptOutput);
    }
    if (got == 0) {
      close(output_);
      output_ = -1;
    }
  }

  void take_connections() {
    int fd;
    while ((fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
      ucred peer{};
      socklen_t size = sizeof peer;
      if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
        close(fd);
        continue;
      }
      // The greeting carries our standard output and error.
      char byte = 'm';
      iovec part{&byte, 1};
      alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(2 * sizeof(int));
      const int fds[2] = {STDOUT_FILENO, STDERR_FILENO};
      std::memcpy(CMSG_DATA(header), fds, sizeof fds);
      if (sendmsg(fd, &message, MSG_NOSIGNAL) != 1) {
        close(fd);
        continue;
      }
      connections_.push_back({fd, peer.pid, -1});
    }
  }

  /// False when the other end is closed.
  bool take_packets(Connection& connection) {
    while (true) {
      const ssize_t size = recv(connection.fd, nullptr, 0, MSG_PEEK | MSG_TRUNC);
      if (size < 0) return errno == EAGAIN || errno == EINTR;
      if (size == 0) return false;
      std::string text(static_cast<size_t>(size), '\0');
      if (recv(connection.fd, text.data(), text.size(), 0) != size) return false;
      const auto packet = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!packet.is_object()) continue;
      const int rank = packet.value("rank", -1);
      if (rank < 0 || rank >= ranks_) continue;
      connection.rank = rank;
      RankState& state = states_[rank];
      if (packet.contains("hello")) {
        state.pid = packet.value("pid", 0);
        if (interrupted_ != 0) kill(state.pid, interrupted_);
      } else if (packet.contains("deadline")) {
        hang_deadline_s_ = packet.value("deadline", kStartSeconds);
      } else if (packet.contains("end")) {
        state.ended = true;
        state.end_code = packet.value("code", 70);
        state.message = packet.value("message", "");
        state.said = packet.value("said", false);
        if (first_end_at_ == 0) first_end_at_ = now_s();
      } else if (packet.contains("exit")) {
        state.exited = true;
        state.exit_code = packet.value("code", 0);
        state.signal = packet.value("signal", 0);
        if (first_exit_at_ == 0) first_exit_at_ = now_s();
      }
    }
  }

  std::string name(int rank) const {
    return states_[rank].pid > 0 ? fmt::format("rank {} (pid {})", rank, states_[rank].pid)
                                 : fmt::format("rank {}", rank);
  }

  /// In words, with "a rank" where the process is none that is known.
  std::string describe(const LauncherDeath& death) const {
    std::string who = fmt::format("a rank (pid {})", death.pid);
    for (const Connection& connection : connections_) {
      if (connection.guard == death.pid && connection.rank >= 0) who = name(connection.rank);
    }
    return fmt::format("{} was killed by {}", who, signal_text(death.signal));
  }

  /// The ranks that live, while all of them are stopped.
  std::vector<int> stopped_ranks() const {
    std::vector<int> stopped;
    for (int rank = 0; rank < ranks_; ++rank) {
      const RankState& state = states_[rank];
      if (state.pid == 0 || state.exited) continue;
      if (!is_stopped(state.pid)) return {};
      stopped.push_back(rank);
    }
    return stopped;
  }

  /// Ranks watch over one another: one that is stopped is seen by the rest, but not all of them.
  bool all_stopped_too_long() {
    const double now = now_s();
    const std::vector<int> stopped = stopped_ranks();
    // Time in which this process itself was stopped does not count.
    if (were_stopped_ && !stopped.empty()) {
      stopped_s_ += std::clamp(now - last_look_, 0.0, kLookSeconds);
    } else {
      stopped_s_ = 0;
    }
    were_stopped_ = !stopped.empty();
    last_look_ = now;
    if (stopped.empty() || stopped_s_ < hang_deadline_s_) return false;
    constexpr size_t kMaxNamed = 8;
    std::string names;
    for (size_t i = 0; i < std::min(stopped.size(), kMaxNamed); ++i) {
      if (i > 0) names += i + 1 == stopped.size() ? " and " : ", ";
      names += name(stopped[i]);
    }
    if (stopped.size() > kMaxNamed) names += fmt::format(" and {} more", stopped.size() - kMaxNamed);
    print(fmt::format("{} {} been stopped (SIGSTOP, or a debugger) for {:g} s; the job is ended", names,
                      stopped.size() == 1 ? "has" : "have", hang_deadline_s_));
    return true;
  }

  /// Decides whether the job is over, and with which code. Prints the one message.
  bool step(int& code) {
    deadline_ = 0;
    bool all_gone = true, any_hello = false;
    int told = -1, silent = -1, signalled = -1;
    for (int rank = 0; rank < ranks_; ++rank) {
      const RankState& state = states_[rank];
      any_hello |= state.pid > 0;
      all_gone &= state.exited;
      // What somebody said already needs no second message; among the rest the lowest rank speaks.
      if (state.ended && state.end_code != 0 && (told < 0 || (state.said && !states_[told].said)))
        told = rank;
      if (!state.exited) continue;
      if (state.signal != 0 && signalled < 0) signalled = rank;
      if (!state.ended && state.signal == 0 && silent < 0) silent = rank;
    }
    const double now = now_s();
    auto after = [&](double since, double seconds) {
      if (since <= 0) return false;
      if (now >= since + seconds) return true;
      deadline_ = deadline_ > 0 ? std::min(deadline_, since + seconds) : since + seconds;
      return false;
    };
    const bool told_too_long = after(first_end_at_, kAfterEndSeconds);
    const auto launcher_death = parse_launcher_death(launcher_output_);
    if (interrupted_again_ != 0 && !all_gone) {
      if (told < 0) {
        print(fmt::format("interrupted by SIG{}, then by SIG{}: the ranks were killed",
                          sigabbrev_np(interrupted_), sigabbrev_np(interrupted_again_)));
      } else if (!states_[told].said && !states_[told].message.empty()) {
        print(states_[told].message);
      }
      code = 130;
      return true;
    }
    // A rank whose own end is known is why mpiexec killed others; SIGTERM comes from mpiexec.
    const bool end_is_known = silent >= 0 || (signalled >= 0 && states_[signalled].signal != SIGTERM);
    if (launcher_death && interrupted_ == 0 && !end_is_known && (told < 0 || states_[told].end_code == 130)) {
      // What else there is to hear of comes from how mpiexec ended the others.
      print(describe(*launcher_death));
      code = 4;
      return true;
    }
    if (told >= 0) {
      if (!all_gone && !told_too_long && !(mpiexec_gone_ && after(mpiexec_gone_at_, kMpiexecSeconds)))
        return false;
      if (!states_[told].said && !states_[told].message.empty()) {
        print((states_[told].end_code == 70 ? "a bug: " : "") + states_[told].message);
      }
      code = states_[told].end_code;
      return true;
    }
    if (interrupted_ != 0 && !all_gone && after(interrupted_at_, grace_s_)) {
      std::string who;
      for (int rank = 0; rank < ranks_ && who.empty(); ++rank) {
        if (!states_[rank].exited) who = name(rank);
      }
      print(fmt::format("interrupted by SIG{}; {} did not end within {:g} s and was killed",
                        sigabbrev_np(interrupted_), who, grace_s_));
      code = 130;
      return true;
    }
    if (signalled >= 0) {
      if (interrupted_ != 0) {
        // It had no handler yet.
        if (!all_gone && !after(first_exit_at_, kMpiexecSeconds)) return false;
        print(fmt::format("interrupted by SIG{}", sigabbrev_np(interrupted_)));
        code = 130;
        return true;
      }
      // Where a guard is killed, mpiexec ends the other ranks before it says so.
      if (states_[signalled].signal == SIGTERM && !mpiexec_gone_ && !all_gone &&
          !after(first_exit_at_, kSilentExitSeconds))
        return false;
      print(fmt::format("{} was killed by {}{}", name(signalled), signal_text(states_[signalled].signal),
                        states_[signalled].ended ? " at the end of its work" : ""));
      code = 4;
      return true;
    }
    if (silent >= 0) {
      const RankState& state = states_[silent];
      bool all_silent_ok = all_gone;
      for (const RankState& other : states_) all_silent_ok &= other.exit_code == 0;
      if (all_silent_ok) {
        code = 0;  // help texts and the like: nothing to say, and all is well
        return true;
      }
      if (!all_gone && !after(first_exit_at_, kSilentExitSeconds)) return false;
      print(fmt::format("{} ended with exit code {} without saying why", name(silent), state.exit_code));
      code = state.exit_code == 2 || state.exit_code == 3 || state.exit_code == 70 || state.exit_code == 130
                 ? state.exit_code
                 : 4;
      return true;
    }
    if (all_gone) {
      code = 0;
      return true;
    }
    if (told_too_long) {
      for (int rank = 0; rank < ranks_; ++rank) {
        if (states_[rank].exited) continue;
        print(fmt::format("{} does not end, {:g} s after the job's work was done", name(rank),
                          kAfterEndSeconds));
        break;
      }
      code = 4;
      return true;
    }
    if (mpiexec_gone_ && after(mpiexec_gone_at_, kMpiexecSeconds)) {
      take_output();
      if (interrupted_ != 0) {
        code = 130;
        return true;
      }
      int missing = 0;
      while (missing < ranks_ && states_[missing].exited) ++missing;
      // What a process of ours said itself, without the banner that follows.
      std::string text = launcher_output_;
      if (const size_t banner = text.find(kLauncherBanner); banner != std::string::npos) {
        const size_t line = text.rfind("\n=", banner);
        text.resize(line == std::string::npos ? 0 : text.find("\n====="));
      }
      while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
      print(any_hello ? fmt::format("{} ended without a word", name(missing))
                      : fmt::format("{} could not start the ranks{}{}", mpiexec_path(),
                                    text.empty() ? "" : ": ", text));
      code = 4;
      return true;
    }
    if (first_end_at_ == 0) {
      if (all_stopped_too_long()) {
        code = 4;
        return true;
      }
      const double next_look = now + std::min(kLookSeconds, hang_deadline_s_ / 4);
      deadline_ = deadline_ > 0 ? std::min(deadline_, next_look) : next_look;
    }
    return false;
  }

  /// After a violent end: processes that nobody told us of, and the files of those that died.
  void end_leftovers() {
    const double until = now_s() + kMpiexecSeconds;
    for (auto left = processes_with(kJobIdVariable, job_id_); !left.empty() && now_s() < until;
         left = processes_with(kJobIdVariable, job_id_)) {
      for (const pid_t pid : left) kill(pid, SIGKILL);
      usleep(2000);
    }
    remove_unused_mpi_memory(mpi_memory_before_);
  }

  /// Nothing of the job outlives this.
  void end_everything() {
    for (const RankState& state : states_) {
      if (state.pid > 0 && !state.exited) kill(state.pid, SIGKILL);
    }
    // Guards end by themselves once their rank is dead, and mpiexec after them, with nothing to complain of.
    const double until = now_s() + kMpiexecSeconds;
    while (!mpiexec_gone_ && now_s() < until) {
      pollfd watched[2] = {{signals_, POLLIN, 0}, {output_, POLLIN, 0}};
      poll(watched, output_ >= 0 ? 2 : 1, std::max(1, static_cast<int>((until - now_s()) * 1000)));
      take_output();
      take_signals();
    }
    if (!mpiexec_gone_) {
      for (const Connection& connection : connections_) {
        if (connection.guard > 0) kill(connection.guard, SIGKILL);
      }
      kill(-mpiexec_, SIGKILL);
      waitpid(mpiexec_, nullptr, 0);
      mpiexec_gone_ = true;
    }
  }

  const int ranks_;
  const std::vector<std::string> command_;
  const std::string job_id_;
  const double grace_s_;
  std::vector<RankState> states_;
  std::vector<Connection> connections_;
  int listener_ = -1, signals_ = -1, output_ = -1;
  pid_t mpiexec_ = -1;
  bool mpiexec_gone_ = false;
  double mpiexec_gone_at_ = 0;
  int interrupted_ = 0, interrupted_again_ = 0;
  double interrupted_at_ = 0;
  double hang_deadline_s_ = kStartSeconds;
  bool were_stopped_ = false;  // all ranks, when they were looked at last
  double last_look_ = 0, stopped_s_ = 0;
  std::set<std::string> mpi_memory_before_;
  double first_end_at_ = 0, first_exit_at_ = 0;
  double deadline_ = 0;
  std::string launcher_output_;
};

}  // namespace

std::string mpiexec_path() {
  return MILLSTREAM_MPIEXEC;
}

int run_supervisor(int ranks, const std::vector<std::string>& command, const SupervisorOptions& options) {
  return Supervisor(ranks, command, options).run();
}

}  // namespace millstream::comm
