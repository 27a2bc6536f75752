#include "exec/file_catalog.h"

#include <cstring>

#include <arrow/array/concatenate.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/schema_union.h"
#include "exec/test_files.h"

namespace millstream::exec {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitMemory = false;  // sanitizers reserve terabytes
#else
constexpr bool kLimitMemory = true;
#endif

// While it lives this process gets at most `bytes` more of address space than it has.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t bytes) {
    if (!kLimitMemory) return;
    ::getrlimit(RLIMIT_AS, &before_);
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0;
    statm >> pages;
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + bytes);
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() {
    if (kLimitMemory) ::setrlimit(RLIMIT_AS, &before_);
  }

 private:
  rlimit before_{};
};

Result<std::shared_ptr<arrow::Table>> read_file(const std::string& path) {
  MILLSTREAM_ASSIGN(auto table, open_table({path}));
  return read_all(*table);
}

std::vector<std::vector<std::string>> index_lines(const std::string& folder) {
  std::ifstream in(folder + "/INDEX.tsv");
  std::vector<std::vector<std::string>> lines;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::vector<std::string> cells;
    for (size_t at = 0; at <= line.size();) {
      const size_t tab = std::min(line.find('\t', at), line.size());
      cells.push_back(line.substr(at, tab - at));
      at = tab + 1;
    }
    lines.push_back(std::move(cells));
  }
  return lines;
}

void expect_error(const Status& status, ErrorCategory category, const std::vector<std::string>& parts) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(error_category_name(error_category(status)), std::string(error_category_name(category)))
      << status.message();
  for (const std::string& part : parts)
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message() << "\nlacks: " << part;
}

TEST(BrokenParquet, GivesOneClearErrorAFile) {
  if (data_folder().empty()) GTEST_SKIP() << "no data folder";
  const std::string folder = data_folder() + "/parquet_broken";
  MemoryLimit limit(int64_t{4} << 30);
  for (const auto& line : index_lines(folder)) {
    const std::string path = folder + "/" + line[0];
    SCOPED_TRACE(line[0]);
    const auto result = read_file(path);
    EXPECT_FALSE(result.ok()) << line[2];
    if (result.ok()) continue;
    const auto category = error_category(result.status());
    EXPECT_TRUE(category == ErrorCategory::kData || category == ErrorCategory::kFile)
        << result.status().message();
    EXPECT_NE(result.status().message().find(path), std::string::npos) << result.status().message();
    EXPECT_EQ(result.status().message().find('\n'), std::string::npos) << result.status().message();
    if (std::getenv("MILLSTREAM_SHOW"))
      std::fprintf(stderr, "%s\n   pyarrow: %s\n", result.status().message().c_str(), line[2].c_str());
  }
}

// The rows that Arrow's own reader gives, in our types.
void expect_arrows_rows(const std::string& path, const arrow::Table& got) {
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_coerce_int96_timestamp_unit(arrow::TimeUnit::MICRO);
  const auto reader = parquet::arrow::FileReader::Make(arrow::default_memory_pool(),
                                                       parquet::ParquetFileReader::OpenFile(path), properties)
                          .ValueOrDie();
  const auto expected = reader->ReadTable();
  ASSERT_OK(expected);
  ASSERT_EQ((*expected)->num_columns(), got.num_columns());
  for (int c = 0; c < got.num_columns(); ++c) {
    SCOPED_TRACE((*expected)->field(c)->ToString());
    const auto stored = arrow::Concatenate((*expected)->column(c)->chunks());
    if ((*expected)->column(c)->num_chunks() == 0) continue;
    const auto cast = ColumnCast((*expected)->field(c)->type(), got.field(c)->type()).apply(*stored);
    ASSERT_OK(cast);
    const arrow::ChunkedArray column(*cast);
    EXPECT_TRUE(got.column(c)->Equals(column)) << got.column(c)->ToString() << "\n" << column.ToString();
  }
}

