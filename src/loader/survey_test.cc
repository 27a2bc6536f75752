#include "loader/survey.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/log.h"
#include "loader/survey_cache.h"
#include "loader/test_data.h"

namespace millstream::loader {
namespace {

namespace fs = std::filesystem;

class SurveyTest : public testing::Test {
 protected:
  SurveyTest() {
    std::string name = (fs::temp_directory_path() / "millstream_survey_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    set_log(true, true);
  }
  ~SurveyTest() override { fs::remove_all(folder_); }
  std::string folder_;
};

// A table without data, for rules that look at names and places alone.
class NamedTable final : public plan::SourceTable {
 public:
  NamedTable() {
    files_.push_back({.path = "/data/a.parquet", .name = "a.parquet"});
    files_.push_back({.path = "/data/b.parquet", .name = "b.parquet"});
    entry_points_.push_back({.file = 0, .row_group = 0, .first_row = 0, .rows = 4});
    entry_points_.push_back({.file = 1, .row_group = 3, .first_row = 1000, .rows = 4});
  }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<plan::SourceFile>& files() const override { return files_; }
  const std::vector<plan::EntryPoint>& entry_points() const override { return entry_points_; }
  int64_t column_bytes(int, const std::vector<int>&) const override { return 0; }
  Result<std::unique_ptr<Reader>> read(int, const std::vector<int>&) const override {
    return bug_error("not read");
  }

