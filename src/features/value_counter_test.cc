#include "features/value_counter.h"

#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "features/test_counting.h"

namespace millstream::features {
namespace {

using Texts = std::vector<std::string>;

std::shared_ptr<arrow::StringArray> array_of(const std::vector<std::optional<std::string>>& texts) {
  arrow::StringBuilder builder;
  for (const auto& text : texts) EXPECT_TRUE((text ? builder.Append(*text) : builder.AppendNull()).ok());
  return std::static_pointer_cast<arrow::StringArray>(builder.Finish().ValueOrDie());
}

std::string scratch() {
  return (std::filesystem::temp_directory_path() / "millstream_counts").string();
}

TEST(ValueCounterTest, OrdersByCountThenValue) {
  const auto first = array_of({"b", "10", "9", std::nullopt, "b", "a", "x y", "-3"});
  const auto second = array_of({"9", "", "10"});
  ValueCounter counter(ValueOrder::kTexts, 2, 1 << 20, scratch());
  ASSERT_TRUE(counter.add(0, *first).ok());
  ASSERT_TRUE(counter.add(1, *second).ok());
  const auto all = counted(counter, 1, INT64_MAX).ValueOrDie();
  EXPECT_EQ(texts_of(all), (Texts{"9", "10", "b", "-3", "", "a", "x y"}));
  EXPECT_EQ(all.distinct, 7);
  EXPECT_EQ(counter.spilled_bytes(), 0);
  EXPECT_EQ(texts_of(counted(counter, 2, INT64_MAX).ValueOrDie()), (Texts{"9", "10", "b"}));
  EXPECT_EQ(texts_of(counted(counter, 1, 2).ValueOrDie()), (Texts{"9", "10"}));
  EXPECT_TRUE(counted(counter, 3, INT64_MAX)->empty());
}

TEST(ValueCounterTest, NumbersHaveTheirOrder) {
  ValueCounter counter(ValueOrder::kDoubles, 1, 1 << 20, scratch());
  const std::vector<double> values = {3, -0.0, 0.0, 3, -7, -8.5, 1e300, -7};
  ASSERT_TRUE(counter.add(0, values.data(), 8).ok());
  const auto all = counted(counter, 1, INT64_MAX).ValueOrDie();
  std::vector<double> numbers;
  for (int64_t i = 0; i < all.values->size(); ++i) numbers.push_back(all.as_double(i));
  EXPECT_EQ(numbers, (std::vector<double>{-7, 0, 3, -8.5, 1e300}));
}

// Counts on disk, in threads or in tables of entry points are the same counts.
TEST(ValueCounterTest, SpilledCountsAreTheSame) {
  std::mt19937 random(7);
  std::vector<std::shared_ptr<arrow::StringArray>> blocks;
  std::map<std::string, int64_t> expected;
  for (int block = 0; block < 20; ++block) {
    std::vector<std::optional<std::string>> texts;
    for (int row = 0; row < 3000; ++row) {
      std::string text = std::to_string(random() % 20000);
      if (random() % 3 == 0) text = "value of a longer kind " + text;
      ++expected[text];
      texts.push_back(text);
    }
    blocks.push_back(array_of(texts));
  }
  std::vector<std::pair<int64_t, std::string>> by_count;
  for (const auto& [text, count] : expected) by_count.push_back({-count, text});
  const auto is_number = [](const std::string& text) { return text[0] != 'v'; };
  std::sort(by_count.begin(), by_count.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    if (is_number(a.second) != is_number(b.second)) return is_number(a.second);
    return is_number(a.second) ? std::stoi(a.second) < std::stoi(b.second) : a.second < b.second;
  });
  Texts wanted;
  for (const auto& [count, text] : by_count) wanted.push_back(text);

  for (const int64_t memory : {int64_t{1} << 30, int64_t{200} << 10}) {
    for (const int threads : {1, 3}) {
      ValueCounter counter(ValueOrder::kTexts, threads, memory, scratch());
      for (size_t i = 0; i < blocks.size(); ++i) {
        if (i % 2) {
          ASSERT_TRUE(counter.add(static_cast<int>(i) % threads, *blocks[i]).ok());
        } else {
          CountTable table;
          ASSERT_TRUE(table.add(*blocks[i]).ok());
          ASSERT_TRUE(counter.add(static_cast<int>(i) % threads, table).ok());
        }
      }
      const auto all = counted(counter, 1, INT64_MAX).ValueOrDie();
      EXPECT_EQ(counter.spilled_bytes() > 0, memory < int64_t{1} << 30);
      EXPECT_EQ(all.distinct, static_cast<int64_t>(expected.size()));
      EXPECT_EQ(texts_of(all), wanted);
    }
  }
}

TEST(ValueCounterTest, NoPlaceForTheDiskIsAnError) {
  ValueCounter counter(ValueOrder::kDoubles, 1, 1, "/proc/nowhere");
  const double value = 1;
  const Status status = counter.add(0, &value, 1);
  EXPECT_EQ(error_category(status), ErrorCategory::kFile);
  EXPECT_NE(status.message().find("can't be written to /proc/nowhere: "), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace millstream::features
