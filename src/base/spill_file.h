#pragma once
// Bytes that there is no room for in memory. The file has no name: it is gone with the process, however that ends.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace millstream {

/// Any thread may call any of it at any time.
class SpillFile {
 public:
  /// Nothing is made before something is written. `directory` empty: $TMPDIR or /tmp; it is made where it is absent.
  explicit SpillFile(std::string directory);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  /// Where the bytes are from now on. A file error names the directory and says what would help.
  Result<int64_t> append(std::string_view bytes);
  Status read(int64_t offset, int64_t size, void* out) const;
  int64_t bytes() const { return end_; }

 private:
  Status open();

  std::string directory_;
  std::mutex mutex_;
  std::atomic<int> file_ = -1;
  std::atomic<int64_t> end_ = 0;
};

}  // namespace millstream
