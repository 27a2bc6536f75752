#pragma once
// The thread of each rank that keeps a job from hanging. It shows this rank's signs of life (a heartbeat, the
// beats of base/progress.h, the phase), watches those of all others, and ends the job with exit code 4 and
// one message when for `deadline` a rank shows no life, or somebody waits and nothing in the whole job makes
// progress.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millstream::comm {

/// What is known of one rank at one moment.
struct RankSign {
  int rank = 0;
  std::string host;
  int pid = 0;
  std::string phase;
  uint32_t heartbeat = 0;
  uint64_t beats = 0;
  bool waiting = false;
  bool left = false;  ///< it has finished; nothing more is expected of it
};

struct Verdict {
  enum class Kind : uint8_t { kLost, kStalled };
  Kind kind = Kind::kLost;
  std::vector<int>
      ranks;  ///< that showed no life; or, stalled, that do not wait themselves (all, when all wait)
  std::string message;  ///< one paragraph, naming phase, ranks, hosts and pids
};

/// The decision, without clocks or threads: fed with times and signs.
class WatchdogJudge {
 public:
  explicit WatchdogJudge(double deadline_s) : deadline_s_(deadline_s) {}
  /// `now_s`: of a monotonic clock. Time in which this process itself did not run (a suspended job, a machine
  /// asleep) counts as one second at most.
  std::optional<Verdict> observe(double now_s, const std::vector<RankSign>& signs);

 private:
  struct Seen {
    uint32_t heartbeat = 0;
    uint64_t beats = 0;
    double alive_at = 0;
  };
  double deadline_s_;
  double last_now_ = -1;
  double clock_ = 0;        // observed time
  double progress_at_ = 0;  // when something in the job last beat, or nobody waited
  std::vector<Seen> seen_;
};

}  // namespace millstream::comm
