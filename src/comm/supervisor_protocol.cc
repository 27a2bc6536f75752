#include "comm/supervisor_protocol.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millstream::comm {
namespace {

int link_fd = -1;
int link_rank = 0;
volatile std::sig_atomic_t guarded_pid = 0;

bool send_packet(const nlohmann::json& packet) {
  if (link_fd < 0) return false;
  const std::string text = packet.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  ssize_t sent;
  do {
    sent = send(link_fd, text.data(), text.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(text.size());
}

/// The supervisor's standard output and error come with its greeting.
bool take_output() {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = recvmsg(link_fd, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got < 1 || !header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len < CMSG_LEN(2 * sizeof(int)))
    return false;
  int fds[2];
  std::memcpy(fds, CMSG_DATA(header), sizeof fds);
  dup2(fds[0], STDOUT_FILENO);
  dup2(fds[1], STDERR_FILENO);
  close(fds[0]);
  close(fds[1]);
  return true;
}

int rank_from_launcher() {
  for (const char* name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name); value && *value) return std::atoi(value);
  }
  return 0;
}

void pass_on(int signal) {
  if (guarded_pid > 0) kill(static_cast<pid_t>(guarded_pid), signal);
}
void note_child(int) {}

[[noreturn]] void guard_rank(pid_t child) {
  guarded_pid = child;
  struct sigaction action {};
  action.sa_handler = pass_on;
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
  action.sa_handler = note_child;
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  sigaction(SIGCHLD, &action, nullptr);
  send_packet({{"hello", true}, {"rank", link_rank}, {"pid", child}});
  bool supervisor_there = true;
  int state = 0;
  while (true) {
    const pid_t ended = waitpid(child, &state, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) break;
    // Sleeps until the child changes state, or the supervisor's end of the socket closes.
    pollfd watched{link_fd, POLLRDHUP, 0};
    const int ready = ppoll(&watched, supervisor_there ? 1 : 0, nullptr, &before);
    if (ready > 0 && (watched.revents & (POLLHUP | POLLRDHUP | POLLERR))) {
      supervisor_there = false;
      kill(child, SIGKILL);
    }
  }
  if (WIFSIGNALED(state)) {
    send_packet({{"exit", true}, {"rank", link_rank}, {"signal", WTERMSIG(state)}});
  } else {
    send_packet({{"exit", true}, {"rank", link_rank}, {"code", WEXITSTATUS(state)}});
  }
  _exit(0);
}

}  // namespace

void enter_rank_process() {
  const char* name = std::getenv(kSupervisorVariable);
  if (!name || !*name || link_fd >= 0) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(std::strlen(name), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name, length);  // an abstract name begins with a zero
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) {
    close(fd);
    return;
  }
  link_fd = fd;
  link_rank = rank_from_launcher();
  unsetenv(kSupervisorVariable);  // not for programs that this one starts
  if (!take_output()) {
    close(fd);
    link_fd = -1;
    return;
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child > 0) guard_rank(child);
  if (child < 0) return;  // unguarded; the supervisor sees the socket close
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(4);
}

bool has_supervisor() {
  return link_fd >= 0;
}

void report_deadline_to_supervisor(double deadline_s) {
  send_packet({{"deadline", deadline_s}, {"rank", link_rank}});
}

bool report_end_to_supervisor(const Status& status, bool said) {
  return send_packet({{"end", true},
                      {"rank", link_rank},
                      {"code", exit_code(status)},
                      {"message", status.ok() ? "" : status.message()},
                      {"said", said}});
}

}  // namespace millstream::comm
