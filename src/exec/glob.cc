#include "exec/glob.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include <sys/stat.h>

#include "base/nearest_name.h"

namespace millstream::exec {
namespace {

namespace fs = std::filesystem;

// One character of a pattern at `i`, with its escape; moves `i` past it.
char literal_at(std::string_view pattern, size_t& i) {
  if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
  return pattern[i++];
}

// The set `[...]` that begins at `i`. Returns npos where it is not closed (then `[` is an ordinary
// character), else the index behind it, and in `found` whether `c` is in the set.
size_t match_set(std::string_view pattern, size_t i, char c, bool& found) {
  size_t at = i + 1;
  bool negated = false;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) {
    negated = true;
    ++at;
  }
  found = false;
  bool first = true;
  while (at < pattern.size() && (first || pattern[at] != ']')) {
    first = false;
    const auto low = static_cast<unsigned char>(literal_at(pattern, at));
    auto high = low;
    if (at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']') {
      ++at;
      high = static_cast<unsigned char>(literal_at(pattern, at));
    }
    const auto value = static_cast<unsigned char>(c);
    if (low <= value && value <= high) found = true;
  }
  if (at >= pattern.size()) return std::string_view::npos;
  found = found != negated;
  return at + 1;
}

std::string without_escapes(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size();) out += literal_at(pattern, i);
  return out;
}

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string join(const std::string& directory, const std::string& name) {
  if (directory.empty()) return name;
  return directory.back() == '/' ? directory + name : directory + "/" + name;
}

std::string shown(const std::string& directory) {
  std::error_code error;
  const fs::path absolute = fs::absolute(directory.empty() ? "." : directory, error).lexically_normal();
  std::string text = error ? directory : absolute.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// The entries of a folder that a component of a pattern matches, sorted.
Result<std::vector<std::string>> list_matching(const std::string& directory, std::string_view component) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(directory.empty() ? "." : directory, error);
  if (error) {
    if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) return names;
    return file_error("cannot list the folder '{}': {}", shown(directory), error.message());
  }
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    std::string name = entries->path().filename().string();
    if (name[0] == '.' && component[0] != '.') continue;
    if (matches_component(component, name)) names.push_back(std::move(name));
    if (error) break;
  }
  if (error) return file_error("cannot list the folder '{}': {}", shown(directory), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

class Walk {
 public:
  Walk(std::vector<std::string> components, std::string root, std::map<std::string, GlobMatch>& out)
      : components_(std::move(components)), root_(std::move(root)), out_(out) {}

  Status descend(const std::string& directory, size_t depth) {
    const std::string& component = components_[depth];
    const bool last = depth + 1 == components_.size();
    if (component == "**") {
      // Any number of folders, none included. A trailing `**` stands for all files below.
      if (!last) MILLSTREAM_TRY(descend(directory, depth + 1));
      MILLSTREAM_ASSIGN(auto names, list_matching(directory, "*"));
      for (const std::string& name : names) {
        const std::string path = join(directory, name);
        std::error_code error;
        // Links to folders are not followed: they can make circles.
        if (fs::is_directory(fs::symlink_status(path, error))) {
          MILLSTREAM_TRY(descend(path, depth));
        } else if (last) {
          add(path);
        }
      }
      return Status::OK();
    }
    if (!has_wildcard(component)) {
      const std::string path = join(directory, without_escapes(component));
      if (last) {
        add(path);
        return Status::OK();
      }
      return is_directory(path) ? descend(path, depth + 1) : Status::OK();
    }
    MILLSTREAM_ASSIGN(auto names, list_matching(directory, component));
    for (const std::string& name : names) {
      const std::string path = join(directory, name);
      if (last) {
        add(path);
      } else if (is_directory(path)) {
        MILLSTREAM_TRY(descend(path, depth + 1));
      }
    }
    return Status::OK();
  }

 private:
  void add(const std::string& path) {
    if (!is_regular_file(path)) return;
    std::string name = path.substr(std::min(path.size(), root_.size()));
    name.erase(0, name.find_first_not_of('/'));
    out_.emplace(path, GlobMatch{path, std::move(name)});
  }

  std::vector<std::string> components_;
  std::string root_;
  std::map<std::string, GlobMatch>& out_;
};

std::vector<std::string> split_components(std::string_view pattern) {
  std::vector<std::string> components;
  std::string current;
  for (char c : pattern) {
    if (c != '/') {
      current += c;
    } else if (!current.empty()) {
      components.push_back(std::exchange(current, {}));
    }
  }
  if (!current.empty()) components.push_back(std::move(current));
  return components;
}

// The folder before the first component with a wildcard or a brace.
std::string fixed_root(std::string_view pattern) {
  const size_t wild = pattern.find_first_of("*?[{\\");
  const size_t slash = pattern.rfind('/', wild == std::string_view::npos ? pattern.size() : wild);
  return slash == std::string_view::npos ? std::string() : std::string(pattern.substr(0, slash + 1));
}

Status no_such_file(const std::string& glob, const std::string& path) {
  std::string directory = fs::path(path).parent_path().string();
  const std::string name = fs::path(path).filename().string();
  std::error_code error;
  if (!fs::is_directory(directory.empty() ? "." : directory, error)) {
    return file_error("no such file: '{}' (there is no folder '{}')", glob, shown(directory));
  }
  std::vector<std::string> names;
  if (auto listed = list_matching(directory, "*"); listed.ok()) names = std::move(*listed);
  const auto near = nearest_name(name, names);
  return file_error("no such file: '{}' (looked in '{}'){}", glob, shown(directory),
                    near ? fmt::format("; did you mean '{}'?", *near) : "");
}

}  // namespace

