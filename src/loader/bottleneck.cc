#include "loader/bottleneck.h"

#include <algorithm>

#include <fmt/format.h>

namespace millstream::loader {
namespace {

constexpr double kHardlyWaiting = 0.05;
constexpr double kMuchReducing = 0.2;
constexpr double kOftenFull =
    0.3;  // of a feeder's time, waiting for room: it is fast enough, but not at the right time

double busy(const LoaderCounters& c) {
  return c.seconds_reading + c.seconds_computing + c.seconds_sending;
}

}  // namespace

std::string describe_bottleneck(const std::vector<RankAccount>& ranks, const RunFacts& facts) {
  double waiting = 0, reducing = 0, training = 0;
  int trainers = 0, streams = 0, busiest = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankAccount& rank = ranks[i];
    streams += rank.feeding_threads;
    // By thread: a rank of many is not the slowest for being the largest.
    const auto per_thread = [](const RankAccount& r) {
      return busy(r.loader) / static_cast<double>(std::max(1, r.feeding_threads));
    };
    if (per_thread(rank) > per_thread(ranks[static_cast<size_t>(busiest)])) busiest = static_cast<int>(i);
    if (!rank.trained) continue;
    ++trainers;
    waiting += rank.loader.seconds_waiting;
    reducing += rank.seconds_reducing;
    training += rank.seconds_training;
  }
  const double wait_share = training > 0 ? waiting / training : 0;
  const double reduce_share = training > 0 ? reducing / training : 0;
  const std::string waited = fmt::format("they waited for data {:.1f} % of the time", 100 * wait_share);
  if (wait_share < kHardlyWaiting) {
    if (trainers > 1 && reduce_share >= kMuchReducing) {
      return fmt::format(
          "the trainers: {}, and {:.0f} % of it went to averaging gradients; a larger loader.batch_size (it "
          "is {}) "
          "averages less often",
          waited, 100 * reduce_share, facts.batch_size);
    }
    return fmt::format("the trainers: {}", waited);
  }
  const LoaderCounters& c = ranks[static_cast<size_t>(busiest)].loader;
  const double parts[] = {c.seconds_reading, c.seconds_computing, c.seconds_sending};
  const char* const names[] = {"reading", "computing features", "sending"};
  const auto most = std::max_element(std::begin(parts), std::end(parts)) - std::begin(parts);
  const std::string what = fmt::format(
      "the feeders: trainers waited for data {:.1f} % of the time; the busiest feeder is rank {}, most of it "
      "{}",
      100 * wait_share, busiest, names[most]);
  if (facts.sources > 0 && facts.sources < streams) {
    return fmt::format("{}; only {} of {} feeding threads have rows to read: {}", what, facts.sources,
                       streams,
                       facts.shuffle == Shuffle::kWindow
                           ? "more loader.lanes, or files of more row groups, would occupy the others"
                           : "files of more row groups would occupy the others");
  }
  if (most == 0 && facts.cache == Cache::kNone && facts.epochs > 1)
    return what + "; loader.cache = \"disk\" would read the files once";
  if (busy(c) > 0 && c.seconds_for_room > kOftenFull * (busy(c) + c.seconds_for_room))
    return what + ", but it waited for room too: a larger loader.prefetch would bridge the gaps";
  return what + "; more ranks or threads that feed (--ranks, --threads) would help";
}

}  // namespace millstream::loader
