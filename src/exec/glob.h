#pragma once
// File names with wildcards, as shells and DuckDB have them: `*` and `?` within a folder, `[a-z]`, `[!a-z]`,
// `{a,b}`, and `**` for any number of folders. A backslash takes the next character as it is. Names that
// begin with a dot match only a pattern that begins with one.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millstream::exec {

struct GlobMatch {
  std::string path;  ///< as it is opened
  std::string
      name;  ///< under the fixed part of the glob (before its first wildcard); of a plain path the file name
};

/// True where `name` (without slashes) matches one component of a pattern (no braces).
bool matches_component(std::string_view pattern, std::string_view name);
/// The patterns that a pattern with `{a,b}` stands for, in the order written; nested braces too.
std::vector<std::string> expand_braces(std::string_view pattern);
bool has_wildcard(std::string_view pattern);

/// The files that `glob` names, sorted by path, each once; folders are left out. A relative glob is relative
/// to `base_directory` (empty: the working directory). An existing file whose name has wildcard characters is
/// that file. Errors (kFile) say where was looked: a plain path with no file, a glob that matches none, a
/// folder that cannot be listed.
Result<std::vector<GlobMatch>> expand_glob(const std::string& glob, const std::string& base_directory);

}  // namespace millstream::exec