 private:
  std::shared_ptr<arrow::Schema> schema_ = arrow::schema({});
  std::vector<plan::SourceFile> files_;
  std::vector<plan::EntryPoint> entry_points_;
};

exec::BlockRows block_of(std::vector<std::optional<double>> x, std::vector<double> y, int64_t first_row,
                         std::vector<int32_t> selection = {}) {
  arrow::DoubleBuilder xs, ys;
  for (const auto& value : x) EXPECT_TRUE((value ? xs.Append(*value) : xs.AppendNull()).ok());
  EXPECT_TRUE(ys.AppendValues(y).ok());
  const auto schema =
      arrow::schema({arrow::field("x", arrow::float64()), arrow::field("y", arrow::float64())});
  exec::BlockRows block;
  block.first_row = first_row;
  block.rows_read = static_cast<int64_t>(x.size());
  block.rows = arrow::RecordBatch::Make(schema, static_cast<int64_t>(x.size()),
                                        {xs.Finish().ValueOrDie(), ys.Finish().ValueOrDie()});
  block.selection = std::move(selection);
  return block;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_F(SurveyTest, RulesDropOrNameTheLowestRow) {
  const NamedTable table;
  using features::OnNull;
  SelectedRows selected;
  const RowRules drop(table, {{0, false, false, OnNull::kDrop}, {1, false, true, OnNull::kDrop}}, 0);
  const auto block = block_of({1, std::nullopt, 3, 4}, {1, 2, kInfinity, 4}, 1000, {0, 7, 9, 12});
  ASSERT_TRUE(drop.select(1, block, INT64_MAX, &selected).ok());
  EXPECT_EQ(selected.train, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(selected.dropped, 2);
  EXPECT_FALSE(selected.all_train);
  ASSERT_TRUE(drop.select(1, block, 1, &selected).ok());
  EXPECT_EQ(selected.train_rows, 1);
  EXPECT_EQ(selected.dropped, 0);

  const RowRules strict(table, {{0, true, false, OnNull::kError}, {1, false, true, OnNull::kError}}, 0);
  const Status status = strict.select(1, block, INT64_MAX, &selected);
  EXPECT_EQ(status.message(),
            "target 'y' is infinite in /data/b.parquet, row group 3, row 1009; leave such rows out in the "
            "WHERE, or drop and "
            "count them: on_null_target = \"drop\"");
  EXPECT_EQ(error_position(status), (SourcePosition{1, 1009}));
  ASSERT_TRUE(
      strict.select(1, block, 2, &selected).ok());  // the null is filled later, the infinity beyond the limit
  EXPECT_EQ(selected.train_rows, 2);

  ASSERT_TRUE(strict.select(0, block_of({1, 2}, {3, 4}, 0), INT64_MAX, &selected).ok());
  EXPECT_TRUE(selected.all_train);
  EXPECT_EQ(selected.train_rows, 2);
}

TEST_F(SurveyTest, SplitIsByNameAndRow) {
  const NamedTable table;
  const double fraction = 0.3;
  const RowRules rules(table, {{0, false, false, features::OnNull::kError}}, fraction);
  const int64_t rows = 20000;
  SelectedRows selected;
  const auto block =
      block_of(std::vector<std::optional<double>>(rows, 1.0), std::vector<double>(rows, 1.0), 1000);
  ASSERT_TRUE(rules.select(1, block, INT64_MAX, &selected).ok());
  EXPECT_EQ(selected.train_rows + selected.valid_rows, rows);
  EXPECT_NEAR(static_cast<double>(selected.valid_rows) / rows, fraction, 0.02);
  std::vector<int32_t> expected;
  for (int32_t row = 0; row < rows; ++row) {
    if (is_valid_row("b.parquet", 1000 + row, fraction)) expected.push_back(row);
  }
  EXPECT_EQ(selected.valid, expected);
}

TEST_F(SurveyTest, PiecesComeBackWithNarrowedIntegers) {
  constexpr int64_t kRows = 40000;
  arrow::Int64Builder small, wide, nulls;
  arrow::DoubleBuilder money, halves;
  arrow::BooleanBuilder flags;
  for (int64_t i = 0; i < kRows; ++i) {
    ASSERT_TRUE(small.Append(i % 200 - 100).ok());
    ASSERT_TRUE(wide.Append(i * 1000000007).ok());
    ASSERT_TRUE((i % 5 ? nulls.Append(i) : nulls.AppendNull()).ok());
    ASSERT_TRUE(money.Append(static_cast<double>(i) * 0.01).ok());
    ASSERT_TRUE(halves.Append(static_cast<double>(i) * 0.5).ok());
    ASSERT_TRUE(flags.Append(i % 3 == 0).ok());
  }
  const auto schema =
      arrow::schema({arrow::field("small", arrow::int64()), arrow::field("wide", arrow::int64()),
                     arrow::field("nulls", arrow::int64()), arrow::field("money", arrow::float64()),
                     arrow::field("halves", arrow::float64()), arrow::field("flags", arrow::boolean())});
  const auto batch = arrow::RecordBatch::Make(
      schema, kRows,
      {small.Finish().ValueOrDie(), wide.Finish().ValueOrDie(), nulls.Finish().ValueOrDie(),
       money.Finish().ValueOrDie(), halves.Finish().ValueOrDie(), flags.Finish().ValueOrDie()});
  std::vector<int32_t> odd;
  for (int32_t i = 1; i < kRows; i += 2) odd.push_back(i);

  const std::string path = folder_ + "/pieces.arrow";
  auto writer = PieceWriter::create(path).ValueOrDie();
  Piece all, some;
  ASSERT_TRUE(writer->append(*batch, nullptr, kRows, &all).ok());
  ASSERT_TRUE(writer->append(*batch, odd.data(), static_cast<int64_t>(odd.size()), &some).ok());
  const int64_t bytes = writer->close().ValueOrDie();
  const auto file = PieceFile::open(path).ValueOrDie();
  EXPECT_EQ(file->size(), bytes);
  ASSERT_EQ(all.batches.size(), 3u);
  EXPECT_EQ(all.batches[0].types, "1===f=");
  EXPECT_EQ(some.rows, 20000);

  std::shared_ptr<arrow::ResizableBuffer> scratch;
  const auto check = [&](const Piece& piece, auto source_row) {
    int64_t row = 0;
    for (const PieceBatch& described : piece.batches) {
      const auto rows = file->read(described, *schema, &scratch).ValueOrDie();
      EXPECT_EQ(rows->num_rows(), described.rows);
      for (int64_t i = 0; i < rows->num_rows(); ++i, ++row) {
        for (int column = 0; column < schema->num_fields(); ++column) {
          const auto wanted = batch->column(column)->GetScalar(source_row(row)).ValueOrDie();
          const auto got = rows->column(column)->GetScalar(i).ValueOrDie()->CastTo(wanted->type).ValueOrDie();
          ASSERT_TRUE(got->Equals(*wanted)) << schema->field(column)->name() << ", row " << row;
        }
      }
    }
    EXPECT_EQ(row, piece.rows);
  };
  check(all, [](int64_t row) { return row; });
  check(some, [&](int64_t row) { return int64_t{odd[row]}; });

  // In memory the same bytes, up to a limit.
  auto memory = PieceWriter::create_in_memory(bytes).ValueOrDie();
  Piece in_memory, beyond;
  ASSERT_TRUE(memory->append(*batch, nullptr, kRows, &in_memory).ok());
  EXPECT_FALSE(memory->full());
  const auto memory_file = PieceFile::open(memory->path()).ValueOrDie();
  ASSERT_TRUE(memory->append(*batch, nullptr, kRows, &beyond).ok());
  EXPECT_TRUE(memory->full());
  EXPECT_LE(PieceFile::open(memory->path()).ValueOrDie()->size(), bytes);
  memory.reset();
  std::shared_ptr<arrow::ResizableBuffer> other;
  EXPECT_TRUE(memory_file->read(in_memory.batches.back(), *schema, &other)
                  .ValueOrDie()
                  ->Equals(*file->read(all.batches.back(), *schema, &scratch).ValueOrDie()));

  // A file that lost its end, and one with other bytes.
  fs::resize_file(path, bytes - 100);
  EXPECT_EQ(error_category(
                PieceFile::open(path).ValueOrDie()->read(some.batches.back(), *schema, &scratch).status()),
            ErrorCategory::kFile);
}

Survey some_survey() {
  Survey survey;
  survey.train.blocks = {
      {.entry_point = 0, .block = 0, .rows_read = 10, .survived = 8, .used = 8, .train = 6, .valid = 2},
      {.entry_point = 2, .block = 0, .rows_read = 5, .survived = 5, .used = 5, .dropped = 1, .train = 4}};
  survey.train.index(4);
  survey.fits = {std::vector<features::FitState>(2), std::vector<features::FitState>(1)};
  survey.fits[0][1].moments = {3, -1, 0};
  survey.fits[1][0].least = -4;
  survey.has_pieces = true;
  Piece piece{.entry_point = 2, .block = 0, .file = 0, .rows = 4};
  piece.batches.push_back({.rows = 4, .bytes = 100, .offset = 12, .types = "=1"});
  survey.train_pieces = {piece};
  survey.num_piece_files = 1;
  survey.piece_file_bytes = {112};
  return survey;
}

TEST_F(SurveyTest, EncodedAndDecodedIsTheSame) {
  const Survey survey = some_survey();
  EXPECT_EQ(survey.train.train, (std::vector<int64_t>{6, 0, 4, 0}));
  EXPECT_EQ(survey.train.first_block, (std::vector<int64_t>{0, 1, 1, 2, 2}));
  const std::string bytes = encode_survey(survey);
  const Survey back = decode_survey(bytes).ValueOrDie();
  EXPECT_EQ(encode_survey(back), bytes);
  EXPECT_EQ(back.train.rows_train, 10);
  EXPECT_EQ(back.fits[0][1].moments.mean, -1);
  EXPECT_EQ(back.fits[1][0].least, -4);
  EXPECT_EQ(back.train_pieces[0].batches[0].types, "=1");
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode_survey(bytes.substr(0, size)).ok());
}

TEST_F(SurveyTest, CacheKeepsReplacesAndIgnoresDamage) {
  const SurveyCache cache(folder_ + "/cache");
  EXPECT_EQ(cache.load("key"), "");
  EXPECT_FALSE(fs::exists(folder_ + "/cache"));
  ASSERT_TRUE(cache.commit("key", cache.begin("key").ValueOrDie(), "first").ok());
  EXPECT_EQ(cache.load("key"), "first");
  ASSERT_TRUE(cache.commit("key", cache.begin("key").ValueOrDie(), "second").ok());
  EXPECT_EQ(cache.load("key"), "second");
  cache.abandon(cache.begin("key").ValueOrDie());
  EXPECT_EQ(std::distance(fs::directory_iterator(cache.directory()), {}), 1);

  const std::string file = cache.entry_path("key") + "/survey.bin";
  const auto size = fs::file_size(file);
  fs::resize_file(file, size - 1);
  EXPECT_EQ(cache.load("key"), "");
  fs::resize_file(file, 3);
  EXPECT_EQ(cache.load("key"), "");
}

TEST_F(SurveyTest, OldestEntriesGoBeyondTheLimit) {
  const SurveyCache cache(folder_);
  const auto now = fs::file_time_type::clock::now();
  for (const auto& [key, age] : {std::pair("old", 30), std::pair("older", 50), std::pair("new", 1)}) {
    ASSERT_TRUE(cache.commit(key, cache.begin(key).ValueOrDie(), std::string(1000, 'x')).ok());
    fs::last_write_time(cache.entry_path(key), now - std::chrono::hours(age));
  }
  cache.trim("older", 2500);
  EXPECT_EQ(cache.load("old"), "");
  EXPECT_EQ(cache.load("older").size(), 1000u);
  EXPECT_EQ(cache.load("new").size(), 1000u);
}

TEST_F(SurveyTest, PiecesAreForFewLargeEntryPoints) {
  const NamedTable table;  // two entry points of four rows
  LoaderConfig config;
  config.window = 7;
  EXPECT_TRUE(wants_pieces(table, config));
  config.window = 8;
  EXPECT_FALSE(wants_pieces(table, config));
  config.window = 7;
  config.shuffle = Shuffle::kNone;
  EXPECT_FALSE(wants_pieces(table, config));
}

}  // namespace
}  // namespace millstream::loader
