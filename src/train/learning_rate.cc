#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millstream::train {

double LearningRate::at(int64_t step) const {
  const double rate = config_.learning_rate, end = config_.learning_rate_end;
  const int64_t warmup = config_.warmup_steps;
  if (step < warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (config_.schedule == "step") {
    const int64_t epoch = step / std::max<int64_t>(1, steps_per_epoch_);
    return rate * std::pow(config_.decay_factor, static_cast<double>(epoch / config_.decay_every));
  }
  const int64_t all = config_.epochs * steps_per_epoch_;
  const double part =
      all > warmup ? static_cast<double>(step - warmup) / static_cast<double>(all - warmup) : 0;
  if (config_.schedule == "linear") return rate + (end - rate) * part;
  if (config_.schedule == "cosine") return end + (rate - end) * (1 + std::cos(std::numbers::pi * part)) / 2;
  return rate;
}

}  // namespace millstream::train