TEST(OddParquet, IsReadLikeArrowReadsIt) {
  if (data_folder().empty()) GTEST_SKIP() << "no data folder";
  const std::string folder = data_folder() + "/parquet_odd";
  for (const auto& line : index_lines(folder)) {
    SCOPED_TRACE(line[0]);
    long rows = 0, columns = 0;
    ASSERT_EQ(std::sscanf(line[2].c_str(), "OK %ldx%ld", &rows, &columns), 2);
    auto table = open_table({folder + "/" + line[0]});
    if (columns == 0 && !table.ok()) {
      // Two fuzzed files without columns that Arrow lets pass: one claims encryption, one rows that it lacks.
      EXPECT_EQ(exit_code(table.status()), 3);
      continue;
    }
    EXPECT_OK(table);
    if (!table.ok()) continue;
    int64_t counted = 0;
    for (const auto& entry : (*table)->entry_points()) counted += entry.rows;
    EXPECT_EQ(counted, rows);
    EXPECT_LE((*table)->schema()->num_fields(), columns);  // the index counts the leaves of nested columns
    const auto all = read_all(**table);
    EXPECT_OK(all);
    if (all.ok()) {
      EXPECT_EQ((*all)->num_rows(), rows);
      expect_arrows_rows(folder + "/" + line[0], **all);
      // Text is carried as it is, also where it is not UTF-8.
      if (line[0].find("invalid_utf8") == std::string::npos) EXPECT_OK((*all)->ValidateFull());
    }
  }
}

TEST(GreenMonths, UniteThoughTheyDiffer) {
  if (data_folder().empty()) GTEST_SKIP() << "no data folder";
  auto opened = open_table({"green/green_tripdata_*.parquet"}, data_folder());
  ASSERT_OK(opened);
  const plan::SourceTable& table = **opened;
  ASSERT_EQ(table.files().size(), 11u);
  EXPECT_EQ(table.files()[0].name, "green_tripdata_2021-01.parquet");
  const auto& schema = *table.schema();
  auto type = [&](const char* name) { return schema.GetFieldByName(name)->type()->ToString(); };
  EXPECT_EQ(type("VendorID"), "int64");             // int32 from 2023-02 on
  EXPECT_EQ(type("store_and_fwd_flag"), "string");  // large_string from 2023-02 on
  EXPECT_EQ(type("RatecodeID"), "double");          // int64 from 2023-02 on
  EXPECT_EQ(type("ehail_fee"), "double");           // null before
  EXPECT_EQ(type("lpep_pickup_datetime"), "timestamp[us]");
  int64_t rows = 0;
  for (const auto& file : table.files()) rows += file.rows;
  EXPECT_EQ(rows, 76518 + 64572 + 69399 + 78537 + 68211 + 64809 + 72044 + 65392 + 60649 + 64215 + 56551);
  auto all = read_all(table);
  ASSERT_OK(all);
  EXPECT_EQ((*all)->num_rows(), rows);
  EXPECT_EQ((*all)->GetColumnByName("ehail_fee")->null_count(), rows);
  EXPECT_OK((*all)->ValidateFull());
}

struct Meeting {
  std::shared_ptr<arrow::Array> first, second;
  std::shared_ptr<arrow::DataType> type;
  std::string values;  // of both, one after the other
};

std::string joined(const arrow::ChunkedArray& column) {
  std::string out;
  for (int64_t i = 0; i < column.length(); ++i)
    out += (i ? "," : "") + column.GetScalar(i).ValueOrDie()->ToString();
  return out;
}

std::shared_ptr<arrow::Array> timestamps(arrow::TimeUnit::type unit,
                                         std::vector<std::optional<int64_t>> values,
                                         const std::string& zone = {}) {
  return array_of<arrow::TimestampBuilder, int64_t>(arrow::timestamp(unit, zone), values);
}

