#include "exec/block_source.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <thread>

#include "exec/test_files.h"

namespace millstream::exec {
namespace {

using expr::ExprPtr;

ExprPtr number(int64_t value) {
  return expr::make_literal(arrow::MakeScalar(value));
}

class Blocks : public ::testing::Test {
 protected:
  // A pipeline over all columns of the files; expressions are made by column name.
  void open(const std::vector<std::string>& files) {
    auto table = open_table(files, folder_.path());
    ASSERT_OK(table);
    pipeline_.table = *table;
    for (int i = 0; i < (*table)->schema()->num_fields(); ++i) pipeline_.columns.push_back(i);
  }
  ExprPtr column(const std::string& name) {
    const int index = pipeline_.table->schema()->GetFieldIndex(name);
    return expr::make_column(index, *pipeline_.table->schema()->field(index));
  }
  static ExprPtr call(const char* function, std::vector<ExprPtr> arguments) {
    return expr::make_call(function, std::move(arguments)).ValueOrDie();
  }
  static ExprPtr to_number(ExprPtr text) {
    return expr::make_cast(std::move(text), arrow::int64()).ValueOrDie();
  }
  void select(const std::vector<std::pair<std::string, ExprPtr>>& outputs) {
    arrow::FieldVector fields;
    pipeline_.outputs.clear();
    for (const auto& [name, output] : outputs) {
      fields.push_back(arrow::field(name, output->type, output->nullable));
      pipeline_.outputs.push_back(output);
    }
    pipeline_.schema = arrow::schema(fields);
  }
  Result<std::vector<BlockRows>> run() {
    BlockSource source(pipeline_);
    std::vector<BlockRows> blocks;
    for (size_t e = 0; e < source.table().entry_points().size(); ++e) {
      MILLSTREAM_ASSIGN(auto stream, source.open(static_cast<int>(e)));
      while (true) {
        MILLSTREAM_ASSIGN(auto block, stream->next());
        if (!block) break;
        blocks.push_back(*std::move(block));
      }
    }
    return blocks;
  }

  TemporaryFolder folder_;
  plan::Pipeline pipeline_;
};

TEST_F(Blocks, FilterAndProjectAndKnowWhereRowsCameFrom) {
  write_parquet(folder_, "a.parquet",
                {arrow::field("x", arrow::int64()), arrow::field("unused", arrow::utf8())},
                {int64s({5, 1, {}, 7}), strings({"", "", "", ""})}, 2);
  write_parquet(folder_, "b.parquet", {arrow::field("x", arrow::int64())}, {int64s({8, 9})});
  open({"a.parquet", "b.parquet"});
  pipeline_.columns = {0};
  pipeline_.predicate = call(">", {column("x"), number(4)});
  select({{"y", call("*", {column("x"), number(10)})}, {"x", column("x")}});
  auto blocks = run();
  ASSERT_OK(blocks);
  ASSERT_EQ(blocks->size(), 3u);
  const BlockRows& first = (*blocks)[0];
  EXPECT_EQ(first.block, 0);
  EXPECT_EQ(first.rows_read, 2);
  EXPECT_EQ(first.selection, std::vector<int32_t>{0});
  const BlockRows& second = (*blocks)[1];
  EXPECT_EQ(second.block, 1);
  EXPECT_EQ(second.first_row, 2);
  EXPECT_EQ(second.selection, std::vector<int32_t>{1});
  EXPECT_EQ(second.row_in_file(0), 3);
  EXPECT_TRUE(second.rows->column(0)->Equals(int64s({70})));
  EXPECT_TRUE(second.rows->schema()->Equals(*pipeline_.schema));
  const BlockRows& third = (*blocks)[2];
  EXPECT_EQ(third.block, 2);
  EXPECT_EQ(third.first_row, 0);
  EXPECT_TRUE(third.selection.empty()) << "all rows survived";
  EXPECT_TRUE(third.rows->column(1)->Equals(int64s({8, 9})));
  EXPECT_EQ(third.row_in_file(1), 1);
}

TEST_F(Blocks, OfWhichNothingSurvivesAreEmpty) {
  write_parquet(folder_, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({1, 2, {}})});
  open({"a.parquet"});
  pipeline_.predicate = call(">", {column("x"), number(4)});
  select({{"x", column("x")}});
  auto blocks = run();
  ASSERT_OK(blocks);
  ASSERT_EQ(blocks->size(), 1u);
  EXPECT_EQ((*blocks)[0].rows_read, 3);
  EXPECT_EQ((*blocks)[0].rows->num_rows(), 0);
}

TEST_F(Blocks, WithoutColumnsHaveRowsAllTheSame) {
  write_parquet(folder_, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({1, 2, {}})});
  open({"a.parquet"});
  pipeline_.columns.clear();
  select({{"one", number(1)}});
  auto blocks = run();
  ASSERT_OK(blocks);
  EXPECT_TRUE((*blocks)[0].rows->column(0)->Equals(int64s({1, 1, 1})));
}

