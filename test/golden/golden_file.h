#pragma once
// The golden corpus: what a .test file says, and writing it back with other expectations.
//
//     # A comment.
//     @table trips                    files trips/0.parquet, trips/1.parquet, … under the test's folder
//     @file rows_per_group=2          begins the next file of the table
//     id INTEGER NOT NULL | name VARCHAR
//     1 | 'a'
//     2 | NULL
//     @csv more/extra.csv             a file as it stands
//     id,name
//     3,c
//     @case what it shows
//     @query
//     SELECT id FROM 'trips/*.parquet'
//     @types                          each output with its type
//     @rows                           the rows, in order, cells separated by '|'
//     @error                          or the error's text
//     @explain                        the plan's text
//     @bounds                         each output with what is known of its values
//     @report                         what `millstream explain` says
//
// A case expects what sections it has. Tables hold for all cases of the file.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace millstream::test {

struct GoldenCase {
  std::string name;
  int line = 0;
  std::string query;
  /// By section (golden_sections()); lines without the last line's end.
  std::map<std::string, std::vector<std::string>> expected;
};

struct GoldenFile {
  std::string path;
  std::vector<GoldenCase> cases;

  /// Reads the file and writes its tables below `folder`.
  static Result<GoldenFile> load(const std::string& path, const std::string& folder);
  /// Rewrites the expectations of the cases in place; everything else stays as it is.
  Status save() const;

 private:
  std::vector<std::string> preamble_;               // everything before the first case, as it stands
  std::vector<std::vector<std::string>> comments_;  // before each case
};

inline const std::vector<std::string>& golden_sections() {
  static const std::vector<std::string> kSections = {"types", "rows", "error", "explain", "bounds", "report"};
  return kSections;
}

}  // namespace millstream::test
