// Properties of the schedule over random shapes: every row exactly once, exact batch sizes, fair shares, and
// the bounds against brute-force sorting.

#include "loader/schedule.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/philox.h"

namespace millstream::loader {
namespace {

struct Shape {
  std::vector<int64_t> counts;
  ScheduleConfig config;
};

Shape random_shape(std::mt19937_64& random) {
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Shape shape;
  shape.counts.resize(between(0, 40));
  const int64_t largest = between(1, 300);
  for (int64_t& count : shape.counts) count = between(0, 3) == 0 ? 0 : between(0, largest);
  shape.config.seed = random();
  shape.config.epoch = between(0, 5);
  shape.config.shuffle = between(0, 4) == 0 ? Shuffle::kNone : Shuffle::kWindow;
  shape.config.lanes = static_cast<int>(between(1, 20));
  shape.config.window = between(1, 3000);
  shape.config.batch_size = between(1, 400);
  return shape;
}

// The epoch's global order by sorting, as (lane, row of the lane).
std::vector<std::pair<int, int64_t>> sorted_order(const PassSchedule& schedule) {
  std::vector<std::pair<int, int64_t>> order;
  for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
    for (int64_t j = 0; j < schedule.lanes()[lane].rows; ++j) order.push_back({lane, j});
  }
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    const int64_t left = (2 * a.second + 1) * schedule.lanes()[b.first].rows;
    const int64_t right = (2 * b.second + 1) * schedule.lanes()[a.first].rows;
    return left != right ? left < right : a.first < b.first;
  });
  return order;
}

TEST(ScheduleTest, BoundsAgreeWithSorting) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const Shape shape = random_shape(random);
    const PassSchedule schedule(shape.counts, shape.config);
    const auto order = sorted_order(schedule);
    ASSERT_EQ(static_cast<int64_t>(order.size()), schedule.rows());
    std::vector<int64_t> expected(schedule.lanes().size(), 0);
    for (int64_t first = 0; first <= schedule.rows(); ++first) {
      ASSERT_EQ(schedule.bounds(first), expected) << "round " << round << ", first " << first;
      if (first < schedule.rows()) ++expected[order[first].first];
    }
  }
}

TEST(ScheduleTest, EveryRowOnceWithExactBatchesAndFairShares) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    const Shape shape = random_shape(random);
    const PassSchedule schedule(shape.counts, shape.config);
    const int64_t total = std::accumulate(shape.counts.begin(), shape.counts.end(), int64_t{0});
    ASSERT_EQ(schedule.rows(), total);

    // Lanes hold each entry point with rows once.
    std::set<int> entry_points;
    int64_t largest = 0;
    for (const int64_t count : shape.counts) largest = std::max(largest, count);
    int64_t least = total, most = 0;
    for (const Lane& lane : schedule.lanes()) {
      int64_t rows = 0;
      for (const int entry_point : lane.entry_points) {
        ASSERT_TRUE(entry_points.insert(entry_point).second);
        ASSERT_GT(shape.counts[entry_point], 0);
        rows += shape.counts[entry_point];
      }
      ASSERT_EQ(rows, lane.rows);
      least = std::min(least, rows);
      most = std::max(most, rows);
    }
    ASSERT_EQ(static_cast<int64_t>(entry_points.size()),
              std::count_if(shape.counts.begin(), shape.counts.end(), [](int64_t c) { return c > 0; }));
    ASSERT_LE(most - least, largest);

    // Segments cover each batch without gap and each lane in order.
    std::vector<int64_t> lane_rows(schedule.lanes().size(), 0);
    const int trainers = 1 + static_cast<int>(random() % 7);
    for (int64_t batch = 0; batch < schedule.num_batches(); ++batch) {
      const int64_t rows = schedule.batch_rows(batch);
      if (batch + 1 < schedule.num_batches()) {
        ASSERT_EQ(rows, shape.config.batch_size);
      }
      ASSERT_GT(rows, 0);
      int64_t offset = 0;
      for (const LaneSegment& segment : schedule.segments(batch)) {
        ASSERT_EQ(segment.offset, offset);
        ASSERT_EQ(segment.lane_row, lane_rows[segment.lane]);
        lane_rows[segment.lane] += segment.rows;
        offset += segment.rows;
      }
      ASSERT_EQ(offset, rows);
      int64_t next = 0;
      for (int trainer = 0; trainer < trainers; ++trainer) {
        const RowRange share = trainer_share(rows, trainer, trainers);
        ASSERT_EQ(share.begin, next);
        ASSERT_GE(share.rows(), rows / trainers);
        ASSERT_LE(share.rows(), largest_share(rows, trainers));
        next = share.end;
      }
      ASSERT_EQ(next, rows);
    }
    for (size_t lane = 0; lane < lane_rows.size(); ++lane)
      ASSERT_EQ(lane_rows[lane], schedule.lanes()[lane].rows);

    // Windows cover each lane and their permutations are permutations.
    for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
      int64_t next = 0;
      std::vector<int32_t> permutation;
      for (int64_t window = 0; next < schedule.lanes()[lane].rows; ++window) {
        const RowRange range = schedule.window_range(lane, window);
        ASSERT_EQ(range.begin, next);
        ASSERT_GT(range.rows(), 0);
        schedule.window_permutation(lane, window, &permutation);
        if (shape.config.shuffle == Shuffle::kWindow) {
          ASSERT_EQ(static_cast<int64_t>(permutation.size()), range.rows());
          std::sort(permutation.begin(), permutation.end());
          for (size_t i = 0; i < permutation.size(); ++i) ASSERT_EQ(permutation[i], static_cast<int32_t>(i));
        }
        next = range.end;
      }
    }
  }
}

