#include "comm/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
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

#include "base/trace.h"
#include "comm/shared_memory_file.h"
#include "comm/supervisor_protocol.h"

namespace millstream::comm {
namespace {

constexpr double kSilentExitSeconds = 0.7;  // a rank ended without a word: perhaps another one says why
constexpr double kAfterEndSeconds = 7;  // ranks finish together; Job::finish() gives up after five seconds
constexpr double kMpiexecSeconds = 1;   // for mpiexec to end after its ranks
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

/// The MPI library's own files in shared memory that a process has mapped: nobody removes them when ranks are killed.
void collect_mpi_memory(pid_t pid, std::set<std::string>& paths) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" (deleted)") != std::string::npos) continue;
    for (const char* prefix : {"/dev/shm/mpich_shm_", "/dev/shm/vader_segment.", "/dev/shm/sm_segment."}) {
      if (const size_t at = line.find(prefix); at != std::string::npos) paths.insert(line.substr(at));
    }
  }
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
  Supervisor(int ranks, const std::vector<std::string>& command, const std::string& job_id)
      : ranks_(ranks), command_(command), job_id_(job_id.empty() ? random_id() : job_id), states_(ranks) {}
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
    return code;
  }

 private:
  static void print(const std::string& message) {
    const std::string line = fmt::format("millstream: error: {}\n", message);
    // Where standard error is gone there is nobody to tell.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  }

  Status start() {
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
    sigset_t taken, before;
    sigemptyset(&taken);
    for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGHUP}) sigaddset(&taken, signal);
    sigprocmask(SIG_BLOCK, &taken, &before);
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
      sigprocmask(SIG_SETMASK, &before, nullptr);
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
        if (interrupted_ != 0) kill_all_ = true;
        if (interrupted_ == 0) interrupted_ = signal;
      }
      for (const RankState& rank : states_) {
        if (rank.pid > 0 && !rank.exited) kill(rank.pid, signal == SIGHUP ? SIGTERM : signal);
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

  /// Decides whether the job is over, and with which code. Prints the one message.
  bool step(int& code) {
    deadline_ = 0;
    if (kill_all_) {
      code = 130;
      return true;
    }
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
    if (told >= 0) {
      if (!all_gone && !told_too_long && !(mpiexec_gone_ && after(mpiexec_gone_at_, kMpiexecSeconds)))
        return false;
      if (!states_[told].said && !states_[told].message.empty()) {
        print((states_[told].end_code == 70 ? "a bug: " : "") + states_[told].message);
      }
      code = states_[told].end_code;
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
      // Perhaps a watchdog on another rank killed it, and its word is on the way.
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
      std::string text = launcher_output_;
      while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
      print(any_hello ? fmt::format("{} ended without a word", name(missing))
                      : fmt::format("{} could not start the ranks{}{}", mpiexec_path(),
                                    text.empty() ? "" : ": ", text));
      code = 4;
      return true;
    }
    return false;
  }

  /// Nothing of the job outlives this.
  void end_everything() {
    std::set<std::string> mpi_memory;
    for (const RankState& state : states_) {
      if (state.pid > 0 && !state.exited) collect_mpi_memory(state.pid, mpi_memory);
    }
    for (const RankState& state : states_) {
      if (state.pid > 0 && !state.exited) kill(state.pid, SIGKILL);
    }
    for (const std::string& path : mpi_memory) unlink(path.c_str());
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
  std::vector<RankState> states_;
  std::vector<Connection> connections_;
  int listener_ = -1, signals_ = -1, output_ = -1;
  pid_t mpiexec_ = -1;
  bool mpiexec_gone_ = false;
  double mpiexec_gone_at_ = 0;
  int interrupted_ = 0;
  bool kill_all_ = false;
  double first_end_at_ = 0, first_exit_at_ = 0;
  double deadline_ = 0;
  std::string launcher_output_;
};

}  // namespace

std::string mpiexec_path() {
  return MILLSTREAM_MPIEXEC;
}

int run_supervisor(int ranks, const std::vector<std::string>& command, const std::string& job_id) {
  return Supervisor(ranks, command, job_id).run();
}

}  // namespace millstream::comm
