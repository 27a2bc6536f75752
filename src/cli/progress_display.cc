#include "cli/progress_display.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/log.h"
#include "base/trace.h"

namespace millstream::cli {
namespace {

constexpr int64_t kTerminalIntervalNs = 150'000'000;
constexpr int64_t kLineIntervalNs = 5'000'000'000;

/// The line with a bar before it, as wide as fits; in three sizes, so that it does not breathe with the numbers.
std::string with_bar(double fraction, std::string line, int columns) {
  const int room = columns - static_cast<int>(line.size()) - 11;
  const int width = room / 10 * 10;
  if (width < 10) return line;
  return fmt::format("{} {:3.0f} %  {}", format_bar(fraction, std::min(width, 30)), fraction * 100, line);
}

}  // namespace

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

std::string format_count(int64_t count) {
  std::string text = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string format_rate(double per_second) {
  if (!std::isfinite(per_second)) return "?";
  if (per_second >= 1e6) return fmt::format("{:.2f}M", per_second / 1e6);
  if (per_second >= 1e4) return fmt::format("{:.0f}k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

std::string format_bar(double fraction, int width) {
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * width);
  return fmt::format("|{}{}|", std::string(full, '#'), std::string(width - full, '.'));
}

std::string format_progress(const train::TrainProgress& p, int columns) {
  const int64_t all_steps = p.epochs * p.steps;
  const int64_t done = std::max<int64_t>(p.epoch, 0) * p.steps + p.step;
  const double fraction = all_steps > 0 ? static_cast<double>(done) / static_cast<double>(all_steps) : 0;
  const std::string loss = p.loss != 0 ? fmt::format("loss {:.5g}  ", p.loss) : "";  // none known yet
  std::string line = fmt::format("epoch {}/{} step {}/{}  {} rows  {} rows/s  {}waiting {:.1f} %  {} left",
                                 std::min(p.epoch + 1, p.epochs), p.epochs, p.step, p.steps,
                                 format_count(p.rows), format_rate(p.rows_per_second), loss,
                                 p.wait_fraction * 100, format_seconds(p.seconds_left));
  line = with_bar(fraction, std::move(line), columns);
  if (columns > 0 && static_cast<int>(line.size()) >= columns) line.resize(columns - 1);
  return line;
}

ProgressDisplay::ProgressDisplay(bool quiet)
    : quiet_(quiet), terminal_(status_line_columns() > 0 && log_is_speaker()), started_ns_(monotonic_ns()) {
  if (terminal_) columns_ = status_line_columns();
  next_ns_ = started_ns_ + (terminal_ ? 0 : kLineIntervalNs);
}

ProgressDisplay::~ProgressDisplay() {
  if (terminal_ && !quiet_) set_status_line("");
}

bool ProgressDisplay::due() {
  if (quiet_) return false;
  const int64_t now = monotonic_ns();
  if (now < next_ns_) return false;
  next_ns_ = now + (terminal_ ? kTerminalIntervalNs : kLineIntervalNs);
  return true;
}

void ProgressDisplay::print(const std::string& line) {
  if (terminal_)
    set_status_line(line);
  else if (log_is_speaker())
    notice(line);
  else
    std::fputs(("millstream: " + line + "\n").c_str(), stderr);  // trainer 0 need not be rank 0
}

void ProgressDisplay::show(const train::TrainProgress& progress) {
  if (due()) print(format_progress(progress, terminal_ ? columns_ : 0));
}

void ProgressDisplay::show(const char* what, int64_t done, int64_t total, int64_t rows) {
  if (!due()) return;
  const double seconds = static_cast<double>(monotonic_ns() - started_ns_) / 1e9;
  const double fraction = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
  std::string line = fmt::format("{} {}/{}  {} rows  {} rows/s", what, done, total, format_count(rows),
                                 format_rate(static_cast<double>(rows) / seconds));
  if (fraction > 0) line += fmt::format("  {} left", format_seconds(seconds * (1 - fraction) / fraction));
  print(terminal_ ? with_bar(fraction, std::move(line), columns_) : line);
}

}  // namespace millstream::cli
