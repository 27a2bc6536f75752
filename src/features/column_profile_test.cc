#include "features/column_profile.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace millstream::features {
namespace {

using Numbers = std::vector<std::optional<double>>;

std::shared_ptr<arrow::Array> doubles(const Numbers& values) {
  arrow::DoubleBuilder builder;
  for (const auto& value : values) EXPECT_TRUE((value ? builder.Append(*value) : builder.AppendNull()).ok());
  return *builder.Finish();
}
std::shared_ptr<arrow::Array> texts(const std::vector<std::string>& values) {
  arrow::StringBuilder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return *builder.Finish();
}
std::shared_ptr<arrow::Array> whole(const std::vector<int64_t>& values) {
  arrow::Int64Builder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return *builder.Finish();
}

ColumnProfile profile_of(const std::vector<std::shared_ptr<arrow::Array>>& blocks,
                         const std::vector<std::shared_ptr<arrow::Array>>& targets = {},
                         int64_t capacity = 1 << 16) {
  ColumnProfile profile(profile_kind(*blocks[0]->type()), capacity);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto values = column_values(*blocks[i]);
    EXPECT_TRUE(values.ok());
    if (targets.empty()) {
      profile.add(*values, nullptr);
    } else {
      const auto target = column_values(*targets[i]);
      profile.add(*values, &*target);
    }
  }
  return profile;
}

TEST(ColumnProfile, NumbersWithNullsNanAndInfinities) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const ColumnProfile profile =
      profile_of({doubles({1, std::nullopt, 3, nan, -inf}), doubles({std::nullopt, -0.0, 0.0, 8})});
  EXPECT_EQ(profile.rows(), 9);
  EXPECT_EQ(profile.nulls(), 2);
  EXPECT_EQ(profile.nans(), 1);
  EXPECT_EQ(profile.infinities(), 1);
  EXPECT_EQ(profile.distinct(), 6);  // 1, 3, NaN, -inf, 0, 8
  EXPECT_TRUE(profile.distinct_exact());
  EXPECT_EQ(profile.min(), 0);
  EXPECT_EQ(profile.max(), 8);
  EXPECT_EQ(profile.moments().count, 5);
  EXPECT_DOUBLE_EQ(profile.moments().mean, 12.0 / 5);
  EXPECT_EQ(profile.quantiles({0, 0.5, 0.75, 1}), (std::vector<double>{0, 1, 3, 8}));
  EXPECT_EQ(profile.histogram(4), (std::vector<int64_t>{3, 1, 0, 1}));
}

TEST(ColumnProfile, WholeNumbersKeepAllTheirDigits) {
  const int64_t large = (int64_t{1} << 53) + 1;
  const ColumnProfile profile = profile_of({whole({large, large - 1, -large})});
  EXPECT_EQ(profile.whole_max(), large);
  EXPECT_EQ(profile.whole_min(), -large);
  EXPECT_EQ(profile.distinct(), 3);
}

TEST(ColumnProfile, QuantilesGoOverFromCountsToTheSketch) {
  // 1000 values that repeat, then ever new ones: nothing that was counted may be lost or counted twice.
  std::vector<std::shared_ptr<arrow::Array>> blocks;
  std::vector<double> all;
  for (int block = 0; block < 8; ++block) {
    Numbers values;
    for (int i = 0; i < 5000; ++i) values.push_back(block < 2 ? i % 1000 : block * 5000 + i);
    for (const auto& value : values) all.push_back(*value);
    blocks.push_back(doubles(values));
  }
  std::sort(all.begin(), all.end());
  const ColumnProfile profile = profile_of(blocks);
  EXPECT_EQ(profile.rank_error(), 0);
  for (const double fraction : {0.1, 0.2, 0.5, 0.9})
    EXPECT_NEAR(profile.quantiles({fraction})[0], all[static_cast<size_t>(fraction * 39999)], 1) << fraction;
  int64_t sum = 0;
  for (const int64_t count : profile.histogram(10)) sum += count;
  EXPECT_EQ(sum, 40000);

  const ColumnProfile rough = profile_of(blocks, {}, 512);
  EXPECT_GT(rough.rank_error(), 0);
  EXPECT_LT(rough.rank_error(), 0.05);
  EXPECT_NEAR(rough.quantiles({0.5})[0], all[20000], rough.rank_error() * 40000 + 1);
}

