#include "loader/split.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/hash.h"

namespace millstream::loader {
namespace {

constexpr uint64_t kFile = 0x1234567;

std::shared_ptr<arrow::Schema> schema() {
  return arrow::schema({arrow::field("x", arrow::float64()), arrow::field("who", arrow::utf8()),
                        arrow::field("day", arrow::int64())});
}

// Rows `first` … of a file; who is one of 50 customers or null, day the row's number.
exec::BlockRows rows(int64_t first, int64_t count) {
  arrow::DoubleBuilder x;
  arrow::StringBuilder who;
  arrow::Int64Builder day;
  for (int64_t i = first; i < first + count; ++i) {
    EXPECT_TRUE(x.Append(static_cast<double>(i)).ok());
    EXPECT_TRUE((i % 97 == 0 ? who.AppendNull() : who.Append(fmt::format("customer {}", i % 50))).ok());
    EXPECT_TRUE(day.Append(i).ok());
  }
  exec::BlockRows block;
  block.first_row = first;
  block.rows_read = count;
  block.rows = arrow::RecordBatch::Make(schema(), count, {*x.Finish(), *who.Finish(), *day.Finish()});
  return block;
}

std::vector<Part> parts_of(const DataConfig& data, const exec::BlockRows& block, uint64_t file = kFile) {
  auto split = Split::make(data, schema());
  EXPECT_TRUE(split.ok()) << split.status().message();
  EXPECT_TRUE(split->bind(*schema()).ok());
  std::vector<Part> parts;
  EXPECT_TRUE(split->parts(file, block, block.rows->num_rows(), &parts).ok());
  return parts;
}

int64_t count(const std::vector<Part>& parts, Part part) {
  return std::count(parts.begin(), parts.end(), part);
}

TEST(Split, FractionsAreKeptAndTheTestTakesNothingFromTraining) {
  const auto block = rows(0, 50000);
  DataConfig data;
  data.valid_fraction = 0.2;
  const auto without = parts_of(data, block);
  data.test_fraction = 0.1;
  const auto parts = parts_of(data, block);
  EXPECT_NEAR(static_cast<double>(count(parts, Part::kValid)), 10000, 400);
  EXPECT_NEAR(static_cast<double>(count(parts, Part::kTest)), 5000, 300);
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i] == Part::kValid, without[i] == Part::kValid);
  // As it was before there were other ways: a hash of file and row below the fraction.
  for (size_t i = 0; i < 1000; ++i)
    EXPECT_EQ(without[i] == Part::kValid,
              mix64(kFile ^ mix64(i)) < static_cast<uint64_t>(std::ldexp(0.2, 64)));
}

TEST(Split, FoldsAreDisjointAndMakeUpAllRows) {
  const auto block = rows(0, 20000);
  std::vector<int> validated(20000, 0);
  for (int fold = 0; fold < 5; ++fold) {
    DataConfig data;
    data.folds = 5;
    data.fold = fold;
    data.test_fraction = 0.25;
    const auto parts = parts_of(data, block);
    EXPECT_NEAR(static_cast<double>(count(parts, Part::kValid)), 3000, 250);
    for (size_t i = 0; i < parts.size(); ++i)
      validated[i] += parts[i] == Part::kValid ? 1 : parts[i] == Part::kTest;
  }
  // Test rows are so in every fold.
  for (const int times : validated) EXPECT_TRUE(times == 1 || times == 5);
}

TEST(Split, ByAColumnKeepsItsRowsTogether) {
  DataConfig data;
  data.valid_fraction = 0.3;
  data.split_by = "who";
  std::map<std::string, std::set<Part>> sides;
  // In several files and blocks.
  for (const uint64_t file : {1u, 2u}) {
    for (const int64_t first : {0, 5000}) {
      const auto block = rows(first, 5000);
      const auto parts = parts_of(data, block, file);
      const auto& who = static_cast<const arrow::StringArray&>(*block.rows->column(1));
      for (int64_t i = 0; i < 5000; ++i) sides[who.IsNull(i) ? "null" : who.GetString(i)].insert(parts[i]);
    }
  }
  EXPECT_EQ(sides.size(), 51u);
  int valid = 0;
  for (const auto& [name, parts] : sides) {
    EXPECT_EQ(parts.size(), 1u) << name;
    valid += parts.count(Part::kValid);
  }
  EXPECT_GT(valid, 5);
  EXPECT_LT(valid, 30);
}

