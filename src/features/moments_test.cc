#include "features/moments.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace millstream::features {
namespace {

// Mean and variance in extended precision, straight from their definitions.
std::pair<double, double> plain_moments(const std::vector<double>& values) {
  long double sum = 0;
  for (const double value : values) sum += value;
  const long double mean = sum / static_cast<long double>(values.size());
  long double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {static_cast<double>(mean), static_cast<double>(squares)};
}

void expect_relative(double got, double wanted, double tolerance) {
  EXPECT_LE(std::abs(got - wanted), tolerance * std::abs(wanted)) << got << " against " << wanted;
}

TEST(MomentsTest, AgreeWithTheDefinition) {
  std::mt19937_64 random(7);
  for (const double offset : {0.0, 1.0, 1e6, -1e9}) {
    for (const int count : {1, 2, 7, 8, 9, 1000, 65536}) {
      std::normal_distribution<double> distribution(offset, 3.0);
      std::vector<double> values(count);
      for (double& value : values) value = distribution(random);
      const Moments moments = moments_of(values.data(), count);
      const auto [mean, m2] = plain_moments(values);
      EXPECT_EQ(moments.count, count);
      if (offset != 0.0) expect_relative(moments.mean, mean, 1e-15);
      EXPECT_NEAR(moments.mean, mean, 1e-13 * (1 + std::abs(offset)));
      expect_relative(moments.m2, m2, 1e-9);
    }
  }
}

TEST(MomentsTest, MergingBlocksIsAllInOne) {
  std::mt19937_64 random(8);
  std::lognormal_distribution<double> distribution(3, 2);
  std::vector<double> values(100000);
  for (double& value : values) value = distribution(random);
  Moments merged;
  for (size_t first = 0; first < values.size();) {
    const size_t count = std::min<size_t>(values.size() - first, random() % 3 == 0 ? 0 : 1 + random() % 5000);
    merge_moments(merged, moments_of(values.data() + first, static_cast<int64_t>(count)));
    first += count;
  }
  const auto [mean, m2] = plain_moments(values);
  EXPECT_EQ(merged.count, 100000);
  expect_relative(merged.mean, mean, 1e-13);
  expect_relative(merged.m2, m2, 1e-11);
}

TEST(MomentsTest, DivisorIsThePopulationsDeviationAndOneWhereConstant) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(standard_scale_divisor(moments_of(values.data(), 4)), std::sqrt(1.25));
  const std::vector<double> zeros(100, 0.0);
  EXPECT_EQ(standard_scale_divisor(moments_of(zeros.data(), 100)), 1);
  const std::vector<double> constant(1000, 0.1);
  EXPECT_EQ(standard_scale_divisor(moments_of(constant.data(), 1000)), 1);
  // Constant but for rounding counts as constant, as in scikit-learn.
  std::vector<double> nearly(1000, 1e8);
  nearly[3] = std::nextafter(1e8, 2e8);
  EXPECT_EQ(standard_scale_divisor(moments_of(nearly.data(), 1000)), 1);
  EXPECT_EQ(standard_scale_divisor({}), 1);
}

}  // namespace
}  // namespace millstream::features