TEST(ColumnProfile, MergedStretchesSayWhatTheWholeSays) {
  std::vector<std::shared_ptr<arrow::Array>> blocks;
  for (int block = 0; block < 6; ++block) {
    Numbers values;
    for (int i = 0; i < 3000; ++i)
      values.push_back(i % 11 == 0 ? std::nullopt : std::optional(block % 2 ? i * 0.37 : i % 50));
    blocks.push_back(doubles(values));
  }
  const ColumnProfile all = profile_of(blocks);
  ColumnProfile merged(ProfileKind::kReal, 1 << 16);
  for (const auto& block : blocks) {
    const auto read = ColumnProfile::decode(profile_of({block}).encode());
    ASSERT_TRUE(read.ok());
    merged.merge(*read);
  }
  EXPECT_EQ(merged.rows(), all.rows());
  EXPECT_EQ(merged.nulls(), all.nulls());
  EXPECT_EQ(merged.distinct(), all.distinct());
  EXPECT_EQ(merged.min(), all.min());
  EXPECT_EQ(merged.max(), all.max());
  EXPECT_EQ(merged.moments().mean, all.moments().mean);
  EXPECT_EQ(merged.moments().m2, all.moments().m2);
  EXPECT_EQ(merged.quantiles({0.1, 0.5, 0.77}), all.quantiles({0.1, 0.5, 0.77}));
  EXPECT_FALSE(ColumnProfile::decode(all.encode().substr(0, 100)).ok());
}

TEST(ColumnProfile, Texts) {
  const ColumnProfile profile = profile_of({texts({"b", "a", "b"}), texts({"", "ccc"})});
  EXPECT_EQ(profile.distinct(), 4);
  EXPECT_EQ(profile.text_min(), "");
  EXPECT_EQ(profile.text_max(), "ccc");
  EXPECT_EQ(profile.longest_text(), 3);
  EXPECT_EQ(profile.frequent().by_count()[0].text, "b");
}

TEST(ColumnProfile, NothingButNullsAndNoRows) {
  const ColumnProfile nulls = profile_of({doubles({std::nullopt, std::nullopt})});
  EXPECT_EQ(nulls.values(), 0);
  EXPECT_EQ(nulls.distinct(), 0);
  EXPECT_FALSE(nulls.has_range());
  EXPECT_TRUE(nulls.quantiles({0.5}).empty());
  EXPECT_TRUE(nulls.histogram(4).empty());
  const auto untyped = column_values(arrow::NullArray(3));
  ColumnProfile profile(ProfileKind::kOther, 10);
  profile.add(*untyped, nullptr);
  EXPECT_EQ(profile.nulls(), 3);
  EXPECT_EQ(profile_of({doubles({})}).rows(), 0);
}

TEST(ColumnProfile, CorrelationWithTheTarget) {
  Numbers x, copy, other;
  for (int i = 0; i < 1000; ++i) {
    x.push_back(i % 7 == 0 ? std::nullopt : std::optional(std::sin(i)));
    copy.push_back(x.back() ? std::optional(5 - 3 * *x.back()) : std::optional(1.0));
    other.push_back(std::sin(i * 1.7));
  }
  EXPECT_NEAR(*profile_of({doubles(copy)}, {doubles(x)}).correlation(), -1, 1e-12);
  EXPECT_LT(std::abs(*profile_of({doubles(other)}, {doubles(x)}).correlation()), 0.1);
  EXPECT_FALSE(profile_of({doubles(Numbers(1000, 3.0))}, {doubles(x)}).correlation());
}

TEST(ColumnProfile, WhatTellsTheTarget) {
  std::vector<std::string> name, target, other;
  for (int i = 0; i < 200; ++i) {
    name.push_back(i % 3 == 0 ? "one" : i % 3 == 1 ? "two" : "three");
    target.push_back(i % 3 == 0 ? "yes" : "no");
    other.push_back(i % 2 == 0 ? "even" : "odd");
  }
  EXPECT_TRUE(profile_of({texts(name)}, {texts(target)}).determines_target());
  EXPECT_FALSE(profile_of({texts(other)}, {texts(target)}).determines_target());
  // That every row has a value of its own tells nothing.
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 200; ++i) rows.push_back(i);
  EXPECT_FALSE(profile_of({whole(rows)}, {texts(target)}).determines_target());
}

}  // namespace
}  // namespace millstream::features