TEST_F(Blocks, SayWhichRowFailed) {
  write_parquet(folder_, "a.parquet", {arrow::field("s", arrow::utf8())}, {strings({"1"})});
  const auto b = write_parquet(folder_, "b.parquet", {arrow::field("s", arrow::utf8())},
                               {strings({"1", "-", "2", "3", "x", "y"})}, 3);
  open({"a.parquet", "b.parquet"});
  pipeline_.predicate = call("<>", {column("s"), expr::make_literal(arrow::MakeScalar("-"))});
  select({{"n", to_number(column("s"))}});
  const Status status = run().status();
  EXPECT_EQ(error_category(status), ErrorCategory::kData);
  EXPECT_EQ(status.message().rfind(b + ", row group 1, row 4: ", 0), 0u) << status.message();
  EXPECT_NE(status.message().find("'x'"), std::string::npos) << status.message();
  ASSERT_TRUE(error_position(status));
  EXPECT_EQ(error_position(status)->file, 1);
  EXPECT_EQ(error_position(status)->row, 4);
}

TEST_F(Blocks, ReportTheLowestRowWhateverFailedThere) {
  // The filter fails at row 3, one output at row 2, another at row 1.
  write_parquet(
      folder_, "a.parquet",
      {arrow::field("f", arrow::utf8()), arrow::field("p", arrow::utf8()), arrow::field("q", arrow::utf8())},
      {strings({"1", "1", "1", "bad filter"}), strings({"1", "1", "bad p", "1"}),
       strings({"1", "bad q", "1", "1"})});
  open({"a.parquet"});
  pipeline_.predicate = call(">", {to_number(column("f")), number(0)});
  auto failing_row = [&](const std::vector<std::pair<std::string, ExprPtr>>& outputs) {
    select(outputs);
    const Status status = run().status();
    EXPECT_FALSE(status.ok());
    return error_position(status) ? error_position(status)->row : -1;
  };
  EXPECT_EQ(failing_row({{"f", column("f")}}), 3);
  EXPECT_EQ(failing_row({{"p", to_number(column("p"))}}), 2);
  EXPECT_EQ(failing_row({{"p", to_number(column("p"))}, {"q", to_number(column("q"))}}), 1);
}

