#include "sql/parser.h"

#include <gtest/gtest.h>

namespace millstream::sql {
namespace {

std::string text_of(const std::string& expression) {
  const SourceText source("query", expression);
  const auto parsed = parse_expression(source);
  return parsed.ok() ? ast::to_text(**parsed) : "ERROR " + parsed.status().message();
}

std::string error_of(const std::string& query) {
  const SourceText source("query", query);
  const auto parsed = parse_query(source);
  return parsed.ok() ? "no error" : parsed.status().message();
}

struct Case {
  const char* expression;
  const char* text;
};

class Expressions : public testing::TestWithParam<Case> {};

// The right sides are what DuckDB 2.0.1 calls the output of the left ones: its reading of the grammar.
TEST_P(Expressions, HaveDuckDBsReading) {
  EXPECT_EQ(text_of(GetParam().expression), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    Parser, Expressions,
    testing::Values(
        Case{"a+1", "(a + 1)"}, Case{"a*2+b", "((a * 2) + b)"}, Case{"-a", "(-(a))"}, Case{"- 1", "-1"},
        Case{"-2^2", "(-2 ^ 2)"}, Case{"2^3^2", "((2 ^ 3) ^ 2)"}, Case{"-a^2", "((-(a)) ^ 2)"},
        Case{"2**3*2", "((2 ** 3) * 2)"}, Case{"a || b + 1", "(a || (b + 1))"}, Case{"- - a", "(-((-(a))))"},
        Case{"-1::tinyint", "(-(CAST(1 AS tinyint)))"}, Case{"not a = b", "(NOT (a = b))"},
        Case{"not p is null", "(NOT (p IS NULL))"}, Case{"a = b is null", "((a = b) IS NULL)"},
        Case{"a in (1) = true", "((a IN (1)) = true)"}, Case{"a not in (1, 2,)", "(NOT (a IN (1, 2)))"},
        Case{"a between 1 and b + 1 = p", "((a BETWEEN 1 AND (b + 1)) = p)"},
        Case{"a between 1 and 2 and p", "((a BETWEEN 1 AND 2) AND p)"},
        Case{"s like 'x' || 'y'", "(s ~~ ('x' || 'y'))"}, Case{"s not like 'x'", "(s !~~ 'x')"},
        Case{"s like 'x' escape '!' and p", "(like_escape(s, 'x', '!') AND p)"},
        Case{"a = 1 in (true)", "(a = (1 IN (true)))"},
        Case{"a is distinct from b + 1", "(a IS DISTINCT FROM (b + 1))"},
        Case{"a is distinct from b = p", "(a IS DISTINCT FROM (b = p))"},
        Case{"a is null = p", "((a IS NULL) = p)"},
        Case{"p and p or q and not r", "((p AND p) OR (q AND (NOT r)))"},
        Case{"p and p and p", "(p AND p AND p)"}, Case{"a == 1", "(a = 1)"}, Case{"a != 1", "(a != 1)"},
        Case{"a % 2 * 3", "((a % 2) * 3)"}, Case{"a // 2 / 3", "((a // 2) / 3)"},
        Case{"a::int::varchar", "CAST(CAST(a AS INTEGER) AS VARCHAR)"},
        Case{"try_cast(a as double)", "TRY_CAST(a AS double)"},
        Case{"a::decimal(5,2)", "CAST(a AS DECIMAL(5, 2))"},
        Case{"cast(a as timestamp with time zone)", "CAST(a AS TIMESTAMP WITH TIME ZONE)"},
        Case{"case when a>1 then 2 end", "CASE  WHEN ((a > 1)) THEN (2) ELSE NULL END"},
        Case{"case a when 1 then 2 else 3 end", "CASE  WHEN ((a = 1)) THEN (2) ELSE 3 END"},
        Case{"extract(dow from t)", "date_part('dow', t)"},
        Case{"date '2020-01-01'", "CAST('2020-01-01' AS date)"}, Case{"ABS( a )", "abs(a)"},
        Case{"year(t)", "\"year\"(t)"}, Case{"\"My Col\"+1", "(\"My Col\" + 1)"}, Case{"'it''s'", "'it''s'"},
        Case{"1_000.50", "1000.50"}, Case{".5", ".5"}, Case{"x'aB'", "X'AB'"}, Case{"t.a + 1", "(a + 1)"},
        Case{"a /* c /* d */ */ -- e\n + 1", "(a + 1)"}));

TEST(Parser, ReadsAQuery) {
  const SourceText source(
      "query",
      "WITH q AS (SELECT a FROM 'x.parquet') SELECT a, b AS c, d e, * EXCLUDE (f, \"g h\"), q.*, FROM "
      "read_parquet(['a*.parquet', 'b.parquet'], union_by_name = true) AS t WHERE a > 0;");
  auto parsed = parse_query(source);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const ast::Query& query = **parsed;
  ASSERT_EQ(query.with.size(), 1u);
  EXPECT_EQ(query.with[0].name, "q");
  ASSERT_EQ(query.items.size(), 5u);
  EXPECT_EQ(query.items[1].alias, "c");
  EXPECT_EQ(query.items[2].alias, "e");
  ASSERT_EQ(query.items[3].exclude.size(), 2u);
  EXPECT_EQ(query.items[3].exclude[1].first, "g h");
  EXPECT_EQ(query.items[4].star_table, "q");
  ASSERT_EQ(query.from->files.size(), 2u);
  EXPECT_EQ(query.from->files[1].text, "b.parquet");
  EXPECT_EQ(query.from->alias, "t");
  EXPECT_EQ(ast::to_text(*query.where), "(a > 0)");
}

struct ErrorCase {
  const char* query;
  const char* message;
};
class Errors : public testing::TestWithParam<ErrorCase> {};
TEST_P(Errors, PointAtTheirPlace) {
  EXPECT_EQ(error_of(GetParam().query), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Parser, Errors,
    testing::Values(
        ErrorCase{
            "SELEC a FROM 'x'",
            "query, line 1, column 1: a query begins with SELECT, FROM or WITH, found 'SELEC'; did you mean "
            "SELECT?\nSELEC a FROM 'x'\n^"},
        ErrorCase{
            "SELECT a\nFROM 'x'\nWHERE",
            "query, line 3, column 6: expected an expression, found the end of the text\nWHERE\n     ^"},
        ErrorCase{"SELECT a FROM 'x' WHER a > 0",
                  "query, line 1, column 24: expected WHERE or the end of the query, found 'a'; did you mean "
                  "WHERE where "
                  "'WHER' stands?\nSELECT a FROM 'x' WHER a > 0\n                       ^"},
        ErrorCase{"SELECT 'ü', \t(a FROM 'x'",
                  "query, line 1, column 17: expected ')', found 'FROM'\nSELECT 'ü', \t(a FROM 'x'\n         "
                  "   \t   ^"},
        ErrorCase{"SELECT 'abc FROM x",
                  "query, line 1, column 8: this string is never closed; it ends with '\nSELECT 'abc FROM "
                  "x\n       ^"},
        ErrorCase{"SELECT a FROM 'x' t JOIN 'y'",
                  "query, line 1, column 29: expected ON with a condition, or USING (columns), after JOIN's "
                  "table, found "
                  "the end of the text\nSELECT a FROM 'x' t JOIN 'y'\n                            ^"},
        ErrorCase{"SELECT a < b < c FROM 'x'",
                  "query, line 1, column 14: comparisons do not chain; write a < b AND b < c\nSELECT a < b < "
                  "c FROM "
                  "'x'\n             ^"},
        ErrorCase{"SELECT a::flot FROM 'x'",
                  "query, line 1, column 11: unknown type 'flot'; did you mean 'FLOAT'?\nSELECT a::flot "
                  "FROM 'x'\n       "
                  "   ^"}));

TEST(Parser, RefusesWhatIsNotThereYet) {
  for (const char* query :
       {"SELECT DISTINCT ON (a) a FROM 'x'", "SELECT a FROM 'x' GROUP BY ROLLUP (a)",
        "SELECT a FROM 'x' LIMIT 3 %", "SELECT a FROM 'x' UNION BY NAME SELECT a FROM 'y'",
        "SELECT a FROM 'x', 'y'", "SELECT sum(a) OVER (ORDER BY b RANGE 1 PRECEDING) FROM 'x'",
        "SELECT a[1] FROM 'x'", "SELECT [1] FROM 'x'", "SELECT sum(a ORDER BY b) FROM 'x'",
        "SUMMARIZE SELECT 1", "WITH RECURSIVE q AS (SELECT 1) SELECT 1"}) {
    EXPECT_NE(error_of(query).find("is not supported yet"), std::string::npos)
        << query << ": " << error_of(query);
  }
}

TEST(Parser, LimitsDepth) {
  const std::string deep = std::string(100000, '(') + "a" + std::string(100000, ')');
  EXPECT_NE(text_of(deep).find("nested more than"), std::string::npos);
  std::string chain = "a";
  for (int i = 0; i < 5000; ++i) chain += " + a";
  EXPECT_NE(text_of(chain).find("nested more than"), std::string::npos);
  std::string wide = "a = 0";
  for (int i = 0; i < 5000; ++i) wide += " OR a = 1";
  EXPECT_EQ(text_of(wide).substr(0, 20), "((a = 0) OR (a = 1) ");
}

TEST(SourceText, CutsLongLines) {
  const std::string before(500, 'x');
  const SourceText source("query", before + "!" + std::string(500, 'y'));
  const std::string message = source.error(500, "here").message();
  EXPECT_EQ(message, "query, line 1, column 501: here\n…" + std::string(70, 'x') + "!" +
                         std::string(49, 'y') + "…\n" + std::string(71, ' ') + "^");
}

}  // namespace
}  // namespace millstream::sql
