#pragma once
// Lazy frames: queries written in C++, step by step.
//
//     auto trips = millstream::scan("trips/*.parquet")
//                      .filter("trip_miles > 0 AND trip_time > 0")
//                      .select({"PULocationID", "trip_time / 60.0 AS minutes", "trip_miles"});
//     data.train = trips.sql();
//
// A frame is the text of a query: nothing is read or checked before it is planned, and whatever takes SQL
// takes a frame. Expressions are those of SQL. Immutable, cheap to copy; every step gives a new frame.

#include <initializer_list>
#include <string>
#include <vector>

namespace millstream::plan {

class Frame {
 public:
  /// Only the rows for which `condition` is true.
  Frame filter(const std::string& condition) const;
  /// Only these columns: "name", "expression AS name", "*".
  Frame select(const std::vector<std::string>& items) const;
  /// All columns and these.
  Frame with_columns(const std::vector<std::string>& items) const;
  /// All columns but these; names as they are, without quotes.
  Frame drop(const std::vector<std::string>& columns) const;

  /// The query, ready for plan_query(), DataConfig::train and the like.
  std::string sql() const;
  operator std::string() const { return sql(); }  // NOLINT: a frame stands where SQL does

 private:
  friend Frame scan(const std::vector<std::string>& files);
  std::string input_;      // what stands after FROM
  std::string selection_;  // what stands after SELECT; empty: *
  std::string condition_;  // what stands after WHERE; empty: none
};

/// The rows of these files and globs (Parquet, CSV), united by column name.
Frame scan(const std::vector<std::string>& files);
inline Frame scan(std::initializer_list<std::string> files) {
  return scan(std::vector<std::string>(files));
}
inline Frame scan(const std::string& file) {
  return scan(std::vector<std::string>{file});
}

}  // namespace millstream::plan

namespace millstream {
using plan::Frame;
using plan::scan;
}  // namespace millstream
