#pragma once
// The folder that a training run leaves behind, and files that are either complete or absent.

#include <cstdio>
#include <string>
#include <string_view>

#include "base/status.h"

namespace millstream::train {

/// Makes the run directory (parents too). Errors: it holds files already and `overwrite` is false (usage), it can't
/// be made or written (file). With `overwrite` the files of an earlier run are removed, nothing else.
Status prepare_run_directory(const std::string& path, bool overwrite);

/// The same for a run that goes on there: checkpoints and metrics.jsonl stay, what its end left is removed.
Status reopen_run_directory(const std::string& path);

/// Writes a temporary beside `path`, syncs it, renames it to `path` and syncs the folder. File errors name `path`.
Status write_file_durably(const std::string& path, std::string_view bytes);
/// Syncs a folder, so that renames in it last.
Status sync_directory(const std::string& path);
/// The file's bytes; a file error names it, also when it is larger than `limit_bytes`.
Result<std::string> read_whole_file(const std::string& path, int64_t limit_bytes);

/// metrics.jsonl: a JSON object a line, there to be followed while the run goes on.
class LineFile {
 public:
  LineFile() = default;
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  Status open(const std::string& path);
  /// Goes on behind the first `bytes` of the file; what follows them is dropped.
  Status reopen(const std::string& path, int64_t bytes);
  int64_t bytes() const { return bytes_; }
  /// Appends `line` and a newline and hands them to the system.
  Status write(std::string_view line);

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace millstream::train
