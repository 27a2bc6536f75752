#include "loader/schedule.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "base/philox.h"

namespace millstream::loader {
namespace {

// Streams of Philox are named by (epoch, lane, window); this one is no lane.
constexpr uint32_t kEntryPointPermutation = 0x80000001u;

using Wide = unsigned __int128;

// Where row j of a lane of n rows stands: (2j + 1) / (2n), as a fraction to compare exactly.
struct MergeKey {
  int64_t numerator = 0;    // 2j + 1
  int64_t denominator = 1;  // n
  int lane = 0;
  bool operator<(const MergeKey& other) const {
    const Wide mine = Wide(static_cast<uint64_t>(numerator)) * static_cast<uint64_t>(other.denominator);
    const Wide its = Wide(static_cast<uint64_t>(other.numerator)) * static_cast<uint64_t>(denominator);
    return mine != its ? mine < its : lane < other.lane;
  }
  bool operator>(const MergeKey& other) const { return other < *this; }
};

// The 32-bit numbers of PhiloxStream(seed, a, b, c).next(), the low half of each before the high one. Several blocks
// are made at a time, in vector registers.
class PhiloxWords {
 public:
  PhiloxWords(uint64_t seed, uint32_t a, uint32_t b, uint32_t c)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, name_{a, b, c} {}
  uint32_t next() {
    if (used_ == kWords) refill();
    return words_[used_++];
  }

 private:
  static constexpr int kBlocks = 32;
  static constexpr int kWords = 4 * kBlocks;
  void refill() {
    uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      c0[i] = counter_ + static_cast<uint32_t>(i);
      c1[i] = name_[0];
      c2[i] = name_[1];
      c3[i] = name_[2];
    }
    counter_ += kBlocks;
    uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < kBlocks; ++i) {
        const uint64_t a = uint64_t{0xD2511F53u} * c0[i];
        const uint64_t b = uint64_t{0xCD9E8D57u} * c2[i];
        c0[i] = static_cast<uint32_t>(b >> 32) ^ c1[i] ^ k0;
        c2[i] = static_cast<uint32_t>(a >> 32) ^ c3[i] ^ k1;
        c1[i] = static_cast<uint32_t>(b);
        c3[i] = static_cast<uint32_t>(a);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < kBlocks; ++i) {
      words_[4 * i] = c0[i];
      words_[4 * i + 1] = c1[i];
      words_[4 * i + 2] = c2[i];
      words_[4 * i + 3] = c3[i];
    }
    used_ = 0;
  }
  const std::array<uint32_t, 2> key_;
  const std::array<uint32_t, 3> name_;
  uint32_t counter_ = 0;
  int used_ = kWords;
  std::array<uint32_t, kWords> words_;
};

}  // namespace

int64_t window_rows_per_lane(const ScheduleConfig& config, int lanes) {
  return std::max<int64_t>(1, config.window / std::max(1, lanes));
}

PassSchedule::PassSchedule(const std::vector<int64_t>& counts, const ScheduleConfig& config)
    : config_(config) {
  MILLSTREAM_CHECK(config.batch_size > 0 && config.lanes > 0 && config.window > 0);
  std::vector<int> order;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) order.push_back(static_cast<int>(i));
    rows_ += counts[i];
  }
  num_batches_ = (rows_ + config.batch_size - 1) / config.batch_size;

  if (config.shuffle != Shuffle::kWindow) {
    lanes_.resize(1);
    lanes_[0] = {order, rows_};
    return;
  }
  PhiloxStream random(config.seed, static_cast<uint32_t>(config.epoch), kEntryPointPermutation, 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);

  const auto num_lanes =
      std::min({static_cast<int64_t>(config.lanes), static_cast<int64_t>(order.size()), config.batch_size});
  lanes_.resize(std::max<int64_t>(1, num_lanes));
  using Load = std::pair<int64_t, int>;  // rows, lane
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) least.push({0, lane});
  for (const int entry_point : order) {
    const int lane = least.top().second;
    least.pop();
    lanes_[lane].entry_points.push_back(entry_point);
    lanes_[lane].rows += counts[entry_point];
    least.push({lanes_[lane].rows, lane});
  }
  lane_window_ = window_rows_per_lane(config, static_cast<int>(lanes_.size()));
}

int64_t PassSchedule::batch_rows(int64_t batch) const {
  return std::min(config_.batch_size, rows_ - batch * config_.batch_size);
}

