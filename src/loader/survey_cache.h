#pragma once
// The cache of surveys, shared by runs: one folder an entry, named by its key, with the survey and its pieces.
// Entries are written under a temporary name and renamed when complete; a damaged one is ignored with a notice. The
// oldest entries beyond 20 GiB are removed.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace millstream::loader {

inline constexpr int64_t kSurveyCacheBytes = int64_t{20} << 30;

/// `configured` or, where it is empty, $MILLSTREAM_CACHE, $XDG_CACHE_HOME/millstream or ~/.cache/millstream.
std::string cache_directory(const std::string& configured);

class SurveyCache {
 public:
  /// In cache_directory(configured). Nothing is created before something is written.
  explicit SurveyCache(const std::string& configured);

  const std::string& directory() const { return directory_; }
  std::string entry_path(const std::string& key) const;
  /// Free bytes of the file system that the directory is on, or is going to be on.
  int64_t free_bytes() const;
  static std::string piece_path(const std::string& entry, int rank);
  static std::string values_path(const std::string& entry);  ///< of the values that fits counted

  /// The survey's bytes of an entry, empty where there is none that is whole. Marks it as used now.
  std::string load(const std::string& key) const;
  /// A new folder for an entry in the making.
  Result<std::string> begin(const std::string& key) const;
  /// Writes the survey's bytes into the folder and gives it its name. An entry of that name is replaced.
  Status commit(const std::string& key, const std::string& temporary, const std::string& bytes) const;
  void abandon(const std::string& temporary) const;
  /// Removes the oldest entries beyond `limit` bytes, `keep` excepted, and leftovers older than a day.
  void trim(const std::string& keep, int64_t limit = kSurveyCacheBytes) const;

 private:
  std::string directory_;
};

}  // namespace millstream::loader
