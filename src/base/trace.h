#pragma once
// A trace of what every thread did and when, in Chrome's trace format (chrome://tracing, Perfetto). Off, a
// span costs one load and a branch. Each thread records into its own buffer; times are of CLOCK_MONOTONIC,
// which the ranks of one host share.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace millstream {

inline int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Trace {
 public:
  static void enable();
  static bool enabled() { return enabled_.load(std::memory_order_relaxed); }
  /// `name` must outlive the process (a literal). `argument` shows in the event's details; -1: none.
  static void record(const char* name, int64_t begin_ns, int64_t end_ns, int64_t argument = -1);
  /// All events so far as JSON objects separated by commas and newlines, without brackets, pid = rank.
  static std::string events_json(int rank);

 private:
  static std::atomic<bool> enabled_;
};

/// Records the time from its construction to its destruction.
class TraceSpan {
 public:
  explicit TraceSpan(const char* name, int64_t argument = -1)
      : name_(name), argument_(argument), begin_(Trace::enabled() ? monotonic_ns() : 0) {}
  ~TraceSpan() {
    if (begin_) Trace::record(name_, begin_, monotonic_ns(), argument_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  const char* name_;
  int64_t argument_;
  int64_t begin_;
};

}  // namespace millstream
