#include "plan/planner.h"

#include <gtest/gtest.h>

#include "plan/frame.h"

namespace millstream::plan {
namespace {

// A table of no rows: planning reads schemas alone.
class FakeTable : public SourceTable {
 public:
  explicit FakeTable(std::shared_ptr<arrow::Schema> schema) : schema_(std::move(schema)) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<EntryPoint>& entry_points() const override { return entry_points_; }
  int64_t column_bytes(int, const std::vector<int>&) const override { return 0; }
  Result<std::unique_ptr<Reader>> read(int, const std::vector<int>&) const override {
    return bug_error("no rows");
  }

 private:
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<SourceFile> files_;
  std::vector<EntryPoint> entry_points_;
};

// Every name is a file with the columns a INTEGER, b DOUBLE, s VARCHAR, k BIGINT NOT NULL, t TIMESTAMP.
class FakeCatalog : public Catalog {
 public:
  Result<std::shared_ptr<const SourceTable>> open(const TableReference& reference) override {
    opened.push_back(reference);
    return std::make_shared<FakeTable>(
        arrow::schema({arrow::field("a", arrow::int32()), arrow::field("b", arrow::float64()),
                       arrow::field("s", arrow::utf8()), arrow::field("k", arrow::int64(), false),
                       arrow::field("t", arrow::timestamp(arrow::TimeUnit::MICRO))}));
  }
  std::vector<TableReference> opened;
};

Result<Pipeline> pipeline_of(const std::string& query) {
  FakeCatalog catalog;
  MILLSTREAM_ASSIGN(auto plan, plan_query(query, catalog, {}));
  return to_pipeline(plan);
}

std::string error_of(const std::string& query) {
  const auto result = pipeline_of(query);
  return result.ok() ? "no error" : result.status().message();
}

std::string schema_of(const std::string& query) {
  const auto result = pipeline_of(query);
  return result.ok() ? result->schema->ToString() : result.status().message();
}

TEST(Planner, PrunesColumns) {
  const auto pipeline = pipeline_of("SELECT b + 1 AS c FROM 'x.parquet' WHERE k > 0");
  ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
  EXPECT_EQ(pipeline->columns, (std::vector<int>{1, 3}));
  EXPECT_EQ(expr::columns_read(*pipeline->outputs[0]), std::vector<int>{0});
  EXPECT_EQ(expr::columns_read(*pipeline->predicate), std::vector<int>{1});
}

TEST(Planner, FiltersMakeColumnsNotNull) {
  EXPECT_EQ(schema_of("SELECT a, b, s FROM 'x' WHERE a > 0 AND (b > 0 OR b < -1) AND (s = 'x' OR a = 1)"),
            "a: int32 not null\nb: double not null\ns: string");
  EXPECT_EQ(schema_of("SELECT a + 1 AS a, b FROM 'x' WHERE a IS NOT NULL AND NOT b IS NULL"),
            "a: int32 not null\nb: double not null");
  EXPECT_EQ(schema_of("SELECT a FROM 'x' WHERE coalesce(a, 1) > 0"), "a: int32");
  EXPECT_EQ(schema_of("SELECT a FROM 'x' WHERE a IS DISTINCT FROM 3"), "a: int32");
  EXPECT_EQ(schema_of("SELECT a, b FROM 'x' WHERE a IN (1, 2) AND b BETWEEN 0 AND 1"),
            "a: int32 not null\nb: double not null");
  // Through a subquery: the sum is not null, so neither part is.
  EXPECT_EQ(schema_of("SELECT c, a FROM (SELECT a + k AS c, a FROM 'x') WHERE c > 0"),
            "c: int64 not null\na: int32 not null");
}

TEST(Planner, InlinesSubqueriesAndMergesFilters) {
  const auto nested = pipeline_of(
      "WITH q AS (SELECT a + 1 AS c, b FROM 'x' WHERE a > 0) SELECT c * 2 AS d FROM (SELECT c FROM q WHERE b "
      "> 1) AS r "
      "WHERE r.c < 9");
  ASSERT_TRUE(nested.ok()) << nested.status().message();
  const auto flat = pipeline_of("SELECT (a + 1) * 2 AS d FROM 'other' WHERE a > 0 AND b > 1 AND a + 1 < 9");
  ASSERT_TRUE(flat.ok()) << flat.status().message();
  EXPECT_EQ(nested->normal_form(), flat->normal_form());
  ASSERT_EQ(nested->predicate->kind, expr::Kind::kAnd);
  EXPECT_EQ(nested->predicate->arguments.size(), 3u);
}

TEST(Planner, NormalFormsTellQueriesApart) {
  const std::string base = pipeline_of("select A from 'x' where B>0 -- comment")->normal_form();
  EXPECT_EQ(base, pipeline_of("SELECT a\nFROM 'y'\nWHERE (b > 0)")->normal_form());
  for (const char* other :
       {"SELECT a FROM 'x' WHERE b >= 0", "SELECT a AS c FROM 'x' WHERE b > 0", "SELECT a FROM 'x'",
        "SELECT a::BIGINT AS a FROM 'x' WHERE b > 0", "SELECT a, k FROM 'x' WHERE b > 0"}) {
    EXPECT_NE(base, pipeline_of(other)->normal_form()) << other;
  }
}

TEST(Planner, SelectOutputs) {
  const auto pipeline = pipeline_of("SELECT a, b * 2 AS c, s FROM 'x' WHERE a > 0");
  ASSERT_TRUE(pipeline.ok());
  const auto selected = select_outputs(*pipeline, {"c", "a"});
  ASSERT_TRUE(selected.ok()) << selected.status().message();
  EXPECT_EQ(selected->schema->ToString(), "c: double\na: int32 not null");
  EXPECT_EQ(selected->columns, (std::vector<int>{0, 1}));
  const auto unknown = select_outputs(*pipeline, {"cc"});
  EXPECT_EQ(unknown.status().message(), "the query has no column 'cc'; did you mean 'c'?");
}

TEST(Planner, WithoutFilterForgetsWhatTheFilterSaid) {
  const auto pipeline = pipeline_of("SELECT a, a + k AS c FROM 'x' WHERE a > 0 AND b > 0");
  ASSERT_TRUE(pipeline.ok());
  EXPECT_EQ(pipeline->schema->ToString(), "a: int32 not null\nc: int64 not null");
  const Pipeline all = without_filter(*pipeline);
  EXPECT_EQ(all.schema->ToString(), "a: int32\nc: int64");
  EXPECT_EQ(all.columns, (std::vector<int>{0, 3}));
  EXPECT_EQ(all.predicate, nullptr);
}

TEST(Planner, ReadsFilesInOrder) {
  FakeCatalog catalog;
  QueryOptions options;
  options.base_directory = "/data";
  ASSERT_TRUE(plan_query("FROM read_parquet(['b*.parquet', 'a.parquet'])", catalog, options).ok());
  ASSERT_EQ(catalog.opened.size(), 1u);
  EXPECT_EQ(catalog.opened[0].globs, (std::vector<std::string>{"b*.parquet", "a.parquet"}));
  EXPECT_EQ(catalog.opened[0].base_directory, "/data");
  EXPECT_EQ(catalog.opened[0].position.column, 6);
  // predict and evaluate read other files.
  options.replace_inputs = {"c.parquet"};
  ASSERT_TRUE(plan_query("WITH q AS (FROM 'x') SELECT a FROM q", catalog, options).ok());
  EXPECT_EQ(catalog.opened[1].globs, (std::vector<std::string>{"c.parquet"}));
}

TEST(Planner, AliasesOfTheSelectList) {
  EXPECT_EQ(schema_of("SELECT a + 1 AS c, c * 2 AS d FROM 'x' WHERE d > 3"),
            "c: int32 not null\nd: int32 not null");
  // A column hides an alias.
  EXPECT_EQ(schema_of("SELECT s AS a, a + 1 AS c FROM 'x'"), "a: string\nc: int32");
}

TEST(Planner, RefusesQueriesThatExplode) {
  std::string query = "SELECT a AS c0";
  for (int i = 1; i < 60; ++i) query += fmt::format(", c{0} + c{0} AS c{1}", i - 1, i);
  EXPECT_NE(error_of(query + " FROM 'x'").find("more than 200000 operations"), std::string::npos);
  EXPECT_NE(error_of(query + " FROM 'x' WHERE c59 > 0").find("more than 200000 operations"),
            std::string::npos);
  std::string nested = "SELECT a AS c FROM 'x'";
  for (int i = 0; i < 60; ++i) nested = "SELECT c + c AS c FROM (" + nested + ")";
  EXPECT_NE(error_of(nested).find("more than 200000 operations"), std::string::npos);
}

TEST(Planner, OutputNames) {
  EXPECT_EQ(schema_of("SELECT A, x.\"B\", a+1, K as kk, abs(a) FROM 'x.parquet'"),
            "a: int32\nb: double\n(a + 1): int32\nkk: int64 not null\nabs(a): int32");
  EXPECT_EQ(schema_of("SELECT * EXCLUDE (b, S), k + 1 AS n FROM 'x'"),
            "a: int32\nk: int64 not null\nt: timestamp[us]\nn: int64 not null");
}

TEST(Planner, Errors) {
  EXPECT_EQ(
      error_of("SELECT bb FROM 'x'"),
      "query, line 1, column 8: there is no column 'bb'; did you mean 'b'?\nSELECT bb FROM 'x'\n       ^");
  EXPECT_EQ(error_of("SELECT a,\n       a FROM 'x'"),
            "query, line 2, column 8: two columns of the result are called 'a'; give one another name with "
            "AS\n       a FROM "
            "'x'\n       ^");
  EXPECT_EQ(error_of("SELECT y.a FROM 'x' AS z"),
            "query, line 1, column 8: there is no table 'y'; there are: z\nSELECT y.a FROM 'x' AS z\n   "
            "    ^");
  EXPECT_EQ(error_of("SELECT * EXCLUDE (aa) FROM 'x'"),
            "query, line 1, column 19: there is no column 'aa' to leave out; did you mean 'a'?\nSELECT * "
            "EXCLUDE (aa) FROM "
            "'x'\n                  ^");
  EXPECT_EQ(error_of("SELECT c, a AS c FROM 'x'"),
            "query, line 1, column 8: 'c' is defined further on in the SELECT list; an item may use those "
            "before it\nSELECT c, "
            "a AS c FROM 'x'\n       ^");
  EXPECT_EQ(error_of("SELECT a FROM q"),
            "query, line 1, column 15: there is no table 'q'; a file is named in quotes: FROM "
            "'q.parquet'\nSELECT a FROM q\n  "
            "            ^");
  EXPECT_NE(error_of("SELECT a FROM 'x' WHERE s")
                .find("WHERE needs a condition, which is BOOLEAN; this is VARCHAR"),
            std::string::npos);
  EXPECT_NE(error_of("SELECT random() AS r FROM 'x'").find("random() gives another value at every run"),
            std::string::npos);
  EXPECT_NE(error_of("SELECT now() AS r FROM 'x'").find("now() gives another value at every run"),
            std::string::npos);
  EXPECT_NE(error_of("SELECT current_date FROM 'x'").find("current_date gives another value at every run"),
            std::string::npos);
  EXPECT_NE(
      error_of("SELECT product(a) FROM 'x'").find("the aggregate function product() is not supported yet"),
      std::string::npos);
  EXPECT_NE(error_of("SELECT date '2024-02-30' AS d FROM 'x'").find("line 1, column 13: "),
            std::string::npos);
  EXPECT_NE(error_of("SELECT a + t FROM 'x'").find("line 1, column 10: "), std::string::npos);
  EXPECT_NE(error_of("SELECT 1").find("a query reads from somewhere"), std::string::npos);
}

TEST(Frame, IsTheTextOfAQuery) {
  const Frame frame = scan("trips/*.parquet")
                          .filter("a > 0 -- positive")
                          .filter("b < 1 OR k = 2")
                          .select({"k", "a / 60.0 AS minutes"});
  EXPECT_EQ(frame.sql(),
            "SELECT k, a / 60.0 AS minutes\nFROM 'trips/*.parquet'\nWHERE (a > 0 -- positive\n)\n  AND (b < "
            "1 OR k = 2)");
  const auto made = pipeline_of(frame);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(
      made->normal_form(),
      pipeline_of("SELECT k, a / 60.0 AS minutes FROM 'y' WHERE a > 0 AND (b < 1 OR k = 2)")->normal_form());

  // Steps after a selection see its names.
  const auto later =
      pipeline_of(scan({"x", "it's.csv"}).with_columns({"a + 1 AS c"}).filter("c > 1").drop({"t", "s"}));
  ASSERT_TRUE(later.ok()) << later.status().message();
  EXPECT_EQ(later->schema->ToString(), "a: int32 not null\nb: double\nk: int64 not null\nc: int32 not null");
}

TEST(Frame, HasTheStepsOfAWholeQuery) {
  const Frame zones = scan("zones.csv").as("z");
  const Frame grouped = scan("trips/*.parquet")
                            .filter("b > 0 -- miles")
                            .as("t")
                            .join(zones, "t.a = z.a", JoinKind::kLeft)
                            .group_by({"z.s", "t.a % 2 AS odd"}, {"count(*) AS n"})
                            .filter("n > 1")
                            .order_by({"n DESC", "s"})
                            .limit(3, 1);
  EXPECT_EQ(grouped.sql(), R"(SELECT *
FROM (
SELECT z.s, t.a % 2 AS odd, count(*) AS n
FROM (
SELECT *
FROM 'trips/*.parquet'
WHERE (b > 0 -- miles
)
) AS "t"
LEFT JOIN 'zones.csv' AS "z" ON (t.a = z.a)
GROUP BY 1, 2
)
WHERE (n > 1)
ORDER BY n DESC, s
LIMIT 3 OFFSET 1)");
  FakeCatalog catalog;
  const auto plan = plan_query(grouped, catalog, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ((*plan)->schema->field_names(), (std::vector<std::string>{"s", "odd", "n"}));
}

TEST(Frame, JoinsUnitesAndOrdersAgain) {
  FakeCatalog catalog;
  const Frame x = scan("x"), y = scan("y");
  const Frame both = x.join_using(y.select({"a", "b AS other"}), {"a"}).join(scan("w").as("w"), "x.k = w.k");
  for (const Frame& frame :
       {both.select({"other", "w.s"}),
        both.select({"other"}).as("q").join(both.select({"other AS o"}), "q.other = o"),
        x.union_all(y).distinct().order_by({"a"}).order_by({"b"}),
        x.limit(3).union_all(y.limit(2)).limit(9).limit(1), x.group_by({}, {"sum(a) AS s"}).filter("s > 0"),
        x.order_by({"k"}).select({"a"}).with_columns({"a + 1 AS c"}),
        x.join(y.as("r"), "x.a = r.a", JoinKind::kAnti).drop({"b"})}) {
    const auto plan = plan_query(frame, catalog, {});
    EXPECT_TRUE(plan.ok()) << frame.sql() << "\n" << plan.status().message();
  }
}

}  // namespace
}  // namespace millstream::plan
