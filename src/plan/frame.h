#pragma once
// Lazy frames: queries written in C++, step by step.
//
//     auto trips = millstream::scan("trips/*.parquet")
//                      .filter("trip_miles > 0 AND trip_time > 0")
//                      .select({"PULocationID", "trip_time / 60.0 AS minutes", "trip_miles"});
//     auto zones = millstream::scan("zones.csv").as("z");
//     auto means = trips.as("t")
//                      .join(zones, "t.PULocationID = z.LocationID")
//                      .group_by({"z.Borough"}, {"avg(t.minutes) AS minutes"})
//                      .order_by({"minutes DESC"});
//     data.train = means.sql();
//
// A frame is the text of a query: nothing is read or checked before it is planned, and whatever takes SQL
// takes a frame. Expressions are those of SQL. Immutable, cheap to copy; every step gives a new frame.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "plan/relational.h"

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

  /// The rows so far as a table called `name`, for what follows: "name.column". The name is as it is, without quotes.
  Frame as(const std::string& name) const;
  /// Joined with `other`. Without as(), the files of a side are called as in FROM.
  Frame join(const Frame& other, const std::string& on, JoinKind kind = JoinKind::kInner) const;
  /// Joined where the columns that both have are equal; names as they are.
  Frame join_using(const Frame& other, const std::vector<std::string>& columns,
                   JoinKind kind = JoinKind::kInner) const;
  /// One row for every combination of the keys, with them and the aggregates ("sum(x) AS total"); without keys one row.
  Frame group_by(const std::vector<std::string>& keys, const std::vector<std::string>& aggregates) const;
  /// Every row once.
  Frame distinct() const;
  /// In order: "name", "expression DESC NULLS FIRST".
  Frame order_by(const std::vector<std::string>& items) const;
  /// At most `rows` rows after the first `offset`.
  Frame limit(int64_t rows, int64_t offset = 0) const;
  /// These rows and then those of `other`, which has as many columns.
  Frame union_all(const Frame& other) const;

  /// The query, ready for plan_query(), DataConfig::train and the like.
  std::string sql() const;
  operator std::string() const { return sql(); }  // NOLINT: a frame stands where SQL does

 private:
  friend Frame scan(const std::vector<std::string>& files);
  bool is_table() const { return selection_.empty() && condition_.empty() && tail_.empty(); }
  Frame nested() const;
  std::string table() const;
  Frame joined_with(const Frame& other, JoinKind kind, const std::string& condition) const;

  std::string input_;      // what stands after FROM
  std::string selection_;  // what stands after SELECT; empty: *
  std::string condition_;  // what stands after WHERE; empty: none
  std::string tail_;       // GROUP BY, ORDER BY, LIMIT
  bool limited_ = false;   // tail_ has an ORDER BY or LIMIT
  bool joins_ = false;     // input_ has a JOIN
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
using plan::JoinKind;
using plan::scan;
}  // namespace millstream
