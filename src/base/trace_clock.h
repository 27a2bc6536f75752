#pragma once
// The trace of a process on another process's clock.

#include <cstdint>
#include <string>

namespace millstream {

/// Trace::events_json() with `shift_ns` added to all times.
std::string trace_events_json(int rank, int64_t shift_ns);

}  // namespace millstream