TEST(SchemaUnion, TypesMeet) {
  const auto dictionary =
      arrow::DictionaryArray::FromArrays(int32s({0, 1, {}}), strings({"x", "y"})).ValueOrDie();
  const auto large = array_of<arrow::LargeStringBuilder, std::string>(arrow::large_utf8(), {"p", {}});
  const auto decimal = [](int precision, int scale, int64_t value) {
    arrow::Decimal128Builder builder(arrow::decimal128(precision, scale));
    EXPECT_OK(builder.Append(arrow::Decimal128(value)));
    return builder.Finish().ValueOrDie();
  };
  const std::vector<Meeting> meetings = {
      {int32s({1, {}}), int64s({int64_t{1} << 40}), arrow::int64(), "1,null,1099511627776"},
      {int64s({3}), doubles({0.5}), arrow::float64(), "3,0.5"},
      {int32s({3}), array_of<arrow::FloatBuilder, float>(arrow::float32(), {0.5f}), arrow::float64(),
       "3,0.5"},
      {std::make_shared<arrow::NullArray>(2), int64s({7}), arrow::int64(), "null,null,7"},
      {int64s({7}), std::make_shared<arrow::NullArray>(1), arrow::int64(), "7,null"},
      {strings({"a"}), large, arrow::utf8(), "a,p,null"},
      {large, strings({"a"}), arrow::utf8(), "p,null,a"},
      {dictionary, strings({"z"}), arrow::utf8(), "x,y,null,z"},
      {timestamps(arrow::TimeUnit::MILLI, {1500}), timestamps(arrow::TimeUnit::MICRO, {1}),
       arrow::timestamp(arrow::TimeUnit::MICRO), "1970-01-01 00:00:01.500000,1970-01-01 00:00:00.000001"},
      {timestamps(arrow::TimeUnit::NANO, {1}), timestamps(arrow::TimeUnit::MICRO, {1}),
       arrow::timestamp(arrow::TimeUnit::NANO),
       "1970-01-01 00:00:00.000000001,1970-01-01 00:00:00.000001000"},
      {decimal(5, 2, 12345), decimal(6, 4, 12345), arrow::decimal128(7, 4), "123.4500,1.2345"},
      {array_of<arrow::UInt32Builder, uint32_t>(arrow::uint32(), {4000000000u}), int32s({-1}), arrow::int64(),
       "4000000000,-1"},
      {array_of<arrow::Date64Builder, int64_t>(arrow::date64(), {86400000}),
       array_of<arrow::Date32Builder, int32_t>(arrow::date32(), {2}), arrow::date32(),
       "1970-01-02,1970-01-03"},
  };
  for (size_t i = 0; i < meetings.size(); ++i) {
    SCOPED_TRACE(i);
    const Meeting& meeting = meetings[i];
    TemporaryFolder folder;
    write_parquet(folder, "a.parquet", {arrow::field("x", meeting.first->type())}, {meeting.first});
    write_parquet(folder, "b.parquet", {arrow::field("x", meeting.second->type())}, {meeting.second});
    auto table = open_table({"*.parquet"}, folder.path());
    ASSERT_OK(table);
    EXPECT_EQ((*table)->schema()->field(0)->type()->ToString(), meeting.type->ToString());
    auto all = read_all(**table);
    ASSERT_OK(all);
    EXPECT_EQ(joined(*(*all)->column(0)), meeting.values);
  }
}

TEST(SchemaUnion, NamesColumnTypesAndFilesWhereTypesDoNotMeet) {
  const std::vector<std::pair<std::shared_ptr<arrow::Array>, std::string>> others = {
      {strings({"a"}), "VARCHAR"}, {timestamps(arrow::TimeUnit::MICRO, {1}), "TIMESTAMP"}};
  for (const auto& [other, name] : others) {
    TemporaryFolder folder;
    const auto a = write_parquet(folder, "a.parquet", {arrow::field("fare", arrow::int64())}, {int64s({1})});
    const auto b = write_parquet(folder, "b.parquet", {arrow::field("fare", other->type())}, {other});
    expect_error(open_table({"*.parquet"}, folder.path()).status(), ErrorCategory::kData,
                 {"'fare'", "BIGINT", name, a, b});
  }
}

