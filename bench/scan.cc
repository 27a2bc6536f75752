// Decoding: Arrow's reader and our scan, over the columns that the taxi recipe reads, in one run, alternating; medians
// of five. Usage: build/bench/scan DATA_DIR [THREADS]

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include <arrow/api.h>
#include <arrow/util/thread_pool.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/column_reader.h>
#include <parquet/file_reader.h>
#include <parquet/level_conversion.h>

#include "base/trace.h"
#include "exec/block_source.h"
#include "exec/file_catalog.h"
#include "plan/planner.h"
#include "plan/rewrite.h"

using namespace millstream;

namespace {

constexpr int kRounds = 5;
const std::vector<std::string> kColumns = {"request_datetime", "pickup_datetime",     "dropoff_datetime",
                                           "PULocationID",     "DOLocationID",        "trip_miles",
                                           "trip_time",        "base_passenger_fare", "tolls"};

struct RowGroup {
  std::string file;
  int number = 0;
};

class Bench {
 public:
  Bench(const std::string& folder, int threads) : threads_(threads) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".parquet") files_.push_back(entry.path());
    std::ranges::sort(files_);
    for (const std::string& file : files_) {
      const auto metadata = parquet::ParquetFileReader::OpenFile(file)->metadata();
      for (int g = 0; g < metadata->num_row_groups(); ++g) row_groups_.push_back({file, g});
    }
    glob_ = folder + "/*.parquet";
    PARQUET_THROW_NOT_OK(arrow::SetCpuThreadPoolCapacity(threads));
  }

  void arrow_tables() {
    for (const std::string& file : files_) {
      const auto reader = open(file, true);
      rows_ += reader->ReadTable(indices(*reader)).ValueOrDie()->num_rows();
    }
  }
  void arrow_batches() {
    each(row_groups_.size(), [&](size_t i) {
      const auto reader = open(row_groups_[i].file, false);
      const auto batches =
          reader->GetRecordBatchReader({row_groups_[i].number}, indices(*reader)).ValueOrDie();
      std::shared_ptr<arrow::RecordBatch> batch;
      while (true) {
        PARQUET_THROW_NOT_OK(batches->ReadNext(&batch));
        if (!batch) break;
        rows_ += batch->num_rows();
      }
    });
  }
  // What Arrow's decoders take at least: into memory that is used again, no arrays made.
  void arrow_records() {
    each(row_groups_.size(), [&](size_t i) {
      const auto file = parquet::ParquetFileReader::OpenFile(row_groups_[i].file);
      const auto group = file->RowGroup(row_groups_[i].number);
      for (const std::string& name : kColumns) {
        const int column = file->metadata()->schema()->ColumnIndex(name);
        const auto* descriptor = file->metadata()->schema()->Column(column);
        const auto reader = parquet::internal::RecordReader::Make(
            descriptor, parquet::internal::LevelInfo::ComputeLevelInfo(descriptor));
        reader->SetPageReader(group->GetColumnPageReader(column));
        for (int64_t left = group->metadata()->num_rows(); left > 0; left -= plan::kBlockRows) {
          reader->Reset();
          reader->ReadRecords(std::min(left, plan::kBlockRows));
        }
      }
      rows_ += group->metadata()->num_rows();
    });
  }
  void ours(const std::string& where) {
    const auto catalog = exec::make_file_catalog(threads_);
    std::string sql = "SELECT ";
    for (const std::string& name : kColumns) sql += (name == kColumns[0] ? "" : ", ") + name;
    sql += " FROM '" + glob_ + "'" + (where.empty() ? "" : " WHERE " + where);
    const auto plan = plan::plan_query(sql, *catalog, {.name = "bench"}).ValueOrDie();
    const exec::BlockSource source(plan::to_pipeline(plan).ValueOrDie());
    each(source.table().entry_points().size(), [&](size_t e) {
      const auto stream = source.open(static_cast<int>(e)).ValueOrDie();
      while (const auto block = stream->next().ValueOrDie()) rows_ += block->rows->num_rows();
    });
  }

  void run() {
    struct Case {
      std::string name;
      std::function<void()> work;
      std::vector<double> seconds;
      int64_t rows = 0;
    };
    std::vector<Case> cases = {
        {"Arrow, whole files as tables, its threads", [&] { arrow_tables(); }, {}},
        {"Arrow, row groups as batches of a block", [&] { arrow_batches(); }, {}},
        {"Arrow's decoders alone, memory used again", [&] { arrow_records(); }, {}},
        {"ours, all rows", [&] { ours(""); }, {}},
        {"ours, half of the rows", [&] { ours("trip_miles > 2.7"); }, {}},
        {"ours, one row in 400, in every page", [&] { ours("PULocationID = 100"); }, {}},
        {"ours, rows of one stretch", [&] { ours("request_datetime < TIMESTAMP '2022-01-02'"); }, {}},
        {"ours, no row: the filter's column alone", [&] { ours("trip_miles > 1e9"); }, {}},
    };
    for (int round = 0; round <= kRounds; ++round) {
      for (Case& one : cases) {
        rows_ = 0;
        const int64_t begin = monotonic_ns();
        one.work();
        if (round > 0) one.seconds.push_back(static_cast<double>(monotonic_ns() - begin) / 1e9);
        one.rows = rows_;
      }
    }
    double arrow = 0;
    for (Case& one : cases) {
      std::ranges::sort(one.seconds);
      const double median = one.seconds[kRounds / 2];
      if (&one == &cases[1]) arrow = median;
    }
    for (const Case& one : cases) {
      fmt::print("{:44} {:7.3f} s  {:5.2f} x Arrow's batches  {:>12} rows\n", one.name,
                 one.seconds[kRounds / 2], one.seconds[kRounds / 2] / arrow, one.rows);
    }
  }

 private:
  template <class F>
  void each(size_t count, F&& work) const {
    std::atomic<size_t> next{0};
    const auto take = [&] {
      for (size_t i; (i = next++) < count;) work(i);
    };
    std::vector<std::thread> helpers;
    for (int t = 1; t < threads_; ++t) helpers.emplace_back(take);
    take();
    for (std::thread& helper : helpers) helper.join();
  }
  static std::unique_ptr<parquet::arrow::FileReader> open(const std::string& file, bool threads) {
    parquet::ArrowReaderProperties properties(threads);
    properties.set_batch_size(plan::kBlockRows);
    return parquet::arrow::FileReader::Make(arrow::default_memory_pool(),
                                            parquet::ParquetFileReader::OpenFile(file), properties)
        .ValueOrDie();
  }
  static std::vector<int> indices(parquet::arrow::FileReader& reader) {
    std::vector<int> result;
    for (const std::string& name : kColumns)
      result.push_back(reader.parquet_reader()->metadata()->schema()->ColumnIndex(name));
    return result;
  }

  int threads_;
  std::vector<std::string> files_;
  std::string glob_;
  std::vector<RowGroup> row_groups_;
  std::atomic<int64_t> rows_{0};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: scan DATA_DIR [THREADS]\n");
    return 2;
  }
  Bench(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 2).run();
  return 0;
}
