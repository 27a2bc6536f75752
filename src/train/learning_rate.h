#pragma once
// The learning rate of each step of the optimizer: a function of the recipe and the step's number alone.

#include <cstdint>

#include "train/config.h"

namespace millstream::train {

/// With W = warmup_steps, S steps in all, r = learning_rate and e = learning_rate_end:
///   step k < W       r·(k+1)/W
///   constant         r
///   linear           r + (e−r)·t           t = (k−W)/(S−W)
///   cosine           e + (r−e)·(1+cos πt)/2   (Loshchilov and Hutter, "SGDR", 2017; torch's CosineAnnealingLR)
///   step             r·decay_factor^⌊epoch/decay_every⌋   (torch's StepLR by epochs)
class LearningRate {
 public:
  LearningRate(const TrainConfig& config, int64_t steps_per_epoch)
      : config_(config), steps_per_epoch_(steps_per_epoch) {}
  /// `step` counts the optimizer's steps of the whole run from 0.
  double at(int64_t step) const;

 private:
  TrainConfig config_;
  int64_t steps_per_epoch_;
};

}  // namespace millstream::train