TEST(SchemaUnion, MatchesNamesWhateverTheirCaseAndFillsMissingColumns) {
  TemporaryFolder folder;
  write_parquet(folder, "a.parquet",
                {arrow::field("airport_fee", arrow::float64()), arrow::field("only_a", arrow::int64())},
                {doubles({1.5}), int64s({1})});
  write_parquet(folder, "b.parquet",
                {arrow::field("only_b", arrow::utf8()), arrow::field("Airport_fee", arrow::float64())},
                {strings({"s", "t"}), doubles({2.5, {}})});
  auto table = open_table({"*.parquet"}, folder.path());
  ASSERT_OK(table);
  ASSERT_EQ((*table)->schema()->field_names(), (std::vector<std::string>{"airport_fee", "only_a", "only_b"}));
  auto all = read_all(**table);
  ASSERT_OK(all);
  EXPECT_EQ(joined(*(*all)->column(0)), "1.5,2.5,null");
  EXPECT_EQ(joined(*(*all)->column(1)), "1,null,null");
  EXPECT_EQ(joined(*(*all)->column(2)), "null,s,t");
  // In any order, and none at all.
  auto two = read_all(**table, {2, 0});
  ASSERT_OK(two);
  EXPECT_EQ(joined(*(*two)->column(1)), "1.5,2.5,null");
  auto reader = (*table)->read(1, {});
  ASSERT_OK(reader);
  auto batch = (*reader)->next();
  ASSERT_OK(batch);
  EXPECT_EQ((*batch)->num_rows(), 2);
  EXPECT_EQ((*batch)->num_columns(), 0);
}

TEST(SchemaUnion, TwoNamesOfOneFileThatDifferInCaseStayApart) {
  TemporaryFolder folder;
  write_parquet(folder, "a.parquet", {arrow::field("a", arrow::int64()), arrow::field("A", arrow::int64())},
                {int64s({1}), int64s({2})});
  auto table = open_table({"a.parquet"}, folder.path());
  ASSERT_OK(table);
  EXPECT_EQ((*table)->schema()->field_names(), (std::vector<std::string>{"a", "A_1"}));
}

TEST(Nullability, ComesFromRequiredColumnsAndNullCounts) {
  const arrow::FieldVector fields = {arrow::field("required", arrow::int64(), false),
                                     arrow::field("full", arrow::int64()),
                                     arrow::field("holes", arrow::int64())};
  const arrow::ArrayVector columns = {int64s({1, 2, 3}), int64s({1, 2, 3}), int64s({1, 2, {}})};
  TemporaryFolder folder;
  const auto counted = write_parquet(folder, "counted.parquet", fields, columns, 2);
  const auto silent = write_parquet(folder, "silent.parquet", fields, columns, 2, false);
  const auto less = write_parquet(folder, "less.parquet", {fields[0]}, {columns[0]});
  auto nullable = [&](std::vector<std::string> files) {
    auto table = open_table(files);
    EXPECT_OK(table);
    std::string out;
    for (const auto& field : (*table)->schema()->fields()) out += field->nullable() ? '?' : '.';
    return out;
  };
  EXPECT_EQ(nullable({counted}), "..?");
  EXPECT_EQ(nullable({silent}), ".??");
  EXPECT_EQ(nullable({counted, silent}), ".??");
  EXPECT_EQ(nullable({counted, less}), ".??");
}

TEST(ParquetReading, GivesWholeBlocksOfEachRowGroup) {
  arrow::Int64Builder builder;
  constexpr int64_t kRows = 3 * plan::kBlockRows + 10;
  for (int64_t i = 0; i < kRows; ++i) ASSERT_OK(builder.Append(i));
  TemporaryFolder folder;
  write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())}, {builder.Finish().ValueOrDie()},
                2 * plan::kBlockRows + 5);
  auto table = open_table({"a.parquet"}, folder.path());
  ASSERT_OK(table);
  const auto& entries = (*table)->entry_points();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].num_blocks, 3);
  EXPECT_EQ(entries[1].first_block, 3);
  EXPECT_EQ(entries[1].num_blocks, 2);
  EXPECT_EQ(entries[1].first_row, 2 * plan::kBlockRows + 5);
  EXPECT_GT((*table)->column_bytes(0, {0}), 0);
  auto all = read_all(**table);  // checks the sizes of blocks
  ASSERT_OK(all);
  int64_t expected = 0;
  for (const auto& chunk : (*all)->column(0)->chunks()) {
    for (int64_t i = 0; i < chunk->length(); ++i)
      ASSERT_EQ(static_cast<const arrow::Int64Array&>(*chunk).Value(i), expected++);
  }
}