std::vector<int64_t> PassSchedule::bounds(int64_t first_rows) const {
  const int num_lanes = static_cast<int>(lanes_.size());
  std::vector<int64_t> counts(num_lanes, 0);
  if (rows_ == 0) return counts;
  // Row j is among the first R of N where (j + 1/2) / n < R / N, so a lane has about n R / N - 1/2 of them;
  // what the rounding is off by, at most half the lanes, is put right row by row.
  int64_t total = 0;
  for (int lane = 0; lane < num_lanes; ++lane) {
    const int64_t n = lanes_[lane].rows;
    const __int128 numerator = __int128{2} * n * first_rows - rows_;
    const __int128 denominator = __int128{2} * rows_;
    const __int128 ceiling = numerator <= 0 ? 0 : (numerator + denominator - 1) / denominator;
    counts[lane] = static_cast<int64_t>(std::min<__int128>(ceiling, n));
    total += counts[lane];
  }
  if (total < first_rows) {
    std::priority_queue<MergeKey, std::vector<MergeKey>, std::greater<>> next;
    for (int lane = 0; lane < num_lanes; ++lane) {
      if (counts[lane] < lanes_[lane].rows) next.push({2 * counts[lane] + 1, lanes_[lane].rows, lane});
    }
    for (; total < first_rows; ++total) {
      const int lane = next.top().lane;
      next.pop();
      if (++counts[lane] < lanes_[lane].rows) next.push({2 * counts[lane] + 1, lanes_[lane].rows, lane});
    }
  } else if (total > first_rows) {
    std::priority_queue<MergeKey> last;
    for (int lane = 0; lane < num_lanes; ++lane) {
      if (counts[lane] > 0) last.push({2 * counts[lane] - 1, lanes_[lane].rows, lane});
    }
    for (; total > first_rows; --total) {
      const int lane = last.top().lane;
      last.pop();
      if (--counts[lane] > 0) last.push({2 * counts[lane] - 1, lanes_[lane].rows, lane});
    }
  }
  return counts;
}

std::vector<LaneSegment> PassSchedule::segments(int64_t batch) const {
  const std::vector<int64_t> begin = bounds(batch * config_.batch_size);
  const std::vector<int64_t> end = bounds(batch * config_.batch_size + batch_rows(batch));
  const int num_lanes = static_cast<int>(lanes_.size());
  std::vector<LaneSegment> segments;
  segments.reserve(num_lanes);
  int64_t offset = 0;
  for (int i = 0; i < num_lanes; ++i) {
    const int lane = static_cast<int>((batch + i) % num_lanes);
    const int64_t rows = end[lane] - begin[lane];
    if (rows > 0) segments.push_back({lane, offset, rows, begin[lane]});
    offset += rows;
  }
  return segments;
}

RowRange PassSchedule::window_range(int lane, int64_t window) const {
  const int64_t rows = lanes_[lane].rows;
  if (config_.shuffle != Shuffle::kWindow) return window == 0 ? RowRange{0, rows} : RowRange{rows, rows};
  const int64_t num_lanes = static_cast<int64_t>(lanes_.size());
  // The first windows have staggered lengths, so that lanes do not all refill at once.
  const int64_t first = std::max<int64_t>(1, lane_window_ * (lane + 1) / num_lanes);
  if (window == 0) return {0, std::min(first, rows)};
  const int64_t begin = std::min(rows, first + (window - 1) * lane_window_);
  return {begin, std::min(rows, begin + lane_window_)};
}

void PassSchedule::window_permutation(int lane, int64_t window, std::vector<int32_t>* permutation) const {
  permutation->clear();
  if (config_.shuffle != Shuffle::kWindow) return;
  const RowRange range = window_range(lane, window);
  MILLSTREAM_CHECK(range.rows() < (int64_t{1} << 31));
  const auto rows = static_cast<uint32_t>(range.rows());
  permutation->resize(rows);
  std::iota(permutation->begin(), permutation->end(), 0);
  // Lemire's bounded draw on 32-bit numbers: windows are short of 2^32 rows.
  PhiloxWords words(config_.seed, static_cast<uint32_t>(config_.epoch), static_cast<uint32_t>(lane),
                    static_cast<uint32_t>(window));
  int32_t* const p = permutation->data();
  for (uint32_t i = rows; i > 1; --i) {
    uint64_t product = uint64_t{words.next()} * i;
    if (static_cast<uint32_t>(product) < i) {
      const uint32_t threshold = -i % i;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{words.next()} * i;
    }
    std::swap(p[i - 1], p[product >> 32]);
  }
}

RowRange trainer_share(int64_t rows, int trainer, int trainers) {
  const auto bound = [&](int64_t t) { return static_cast<int64_t>(__int128{t} * rows / trainers); };
  return {bound(trainer), bound(trainer + 1)};
}

int64_t largest_share(int64_t rows, int trainers) {
  return (rows + trainers - 1) / trainers;
}

}  // namespace millstream::loader
