// Grouping and sorting of many rows in little memory.

#include <random>

#include "exec/query.h"
#include "exec/test_files.h"
#include "plan/planner.h"

namespace millstream::exec {
namespace {

constexpr int64_t kRows = 300000;

struct Ran {
  std::shared_ptr<arrow::Table> rows;
  int64_t spilled_bytes = 0;
};

class BreakersTest : public ::testing::Test {
 protected:
  // `id` has each number about three times, `half` one value for half of the rows, `text` is long.
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    std::mt19937_64 random(7);
    std::vector<std::optional<int64_t>> ids, halves;
    std::vector<std::optional<double>> values;
    std::vector<std::optional<std::string>> texts;
    for (int64_t i = 0; i < kRows; ++i) {
      const auto id = static_cast<int64_t>(random() % (kRows / 3));
      ids.push_back(i % 1000 == 0 ? std::nullopt : std::optional(id));
      halves.push_back(i % 2 == 0 ? 17 : id);
      values.push_back(static_cast<double>(random() % 1000000) / 7);
      texts.push_back("a text of some length that begins like all the others " + std::to_string(id));
    }
    write_parquet(*folder_, "rows.parquet",
                  {arrow::field("id", arrow::int64()), arrow::field("half", arrow::int64()),
                   arrow::field("x", arrow::float64()), arrow::field("text", arrow::utf8())},
                  {int64s(ids), int64s(halves), doubles(values), strings(texts)}, 20000);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static Result<Ran> run(const std::string& query, int64_t memory_bytes, int threads) {
    auto catalog = make_file_catalog(1);
    plan::QueryOptions options;
    options.base_directory = folder_->path();
    MILLSTREAM_ASSIGN(const auto plan, plan::plan_query(query, *catalog, options));
    QueryRunStatistics statistics;
    QueryRunOptions run_options;
    run_options.threads = threads;
    run_options.memory_bytes = memory_bytes;
    run_options.statistics = &statistics;
    std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
    MILLSTREAM_TRY(run_query(nullptr, plan, run_options, [&](const auto& batch) {
                     batches.push_back(batch);
                     return Status::OK();
                   }).status());
    MILLSTREAM_ASSIGN(auto rows, arrow::Table::FromRecordBatches(plan->schema, batches));
    return Ran{std::move(rows), statistics.spilled_bytes};
  }

  // The same rows in the same order in little memory, on disk in between.
  static void expect_the_same_in(int64_t memory_bytes, const std::string& query) {
    const auto roomy = run(query, 0, 1);
    ASSERT_OK(roomy);
    EXPECT_EQ(roomy->spilled_bytes, 0);
    for (const int threads : {1, 3}) {
      const auto tight = run(query, memory_bytes, threads);
      ASSERT_OK(tight);
      EXPECT_GT(tight->spilled_bytes, 0) << query;
      EXPECT_TRUE(tight->rows->Equals(*roomy->rows)) << query;
    }
    const auto threaded = run(query, 0, 3);
    ASSERT_OK(threaded);
    EXPECT_TRUE(threaded->rows->Equals(*roomy->rows)) << query;
  }

  static std::unique_ptr<TemporaryFolder> folder_;
};
std::unique_ptr<TemporaryFolder> BreakersTest::folder_;

TEST_F(BreakersTest, ManyGroups) {
  expect_the_same_in(6 << 20,
                     "SELECT id, count(*) AS n, sum(x) AS s, first(text) AS t, count(DISTINCT half) AS d "
                     "FROM 'rows.parquet' GROUP BY id");
}

TEST_F(BreakersTest, GroupsOfTexts) {
  expect_the_same_in(8 << 20,
                     "SELECT text, min(x) AS least, last(half) AS h FROM 'rows.parquet' GROUP BY text");
}

TEST_F(BreakersTest, AKeyThatHalfOfTheRowsHave) {
  expect_the_same_in(4 << 20, "SELECT half, count(*) AS n, avg(x) AS mean FROM 'rows.parquet' GROUP BY half");
}

TEST_F(BreakersTest, Sorting) {
  expect_the_same_in(8 << 20, "SELECT * FROM 'rows.parquet' ORDER BY half DESC, x");
}

TEST_F(BreakersTest, RowsEqualInTheirKeysStayInOrder) {
  expect_the_same_in(3 << 20, "SELECT half > 5 AS high, id FROM 'rows.parquet' ORDER BY high NULLS FIRST");
}

TEST_F(BreakersTest, WhatDoesNotFitSaysSo) {
  const auto ran =
      run("SELECT a.id FROM 'rows.parquet' AS a JOIN 'rows.parquet' AS b ON a.id = b.id", 4 << 20, 2);
  ASSERT_FALSE(ran.ok());
  EXPECT_NE(ran.status().message().find("the rows of a join's right side need more than"), std::string::npos)
      << ran.status().message();
  EXPECT_NE(ran.status().message().find("--memory"), std::string::npos);
}

TEST_F(BreakersTest, GroupsOfAGroupingNeedNoSorting) {
  auto catalog = make_file_catalog(1);
  plan::QueryOptions options;
  options.base_directory = folder_->path();
  const auto kind = [&](const std::string& query) {
    const auto plan = plan::plan_query(query, *catalog, options);
    EXPECT_OK(plan);
    for (plan::NodePtr node = *plan; node != nullptr; node = node->input)
      if (node->kind == plan::NodeKind::kSort) return "sorted";
    return "as they come";
  };
  EXPECT_STREQ(kind("SELECT half, id, count(*) AS n FROM 'rows.parquet' GROUP BY ALL ORDER BY ALL"),
               "as they come");
  EXPECT_STREQ(kind("SELECT half, id, count(*) AS n FROM 'rows.parquet' GROUP BY ALL ORDER BY half"),
               "as they come");
  EXPECT_STREQ(kind("SELECT half, id, count(*) AS n FROM 'rows.parquet' GROUP BY ALL ORDER BY id"), "sorted");
  EXPECT_STREQ(kind("SELECT half, count(*) AS n FROM 'rows.parquet' GROUP BY half ORDER BY half DESC"),
               "sorted");
  EXPECT_STREQ(kind("SELECT half, count(*) AS n FROM 'rows.parquet' GROUP BY half ORDER BY half NULLS FIRST"),
               "as they come");  // it has no NULLs
  EXPECT_STREQ(kind("SELECT id, count(*) AS n FROM 'rows.parquet' GROUP BY id ORDER BY id NULLS FIRST"),
               "sorted");
}

}  // namespace
}  // namespace millstream::exec