TEST(ScheduleTest, LanesAreTheLeastOfConfigEntryPointsAndBatch) {
  const std::vector<int64_t> counts = {10, 0, 10, 10, 0, 10};
  ScheduleConfig config;
  EXPECT_EQ(PassSchedule(counts, config).lanes().size(), 4u);
  config.lanes = 3;
  EXPECT_EQ(PassSchedule(counts, config).lanes().size(), 3u);
  config.batch_size = 2;
  EXPECT_EQ(PassSchedule(counts, config).lanes().size(), 2u);
  config.shuffle = Shuffle::kNone;
  const PassSchedule none(counts, config);
  ASSERT_EQ(none.lanes().size(), 1u);
  EXPECT_EQ(none.lanes()[0].entry_points, (std::vector<int>{0, 2, 3, 5}));
}

TEST(ScheduleTest, FirstWindowsAreStaggered) {
  ScheduleConfig config;
  config.window = 400;
  config.lanes = 4;
  config.batch_size = 64;
  const PassSchedule schedule({1000, 1000, 1000, 1000}, config);
  for (int lane = 0; lane < 4; ++lane) {
    EXPECT_EQ(schedule.window_range(lane, 0).rows(), 25 * (lane + 1));
    EXPECT_EQ(schedule.window_range(lane, 1).begin, 25 * (lane + 1));
    EXPECT_EQ(schedule.window_range(lane, 1).rows(), 100);
  }
}

TEST(ScheduleTest, EpochsAndSeedsDiffer) {
  const std::vector<int64_t> counts(30, 100);
  ScheduleConfig config;
  config.lanes = 5;
  const PassSchedule first(counts, config);
  config.epoch = 1;
  const PassSchedule second(counts, config);
  EXPECT_NE(first.lanes()[0].entry_points, second.lanes()[0].entry_points);
  std::vector<int32_t> a, b, c;
  first.window_permutation(0, 0, &a);
  second.window_permutation(0, 0, &b);
  EXPECT_NE(a, b);
  first.window_permutation(0, 0, &c);
  EXPECT_EQ(a, c);
}

TEST(ScheduleTest, NumbersNearTheLimitsOfSixtyFourBits) {
  // 2^40 rows in lanes of very different sizes: the products need 128 bits.
  ScheduleConfig config;
  config.batch_size = int64_t{1} << 22;
  const std::vector<int64_t> counts = {int64_t{1} << 40, (int64_t{1} << 39) + 1, 1, 12345678901};
  const PassSchedule schedule(counts, config);
  int64_t rows = 0;
  for (const int64_t batch : {int64_t{0}, schedule.num_batches() / 2, schedule.num_batches() - 1}) {
    for (const LaneSegment& segment : schedule.segments(batch)) rows += segment.rows;
    rows -= schedule.batch_rows(batch);
  }
  EXPECT_EQ(rows, 0);
  const auto all = schedule.bounds(schedule.rows());
  for (size_t lane = 0; lane < all.size(); ++lane) EXPECT_EQ(all[lane], schedule.lanes()[lane].rows);
}

// The permutation is Fisher and Yates's on the halves of the stream's numbers, low before high, each draw bounded by
// Lemire's method: made several blocks at a time it must be the same.
TEST(ScheduleTest, PermutationsAreThoseOfTheStream) {
  for (const int64_t window : {1, 2, 3, 50, 127, 128, 129, 1000, 70000}) {
    const ScheduleConfig config{.seed = 0x123456789ABCDEFu, .epoch = 7, .lanes = 2, .window = 2 * window};
    const PassSchedule schedule({3 * window, 3 * window}, config);
    for (int lane = 0; lane < 2; ++lane) {
      for (int64_t number = 0; schedule.window_range(lane, number).rows() > 0; ++number) {
        const auto rows = static_cast<uint32_t>(schedule.window_range(lane, number).rows());
        std::vector<int32_t> wanted(rows), got;
        std::iota(wanted.begin(), wanted.end(), 0);
        PhiloxStream random(config.seed, 7, static_cast<uint32_t>(lane), static_cast<uint32_t>(number));
        std::vector<uint32_t> words;
        size_t used = 0;
        const auto draw = [&] {
          if (used == words.size()) {
            const uint64_t two = random.next();
            words.push_back(static_cast<uint32_t>(two));
            words.push_back(static_cast<uint32_t>(two >> 32));
          }
          return words[used++];
        };
        for (uint32_t i = rows; i > 1; --i) {
          uint64_t product = uint64_t{draw()} * i;
          while (static_cast<uint32_t>(product) < -i % i) product = uint64_t{draw()} * i;
          std::swap(wanted[i - 1], wanted[product >> 32]);
        }
        schedule.window_permutation(lane, number, &got);
        ASSERT_EQ(got, wanted) << "window " << number << " of " << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace millstream::loader
