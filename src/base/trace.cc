#include "base/trace.h"

#include <memory>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "base/trace_clock.h"

namespace millstream {
namespace {

struct Event {
  const char* name;
  int64_t begin_ns, end_ns, argument;
};
struct ThreadEvents {
  std::mutex mutex;  // taken by its own thread, and by the one that writes the file
  int thread = 0;
  std::vector<Event> events;
};
struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadEvents>> threads;
};
Registry& registry() {
  static Registry* registry = new Registry;
  return *registry;
}
ThreadEvents& this_thread_events() {
  thread_local std::shared_ptr<ThreadEvents> mine = [] {
    auto events = std::make_shared<ThreadEvents>();
    std::lock_guard lock(registry().mutex);
    events->thread = static_cast<int>(registry().threads.size());
    registry().threads.push_back(events);
    return events;
  }();
  return *mine;
}

}  // namespace

std::atomic<bool> Trace::enabled_{false};

void Trace::enable() {
  enabled_ = true;
}

void Trace::record(const char* name, int64_t begin_ns, int64_t end_ns, int64_t argument) {
  ThreadEvents& mine = this_thread_events();
  std::lock_guard lock(mine.mutex);
  mine.events.push_back({name, begin_ns, end_ns, argument});
}

std::string Trace::events_json(int rank) {
  return trace_events_json(rank, 0);
}

std::string trace_events_json(int rank, int64_t shift_ns) {
  std::string out;
  std::lock_guard lock(registry().mutex);
  for (const auto& thread : registry().threads) {
    std::lock_guard thread_lock(thread->mutex);
    for (const Event& event : thread->events) {
      fmt::format_to(std::back_inserter(out),
                     R"({}{{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})",
                     out.empty() ? "" : ",\n", event.name, rank, thread->thread,
                     (event.begin_ns + shift_ns) * 1e-3, (event.end_ns - event.begin_ns) * 1e-3);
      if (event.argument >= 0)
        fmt::format_to(std::back_inserter(out), R"(,"args":{{"n":{}}})", event.argument);
      out += "}";
    }
  }
  return out;
}

}  // namespace millstream
