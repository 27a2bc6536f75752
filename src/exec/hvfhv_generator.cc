#include "exec/hvfhv_generator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/progress.h"
#include "exec/parquet_writer.h"

namespace millstream::exec {
namespace {

constexpr int64_t kRowGroup = int64_t{1} << 20;
constexpr int64_t kPiece = 64 * 1024;  // rows that are made at a time
constexpr int kLocations = 265;
constexpr int kFirstYear = 2022;
constexpr int kMaxFiles = 12 * 100;
constexpr uint32_t kStream = 0x48564856;  // sets these numbers apart from others of the seed

// A location is chosen with weight 1 / (k + 8), k its rank: a few busy zones and a long tail.
class LocationChoice {
 public:
  LocationChoice() {
    double total = 0;
    for (int k = 0; k < kLocations; ++k) total += 1.0 / (k + 8);
    double sum = 0;
    int k = 0;
    for (int slot = 0; slot < kSlots; ++slot) {
      // The zone at the middle of each of many equal steps of the distribution.
      while (k + 1 < kLocations && sum + 1.0 / (k + 8) < total * (slot + 0.5) / kSlots)
        sum += 1.0 / (k++ + 8);
      table_[static_cast<size_t>(slot)] = static_cast<int16_t>(k + 1);
    }
  }
  int64_t at(uint32_t bits) const { return table_[bits >> (32 - kBits)]; }

 private:
  static constexpr int kBits = 16;
  static constexpr int kSlots = 1 << kBits;
  std::array<int16_t, kSlots> table_{};
};

// The numbers of one row come from a counter, so any row can be made alone. A row needs fewer than kNumbers; they
// are made together, round by round, because Philox is ten dependent multiplications for four of them.
class RowNumbers {
 public:
  // A function of its own: among the calls of libm its vector code made these three times slower.
  [[gnu::noinline]] RowNumbers(uint64_t seed, int file, int64_t row) {
    const uint32_t low = static_cast<uint32_t>(row);
    const uint32_t high = static_cast<uint32_t>(row >> 32) ^ (static_cast<uint32_t>(file) << 8);
    uint32_t a[kBlocks], b[kBlocks], c[kBlocks], d[kBlocks];
    for (uint32_t i = 0; i < kBlocks; ++i) {
      a[i] = i;
      b[i] = low;
      c[i] = high;
      d[i] = kStream;
    }
    uint32_t key_0 = static_cast<uint32_t>(seed), key_1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (uint32_t i = 0; i < kBlocks; ++i) {
        const uint64_t x = uint64_t{0xD2511F53u} * a[i];
        const uint64_t y = uint64_t{0xCD9E8D57u} * c[i];
        a[i] = static_cast<uint32_t>(y >> 32) ^ b[i] ^ key_0;
        c[i] = static_cast<uint32_t>(x >> 32) ^ d[i] ^ key_1;
        b[i] = static_cast<uint32_t>(y);
        d[i] = static_cast<uint32_t>(x);
      }
      key_0 += 0x9E3779B9u;
      key_1 += 0xBB67AE85u;
    }
    for (uint32_t i = 0; i < kBlocks; ++i) {
      numbers_[4 * i] = a[i];
      numbers_[4 * i + 1] = b[i];
      numbers_[4 * i + 2] = c[i];
      numbers_[4 * i + 3] = d[i];
    }
  }
  uint32_t bits() { return numbers_[used_++]; }
  double uniform() { return (static_cast<double>(bits()) + 0.5) * 0x1.0p-32; }
  bool chance(double probability) { return uniform() < probability; }
  // Box and Muller's pair; one of it is used at a time.
  double normal() {
    if (spare_) {
      spare_ = false;
      return second_;
    }
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double angle = 6.283185307179586476925 * uniform();
    second_ = radius * std::sin(angle);
    spare_ = true;
    return radius * std::cos(angle);
  }
  static constexpr uint32_t kBlocks = 8;
  static constexpr uint32_t kNumbers = 4 * kBlocks;
  uint32_t used() const { return used_; }

 private:
  uint32_t numbers_[kNumbers];
  uint32_t used_ = 0;
  bool spare_ = false;
  double second_ = 0;
};

double rounded(double value, double unit) {
  return std::nearbyint(value * unit) / unit;
}

int64_t month_start_seconds(int file) {
  const std::chrono::year_month_day first{std::chrono::year(kFirstYear + file / 12),
                                          std::chrono::month(static_cast<unsigned>(file % 12 + 1)),
                                          std::chrono::day(1)};
  return int64_t{std::chrono::sys_days(first).time_since_epoch().count()} * 86400;
}

}  // namespace

