#include "train/metrics.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace millstream::train {
namespace {

TEST(RegressionSums, AsByHand) {
  const std::vector<float> predicted{1, 2, 4}, actual{1, 3, 2};
  RegressionSums sums;
  sums.add(predicted.data(), actual.data(), 3);
  const auto metrics = sums.metrics();
  EXPECT_DOUBLE_EQ(metrics.at("rmse"), std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(metrics.at("mae"), 1.0);
  EXPECT_DOUBLE_EQ(metrics.at("r2"), 1 - 5.0 / 2);
}

TEST(RegressionSums, MergedPartsEqualTheWhole) {
  std::vector<double> predicted, actual;
  for (int i = 0; i < 1000; ++i) {
    predicted.push_back(std::sin(i));
    actual.push_back(1e4 + std::cos(i) * 3);
  }
  RegressionSums whole, merged;
  whole.add(predicted.data(), actual.data(), 1000);
  for (const auto& [begin, end] : {std::pair{0, 0}, {0, 1}, {1, 300}, {300, 300}, {300, 1000}}) {
    RegressionSums part;
    part.add(predicted.data() + begin, actual.data() + begin, end - begin);
    merged.merge(part);
  }
  for (const auto& [name, value] : whole.metrics())
    EXPECT_NEAR(merged.metrics().at(name), value, 1e-9 * std::abs(value)) << name;
}

TEST(RegressionSums, ConstantTargetsAndNoRows) {
  RegressionSums sums;
  EXPECT_TRUE(sums.metrics().empty());
  const std::vector<double> same{2, 2}, other{2, 3};
  sums.add(same.data(), same.data(), 2);
  EXPECT_EQ(sums.metrics().at("r2"), 1);
  sums.add(other.data(), same.data(), 2);
  EXPECT_EQ(sums.metrics().at("r2"), 0);
}

}  // namespace
}  // namespace millstream::train
