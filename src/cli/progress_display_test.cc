#include "cli/progress_display.h"

#include <limits>

#include <gtest/gtest.h>

namespace millstream::cli {
namespace {

TEST(ProgressDisplay, Numbers) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1000), "-1,000");
  EXPECT_EQ(format_rate(950.4), "950");
  EXPECT_EQ(format_rate(43210), "43k");
  EXPECT_EQ(format_rate(1.25e6), "1.25M");
  EXPECT_EQ(format_seconds(4.21), "4.2s");
  EXPECT_EQ(format_seconds(185), "3m05s");
  EXPECT_EQ(format_seconds(3720), "1h02m");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "?");
}

TEST(ProgressDisplay, BarStaysWithinItsFrame) {
  EXPECT_EQ(format_bar(0.5, 10), "|#####.....|");
  EXPECT_EQ(format_bar(7, 4), "|####|");
  EXPECT_EQ(format_bar(-1, 4), "|....|");
}

TEST(ProgressDisplay, ALineFitsTheTerminal) {
  train::TrainProgress progress;
  progress.epoch = 1, progress.epochs = 5, progress.step = 50, progress.steps = 100, progress.rows = 2457600;
  progress.rows_per_second = 1.5e6, progress.loss = 0.125, progress.wait_fraction = 0.011,
  progress.seconds_left = 61;
  EXPECT_EQ(format_progress(progress, 0),
            "epoch 2/5 step 50/100  2,457,600 rows  1.50M rows/s  loss 0.125  waiting 1.1 %  1m01s left");
  const std::string wide = format_progress(progress, 160);
  EXPECT_EQ(wide.substr(0, 39), "|#########.....................|  30 % ");
  for (int columns : {20, 80, 100, 120}) EXPECT_LT(format_progress(progress, columns).size(), columns);
}

}  // namespace
}  // namespace millstream::cli