std::shared_ptr<arrow::Schema> hvfhv_schema() {
  const auto time = arrow::timestamp(arrow::TimeUnit::MICRO);
  return arrow::schema({
      arrow::field("hvfhs_license_num", arrow::utf8()),
      arrow::field("dispatching_base_num", arrow::utf8()),
      arrow::field("originating_base_num", arrow::utf8()),
      arrow::field("request_datetime", time),
      arrow::field("on_scene_datetime", time),
      arrow::field("pickup_datetime", time),
      arrow::field("dropoff_datetime", time),
      arrow::field("PULocationID", arrow::int64()),
      arrow::field("DOLocationID", arrow::int64()),
      arrow::field("trip_miles", arrow::float64()),
      arrow::field("trip_time", arrow::int64()),
      arrow::field("base_passenger_fare", arrow::float64()),
      arrow::field("tolls", arrow::float64()),
      arrow::field("bcf", arrow::float64()),
      arrow::field("sales_tax", arrow::float64()),
      arrow::field("congestion_surcharge", arrow::float64()),
      arrow::field("airport_fee", arrow::float64()),
      arrow::field("tips", arrow::float64()),
      arrow::field("driver_pay", arrow::float64()),
      arrow::field("shared_request_flag", arrow::utf8()),
      arrow::field("shared_match_flag", arrow::utf8()),
      arrow::field("access_a_ride_flag", arrow::utf8()),
      arrow::field("wav_request_flag", arrow::utf8()),
      arrow::field("wav_match_flag", arrow::utf8()),
  });
}

std::string hvfhv_file_name(int file) {
  return fmt::format("fhvhv_tripdata_{}-{:02}.parquet", kFirstYear + file / 12, file % 12 + 1);
}

int64_t hvfhv_file_rows(const HvfhvOptions& options, int file) {
  return options.rows / options.files + (file < options.rows % options.files ? 1 : 0);
}

Result<std::shared_ptr<arrow::RecordBatch>> hvfhv_batch(const HvfhvOptions& options, int file,
                                                        int64_t first_row, int64_t rows) {
  static const LocationChoice locations;
  static constexpr std::string_view kBases[] = {"B02510", "B03404", "B03406", "B02764"};
  const int64_t rows_of_file = hvfhv_file_rows(options, file);
  const double month_us = 28.0 * 86400e6;
  const int64_t month_start = month_start_seconds(file) * 1'000'000;

  arrow::StringBuilder text[8];
  std::vector<std::unique_ptr<arrow::TimestampBuilder>> time;
  for (int i = 0; i < 4; ++i) {
    time.push_back(std::make_unique<arrow::TimestampBuilder>(arrow::timestamp(arrow::TimeUnit::MICRO),
                                                             arrow::default_memory_pool()));
    MILLSTREAM_TRY(time.back()->Reserve(rows));
  }
  arrow::Int64Builder integer[3];
  arrow::DoubleBuilder real[9];
  for (auto& builder : text) MILLSTREAM_TRY(builder.Reserve(rows));
  for (auto& builder : text) MILLSTREAM_TRY(builder.ReserveData(rows * 6));
  for (auto& builder : integer) MILLSTREAM_TRY(builder.Reserve(rows));
  for (auto& builder : real) MILLSTREAM_TRY(builder.Reserve(rows));

  for (int64_t row = first_row; row < first_row + rows; ++row) {
    RowNumbers random(options.seed, file, row);
    const double miles = std::exp(1.1 + 0.9 * random.normal());
    const double miles_per_hour = std::clamp(14 + 4 * random.normal(), 4.0, 40.0);
    const int64_t seconds = static_cast<int64_t>(miles / miles_per_hour * 3600) + 30 + random.bits() % 270;
    const double fare = 2.5 + 1.4 * miles + 0.35 * static_cast<double>(seconds) / 60 + 2 * random.normal();
    // Trips of a month in order of their pickup: one in each of equal steps.
    const int64_t pickup =
        month_start + static_cast<int64_t>(month_us * (static_cast<double>(row) + random.uniform()) /
                                           static_cast<double>(rows_of_file));
    const bool absent = random.chance(0.27);

    text[0].UnsafeAppend(std::string_view(random.chance(0.73) ? "HV0003" : "HV0005"));
    text[1].UnsafeAppend(kBases[random.bits() % 4]);
    const std::string_view originating = kBases[random.bits() % 4];
    time[0]->UnsafeAppend(pickup - static_cast<int64_t>(random.uniform() * 600e6));
    const int64_t on_scene = pickup - static_cast<int64_t>(random.uniform() * 100e6);
    if (absent) {
      text[2].UnsafeAppendNull();
      time[1]->UnsafeAppendNull();
    } else {
      text[2].UnsafeAppend(originating);
      time[1]->UnsafeAppend(on_scene);
    }
    time[2]->UnsafeAppend(pickup);
    time[3]->UnsafeAppend(pickup + seconds * 1'000'000);
    integer[0].UnsafeAppend(locations.at(random.bits()));
    integer[1].UnsafeAppend(locations.at(random.bits()));
    real[0].UnsafeAppend(rounded(miles, 1000));
    integer[2].UnsafeAppend(seconds);
    real[1].UnsafeAppend(rounded(fare, 100));
    real[2].UnsafeAppend(random.chance(0.1) ? 6.55 : 0.0);
    real[3].UnsafeAppend(rounded(fare * 0.03, 100));
    real[4].UnsafeAppend(rounded(fare * 0.08875, 100));
    real[5].UnsafeAppend(random.chance(0.4) ? 2.75 : 0.0);
    real[6].UnsafeAppend(random.chance(0.08) ? 2.5 : 0.0);
    real[7].UnsafeAppend(random.chance(0.2) ? rounded(fare * 0.15, 100) : 0.0);
    real[8].UnsafeAppend(rounded(fare * 0.75, 100));
    static constexpr double kFlags[] = {0.02, 0.01, 0.0, 0.01, 0.07};
    for (int i = 0; i < 5; ++i)
      text[3 + i].UnsafeAppend(std::string_view(random.chance(kFlags[i]) ? "Y" : "N"));
    MILLSTREAM_DCHECK(random.used() <= RowNumbers::kNumbers);
  }

  std::vector<arrow::ArrayBuilder*> order = {
      &text[0],      &text[1],    &text[2],    time[0].get(), time[1].get(), time[2].get(),
      time[3].get(), &integer[0], &integer[1], &real[0],      &integer[2],   &real[1],
      &real[2],      &real[3],    &real[4],    &real[5],      &real[6],      &real[7],
      &real[8],      &text[3],    &text[4],    &text[5],      &text[6],      &text[7]};
  arrow::ArrayVector columns;
  for (arrow::ArrayBuilder* builder : order) {
    MILLSTREAM_ASSIGN(auto column, builder->Finish());
    columns.push_back(std::move(column));
  }
  return arrow::RecordBatch::Make(hvfhv_schema(), rows, std::move(columns));
}

