#include "base/log.h"

#include <mutex>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

namespace millstream {
namespace {

struct Log {
  std::mutex mutex;
  bool speaker = true;
  bool quiet = false;
  std::string status_line;
};

Log& log() {
  static Log* log = new Log;  // never destroyed: threads may print while the process ends
  return *log;
}

int terminal_columns() {
  if (!isatty(STDERR_FILENO)) return 0;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool is_terminal() {
  return status_line_columns() > 0;
}

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void print_line(std::string_view prefix, std::string_view text) {
  std::lock_guard lock(log().mutex);
  const bool redraw = is_terminal() && !log().status_line.empty();
  write_all(
      fmt::format("{}{}{}\n{}", redraw ? "\r\x1b[K" : "", prefix, text, redraw ? log().status_line : ""));
}

}  // namespace

int status_line_columns() {
  static const int columns = terminal_columns();
  return columns;
}

void set_log(bool speaker, bool quiet) {
  std::lock_guard lock(log().mutex);
  log().speaker = speaker;
  log().quiet = quiet;
}
bool log_is_speaker() {
  std::lock_guard lock(log().mutex);
  return log().speaker;
}
bool log_is_quiet() {
  std::lock_guard lock(log().mutex);
  return log().quiet;
}

void notice(std::string_view text) {
  if (log_is_speaker() && !log_is_quiet()) print_line("millstream: ", text);
}
void warning(std::string_view text) {
  if (log_is_speaker()) print_line("millstream: warning: ", text);
}

void set_status_line(std::string_view text) {
  if (!is_terminal()) return;
  std::lock_guard lock(log().mutex);
  if (!log().speaker || log().quiet) return;
  log().status_line = text;
  write_all(fmt::format("\r\x1b[K{}", text));
}

}  // namespace millstream
