#include "exec/parquet_writer.h"

#include "exec/hvfhv_generator.h"
#include "exec/test_files.h"

namespace millstream::exec {
namespace {

std::shared_ptr<arrow::RecordBatch> numbers(int64_t first, int64_t count) {
  arrow::Int64Builder builder;
  for (int64_t i = 0; i < count; ++i) EXPECT_OK(builder.Append(first + i));
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("x", arrow::int64())}), count,
                                  {builder.Finish().ValueOrDie()});
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ParquetWriter, WritesRowGroupsAcrossBatchesOfAnySize) {
  TemporaryFolder folder;
  ParquetWriteOptions options;
  options.row_group_rows = 100;
  auto writer = ParquetFileWriter::open(folder.file("out.parquet"), numbers(0, 0)->schema(), options);
  ASSERT_OK(writer);
  int64_t next = 0;
  for (int64_t size : {1, 0, 70, 250, 29}) {
    ASSERT_OK((*writer)->write(*numbers(next, size)));
    next += size;
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("out.parquet"))) << "before it is complete";
  ASSERT_OK((*writer)->close());
  EXPECT_EQ((*writer)->rows_written(), 350);
  EXPECT_EQ(files_in(folder.path()), std::vector<std::string>{"out.parquet"});
  auto table = open_table({folder.file("out.parquet")});
  ASSERT_OK(table);
  ASSERT_EQ((*table)->entry_points().size(), 4u);
  EXPECT_EQ((*table)->entry_points()[0].rows, 100);
  auto all = read_all(**table);
  ASSERT_OK(all);
  int64_t expected = 0;
  for (const auto& chunk : (*all)->column(0)->chunks()) {
    for (int64_t i = 0; i < chunk->length(); ++i) {
      ASSERT_EQ(static_cast<const arrow::Int64Array&>(*chunk).Value(i), expected++);
    }
  }
}

TEST(ParquetWriter, AFileWithoutRowsIsAFile) {
  TemporaryFolder folder;
  auto writer = ParquetFileWriter::open(folder.file("out.parquet"), numbers(0, 0)->schema());
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->close());
  auto table = open_table({folder.file("out.parquet")});
  ASSERT_OK(table);
  EXPECT_EQ((*table)->files()[0].rows, 0);
  EXPECT_EQ((*table)->schema()->field(0)->name(), "x");
}

TEST(ParquetWriter, ReplacesOnlyWhenTold) {
  TemporaryFolder folder;
  const std::string path = folder.write_text("out.parquet", "mine");
  const Status refused = ParquetFileWriter::open(path, numbers(0, 0)->schema()).status();
  EXPECT_EQ(refused.message(), "'" + path + "' exists already; --overwrite replaces it");
  EXPECT_EQ(exit_code(refused), 3);
  // Also one that appears while the writer works.
  const std::string later = folder.file("later.parquet");
  auto writer = ParquetFileWriter::open(later, numbers(0, 0)->schema());
  ASSERT_OK(writer);
  folder.write_text("later.parquet", "somebody's");
  EXPECT_EQ((*writer)->close().message(), "'" + later + "' exists already; --overwrite replaces it");
  writer->reset();
  EXPECT_EQ(std::filesystem::file_size(later), 10u);
  ParquetWriteOptions options;
  options.overwrite = true;
  writer = ParquetFileWriter::open(path, numbers(0, 0)->schema(), options);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->write(*numbers(0, 3)));
  ASSERT_OK((*writer)->close());
  EXPECT_EQ((*open_table({path}))->files()[0].rows, 3);
  EXPECT_EQ(files_in(folder.path()), (std::vector<std::string>{"later.parquet", "out.parquet"}));
}

TEST(ParquetWriter, LeavesNothingWhenAbandoned) {
  TemporaryFolder folder;
  {
    auto writer = ParquetFileWriter::open(folder.file("out.parquet"), numbers(0, 0)->schema());
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->write(*numbers(0, 1000)));
  }
  EXPECT_TRUE(files_in(folder.path()).empty());
}

TEST(ParquetWriter, NamesTheTargetThatCannotBeWritten) {
  TemporaryFolder folder;
  const std::string missing = folder.path() + "/none/out.parquet";
  const Status status = ParquetFileWriter::open(missing, numbers(0, 0)->schema()).status();
  EXPECT_EQ(status.message(),
            "cannot write '" + missing + "': there is no folder '" + folder.path() + "/none'");
  EXPECT_EQ(exit_code(status), 3);
  EXPECT_NE(
      ParquetFileWriter::open(folder.path(), numbers(0, 0)->schema()).status().message().find("is a folder"),
      std::string::npos);
  // The disk is full.
  ParquetWriteOptions options;
  options.overwrite = true;
  if (std::filesystem::exists("/dev/full")) {
    const Status dev =
        ParquetFileWriter::open("/dev/full/x.parquet", numbers(0, 0)->schema(), options).status();
    EXPECT_FALSE(dev.ok());
  }
}

HvfhvOptions small(const std::string& folder) {
  HvfhvOptions options;
  options.rows = 1000;
  options.files = 3;
  options.directory = folder;
  options.seed = 7;
  options.threads = 2;
  return options;
}