TEST(ParquetReading, EmptyFilesAndRowGroupsAreOrdinary) {
  TemporaryFolder folder;
  write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({})});
  write_parquet(folder, "b.parquet", {arrow::field("x", arrow::int64())}, {int64s({1})});
  auto table = open_table({"*.parquet"}, folder.path());
  ASSERT_OK(table);
  auto all = read_all(**table);
  ASSERT_OK(all);
  EXPECT_EQ((*all)->num_rows(), 1);
}

TEST(ParquetReading, TimestampsThatDoNotFitTheFinerUnitAreAnError) {
  TemporaryFolder folder;
  const auto a =
      write_parquet(folder, "a.parquet", {arrow::field("t", arrow::timestamp(arrow::TimeUnit::MICRO))},
                    {timestamps(arrow::TimeUnit::MICRO, {0, 9'000'000'000'000'000'000})});
  write_parquet(folder, "b.parquet", {arrow::field("t", arrow::timestamp(arrow::TimeUnit::NANO))},
                {timestamps(arrow::TimeUnit::NANO, {0})});
  auto table = open_table({"*.parquet"}, folder.path());
  ASSERT_OK(table);
  const Status status = read_all(**table).status();
  expect_error(status, ErrorCategory::kData, {a, "row group 0", "column 't'", "row 1"});
  ASSERT_TRUE(error_position(status));
  EXPECT_EQ(error_position(status)->file, 0);
  EXPECT_EQ(error_position(status)->row, 1);
}

TEST(ParquetReading, SaysThatAFileChanged) {
  TemporaryFolder folder;
  const auto path = write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({1})});
  auto table = open_table({path});
  ASSERT_OK(table);
  write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())},
                {int64s({1, 2, 3, 4, 5, 6, 7, 8, 9})});
  expect_error((*table)->read(0, {0}).status(), ErrorCategory::kFile, {path, "changed"});
  std::filesystem::remove(path);
  expect_error((*table)->read(0, {0}).status(), ErrorCategory::kFile, {path, "no such file"});
}

TEST(ParquetReading, FlippedAndMissingBytesNeverCrash) {
  TemporaryFolder folder;
  std::vector<std::optional<int64_t>> numbers;
  std::vector<std::optional<std::string>> words;
  for (int64_t i = 0; i < 300; ++i) {
    numbers.push_back(i % 7 ? std::optional(i * i) : std::nullopt);
    words.push_back(i % 5 ? std::optional("word " + std::to_string(i % 20)) : std::nullopt);
  }
  const auto path = write_parquet(folder, "a.parquet",
                                  {arrow::field("n", arrow::int64()), arrow::field("w", arrow::utf8())},
                                  {int64s(numbers), strings(words)}, 100);
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  MemoryLimit limit(int64_t{4} << 30);
  uint64_t state = 1;
  int failed = 0;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (i % 4 == 0) {
      damaged.resize((state >> 33) % whole.size());
    } else {
      damaged[(state >> 33) % whole.size()] ^= static_cast<char>(1 << (i % 8));
    }
    const auto broken = folder.write_text("broken.parquet", damaged);
    const auto result = read_file(broken);
    if (result.ok()) continue;
    ++failed;
    EXPECT_NE(result.status().message().find(broken), std::string::npos) << result.status().message();
    EXPECT_EQ(exit_code(result.status()), 3) << result.status().message();
  }
  EXPECT_GT(failed, 100);
}

// The same file with a number of its footer replaced everywhere (a zigzag varint of two bytes).
std::string with_footer_number(const TemporaryFolder& folder, const std::string& path, int from, int to) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  auto varint = [](int value) {
    const int zigzag = 2 * value;
    return std::string{static_cast<char>((zigzag & 0x7F) | 0x80), static_cast<char>(zigzag >> 7)};
  };
  uint32_t footer = 0;
  std::memcpy(&footer, bytes.data() + bytes.size() - 8, sizeof footer);
  int replaced = 0;
  for (size_t at = bytes.size() - 8 - footer; (at = bytes.find(varint(from), at)) != std::string::npos;
       at += 2) {
    bytes.replace(at, 2, varint(to));
    ++replaced;
  }
  EXPECT_GT(replaced, 0);
  return folder.write_text("lies.parquet", bytes);
}

