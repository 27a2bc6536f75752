#include "loader/bottleneck.h"

#include <gtest/gtest.h>

namespace millstream::loader {
namespace {

RankAccount trainer(double waiting, double reducing = 0) {
  RankAccount rank;
  rank.loader.seconds_waiting = waiting;
  rank.trained = true;
  rank.seconds_training = 10;
  rank.seconds_reducing = reducing;
  return rank;
}

RankAccount feeder(double reading, double computing, double sending, double for_room, int threads = 1) {
  RankAccount rank;
  rank.loader.seconds_reading = reading;
  rank.loader.seconds_computing = computing;
  rank.loader.seconds_sending = sending;
  rank.loader.seconds_for_room = for_room;
  rank.feeding_threads = threads;
  return rank;
}

const RunFacts kFacts{.epochs = 5, .batch_size = 1024, .sources = 64, .cache = Cache::kMemory};

TEST(BottleneckTest, TrainersThatHardlyWait) {
  EXPECT_EQ(describe_bottleneck({trainer(0.1), feeder(1, 1, 1, 7)}, kFacts),
            "the trainers: they waited for data 1.0 % of the time");
  EXPECT_EQ(describe_bottleneck({trainer(0.2, 3), trainer(0, 3), feeder(1, 1, 1, 7)}, kFacts),
            "the trainers: they waited for data 1.0 % of the time, and 30 % of it went to averaging "
            "gradients; a larger "
            "loader.batch_size (it is 1024) averages less often");
}

TEST(BottleneckTest, FeedersAndWhatWouldHelp) {
  const std::string head =
      "the feeders: trainers waited for data 50.0 % of the time; the busiest feeder is rank ";
  EXPECT_EQ(describe_bottleneck({trainer(5), feeder(1, 8, 1, 0)}, kFacts),
            head +
                "1, most of it computing features; more ranks or threads that feed (--ranks, --threads) "
                "would help");
  RunFacts facts = kFacts;
  facts.cache = Cache::kNone;
  EXPECT_EQ(describe_bottleneck({trainer(5), feeder(1, 1, 1, 0), feeder(8, 1, 1, 0)}, facts),
            head + "2, most of it reading; loader.cache = \"disk\" would read the files once");
  facts.sources = 2;
  EXPECT_EQ(describe_bottleneck({trainer(5), feeder(8, 1, 1, 0, 3)}, facts),
            head +
                "1, most of it reading; only 2 of 3 feeding threads have rows to read: more loader.lanes, or "
                "files of "
                "more row groups, would occupy the others");
  EXPECT_EQ(describe_bottleneck({trainer(5), feeder(1, 1, 2, 6)}, kFacts),
            head +
                "1, most of it sending, but it waited for room too: a larger loader.prefetch would bridge "
                "the gaps");
}

// A rank of many threads is not the slowest for having the largest sum.
TEST(BottleneckTest, BusiestByThread) {
  EXPECT_NE(
      describe_bottleneck({trainer(5), feeder(8, 0, 0, 0, 8), feeder(3, 0, 0, 0)}, kFacts).find("rank 2"),
      std::string::npos);
}

}  // namespace
}  // namespace millstream::loader