TEST(HvfhvGenerator, IsAFunctionOfSeedFileAndRow) {
  TemporaryFolder folder;
  const HvfhvOptions options = small(folder.path());
  auto whole = hvfhv_batch(options, 1, 0, 333);
  ASSERT_OK(whole);
  auto part = hvfhv_batch(options, 1, 100, 50);
  ASSERT_OK(part);
  EXPECT_TRUE((*whole)->Slice(100, 50)->Equals(**part));
  HvfhvOptions other = options;
  other.seed = 8;
  EXPECT_FALSE((*hvfhv_batch(other, 1, 0, 333))->Equals(**whole));
  EXPECT_FALSE((*hvfhv_batch(options, 2, 0, 333))->Equals(**whole));
}

TEST(HvfhvGenerator, WritesMonthsThatTogetherHaveTheRows) {
  TemporaryFolder folder, again;
  ASSERT_OK(generate_hvfhv(small(folder.path())));
  EXPECT_EQ(files_in(folder.path()),
            (std::vector<std::string>{"fhvhv_tripdata_2022-01.parquet", "fhvhv_tripdata_2022-02.parquet",
                                      "fhvhv_tripdata_2022-03.parquet"}));
  auto table = open_table({"*.parquet"}, folder.path());
  ASSERT_OK(table);
  EXPECT_EQ((*table)->files()[0].rows, 334);
  EXPECT_EQ((*table)->files()[2].rows, 333);
  EXPECT_EQ((*table)->schema()->num_fields(), 24);
  auto all = read_all(**table);
  ASSERT_OK(all);
  // File by file, as ranks share them out: the same bytes.
  for (int file = 2; file >= 0; --file) ASSERT_OK(write_hvfhv_file(small(again.path()), file));
  for (const auto& name : files_in(folder.path())) {
    std::ifstream a(folder.path() + "/" + name, std::ios::binary),
        b(again.path() + "/" + name, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(a), {}),
              std::string(std::istreambuf_iterator<char>(b), {}));
  }
  // Existing files are refused before anything is written.
  std::filesystem::remove(folder.path() + "/fhvhv_tripdata_2022-01.parquet");
  const Status refused = generate_hvfhv(small(folder.path()));
  EXPECT_EQ(exit_code(refused), 3);
  EXPECT_NE(refused.message().find("fhvhv_tripdata_2022-02.parquet"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/fhvhv_tripdata_2022-01.parquet"));
}

TEST(HvfhvGenerator, LooksLikeTrips) {
  TemporaryFolder folder;
  HvfhvOptions options = small(folder.path());
  options.rows = 60000;
  options.files = 1;
  auto made = hvfhv_batch(options, 0, 0, options.rows);
  ASSERT_OK(made);
  const arrow::RecordBatch& batch = **made;
  ASSERT_OK(batch.ValidateFull());
  auto real = [&](const char* name) {
    return std::static_pointer_cast<arrow::DoubleArray>(batch.GetColumnByName(name));
  };
  auto integer = [&](const char* name) {
    return std::static_pointer_cast<arrow::Int64Array>(batch.GetColumnByName(name));
  };
  auto time = [&](const char* name) {
    return std::static_pointer_cast<arrow::TimestampArray>(batch.GetColumnByName(name));
  };
  double miles = 0, busiest = 0;
  for (int64_t i = 0; i < options.rows; ++i) {
    miles += real("trip_miles")->Value(i);
    busiest += integer("PULocationID")->Value(i) == 1;
    ASSERT_GE(integer("PULocationID")->Value(i), 1);
    ASSERT_LE(integer("DOLocationID")->Value(i), 265);
    ASSERT_EQ(time("dropoff_datetime")->Value(i) - time("pickup_datetime")->Value(i),
              integer("trip_time")->Value(i) * 1'000'000);
    ASSERT_LE(time("request_datetime")->Value(i), time("pickup_datetime")->Value(i));
    ASSERT_GE(time("pickup_datetime")->Value(i), time("pickup_datetime")->Value(std::max<int64_t>(0, i - 1)));
  }
  // exp(1.1 + 0.81 / 2), and a weight of 1/8 of the sum of 1 / (k + 8).
  EXPECT_NEAR(miles / static_cast<double>(options.rows), 4.504, 0.1);
  EXPECT_NEAR(busiest / static_cast<double>(options.rows), 0.0353, 0.004);
  EXPECT_NEAR(static_cast<double>(batch.GetColumnByName("on_scene_datetime")->null_count()) / 60000, 0.27,
              0.01);
}

TEST(HvfhvGenerator, RefusesOptionsThatMakeNoSense) {
  HvfhvOptions options = small("");
  EXPECT_EQ(exit_code(check_hvfhv_options(options)), 2);
  options = small("/tmp");
  options.files = 0;
  EXPECT_EQ(exit_code(check_hvfhv_options(options)), 2);
  options.files = 1;
  options.rows = -1;
  EXPECT_EQ(exit_code(check_hvfhv_options(options)), 2);
}

}  // namespace
}  // namespace millstream::exec
