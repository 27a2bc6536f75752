#include "features/quantile_sketch.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace millstream::features {
namespace {

TEST(QuantileSketchTest, SmallDataIsExact) {
  QuantileSketch sketch;
  EXPECT_EQ(sketch.quantiles({0, 0.5, 1}), (std::vector<double>{0, 0, 0}));
  const std::vector<double> values = {7, 1, 3, 3};
  sketch.add(values.data(), 3);
  QuantileSketch next;
  next.add(values.data() + 3, 1);
  sketch.merge(next);
  EXPECT_EQ(sketch.count(), 4);
  EXPECT_EQ(sketch.rank_error(), 0);
  EXPECT_EQ(sketch.quantiles({0, 0.25, 0.5, 0.75, 1}), (std::vector<double>{1, 2.5, 3, 4, 7}));
}

// The rank of each quantile is within the bound that the sketch states, and the bound is small.
TEST(QuantileSketchTest, StatesItsError) {
  std::mt19937_64 random(3);
  for (const int64_t capacity : {64, 512}) {
    for (const bool sorted : {false, true}) {
      std::vector<double> values(100000);
      for (double& value : values) value = std::lognormal_distribution<double>(0, 3)(random);
      if (sorted) std::sort(values.begin(), values.end());
      QuantileSketch sketch(capacity);
      for (size_t first = 0; first < values.size();) {
        const size_t count = std::min<size_t>(values.size() - first, 1 + random() % 3000);
        QuantileSketch block(capacity);
        block.add(values.data() + first, static_cast<int64_t>(count));
        block.shrink();
        sketch.merge(block);
        first += count;
      }
      EXPECT_EQ(sketch.count(), 100000);
      EXPECT_GT(sketch.rank_error(), 0);
      EXPECT_LT(static_cast<double>(sketch.rank_error()), 100000 * 20.0 / static_cast<double>(capacity));
      std::sort(values.begin(), values.end());
      for (const double fraction : {0.0, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0}) {
        const double got = sketch.quantiles({fraction})[0];
        const auto low = std::lower_bound(values.begin(), values.end(), got) - values.begin();
        const auto high = std::upper_bound(values.begin(), values.end(), got) - values.begin();
        const double wanted = fraction * 99999;
        const auto error = static_cast<double>(sketch.rank_error());
        EXPECT_LE(static_cast<double>(low) - error - 1, wanted) << fraction;
        EXPECT_GE(static_cast<double>(high) + error + 1, wanted) << fraction;
      }
    }
  }
}

TEST(QuantileSketchTest, ComesBackFromBytes) {
  QuantileSketch sketch(16);
  std::vector<double> values(1000);
  for (int i = 0; i < 1000; ++i) values[i] = i * 37 % 1000;
  sketch.add(values.data(), 600);
  auto back = QuantileSketch::decode(sketch.encode()).ValueOrDie();
  sketch.add(values.data() + 600, 400);
  back.add(values.data() + 600, 400);
  EXPECT_EQ(back.encode(), sketch.encode());
  EXPECT_EQ(back.quantiles({0.3}), sketch.quantiles({0.3}));
  const std::string bytes = sketch.encode();
  for (size_t size = 0; size < bytes.size(); size += 7)
    EXPECT_FALSE(QuantileSketch::decode(std::string_view(bytes).substr(0, size)).ok());
}

}  // namespace
}  // namespace millstream::features