Status check_hvfhv_options(const HvfhvOptions& options) {
  if (options.rows < 0) return usage_error("--rows is {}; it can't be negative", options.rows);
  if (options.files < 1 || options.files > kMaxFiles) {
    return usage_error("--files is {}; it can be 1 to {}", options.files, kMaxFiles);
  }
  if (options.directory.empty()) return usage_error("--out is needed: the folder for the files");
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) return file_error("cannot make the folder '{}': {}", options.directory, error.message());
  for (int file = 0; file < options.files; ++file) {
    MILLSTREAM_TRY(check_output_path(options.directory + "/" + hvfhv_file_name(file), options.overwrite));
  }
  return Status::OK();
}

Status write_hvfhv_file(const HvfhvOptions& options, int file) {
  ParquetWriteOptions write_options;
  write_options.overwrite = options.overwrite;
  write_options.row_group_rows = kRowGroup;
  MILLSTREAM_ASSIGN(auto writer, ParquetFileWriter::open(options.directory + "/" + hvfhv_file_name(file),
                                                         hvfhv_schema(), write_options));
  const int64_t rows = hvfhv_file_rows(options, file);
  for (int64_t row = 0; row < rows; row += kPiece) {
    MILLSTREAM_ASSIGN(auto batch, hvfhv_batch(options, file, row, std::min(kPiece, rows - row)));
    MILLSTREAM_TRY(writer->write(*batch));
    beat();
  }
  return writer->close();
}

Status generate_hvfhv(const HvfhvOptions& options) {
  MILLSTREAM_TRY(check_hvfhv_options(options));
  std::atomic<int> next{0};
  std::mutex mutex;
  Status first;
  auto work = [&] {
    for (int file; (file = next.fetch_add(1)) < options.files;) {
      const Status status = write_hvfhv_file(options, file);
      if (status.ok()) continue;
      next.store(options.files);
      std::lock_guard lock(mutex);
      if (first.ok()) first = status;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < std::min(options.threads, options.files); ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace millstream::exec
