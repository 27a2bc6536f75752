#include "comm/watchdog.h"

#include <algorithm>

#include <fmt/format.h>

namespace millstream::comm {
namespace {

std::string name_rank(const RankSign& sign) {
  return fmt::format("rank {} (host {}, pid {})", sign.rank, sign.host, sign.pid);
}

std::string name_ranks(const std::vector<const RankSign*>& ranks) {
  constexpr size_t kMaxNamed = 8;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < kMaxNamed; ++i) {
    if (i) text += i + 1 == ranks.size() ? " and " : ", ";
    text += name_rank(*ranks[i]);
  }
  if (ranks.size() > kMaxNamed) text += fmt::format(" and {} more", ranks.size() - kMaxNamed);
  return text;
}

std::string in_phase(const std::string& phase) {
  return phase.empty() ? "" : fmt::format(" during {}", phase);
}

}  // namespace

std::optional<Verdict> WatchdogJudge::observe(double now_s, const std::vector<RankSign>& signs) {
  if (last_now_ >= 0) clock_ += std::clamp(now_s - last_now_, 0.0, 1.0);
  const bool first = last_now_ < 0;
  last_now_ = now_s;
  bool progress = first || seen_.size() != signs.size(), somebody_waits = false;
  if (seen_.size() != signs.size()) {
    seen_.resize(signs.size());
    for (auto& seen : seen_) seen.alive_at = clock_;
  }
  std::vector<const RankSign*> lost, busy, waiting;
  for (size_t i = 0; i < signs.size(); ++i) {
    const RankSign& sign = signs[i];
    Seen& seen = seen_[i];
    if (sign.heartbeat != seen.heartbeat || sign.left) seen.alive_at = clock_;
    if (sign.beats != seen.beats) progress = true;
    seen.heartbeat = sign.heartbeat;
    seen.beats = sign.beats;
    if (sign.left) continue;
    if (clock_ - seen.alive_at >= deadline_s_) lost.push_back(&sign);
    somebody_waits |= sign.waiting;
    (sign.waiting ? waiting : busy).push_back(&sign);
  }
  // A long computation that nobody waits for is not a hang.
  if (progress || !somebody_waits) progress_at_ = clock_;

  Verdict verdict;
  auto fill = [&](Verdict::Kind kind, const std::vector<const RankSign*>& ranks) {
    verdict.kind = kind;
    for (const RankSign* sign : ranks) verdict.ranks.push_back(sign->rank);
  };
  if (!lost.empty()) {
    // The phase of the lost rank is the last it showed.
    fill(Verdict::Kind::kLost, lost);
    verdict.message =
        fmt::format("{} {} shown no sign of life for {:g} s{}; the job is ended", name_ranks(lost),
                    lost.size() == 1 ? "has" : "have", deadline_s_, in_phase(lost[0]->phase));
    return verdict;
  }
  if (clock_ - progress_at_ < deadline_s_) return std::nullopt;
  if (busy.empty()) {
    fill(Verdict::Kind::kStalled, waiting);
    verdict.message = fmt::format(
        "nothing has made progress for {:g} s{}: all ranks wait for one another ({}); the job is ended",
        deadline_s_, in_phase(waiting[0]->phase), name_ranks(waiting));
  } else {
    fill(Verdict::Kind::kStalled, busy);
    verdict.message =
        fmt::format("nothing has made progress for {:g} s{}: {} {} waited for; the job is ended", deadline_s_,
                    in_phase(busy[0]->phase), name_ranks(busy), busy.size() == 1 ? "is" : "are");
  }
  return verdict;
}

}  // namespace millstream::comm
