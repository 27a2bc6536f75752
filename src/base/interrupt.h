#pragma once
// SIGINT, SIGTERM and SIGHUP as an ordinary error. The handler only sets a word and wakes who sleeps on it; a watcher
// thread turns that into a failure of the job, which wakes every wait of every rank.

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "base/status.h"

namespace millstream {

/// From now on SIGINT, SIGTERM and (unless it is ignored, as by nohup) SIGHUP are remembered instead of ending the process. A second one of the same
/// process ends it at once (the default action), so that a program that hangs can be stopped.
void install_interrupt_handlers();
/// The signal that came, 0: none. Cheap.
int interrupt_signal();
inline bool interrupted() {
  return interrupt_signal() != 0;
}
/// OK, or the kInterrupted error "interrupted by SIGTERM".
Status interrupt_status();

/// How often SIGUSR1 came since install_interrupt_handlers(): each asks for a checkpoint.
int checkpoint_requests();

/// While one of these lives, OnInterrupt waits with its action, for at most `seconds` from the signal: something looks
/// at interrupt_signal() by itself and is about to end in order.
class PatientInterrupt {
 public:
  explicit PatientInterrupt(int64_t seconds);
  ~PatientInterrupt();
  PatientInterrupt(const PatientInterrupt&) = delete;
  PatientInterrupt& operator=(const PatientInterrupt&) = delete;
};

/// Calls `action` once, from a thread of its own, when a signal comes while this object lives (at once if one
/// already came).
class OnInterrupt {
 public:
  explicit OnInterrupt(std::function<void(const Status&)> action);
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace millstream
