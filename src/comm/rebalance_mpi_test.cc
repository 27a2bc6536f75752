// Tables of every kind, moved to every set of ranks: order kept, sizes within one.

#include <arrow/builder.h>
#include <arrow/compute/api.h>
#include <arrow/util/decimal.h>
#include <gtest/gtest.h>

#include "comm/mpi_test.h"
#include "comm/rebalance.h"

namespace millstream::comm {
namespace {

/// Rows first .. first+n-1 of one long table, with nulls, in several chunks.
std::shared_ptr<arrow::Table> rows(int64_t first, int64_t n, int64_t chunk) {
  auto schema =
      arrow::schema({arrow::field("id", arrow::int64()), arrow::field("flag", arrow::boolean()),
                     arrow::field("text", arrow::utf8()), arrow::field("price", arrow::decimal128(12, 2)),
                     arrow::field("time", arrow::timestamp(arrow::TimeUnit::MICRO, "UTC")),
                     arrow::field("tags", arrow::list(arrow::utf8())),
                     arrow::field("kind", arrow::dictionary(arrow::int8(), arrow::utf8())),
                     arrow::field("pair", arrow::struct_({arrow::field("x", arrow::float32())})),
                     arrow::field("none", arrow::null())});
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  for (int64_t at = 0; at < n; at += chunk) {
    const int64_t count = std::min(chunk, n - at);
    arrow::Int64Builder id;
    arrow::BooleanBuilder flag;
    arrow::StringBuilder text;
    arrow::Decimal128Builder price(arrow::decimal128(12, 2));
    arrow::TimestampBuilder time(arrow::timestamp(arrow::TimeUnit::MICRO, "UTC"),
                                 arrow::default_memory_pool());
    auto tag = std::make_shared<arrow::StringBuilder>();
    arrow::ListBuilder tags(arrow::default_memory_pool(), tag);
    arrow::StringDictionaryBuilder kind;
    arrow::FloatBuilder x;
    auto fine = [](const arrow::Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); };
    for (int64_t i = first + at; i < first + at + count; ++i) {
      fine(id.Append(i));
      fine(i % 5 == 0 ? flag.AppendNull() : flag.Append(i % 3 == 0));
      fine(i % 7 == 0
               ? text.AppendNull()
               : text.Append(std::string(static_cast<size_t>(i % 11), static_cast<char>('a' + i % 26))));
      fine(price.Append(arrow::Decimal128(i * 101)));
      fine(time.Append(i * 1'000'000));
      fine(tags.Append());
      for (int64_t k = 0; k < i % 4; ++k) fine(tag->Append(std::to_string(i + k)));
      fine(kind.Append(i % 2 ? fmt::format("odd{}", first % 3) : "even"));
      fine(x.Append(static_cast<float>(i) * 0.5f));
    }
    auto array = [](auto& builder) { return *builder.Finish(); };
    auto pair = *arrow::StructArray::Make({array(x)}, {arrow::field("x", arrow::float32())});
    std::shared_ptr<arrow::Array> kinds;
    fine(kind.Finish(&kinds));
    auto narrow =
        *arrow::DictionaryArray::FromArrays(arrow::dictionary(arrow::int8(), arrow::utf8()),
                                            static_cast<const arrow::DictionaryArray&>(*kinds).indices(),
                                            static_cast<const arrow::DictionaryArray&>(*kinds).dictionary());
    batches.push_back(
        arrow::RecordBatch::Make(schema, count,
                                 {array(id), array(flag), array(text), array(price), array(time), array(tags),
                                  narrow, pair, std::make_shared<arrow::NullArray>(count)}));
  }
  return *arrow::Table::FromRecordBatches(schema, batches);
}

std::string text_of(const arrow::Table& table) {
  // Cell by cell: chunks and dictionaries may differ.
  std::string text;
  for (int64_t row = 0; row < table.num_rows(); ++row) {
    for (int column = 0; column < table.num_columns(); ++column) {
      auto cell = *table.column(column)->GetScalar(row);
      if (cell->is_valid && cell->type->id() == arrow::Type::DICTIONARY) {
        cell = *static_cast<const arrow::DictionaryScalar&>(*cell).GetEncodedValue();
      }
      text += cell->ToString() + "|";
    }
    text += "\n";
  }
  return text;
}

void check(const std::vector<int64_t>& counts, std::vector<int> destinations) {
  Job& job = test_job();
  int64_t first = 0, total = 0;
  for (int rank = 0; rank < job.size(); ++rank) {
    if (rank < job.rank()) first += counts[rank % counts.size()];
    total += counts[rank % counts.size()];
  }
  auto moved = rebalance(job, rows(first, counts[job.rank() % counts.size()], 13), destinations);
  ASSERT_TRUE(moved.ok()) << moved.status().ToString();
  ASSERT_TRUE((*moved)->ValidateFull().ok()) << (*moved)->ValidateFull().ToString();
  if (destinations.empty()) {
    for (int rank = 0; rank < job.size(); ++rank) destinations.push_back(rank);
  }
  int64_t at = 0, expected_rows = 0, expected_first = 0;
  for (size_t d = 0; d < destinations.size(); ++d) {
    const int64_t n = total / static_cast<int64_t>(destinations.size()) +
                      (static_cast<int64_t>(d) < total % static_cast<int64_t>(destinations.size()));
    if (destinations[d] == job.rank()) {
      expected_first = at;
      expected_rows = n;
    }
    at += n;
  }
  ASSERT_EQ((*moved)->num_rows(), expected_rows);
  ASSERT_TRUE((*moved)->schema()->Equals(*rows(0, 0, 1)->schema()));
  // The dictionary's words come from the rank that made the row; the id tells which.
  auto id = (*moved)->GetColumnByName("id");
  for (int64_t i = 0; i < expected_rows; ++i) {
    ASSERT_EQ(static_cast<const arrow::Int64Scalar&>(**id->GetScalar(i)).value, expected_first + i);
  }
  std::string expected;
  int64_t begin = 0;
  for (int rank = 0; rank < job.size(); ++rank) {
    const int64_t n = counts[rank % counts.size()];
    const int64_t from = std::max(begin, expected_first),
                  to = std::min(begin + n, expected_first + expected_rows);
    if (from < to) expected += text_of(*rows(begin, n, 13)->Slice(from - begin, to - from));
    begin += n;
  }
  ASSERT_EQ(text_of(**moved), expected);
}

TEST(RebalanceTest, ToAll) {
  check({100, 3, 0, 57}, {});
  check({0, 0, 0, 40}, {});
  check({1}, {});
}
TEST(RebalanceTest, NoRowsAtAll) {
  check({0}, {});
}
TEST(RebalanceTest, ToOne) {
  check({20, 31, 2, 9}, {0});
  check({20, 31, 2, 9}, {test_job().size() - 1});
}
TEST(RebalanceTest, ToSomeInTheirOrder) {
  std::vector<int> backwards;
  for (int rank = test_job().size() - 1; rank >= 0; --rank) backwards.push_back(rank);
  check({33, 5, 17, 21}, backwards);
}

TEST(RebalanceTest, LargerThanTheWindow) {
  Job& job = test_job();
  const int64_t n = job.rank() == 0 ? 12'000'000 : 1000;
  arrow::Int64Builder builder;
  ASSERT_TRUE(builder.Reserve(n).ok());
  for (int64_t i = 0; i < n; ++i) builder.UnsafeAppend(job.rank() * 1'000'000'000ll + i);
  auto table = arrow::Table::Make(arrow::schema({arrow::field("v", arrow::int64())}), {*builder.Finish()});
  auto moved = rebalance(job, table, {job.size() - 1});
  ASSERT_TRUE(moved.ok()) << moved.status().ToString();
  if (job.rank() != job.size() - 1) {
    EXPECT_EQ((*moved)->num_rows(), 0);
    return;
  }
  ASSERT_EQ((*moved)->num_rows(), 12'000'000 + 1000 * (job.size() - 1));
  int64_t row = 0;
  for (const auto& chunk : (*moved)->column(0)->chunks()) {
    const auto& values = static_cast<const arrow::Int64Array&>(*chunk);
    for (int64_t i = 0; i < values.length(); ++i, ++row) {
      const int64_t expected =
          row < 12'000'000 ? row
                           : (1 + (row - 12'000'000) / 1000) * 1'000'000'000ll + (row - 12'000'000) % 1000;
      ASSERT_EQ(values.Value(i), expected) << row;
    }
  }
}

TEST(RebalanceTest, SchemasThatDifferAreNamed) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  const bool other = job.rank() == 1;
  auto table =
      arrow::Table::Make(arrow::schema({arrow::field("a", arrow::int32()),
                                        arrow::field("b", other ? arrow::utf8() : arrow::float64())}),
                         std::vector<std::shared_ptr<arrow::Array>>{
                             *arrow::MakeEmptyArray(arrow::int32()),
                             *arrow::MakeEmptyArray(other ? arrow::utf8() : arrow::float64())});
  auto moved = rebalance(job, table, {});
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.status().message(),
            "the tables to rebalance differ: column 2 is 'b: double' on rank 0 and 'b: string' on rank 1");
  job.clear_failure();
}

TEST(RebalanceTest, ToRanksThatAreNot) {
  Job& job = test_job();
  EXPECT_FALSE(rebalance(job, rows(0, 1, 1), {job.size()}).ok());
  EXPECT_FALSE(rebalance(job, rows(0, 1, 1), {0, 0}).ok());
}

}  // namespace
}  // namespace millstream::comm
