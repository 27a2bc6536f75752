#include "loader/survey_cache.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"

namespace millstream::loader {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "millstream survey 1\n";
constexpr const char* kSurveyFile = "survey.bin";
constexpr const char* kTemporaryPrefix = "tmp-";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string default_directory() {
  if (const std::string set = environment("MILLSTREAM_CACHE"); !set.empty()) return set;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/millstream";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/millstream";
  return fmt::format("/tmp/millstream-cache-{}", ::getuid());
}

std::string checksum(std::string_view bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.hex();
}

int64_t folder_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder, ignored)) {
    const auto size = file.file_size(ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

std::string cache_directory(const std::string& configured) {
  return configured.empty() ? default_directory() : configured;
}

SurveyCache::SurveyCache(const std::string& configured)
    : directory_(cache_directory(configured) + "/survey") {}

std::string SurveyCache::entry_path(const std::string& key) const {
  return directory_ + "/" + key;
}

int64_t SurveyCache::free_bytes() const {
  std::error_code error;
  for (fs::path path = fs::absolute(directory_, error); !path.empty(); path = path.parent_path()) {
    const fs::space_info space = fs::space(path, error);
    if (!error) return static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX));
    if (path == path.parent_path()) break;
  }
  return 0;
}

std::string SurveyCache::piece_path(const std::string& entry, int rank) {
  return fmt::format("{}/pieces-{}.arrow", entry, rank);
}

std::string SurveyCache::values_path(const std::string& entry) {
  return entry + "/values.bin";
}

std::string SurveyCache::load(const std::string& key) const {
  const std::string path = entry_path(key) + "/" + kSurveyFile;
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::stringstream content;
  content << file.rdbuf();
  const std::string bytes = content.str();
  const size_t header = kMagic.size() + 32;
  if (bytes.size() < header || std::string_view(bytes).substr(0, kMagic.size()) != kMagic ||
      std::string_view(bytes).substr(kMagic.size(), 32) != checksum(std::string_view(bytes).substr(header))) {
    notice_f("the survey in the cache at {} is damaged and ignored", entry_path(key));
    return "";
  }
  std::error_code ignored;
  fs::last_write_time(entry_path(key), fs::file_time_type::clock::now(), ignored);
  return bytes.substr(header);
}

Result<std::string> SurveyCache::begin(const std::string& key) const {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) {
    return file_error(
        "the cache directory {} can't be made: {}; give another place with --cache or $MILLSTREAM_CACHE",
        directory_, error.message());
  }
  std::string name = fmt::format("{}/{}{}-XXXXXX", directory_, kTemporaryPrefix, key);
  if (::mkdtemp(name.data()) == nullptr) {
    return file_error(
        "the cache directory {} can't be written: {}; give another place with --cache or $MILLSTREAM_CACHE",
        directory_, std::strerror(errno));
  }
  ::chmod(name.c_str(), 0755);
  return name;
}

Status SurveyCache::commit(const std::string& key, const std::string& temporary,
                           const std::string& bytes) const {
  const std::string path = temporary + "/" + kSurveyFile;
  {
    std::ofstream file(path, std::ios::binary);
    file << kMagic << checksum(bytes) << bytes;
    file.flush();
    if (!file) return file_error("the cache file {} can't be written: {}", path, std::strerror(errno));
  }
  const std::string entry = entry_path(key);
  std::error_code error;
  fs::rename(temporary, entry, error);
  if (error) {
    // Another run was quicker, or a damaged entry is there: ours takes its place. Readers keep their open files.
    const std::string old = fmt::format("{}/{}old-{}-{}", directory_, kTemporaryPrefix, key, ::getpid());
    std::error_code ignored;
    fs::rename(entry, old, ignored);
    fs::rename(temporary, entry, error);
    fs::remove_all(old, ignored);
  }
  if (error) return file_error("the cache entry {} can't be written: {}", entry, error.message());
  return Status::OK();
}

void SurveyCache::abandon(const std::string& temporary) const {
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
}

void SurveyCache::trim(const std::string& keep, int64_t limit) const {
  struct Entry {
    fs::file_time_type time;
    int64_t bytes = 0;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code ignored;
  const auto now = fs::file_time_type::clock::now();
  for (const auto& item : fs::directory_iterator(directory_, ignored)) {
    std::error_code error;
    const auto time = fs::last_write_time(item.path(), error);
    if (error) continue;
    const std::string name = item.path().filename().string();
    if (name.rfind(kTemporaryPrefix, 0) == 0) {
      if (now - time > std::chrono::hours(24)) fs::remove_all(item.path(), error);
      continue;
    }
    Entry entry{time, folder_bytes(item.path()), item.path()};
    total += entry.bytes;
    if (name != keep) entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.time < b.time; });
  for (const Entry& entry : entries) {
    if (total <= limit) break;
    fs::remove_all(entry.path, ignored);
    total -= entry.bytes;
  }
}

}  // namespace millstream::loader
