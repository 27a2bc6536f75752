#pragma once
// Lines for people, on standard error. A job prints a line once: only the rank that is told to be the
// speaker (rank 0) prints notices. Thread-safe; a line is written whole. A progress bar on a terminal is
// cleared before a line and drawn again after it.

#include <string_view>

#include <fmt/format.h>

namespace millstream {

/// Set once, before threads start: whether this process prints notices, and whether --quiet is on.
void set_log(bool speaker, bool quiet);
bool log_is_speaker();
bool log_is_quiet();

/// "millstream: <text>", from the speaker only and not with --quiet.
void notice(std::string_view text);
template <class... A>
void notice_f(fmt::format_string<A...> format, A&&... args) {
  notice(fmt::format(format, std::forward<A>(args)...));
}
/// "millstream: warning: <text>", also with --quiet.
void warning(std::string_view text);

/// Columns of the terminal that standard error is, 0 where it is none.
int status_line_columns();

/// Replaces the one transient status line at the bottom of a terminal ("" removes it). Does nothing where
/// status_line_columns() is 0.
void set_status_line(std::string_view text);

}  // namespace millstream