TEST(Split, StratifiedEachValueHasItsShare) {
  DataConfig data;
  data.valid_fraction = 0.2;
  data.test_fraction = 0.1;
  data.stratify_by = "who";
  const auto block = rows(0, 20000);
  const auto parts = parts_of(data, block);
  const auto& who = static_cast<const arrow::StringArray&>(*block.rows->column(1));
  std::map<std::string, std::array<double, 3>> shares;
  for (int64_t i = 0; i < 20000; ++i)
    ++shares[who.IsNull(i) ? "null" : who.GetString(i)][static_cast<size_t>(parts[static_cast<size_t>(i)])];
  for (const auto& [name, counts] : shares) {
    const double all = counts[0] + counts[1] + counts[2];
    EXPECT_NEAR(counts[1], 0.2 * all, 3) << name;
    EXPECT_NEAR(counts[2], 0.1 * all, 3) << name;
  }
}

TEST(Split, Conditions) {
  DataConfig data;
  data.valid_if.emplace("day >= 100");
  data.test_if = "day >= 150 OR who IS NULL";
  const auto parts = parts_of(data, rows(0, 200));
  EXPECT_EQ(parts[0], Part::kTest);
  EXPECT_EQ(parts[99], Part::kTrain);
  EXPECT_EQ(parts[100], Part::kValid);
  EXPECT_EQ(parts[149], Part::kValid);
  EXPECT_EQ(parts[150], Part::kTest);
  // NULL is false.
  data.valid_if = "who = 'customer 1'";
  data.test_if.reset();
  EXPECT_EQ(parts_of(data, rows(0, 200))[0], Part::kTrain);
  // A fraction that tests comes before a condition that validates.
  data.valid_if = "true";
  data.test_fraction = 0.5;
  const auto mixed = parts_of(data, rows(0, 1000));
  EXPECT_EQ(count(mixed, Part::kTrain), 0);
  EXPECT_NEAR(static_cast<double>(count(mixed, Part::kTest)), 500, 60);
}

TEST(Split, Mistakes) {
  const auto message = [](auto change) {
    DataConfig data;
    data.valid_fraction = 0.2;
    change(data);
    return Split::make(data, schema()).status().message();
  };
  EXPECT_NE(message([](DataConfig& d) { d.split_by = "whoo"; }).find("did you mean 'who'?"),
            std::string::npos);
  EXPECT_NE(message([](DataConfig& d) { d.split_by = d.stratify_by = "who"; }).find("give one of them"),
            std::string::npos);
  EXPECT_NE(message([](DataConfig& d) { d.folds = 5; }).find("give one of them"), std::string::npos);
  EXPECT_NE(message([](DataConfig& d) { d.test_fraction = 0.8; }).find("leave nothing to train on"),
            std::string::npos);
  EXPECT_NE(message([](DataConfig& d) { d.fold = 1; }).find("data.folds"), std::string::npos);
  EXPECT_NE(message([](DataConfig& d) {
              d.valid_fraction = 0;
              d.valid_if = "day + 1";
            }).find("it must be a condition"),
            std::string::npos);
  EXPECT_NE(message([](DataConfig& d) {
              d.valid_fraction = 0;
              d.split_by = "who";
            }).find("no fraction"),
            std::string::npos);
  EXPECT_FALSE(message([](DataConfig& d) { d.valid_if = "dai > 1"; }).empty());
}

TEST(Split, QueriesAndConditionsAreToldApart) {
  EXPECT_TRUE(is_query_text(" select 1"));
  EXPECT_TRUE(is_query_text("(WITH x AS"));
  EXPECT_TRUE(is_query_text("FROM 'a.parquet'"));
  EXPECT_FALSE(is_query_text("selected = 1"));
  EXPECT_FALSE(is_query_text("(day > 1) OR x"));
  EXPECT_FALSE(is_query_text("trips/*.parquet"));
}

}  // namespace
}  // namespace millstream::loader