bool has_wildcard(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
    } else if (pattern[i] == '*' || pattern[i] == '?' || pattern[i] == '[') {
      return true;
    }
  }
  return false;
}

bool matches_component(std::string_view pattern, std::string_view name) {
  // Greedy, with one place to come back to: the last star.
  size_t p = 0, n = 0, star = std::string_view::npos, star_name = 0;
  while (n < name.size()) {
    bool matched = false;
    size_t next = p;
    if (p < pattern.size()) {
      if (pattern[p] == '*') {
        star = p++;
        star_name = n;
        continue;
      }
      if (pattern[p] == '?') {
        // One character, not one byte, of UTF-8.
        matched = true;
        next = p + 1;
        while (n + 1 < name.size() && (static_cast<unsigned char>(name[n + 1]) & 0xC0) == 0x80) ++n;
      } else if (pattern[p] == '[') {
        next = match_set(pattern, p, name[n], matched);
        if (next == std::string_view::npos) {
          matched = name[n] == '[';
          next = p + 1;
        }
      } else {
        matched = literal_at(pattern, next) == name[n];
      }
    }
    if (matched) {
      p = next;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string> expand_braces(std::string_view pattern) {
  for (size_t open = 0; open < pattern.size(); ++open) {
    if (pattern[open] == '\\') {
      ++open;
      continue;
    }
    if (pattern[open] != '{') continue;
    std::vector<std::string> choices;
    std::string current;
    int depth = 1;
    size_t at = open + 1;
    for (; at < pattern.size() && depth > 0; ++at) {
      const char c = pattern[at];
      if (c == '\\' && at + 1 < pattern.size()) {
        current += c;
        current += pattern[++at];
        continue;
      }
      if (c == '{') ++depth;
      if (c == '}' && --depth == 0) break;
      if (c == ',' && depth == 1) {
        choices.push_back(std::exchange(current, {}));
      } else {
        current += c;
      }
    }
    if (depth > 0 || choices.empty()) continue;  // "{" alone and "{a}" stand for themselves
    choices.push_back(std::move(current));
    std::vector<std::string> out;
    for (const std::string& choice : choices) {
      std::string one(pattern.substr(0, open));
      one += choice;
      one += pattern.substr(at + 1);
      for (std::string& expanded : expand_braces(one)) out.push_back(std::move(expanded));
    }
    return out;
  }
  return {std::string(pattern)};
}

Result<std::vector<GlobMatch>> expand_glob(const std::string& glob, const std::string& base_directory) {
  if (glob.empty())
    return file_error("an empty file name; a path or a glob like 'trips/*.parquet' is needed");
  const std::string whole = glob[0] == '/' ? glob : join(base_directory, glob);
  if (is_regular_file(whole)) return std::vector<GlobMatch>{{whole, fs::path(whole).filename().string()}};
  if (is_directory(whole)) {
    const std::string place = glob[0] == '/' ? "" : fmt::format(" ('{}')", shown(whole));
    return file_error("'{}' is a folder{}; to read the files in it write '{}{}*.parquet'", glob, place, glob,
                      glob.ends_with('/') ? "" : "/");
  }
  // Only what the user wrote can hold wildcards: a folder of the base directory may be named "[x]".
  const std::string base = glob[0] == '/' ? std::string() : base_directory;
  const std::vector<std::string> patterns = expand_braces(glob);
  if (patterns.size() == 1 && !has_wildcard(glob))
    return no_such_file(glob, join(base, without_escapes(glob)));

  const std::string root = join(base, fixed_root(glob));
  std::map<std::string, GlobMatch> matches;
  for (const std::string& pattern : patterns) {
    const std::string start = pattern[0] == '/' ? "/" : base;
    std::vector<std::string> components = split_components(pattern);
    if (components.empty()) continue;
    MILLSTREAM_TRY(Walk(std::move(components), root, matches).descend(start, 0));
  }
  if (matches.empty()) {
    std::error_code error;
    if (!fs::is_directory(root.empty() ? "." : root, error)) {
      return file_error("'{}' matches no files: there is no folder '{}'", glob, shown(root));
    }
    return file_error("'{}' matches no files (looked in '{}')", glob, shown(root));
  }
  std::vector<GlobMatch> out;
  for (auto& [path, match] : matches) out.push_back(std::move(match));
  return out;
}

}  // namespace millstream::exec
