#pragma once
// A query's result as a table for people: names over types, numbers to the right, and of a long result the first
// and the last rows.
//
//     ┌─────────┬─────────┐
//     │ zone    │   trips │
//     │ VARCHAR │  BIGINT │
//     ├─────────┼─────────┤
//     │ Astoria │       5 │
//     │ ···     │     ··· │
//     └─────────┴─────────┘
//       160 rows, 2 shown

#include <deque>
#include <string>
#include <vector>

#include <arrow/api.h>

namespace millstream::cli {

class ResultTable {
 public:
  /// Of results longer than `rows` the first and the last half are kept and shown.
  explicit ResultTable(const std::shared_ptr<arrow::Schema>& schema, int64_t rows = 40);
  void add(const arrow::RecordBatch& batch);
  int64_t rows() const { return rows_; }
  /// The table as lines. A table wider than `width` (0: any) leaves out columns in the middle.
  std::string text(int width) const;

 private:
  using Row = std::vector<std::string>;
  std::vector<std::string> names_;
  std::vector<std::string> types_;
  std::vector<bool> right_;
  int64_t half_;
  int64_t rows_ = 0;
  std::vector<Row> first_;
  std::deque<Row> last_;
};

}  // namespace millstream::cli
