#pragma once
// Progress for people, on standard error: a bar at the bottom of a terminal, elsewhere a line every few seconds.

#include <cstdint>
#include <string>

#include "train/training.h"

namespace millstream::cli {

/// "3m05s", "1h02m", "4.2s"
std::string format_seconds(double seconds);
/// "1,234,567"
std::string format_count(int64_t count);
/// "950", "1.25M"
std::string format_rate(double per_second);
/// "|#####.....|"-like, `width` characters between the bars.
std::string format_bar(double fraction, int width);
/// The line for people that tells training's state.
std::string format_progress(const train::TrainProgress& progress, int columns);

/// Shows what it is given, but not more often than the eye or the log wants. One thread.
class ProgressDisplay {
 public:
  /// `quiet`: shows nothing.
  explicit ProgressDisplay(bool quiet);
  ~ProgressDisplay();  ///< removes the bar
  void show(const train::TrainProgress& progress);
  /// The same for any work that is `done` of `total` pieces: "files", "batches".
  void show(const char* what, int64_t done, int64_t total, int64_t rows);

 private:
  bool due();
  void print(const std::string& line);
  bool quiet_, terminal_;
  int columns_ = 80;
  int64_t started_ns_, next_ns_;
};

}  // namespace millstream::cli
