// The watchdog's decision, with made-up clocks and signs.

#include "comm/watchdog.h"

#include <gtest/gtest.h>

namespace millstream::comm {
namespace {

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() {
    for (int rank = 0; rank < 3; ++rank) {
      RankSign sign;
      sign.rank = rank;
      sign.host = "h";
      sign.pid = 100 + rank;
      sign.phase = "training";
      signs_.push_back(sign);
    }
  }
  /// A quarter of a second goes by, with heartbeats of all but `silent`.
  std::optional<Verdict> tick(int silent = -1) {
    now_ += 0.25;
    for (auto& sign : signs_) sign.heartbeat += sign.rank != silent;
    return judge_.observe(now_, signs_);
  }
  WatchdogJudge judge_{5};
  double now_ = 1000;
  std::vector<RankSign> signs_;
};

TEST_F(WatchdogTest, NobodyWaitsNobodyBeats) {
  // A long computation: alive, no progress to show, and nobody waits for it.
  for (int i = 0; i < 400; ++i) ASSERT_FALSE(tick());
}

TEST_F(WatchdogTest, OneComputesOthersWaitButBeatsCome) {
  signs_[0].waiting = signs_[1].waiting = true;
  for (int i = 0; i < 400; ++i) {
    if (i % 16 == 0) ++signs_[2].beats;
    ASSERT_FALSE(tick()) << i;
  }
}

TEST_F(WatchdogTest, LostRank) {
  signs_[0].waiting = true;
  int ticks = 0;
  std::optional<Verdict> verdict;
  while (!(verdict = tick(2)) && ticks < 100) {
    ++signs_[1].beats;
    ++ticks;
  }
  ASSERT_TRUE(verdict);
  EXPECT_NEAR(ticks * 0.25, 5, 0.5);
  EXPECT_EQ(verdict->kind, Verdict::Kind::kLost);
  EXPECT_EQ(verdict->ranks, std::vector<int>{2});
  EXPECT_EQ(verdict->message,
            "rank 2 (host h, pid 102) has shown no sign of life for 5 s during training; the job is ended");
}

TEST_F(WatchdogTest, LostRanksAreAllNamed) {
  std::optional<Verdict> verdict;
  for (int i = 0; i < 100 && !verdict; ++i) {
    now_ += 0.25;
    ++signs_[1].heartbeat;
    verdict = judge_.observe(now_, signs_);
  }
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->ranks, (std::vector<int>{0, 2}));
  EXPECT_NE(verdict->message.find("rank 0 (host h, pid 100) and rank 2 (host h, pid 102) have shown"),
            std::string::npos);
}

TEST_F(WatchdogTest, RanksThatHaveLeftAreNotMissed) {
  signs_[2].left = true;
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(tick(2));
}

TEST_F(WatchdogTest, StalledNamesWhoIsWaitedFor) {
  signs_[0].waiting = signs_[2].waiting = true;
  std::optional<Verdict> verdict;
  int ticks = 0;
  while (!(verdict = tick()) && ticks < 100) ++ticks;
  ASSERT_TRUE(verdict);
  EXPECT_NEAR(ticks * 0.25, 5, 0.5);
  EXPECT_EQ(verdict->kind, Verdict::Kind::kStalled);
  EXPECT_EQ(verdict->ranks, std::vector<int>{1});
  EXPECT_EQ(verdict->message,
            "nothing has made progress for 5 s during training: rank 1 (host h, pid 101) is waited for; the "
            "job is ended");
}

TEST_F(WatchdogTest, StalledWhereAllWait) {
  for (auto& sign : signs_) sign.waiting = true;
  std::optional<Verdict> verdict;
  for (int i = 0; i < 100 && !verdict; ++i) verdict = tick();
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->ranks.size(), 3u);
  EXPECT_NE(verdict->message.find("all ranks wait for one another"), std::string::npos);
}

TEST_F(WatchdogTest, ASuspendedJobIsNotLost) {
  // ^Z of everything, minutes later fg: this process saw none of that time, nor did the others.
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(tick());
  now_ += 600;
  ASSERT_FALSE(judge_.observe(now_, signs_));
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(tick());
}

TEST_F(WatchdogTest, AWaitThatEndsStartsTheClockAnew) {
  for (int round = 0; round < 10; ++round) {
    signs_[0].waiting = true;
    for (int i = 0; i < 15; ++i) ASSERT_FALSE(tick());
    signs_[0].waiting = false;
    ASSERT_FALSE(tick());
  }
}

}  // namespace
}  // namespace millstream::comm
