#include "base/interrupt.h"

#include <chrono>
#include <optional>

#include <signal.h>

#include "base/futex.h"

namespace millstream {
namespace {

// The low byte is the signal; the rest counts wakes that are no signal, so that a watcher can be told to
// stop.
std::atomic<uint32_t> g_word{0};
constexpr uint32_t kSignalMask = 0xff;
std::atomic<int> g_checkpoint_requests{0};
std::atomic<int64_t> g_patience_s{0};

void on_checkpoint_request(int) {
  g_checkpoint_requests.fetch_add(1, std::memory_order_relaxed);
}

/// Wakes the watchers, who look again at everything.
void wake_watchers() {
  g_word.fetch_add(kSignalMask + 1, std::memory_order_release);
  futex_wake_all(g_word);
}

void on_signal(int signal_number) {
  uint32_t word = g_word.load(std::memory_order_relaxed);
  if (word & kSignalMask) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  while (!g_word.compare_exchange_weak(word, word | static_cast<uint32_t>(signal_number))) {
  }
  futex_wake_all(g_word);  // one system call: allowed in a handler
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // nohup means it.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, nullptr);
  action.sa_handler = on_checkpoint_request;
  sigaction(SIGUSR1, &action, nullptr);
}

int interrupt_signal() {
  return static_cast<int>(g_word.load(std::memory_order_relaxed) & kSignalMask);
}

Status interrupt_status() {
  const int number = interrupt_signal();
  if (number == 0) return Status::OK();
  return make_error_f(ErrorCategory::kInterrupted, "interrupted by {}",
                      number == SIGINT    ? "SIGINT"
                      : number == SIGTERM ? "SIGTERM"
                      : number == SIGHUP  ? "SIGHUP"
                                          : "a signal");
}

int checkpoint_requests() {
  return g_checkpoint_requests.load(std::memory_order_relaxed);
}

PatientInterrupt::PatientInterrupt(int64_t seconds) {
  g_patience_s = seconds;
}

PatientInterrupt::~PatientInterrupt() {
  g_patience_s = 0;
  wake_watchers();
}

OnInterrupt::OnInterrupt(std::function<void(const Status&)> action)
    : thread_([this, action = std::move(action)] {
        std::optional<std::chrono::steady_clock::time_point> came;
        for (;;) {
          const uint32_t word = g_word.load(std::memory_order_acquire);
          if (stop_) return;
          std::chrono::nanoseconds wait = std::chrono::hours(1);
          if (word & kSignalMask) {
            const auto now = std::chrono::steady_clock::now();
            if (!came) came = now;
            wait = *came + std::chrono::seconds(g_patience_s) - now;
            if (wait.count() <= 0) return action(interrupt_status());
          }
          futex_wait(g_word, word, wait);
        }
      }) {}

OnInterrupt::~OnInterrupt() {
  stop_ = true;
  wake_watchers();
  thread_.join();
}

}  // namespace millstream
