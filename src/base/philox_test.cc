#include "base/philox.h"

#include <map>

#include <gtest/gtest.h>

namespace millstream {
namespace {

// Known answers of the authors' Random123 (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Philox4x32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Philox4x32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox4x32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BelowIsUniform) {
  PhiloxStream stream(7, 1, 2, 3);
  std::map<uint64_t, int> counts;
  for (int i = 0; i < 60000; ++i) ++counts[stream.below(6)];
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, 10000, 500) << value;  // five sigma
}

}  // namespace
}  // namespace millstream
