#include "features/distinct_sketch.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/hash.h"

namespace millstream::features {
namespace {

DistinctSketch sketch_of(int64_t first, int64_t count) {
  DistinctSketch sketch;
  for (int64_t i = first; i < first + count; ++i) sketch.add(mix64(static_cast<uint64_t>(i)));
  return sketch;
}

TEST(DistinctSketch, FewValuesAreCountedExactly) {
  DistinctSketch sketch;
  EXPECT_EQ(sketch.estimate(), 0);
  for (int round = 0; round < 3; ++round) sketch.merge(sketch_of(0, kExactDistinct));
  EXPECT_TRUE(sketch.exact());
  EXPECT_EQ(sketch.estimate(), kExactDistinct);
}

TEST(DistinctSketch, ManyValuesAreEstimated) {
  for (const int64_t count : {1500, 5000, 20000, 300000, 2000000}) {
    const DistinctSketch sketch = sketch_of(7, count);
    EXPECT_FALSE(sketch.exact());
    // Three standard errors.
    EXPECT_NEAR(static_cast<double>(sketch.estimate()) / static_cast<double>(count), 1, 0.049) << count;
  }
}

TEST(DistinctSketch, MergingIsAddingInAnyOrder) {
  DistinctSketch parts = sketch_of(0, 900);
  parts.merge(sketch_of(30000, 20000));
  parts.merge(sketch_of(500, 40000));
  EXPECT_EQ(parts.encode(), sketch_of(0, 50000).encode());
}

TEST(DistinctSketch, IsReadBack) {
  for (const int64_t count : {0, 10, 100000}) {
    const DistinctSketch sketch = sketch_of(0, count);
    const auto read = DistinctSketch::decode(sketch.encode());
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->estimate(), sketch.estimate());
  }
  EXPECT_FALSE(DistinctSketch::decode("").ok());
  EXPECT_FALSE(DistinctSketch::decode("r12").ok());
  EXPECT_FALSE(DistinctSketch::decode("h12").ok());
}

}  // namespace
}  // namespace millstream::features
