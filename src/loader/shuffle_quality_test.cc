#include "loader/shuffle_quality.h"

#include <gtest/gtest.h>

namespace millstream::loader {
namespace {

ScheduleConfig schedule_config(Shuffle shuffle, int lanes, int64_t window) {
  return {.seed = 7, .epoch = 0, .shuffle = shuffle, .lanes = lanes, .window = window, .batch_size = 500};
}

TEST(ShuffleQualityTest, FileOrderIsAsNarrowAsItsBatches) {
  const std::vector<int64_t> counts(40, 250);
  EXPECT_NEAR(shuffle_quality(counts, schedule_config(Shuffle::kNone, 1, 1)), 500.0 / 10000, 1e-3);
}

TEST(ShuffleQualityTest, AWindowOverEverythingIsUniform) {
  EXPECT_NEAR(shuffle_quality({10000}, schedule_config(Shuffle::kWindow, 1, 10000)), 1, 0.05);
}

TEST(ShuffleQualityTest, FullIsUniform) {
  const std::vector<int64_t> counts(40, 250);
  EXPECT_NEAR(shuffle_quality(counts, schedule_config(Shuffle::kFull, 1, 1)), 1, 0.03);
}

TEST(ShuffleQualityTest, LanesAndWindowsSpread) {
  const std::vector<int64_t> counts(40, 250);
  const double one_lane = shuffle_quality(counts, schedule_config(Shuffle::kWindow, 1, 500));
  const double many = shuffle_quality(counts, schedule_config(Shuffle::kWindow, 20, 4000));
  EXPECT_GT(one_lane, 0.05);  // two entry points or three, from anywhere
  EXPECT_LT(one_lane, 0.8);
  EXPECT_GT(many, 0.9);
  EXPECT_LT(many, 1.1);
}

TEST(ShuffleQualityTest, NothingToMix) {
  EXPECT_EQ(shuffle_quality({}, schedule_config(Shuffle::kWindow, 4, 100)), 1);
  EXPECT_EQ(shuffle_quality({0, 1, 0}, schedule_config(Shuffle::kNone, 4, 100)), 1);
}

}  // namespace
}  // namespace millstream::loader
