#include "loader/full_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace millstream::loader {
namespace {

std::vector<int64_t> order_of(uint64_t seed, int64_t epoch, int64_t rows) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  FullOrder(seed, epoch, rows).rows_at(0, rows, order.data());
  return order;
}

TEST(FullOrderTest, EveryRowOnce) {
  for (const int64_t rows : {0, 1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 100, 999, 1000, 4097, 100003}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      auto order = order_of(seed, static_cast<int64_t>(seed) % 3, rows);
      std::sort(order.begin(), order.end());
      std::vector<int64_t> all(static_cast<size_t>(rows));
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(order, all) << rows << " rows, seed " << seed;
    }
  }
}

TEST(FullOrderTest, AnyPartIsThatOfTheWhole) {
  const int64_t rows = 5003;
  const auto whole = order_of(9, 4, rows);
  const FullOrder order(9, 4, rows);
  for (const int64_t first : {0, 1, 63, 64, 65, 2500, 4999}) {
    for (const int64_t count : {0, 1, 4, 64, 130, 1000}) {
      if (first + count > rows) continue;
      std::vector<int64_t> part(static_cast<size_t>(count));
      order.rows_at(first, count, part.data());
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first << ", " << count;
    }
  }
}

TEST(FullOrderTest, AnotherOrderEachEpochAndSeed) {
  const auto order = order_of(1, 0, 1000);
  for (const auto& other : {order_of(1, 1, 1000), order_of(2, 0, 1000)}) {
    int same = 0;
    for (size_t i = 0; i < order.size(); ++i) same += order[i] == other[i];
    EXPECT_LT(same, 12);  // of a uniform permutation 1 on average
  }
}

// Where a row comes to stand over many epochs, and which comes after it: as of uniform permutations (fixed seeds; the
// bounds are five standard deviations).
TEST(FullOrderTest, LooksUniform) {
  constexpr int64_t kRows = 60, kEpochs = 6000;
  std::vector<double> at(kRows * kRows), after(kRows * kRows);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = order_of(77, epoch, kRows);
    for (int64_t place = 0; place < kRows; ++place) {
      at[static_cast<size_t>(place * kRows + order[static_cast<size_t>(place)])] += 1;
      if (place > 0)
        after[static_cast<size_t>(order[static_cast<size_t>(place - 1)] * kRows +
                                  order[static_cast<size_t>(place)])] += 1;
    }
  }
  const auto chi_squared = [](const std::vector<double>& counts, double expected) {
    double sum = 0;
    for (const double count : counts) {
      if (expected > 0) sum += (count - expected) * (count - expected) / expected;
    }
    return sum;
  };
  // (kRows - 1)² degrees of freedom, whose deviation is sqrt(2 · (kRows - 1)²).
  const double freedom = (kRows - 1) * (kRows - 1);
  EXPECT_NEAR(chi_squared(at, double{kEpochs} / kRows), freedom, 5 * std::sqrt(2 * freedom));
  for (int64_t row = 0; row < kRows; ++row)
    after[static_cast<size_t>(row * kRows + row)] = double{kEpochs} / kRows;  // no row follows itself
  EXPECT_NEAR(chi_squared(after, double{kEpochs} / kRows), freedom, 5 * std::sqrt(2 * freedom) + 2 * kRows);
}

}  // namespace
}  // namespace millstream::loader
