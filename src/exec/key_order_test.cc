// Codes of keys: they never fall where the keys rise, whatever the sample was.

#include "exec/key_order.h"

#include <random>

#include "exec/sort.h"
#include "exec/test_files.h"

namespace millstream::exec {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;

std::shared_ptr<arrow::Array> random_values(std::mt19937_64& random, int kind, int bits, int64_t rows) {
  std::vector<std::optional<int64_t>> numbers;
  std::vector<std::optional<double>> reals;
  std::vector<std::optional<std::string>> texts;
  for (int64_t i = 0; i < rows; ++i) {
    const bool null = random() % 8 == 0;
    const auto value = static_cast<int64_t>(bits == 0 ? 0 : random() >> (64 - bits));
    numbers.push_back(null ? std::nullopt
                           : std::optional(bits == 64 ? value : value - (int64_t{1} << bits) / 3));
    reals.push_back(null ? std::nullopt
                         : std::optional(random() % 9 == 0 ? std::nan("") : static_cast<double>(value) / 7));
    texts.push_back(null ? std::nullopt
                         : std::optional(std::string(random() % 3, 'a') + std::to_string(value % 50)));
  }
  return kind == 0 ? int64s(numbers) : kind == 1 ? doubles(reals) : strings(texts);
}

Batch batch_of_columns(const arrow::ArrayVector& columns) {
  arrow::FieldVector fields;
  for (const auto& column : columns) fields.push_back(arrow::field("c", column->type()));
  return arrow::RecordBatch::Make(arrow::schema(fields), columns[0]->length(), columns);
}

// Keys of 1 to 64 bits, so that together they end at, before and behind the edge of a code.
TEST(KeyOrderTest, CodesNeverFallWhereKeysRise) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    const int count = 1 + static_cast<int>(random() % 4);
    arrow::ArrayVector columns, sampled;
    std::vector<plan::SortKey> keys;
    const int64_t rows_of_sample = static_cast<int64_t>(random() % 40);
    for (int k = 0; k < count; ++k) {
      const int kind = static_cast<int>(random() % 6) < 4 ? 0 : 1 + static_cast<int>(random() % 2);
      const int bits = static_cast<int>(random() % 65);
      columns.push_back(random_values(random, kind, bits, 60));
      // A sample of other rows, often of a narrower range.
      sampled.push_back(random_values(random, kind, random() % 2 == 0 ? bits : bits / 2, rows_of_sample));
      keys.push_back({k, random() % 2 == 0, random() % 2 == 0});
    }
    const auto order = KeyOrder::learn(keys, *batch_of_columns(sampled));
    ASSERT_OK(order);
    const auto sorted = sort_rows(batch_of_columns(columns), keys, -1);
    ASSERT_OK(sorted);
    std::vector<uint64_t> codes;
    ASSERT_OK(order->codes(**sorted, codes));
    ASSERT_TRUE(std::ranges::is_sorted(codes)) << "round " << round;
  }
}

// Two bits are left behind a first key of 62: no room for a second one.
TEST(KeyOrderTest, TheBitsOfTheLastKeys) {
  for (int bits = 1; bits <= 62; ++bits) {
    const auto rows = batch_of_columns({int64s({0, int64_t{1} << bits}), int64s({0, 255}), int64s({0, 1})});
    std::vector<plan::SortKey> keys = {{0, false, false}, {1, false, false}, {2, false, false}};
    const auto order = KeyOrder::learn(keys, *rows);
    ASSERT_OK(order);
    std::vector<uint64_t> codes;
    ASSERT_OK(order->codes(*rows, codes));
    EXPECT_LT(codes[0], codes[1]) << bits;
  }
}

}  // namespace
}  // namespace millstream::exec