TEST_F(Blocks, OfDifferentEntryPointsAreReadByDifferentThreads) {
  std::vector<std::optional<int64_t>> values;
  for (int64_t i = 0; i < 8000; ++i) values.push_back(i);
  write_parquet(folder_, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s(values)}, 1000);
  open({"a.parquet"});
  pipeline_.predicate = call("<>", {call("%", {column("x"), number(3)}), number(0)});
  select({{"x", column("x")}});
  const BlockSource source(pipeline_);
  std::vector<int64_t> sums(8);
  std::vector<std::thread> threads;
  for (int e = 0; e < 8; ++e) {
    threads.emplace_back([&, e] {
      auto stream = source.open(e);
      ASSERT_OK(stream);
      while (true) {
        auto block = (*stream)->next();
        ASSERT_OK(block);
        if (!*block) break;
        const auto& column = static_cast<const arrow::Int64Array&>(*(*block)->rows->column(0));
        for (int64_t i = 0; i < column.length(); ++i) {
          sums[static_cast<size_t>(e)] += column.Value(i);
          ASSERT_EQ(column.Value(i), (*block)->row_in_file(i));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t sum = 0, expected = 0;
  for (int64_t s : sums) sum += s;
  for (int64_t i = 0; i < 8000; ++i) expected += i % 3 ? i : 0;
  EXPECT_EQ(sum, expected);
}

TEST_F(Blocks, PlacesHaveFileRowGroupAndRow) {
  const auto a =
      write_parquet(folder_, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({1, 2, 3})}, 2);
  const auto c = folder_.write_text("c.csv", "x\n1\n");
  open({"a.parquet", "c.csv"});
  EXPECT_EQ(describe_place(*pipeline_.table, 1, 2), a + ", row group 1, row 2");
  EXPECT_EQ(describe_place(*pipeline_.table, 0, -1), a + ", row group 0");
  EXPECT_EQ(describe_place(*pipeline_.table, 2, 0), c + ", row 0");
}

// Row groups 0…9, 10…19, 20…29 of `id`, with an instant and a double beside it.
void write_three_groups(const TemporaryFolder& folder, const std::string& name, bool statistics) {
  std::vector<std::optional<int64_t>> ids, instants;
  std::vector<std::optional<double>> numbers;
  for (int64_t i = 0; i < 30; ++i) {
    ids.push_back(i);
    instants.push_back(i * 3'600'000'000);
    numbers.push_back(i == 5 ? std::nan("") : static_cast<double>(i));
  }
  const auto instant = arrow::timestamp(arrow::TimeUnit::MICRO);
  write_parquet(
      folder, name,
      {arrow::field("id", arrow::int64()), arrow::field("at", instant), arrow::field("x", arrow::float64())},
      {int64s(ids), array_of<arrow::TimestampBuilder, int64_t>(instant, instants), doubles(numbers)}, 10,
      statistics);
}

TEST_F(Blocks, EntryPointsThatClaimsRuleOutAreNotRead) {
  write_three_groups(folder_, "claims.parquet", true);
  write_three_groups(folder_, "silent.parquet", false);
  struct Case {
    const char* what;
    std::function<ExprPtr()> predicate;
    int pruned;
  };
  const auto whole = [](int64_t value) { return number(value); };
  const std::vector<Case> cases = {
      {"above",
       [&] {
         return call(">", {column("id"), whole(19)});
       },
       2},
      {"at a limit",
       [&] {
         return call(">=", {column("id"), whole(19)});
       },
       1},
      {"below nothing",
       [&] {
         return call("<", {column("id"), whole(0)});
       },
       3},
      {"between",
       [&] {
         return expr::make_and({call(">=", {column("id"), whole(12)}), call("<=", {column("id"), whole(15)})})
             .ValueOrDie();
       },
       2},
      {"either end",
       [&] {
         return expr::make_or({call("<", {column("id"), whole(3)}), call(">", {column("id"), whole(27)})})
             .ValueOrDie();
       },
       1},
      {"one of a list",
       [&] {
         return expr::make_in(column("id"), {whole(2), whole(4), whole(7)}).ValueOrDie();
       },
       2},
      {"a date of an instant",
       [&] {
         const auto day = expr::make_cast(column("at"), arrow::date32()).ValueOrDie();
         return call(">", {day, expr::make_literal(std::make_shared<arrow::Date32Scalar>(0))});
       },
       2},  // hours 0…9 and 10…19 are of the first day
      {"NaN is above every number",
       [&] {
         return call(">", {column("x"), expr::make_literal(arrow::MakeScalar(1000.0))});
       },
       0},
      {"below the least double",
       [&] {
         return call("<", {column("x"), expr::make_literal(arrow::MakeScalar(15.0))});
       },
       1},
      {"NULL", [&] { return call("is_null", {column("id")}); }, 3},  // no row group has one
      {"a filter that can fail",
       [&] {
         const auto small = expr::make_cast(column("id"), arrow::int8()).ValueOrDie();
         return call(">", {small, expr::make_literal(arrow::MakeScalar(int8_t{19}))});
       },
       0},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    std::vector<std::vector<int64_t>> found(2);
    for (const bool claims : {true, false}) {
      pipeline_ = {};
      open({claims ? "claims.parquet" : "silent.parquet"});
      pipeline_.predicate = test.predicate();
      select({{"id", column("id")}});
      EXPECT_EQ(BlockSource(pipeline_).entry_points_pruned(), claims ? test.pruned : 0);
      auto blocks = run();
      ASSERT_OK(blocks);
      ASSERT_EQ(blocks->size(), 3u);
      for (size_t b = 0; b < 3; ++b) {
        const BlockRows& block = (*blocks)[b];
        EXPECT_EQ(block.block, static_cast<int>(b));
        EXPECT_EQ(block.first_row, static_cast<int64_t>(b) * 10);
        EXPECT_EQ(block.rows_read, 10);
        const auto& ids = static_cast<const arrow::Int64Array&>(*block.rows->column(0));
        for (int64_t i = 0; i < ids.length(); ++i) found[claims ? 0 : 1].push_back(ids.Value(i));
      }
    }
    EXPECT_EQ(found[0], found[1]);
  }
}

TEST_F(Blocks, AColumnThatAFileLacksPrunesIt) {
  write_parquet(folder_, "a.parquet", {arrow::field("x", arrow::int64())}, {int64s({1, 2})});
  write_parquet(folder_, "b.parquet", {arrow::field("y", arrow::int64())}, {int64s({3, 4})});
  open({"a.parquet", "b.parquet"});
  pipeline_.predicate = call(">", {column("x"), number(0)});
  select({{"x", column("x")}});
  EXPECT_EQ(BlockSource(pipeline_).entry_points_pruned(), 1);
  auto blocks = run();
  ASSERT_OK(blocks);
  ASSERT_EQ(blocks->size(), 2u);
  EXPECT_EQ((*blocks)[0].rows->num_rows(), 2);
  EXPECT_EQ((*blocks)[1].rows->num_rows(), 0);
  EXPECT_EQ((*blocks)[1].rows_read, 2);
}

// A footer that lies: pruning believes it and loses rows, as documented; what is read is right, and nothing breaks.
TEST_F(Blocks, AFooterThatLiesPrunesAndBreaksNothing) {
  std::vector<std::optional<int64_t>> ids;
  for (int64_t i = 0; i < 10; ++i) ids.push_back(1'000'000'001 + i);
  const std::string path =
      write_parquet(folder_, "lie.parquet", {arrow::field("id", arrow::int64())}, {int64s(ids)});
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + bytes.size() - 8, sizeof length);
  const auto as_bytes = [](int64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  int patched = 0;
  for (size_t at = bytes.size() - 8 - length;
       (at = bytes.find(as_bytes(1'000'000'010), at)) != std::string::npos; ++patched)
    bytes.replace(at, 8, as_bytes(1'000'000'003));
  ASSERT_GT(patched, 0);
  folder_.write_text("lie.parquet", bytes);

  open({"lie.parquet"});
  select({{"id", column("id")}});
  pipeline_.predicate = call(">", {column("id"), number(1'000'000'005)});
  EXPECT_EQ(BlockSource(pipeline_).entry_points_pruned(), 1);
  auto blocks = run();
  ASSERT_OK(blocks);
  EXPECT_EQ((*blocks)[0].rows->num_rows(), 0);
  pipeline_.predicate = call(">", {column("id"), number(1'000'000'002)});
  EXPECT_EQ(BlockSource(pipeline_).entry_points_pruned(), 0);
  blocks = run();
  ASSERT_OK(blocks);
  EXPECT_EQ((*blocks)[0].rows->num_rows(), 8);
}

TEST_F(Blocks, ClaimsAreOfTheUnitedType) {
  write_parquet(
      folder_, "a.parquet", {arrow::field("x", arrow::uint32()), arrow::field("s", arrow::utf8())},
      {array_of<arrow::UInt32Builder, uint32_t>(arrow::uint32(), {7u, 4'000'000'000u}), strings({"a", {}})});
  write_parquet(folder_, "b.parquet", {arrow::field("x", arrow::float64()), arrow::field("s", arrow::utf8())},
                {doubles({-2.5, 3.0}), strings({"b", "c"})});
  open({"a.parquet", "b.parquet"});
  const plan::SourceTable& table = *pipeline_.table;
  const auto x = [&](int entry) {
    return expr::bounds_text(table.claims(entry, 0).bounds, table.schema()->field(0)->type());
  };
  EXPECT_EQ(x(0), "7.0 … 4000000000.0 (claimed)");
  EXPECT_EQ(x(1), "at least -2.5 (claimed)");
  EXPECT_EQ(table.claims(0, 1).null_count, 1);
  EXPECT_EQ(expr::bounds_text(table.claims(0, 1).bounds, arrow::utf8()), "");
}

}  // namespace
}  // namespace millstream::exec
