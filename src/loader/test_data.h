#pragma once
// What the loader's tests share: folders that all ranks see, small Parquet files of known rows, and the batches that
// must come out, computed row by row.

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <arrow/api.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "comm/job.h"
#include "exec/parquet_writer.h"
#include "loader/full_order.h"
#include "loader/schedule.h"

namespace millstream::loader {

/// A folder made by rank 0, the same on every rank; removed when all are done. Collective.
class SharedFolder {
 public:
  explicit SharedFolder(comm::Job& job) : job_(job) {
    std::string name = (std::filesystem::temp_directory_path() / "millstream_loader_XXXXXX").string();
    if (job.rank() == 0) name = ::mkdtemp(name.data());
    path_ = job.world().broadcast_bytes(name, 0).ValueOrDie();
  }
  ~SharedFolder() {
    (void)job_.agree(Status::OK());
    std::error_code ignored;
    if (job_.rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  comm::Job& job_;
  std::string path_;
};

/// A row of the test table: id counts over all files; x and y are made of it.
struct TestRow {
  int64_t id = 0;
  double x = 0;
  double y = 0;
  int64_t keep = 1;
  bool x_null = false;
};
inline TestRow make_row(int64_t id) {
  TestRow row;
  row.id = id;
  row.x = static_cast<double>(mix64(id) % 100000) / 7.0 - 3000;
  row.y = static_cast<double>(mix64(id + 12345) % 1000) * 0.25;
  row.keep = mix64(id + 999) % 3 != 0;
  return row;
}

struct TestFile {
  std::string name;
  int64_t row_group_rows = 1000;
  std::vector<TestRow> rows;
};

inline Status write_test_file(const std::string& folder, const TestFile& file) {
  const auto schema =
      arrow::schema({arrow::field("id", arrow::int64()), arrow::field("x", arrow::float64()),
                     arrow::field("y", arrow::float64()), arrow::field("keep", arrow::int64())});
  arrow::Int64Builder id, keep;
  arrow::DoubleBuilder x, y;
  for (const TestRow& row : file.rows) {
    MILLSTREAM_TRY(id.Append(row.id));
    MILLSTREAM_TRY(row.x_null ? x.AppendNull() : x.Append(row.x));
    MILLSTREAM_TRY(y.Append(row.y));
    MILLSTREAM_TRY(keep.Append(row.keep));
  }
  std::vector<std::shared_ptr<arrow::Array>> columns(4);
  MILLSTREAM_ASSIGN(columns[0], id.Finish());
  MILLSTREAM_ASSIGN(columns[1], x.Finish());
  MILLSTREAM_ASSIGN(columns[2], y.Finish());
  MILLSTREAM_ASSIGN(columns[3], keep.Finish());
  MILLSTREAM_ASSIGN(auto writer, exec::ParquetFileWriter::open(folder + "/" + file.name, schema,
                                                               {.row_group_rows = file.row_group_rows}));
  MILLSTREAM_TRY(writer->write(
      *arrow::RecordBatch::Make(schema, static_cast<int64_t>(file.rows.size()), std::move(columns))));
  return writer->close();
}

/// Writes the files on rank 0. Collective.
inline Status write_test_files(comm::Job& job, const std::string& folder,
                               const std::vector<TestFile>& files) {
  Status status;
  if (job.rank() == 0) {
    for (const TestFile& file : files) {
      if (status.ok()) status = write_test_file(folder, file);
    }
  }
  return job.agree(status);
}

/// Files of `sizes` rows each, named in order.
inline std::vector<TestFile> make_test_files(const std::vector<int64_t>& sizes, int64_t row_group_rows) {
  std::vector<TestFile> files;
  int64_t id = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    TestFile file{fmt::format("part-{:02}.parquet", i), row_group_rows, {}};
    for (int64_t row = 0; row < sizes[i]; ++row) file.rows.push_back(make_row(id++));
    files.push_back(std::move(file));
  }
  return files;
}

/// Whether a row validates, as the design says it.
inline bool is_valid_row(const std::string& file, int64_t row, double fraction) {
  const uint64_t hash = mix64(hash64(file) ^ mix64(static_cast<uint64_t>(row)));
  return fraction > 0 && hash < static_cast<uint64_t>(std::ldexp(fraction, 64));
}

/// Surviving rows (keep = 1) by row group, training or validation ones.
inline std::vector<std::vector<TestRow>> rows_by_entry_point(const std::vector<TestFile>& files,
                                                             double fraction, bool valid) {
  std::vector<std::vector<TestRow>> entries;
  for (const TestFile& file : files) {
    const auto size = static_cast<int64_t>(file.rows.size());
    for (int64_t first = 0; first < size; first += file.row_group_rows) {
      auto& rows = entries.emplace_back();
      for (int64_t row = first; row < std::min(size, first + file.row_group_rows); ++row) {
        if (file.rows[row].keep == 1 && is_valid_row(file.name, row, fraction) == valid)
          rows.push_back(file.rows[row]);
      }
    }
  }
  return entries;
}

/// The rows of each batch of a pass, in batch order, by walking lanes and windows.
inline std::vector<std::vector<TestRow>> expected_batches(const std::vector<std::vector<TestRow>>& entries,
                                                          const ScheduleConfig& config) {
  std::vector<int64_t> counts;
  for (const auto& rows : entries) counts.push_back(static_cast<int64_t>(rows.size()));
  const PassSchedule schedule(counts, config);
  if (config.shuffle == Shuffle::kFull) {
    std::vector<TestRow> all;
    for (const auto& rows : entries) all.insert(all.end(), rows.begin(), rows.end());
    const FullOrder order(config.seed, config.epoch, schedule.rows());
    std::vector<std::vector<TestRow>> batches(static_cast<size_t>(schedule.num_batches()));
    for (int64_t place = 0; place < schedule.rows(); ++place) {
      int64_t row = 0;
      order.rows_at(place, 1, &row);
      batches[place / config.batch_size].push_back(all[row]);
    }
    return batches;
  }
  std::vector<std::vector<TestRow>> lanes;
  for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
    std::vector<TestRow> sequential;
    for (const int entry : schedule.lanes()[lane].entry_points) {
      sequential.insert(sequential.end(), entries[entry].begin(), entries[entry].end());
    }
    std::vector<TestRow> rows;
    std::vector<int32_t> permutation;
    for (int64_t window = 0; static_cast<int64_t>(rows.size()) < schedule.lanes()[lane].rows; ++window) {
      const RowRange range = schedule.window_range(lane, window);
      schedule.window_permutation(lane, window, &permutation);
      for (int64_t i = 0; i < range.rows(); ++i) {
        rows.push_back(sequential[range.begin + (permutation.empty() ? i : permutation[i])]);
      }
    }
    lanes.push_back(std::move(rows));
  }
  std::vector<std::vector<TestRow>> batches;
  for (int64_t batch = 0; batch < schedule.num_batches(); ++batch) {
    auto& rows = batches.emplace_back();
    for (const LaneSegment& segment : schedule.segments(batch)) {
      for (int64_t i = 0; i < segment.rows; ++i) rows.push_back(lanes[segment.lane][segment.lane_row + i]);
    }
  }
  return batches;
}

}  // namespace millstream::loader
