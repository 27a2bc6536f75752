#include "comm/reduction.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace millstream::comm {
namespace {

template <class T>
std::vector<T> reduced(const std::vector<std::vector<T>>& inputs, DataType type, ReduceOp op) {
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  reduce_arrays(out.data(), sources.data(), static_cast<int>(sources.size()),
                static_cast<int64_t>(out.size()), type, op);
  return out;
}

TEST(ReductionTest, OrderOfSumsIsTheOrderOfSources) {
  // (1e8 + 1) - 1e8 in float is 0, (1e8 - 1e8) + 1 is 1.
  EXPECT_EQ(reduced<float>({{1e8f}, {1.0f}, {-1e8f}}, DataType::kFloat, ReduceOp::kSum)[0], 0.0f);
  EXPECT_EQ(reduced<float>({{1e8f}, {-1e8f}, {1.0f}}, DataType::kFloat, ReduceOp::kSum)[0], 1.0f);
}

TEST(ReductionTest, IntegersWrap) {
  EXPECT_EQ(reduced<int32_t>({{INT32_MAX}, {1}}, DataType::kInt32, ReduceOp::kSum)[0], INT32_MIN);
  EXPECT_EQ(reduced<int8_t>({{127}, {1}}, DataType::kInt8, ReduceOp::kSum)[0], -128);
  EXPECT_EQ(reduced<uint8_t>({{200}, {100}}, DataType::kUInt8, ReduceOp::kSum)[0], 44);
  EXPECT_EQ(reduced<int16_t>({{-32768}, {-1}}, DataType::kInt16, ReduceOp::kProduct)[0], -32768);
  EXPECT_EQ(reduced<int64_t>({{INT64_MAX}, {2}}, DataType::kInt64, ReduceOp::kProduct)[0], -2);
}

TEST(ReductionTest, NaNStaysInMinAndMax) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(reduced<float>({{nan}, {1.0f}, {2.0f}}, DataType::kFloat, op)[0]));
    EXPECT_TRUE(std::isnan(reduced<float>({{1.0f}, {nan}, {2.0f}}, DataType::kFloat, op)[0]));
    EXPECT_TRUE(std::isnan(reduced<float>({{1.0f}, {nan}}, DataType::kFloat, op)[0]));
  }
}

TEST(ReductionTest, Bools) {
  const std::vector<std::vector<uint8_t>> inputs = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  EXPECT_EQ(reduced(inputs, DataType::kBool, ReduceOp::kSum), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(reduced(inputs, DataType::kBool, ReduceOp::kMax), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(reduced(inputs, DataType::kBool, ReduceOp::kProduct), (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(reduced(inputs, DataType::kBool, ReduceOp::kMin), (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(reduced(inputs, DataType::kBool, ReduceOp::kBitXor), (std::vector<uint8_t>{0, 1, 1, 0}));
}

TEST(ReductionTest, BitsOfFloatsAreRefused) {
  for (DataType type : {DataType::kFloat, DataType::kDouble, DataType::kHalf, DataType::kBFloat16}) {
    EXPECT_FALSE(check_reduction(type, ReduceOp::kBitAnd).ok());
    EXPECT_TRUE(check_reduction(type, ReduceOp::kSum).ok());
  }
  EXPECT_TRUE(check_reduction(DataType::kInt16, ReduceOp::kBitXor).ok());
}

TEST(ReductionTest, HalfIsSummedInFloat) {
  // 2048 + 1 is not a half; but 2048 + 1 + 1 is, when rounded once.
  const uint16_t big = float_to_half(2048), one = float_to_half(1);
  EXPECT_EQ(half_to_float(reduced<uint16_t>({{big}, {one}, {one}}, DataType::kHalf, ReduceOp::kSum)[0]),
            2050.0f);
  const uint16_t b256 = float_to_bfloat16(256), b1 = float_to_bfloat16(1);
  EXPECT_EQ(
      bfloat16_to_float(reduced<uint16_t>({{b256}, {b1}, {b1}}, DataType::kBFloat16, ReduceOp::kSum)[0]),
      258.0f);
}

TEST(ReductionTest, EveryHalfComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = half_to_float(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(wide))));
    } else {
      ASSERT_EQ(float_to_half(wide), half);
    }
    const float brain = bfloat16_to_float(half);
    if (std::isnan(brain)) {
      EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(brain))));
    } else {
      ASSERT_EQ(float_to_bfloat16(brain), half);
    }
  }
}

TEST(ReductionTest, RoundsToNearestEven) {
  EXPECT_EQ(half_to_float(float_to_half(2049)), 2048.0f);
  EXPECT_EQ(half_to_float(float_to_half(2051)), 2052.0f);
  EXPECT_EQ(half_to_float(float_to_half(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(half_to_float(float_to_half(65520.0f))));
  EXPECT_EQ(half_to_float(float_to_half(std::ldexp(1.0f, -25))), 0.0f);
  EXPECT_EQ(half_to_float(float_to_half(std::ldexp(1.5f, -25))), std::ldexp(1.0f, -24));
  EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(257)), 256.0f);
  EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(259)), 260.0f);
}

TEST(ReductionTest, InPlaceAndLong) {
  const int64_t n = 5003;
  std::vector<double> a(n), b(n), c(n);
  for (int64_t i = 0; i < n; ++i) {
    a[i] = 0.1 * static_cast<double>(i);
    b[i] = 3.7 / static_cast<double>(i + 1);
    c[i] = -1.3 * static_cast<double>(i % 7);
  }
  const void* sources[] = {a.data(), b.data(), c.data()};
  std::vector<double> expected(n);
  for (int64_t i = 0; i < n; ++i) expected[i] = (a[i] + b[i]) + c[i];
  reduce_arrays(b.data(), sources, 3, n, DataType::kDouble, ReduceOp::kSum);  // into the middle one
  EXPECT_EQ(b, expected);
}

}  // namespace
}  // namespace millstream::comm
