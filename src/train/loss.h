#pragma once
// What is minimised, and what a model's outputs mean.
//
//   loss            task            outputs               targets
//   mse mae huber   regression      the value             any number
//   bce             binary          the logit             0 or 1
//   cross_entropy   classes         a logit a class       0 … classes−1

#include <string>

#include <ATen/ATen.h>

#include "base/status.h"
#include "train/config.h"
#include "train/metrics.h"

namespace millstream::train {

/// The sum over the rows (the caller divides by those of the whole batch) of torch's mse_loss, l1_loss, huber_loss,
/// binary_cross_entropy_with_logits or cross_entropy. `outputs` is [rows], with classes [rows, classes]; `target` is
/// [rows] in the model's type. `weights`, [rows] in the same type, multiply the rows' losses; undefined: all 1.
at::Tensor summed_loss(const TrainConfig& config, const at::Tensor& outputs, const at::Tensor& target,
                       const at::Tensor& weights = {});

/// Targets that the loss can't take are data errors that name `column` and the value.
Status check_targets(Task task, int64_t classes, const std::string& column, const float* target, int64_t rows,
                     int64_t stride);

}  // namespace millstream::train