TEST(ParquetReading, FootersThatPromiseMoreRowsAreFoundOut) {
  TemporaryFolder folder;
  const auto path = write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())},
                                  {int64s(std::vector<std::optional<int64_t>>(1000, 7))});
  const auto more = with_footer_number(folder, path, 1000, 1001);
  expect_error(read_file(more).status(), ErrorCategory::kData,
               {more, "row group 0", "column 'x'", "ends before the 1001 rows", "(after 1000)"});
}

TEST(ParquetReading, FootersThatDenyNullsAreFoundOut) {
  TemporaryFolder folder;
  std::vector<std::optional<int64_t>> values(1000, 7);
  for (size_t i = 500; i < 800; ++i) values[i].reset();
  const auto path = with_footer_number(
      folder, write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s(values)}), 300,
      0);
  auto table = open_table({path});
  ASSERT_OK(table);
  EXPECT_FALSE((*table)->schema()->field(0)->nullable()) << "as the footer claims";
  const Status status = read_all(**table).status();
  expect_error(status, ErrorCategory::kData, {path, "row group 0", "column 'x'", "row 500", "NULL"});
  ASSERT_TRUE(error_position(status));
  EXPECT_EQ(error_position(status)->row, 500);
}

TEST(Catalog, RefusesWhatIsNoTable) {
  TemporaryFolder folder;
  const auto empty = folder.write_text("empty.parquet", "");
  expect_error(read_file(empty).status(), ErrorCategory::kFile, {empty, "empty"});
  const auto garbage = folder.write_text("garbage.parquet", std::string(1000, 'x'));
  expect_error(read_file(garbage).status(), ErrorCategory::kFile, {garbage, "not a Parquet file"});
  const auto whole =
      write_parquet(folder, "whole.parquet", {arrow::field("x", arrow::int64())}, {int64s({1, 2, 3})});
  std::ifstream in(whole, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto truncated = folder.write_text("truncated.parquet", bytes.substr(0, bytes.size() - 20));
  expect_error(read_file(truncated).status(), ErrorCategory::kFile, {truncated, "truncated"});
  expect_error(read_file(folder.path()).status(), ErrorCategory::kFile,
               {folder.path(), "folder", "*.parquet"});
  expect_error(open_table({"wohle.parquet"}, folder.path()).status(), ErrorCategory::kFile,
               {"wohle.parquet", "looked in", "did you mean 'whole.parquet'"});
  expect_error(open_table({"x*.parquet"}, folder.path()).status(), ErrorCategory::kFile,
               {"x*.parquet", "matches no files", folder.path()});
  if (::geteuid() != 0) {
    ::chmod(whole.c_str(), 0);
    expect_error(read_file(whole).status(), ErrorCategory::kFile, {whole, "ermission"});
  }
}

TEST(Catalog, FingerprintsFollowTheContent) {
  TemporaryFolder folder, other;
  const auto path = write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({1})});
  auto fingerprint = [](const std::string& file) { return table_fingerprint(**open_table({file})); };
  const std::string before = fingerprint(path);
  EXPECT_EQ(before.size(), 32u);
  EXPECT_EQ(fingerprint(path), before);
  write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({2})});
  EXPECT_NE(fingerprint(path), before);
}

TEST(Catalog, ReadsAFileAgainOnlyWhenItChanged) {
  TemporaryFolder folder;
  write_parquet(folder, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({1})});
  auto catalog = make_file_catalog(1);
  const plan::TableReference reference{{"a.parquet"}, folder.path(), {}};
  ASSERT_OK(catalog->open(reference));
  write_parquet(folder, "a.parquet", {arrow::field("y", arrow::utf8())}, {strings({"now text", "longer"})});
  auto again = catalog->open(reference);
  ASSERT_OK(again);
  EXPECT_EQ((*again)->schema()->field(0)->name(), "y");
  EXPECT_OK(read_all(**again));
}

}  // namespace
}  // namespace millstream::exec
