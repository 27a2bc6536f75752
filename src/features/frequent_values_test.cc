#include "features/frequent_values.h"

#include <gtest/gtest.h>

namespace millstream::features {
namespace {

TEST(FrequentValues, FewValuesAreExact) {
  FrequentValues values;
  for (uint64_t i = 0; i < 2000; ++i) {
    for (uint64_t k = 0; k <= i % 7; ++k) values.add(i);
  }
  EXPECT_TRUE(values.exact());
  EXPECT_EQ(values.size(), 2000);
  const auto sorted = values.by_count();
  EXPECT_EQ(sorted[0].key, 6u);
  EXPECT_EQ(sorted[0].count, 7);
  EXPECT_EQ(sorted[1].key, 13u);
}

// Every third row is 42, the others are all different.
FrequentValues mixture(uint64_t first, uint64_t rows) {
  FrequentValues values;
  for (uint64_t i = first; i < first + rows; ++i) values.add(i % 3 == 0 ? 42 : i + 1000);
  return values;
}

TEST(FrequentValues, FrequentOnesSurviveTheManyRareOnes) {
  const uint64_t rows = 300000;
  FrequentValues values = mixture(0, rows);
  values.merge(mixture(rows, rows));
  EXPECT_FALSE(values.exact());
  EXPECT_LE(values.lost(), static_cast<int64_t>(2 * rows) / kKeptValues);
  const auto top = values.by_count()[0];
  EXPECT_EQ(top.key, 42u);
  EXPECT_LE(top.count, 200000);
  EXPECT_GE(top.count, 200000 - values.lost());
}

TEST(FrequentValues, TextsAreKeptAndReadBack) {
  FrequentValues values;
  values.add(hash64("b"), "b", 5);
  values.add(hash64(""), "", 5);
  values.add(hash64("a"), "a", 7);
  const auto read = FrequentValues::decode(values.encode());
  ASSERT_TRUE(read.ok());
  const auto sorted = read->by_count();
  ASSERT_EQ(sorted.size(), 3u);
  EXPECT_EQ(sorted[0].text, "a");
  EXPECT_EQ(sorted[1].text, "");
  EXPECT_EQ(sorted[2].text, "b");
  EXPECT_EQ(sorted[2].count, 5);
  EXPECT_FALSE(FrequentValues::decode("123").ok());
}

}  // namespace
}  // namespace millstream::features
