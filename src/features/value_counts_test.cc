#include "features/value_counts.h"

#include <gtest/gtest.h>

namespace millstream::features {
namespace {

using Counts = std::vector<std::pair<std::string, int64_t>>;

TEST(ValueCountsTest, OrdersByCountThenValue) {
  ValueCounts counts;
  for (const char* value : {"b", "10", "9", "b", "a", "x y", "-3"}) ASSERT_TRUE(counts.add(value).ok());
  ValueCounts more;
  for (const char* value : {"9", "", "10"}) ASSERT_TRUE(more.add(value).ok());
  ASSERT_TRUE(counts.merge(more).ok());
  const Counts expected = {{"9", 2}, {"10", 2}, {"b", 2}, {"-3", 1}, {"", 1}, {"a", 1}, {"x y", 1}};
  EXPECT_EQ(counts.by_count(), expected);
  EXPECT_EQ(ValueCounts::decode(counts.encode())->by_count(), expected);
  EXPECT_FALSE(ValueCounts::decode(counts.encode().substr(1)).ok());
}

TEST(ValueCountsTest, MostFrequentNumber) {
  ValueCounts counts;
  const std::vector<double> values = {3, -0.0, 0.0, 3, 7};
  ASSERT_TRUE(counts.add(values.data(), 5).ok());
  EXPECT_EQ(counts.distinct(), 3);
  EXPECT_EQ(counts.most_frequent_double(), 0);
}

TEST(ValueCountsTest, TooManyAreAnError) {
  ValueCounts counts;
  std::vector<double> values(kMostDistinctValues);
  for (int64_t i = 0; i < kMostDistinctValues; ++i) values[i] = static_cast<double>(i);
  ASSERT_TRUE(counts.add(values.data(), kMostDistinctValues).ok());
  ASSERT_TRUE(counts.add(values.data(), kMostDistinctValues).ok());
  const double one_more = 0.5;
  EXPECT_EQ(counts.add(&one_more, 1).message(), "it has more than 1048576 different values");
}

}  // namespace
}  // namespace millstream::features
