#pragma once
// Layers whose result depends on the whole batch, or on where a row stands in it: normalisation and dropout, the same
// for every number of trainers.

#include <cstdint>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace millstream::train {

/// Batch normalisation of [rows, width] as torch.nn.BatchNorm1d has it (eps 1e-5, momentum 0.1), by the mean and
/// variance of all rows of all trainers of `group` (null: of these): trainers with fewer rows count less, one with none
/// takes part. Differentiable; forward and backward are then collective over the group. Updates the running mean and
/// variance, but for a batch without rows.
at::Tensor batch_norm_of_batch(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               at::Tensor running_mean, at::Tensor running_variance,
                               c10d::ProcessGroup* group);
/// The same by the running mean and variance, as a trained model has it.
at::Tensor batch_norm_by_running(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 const at::Tensor& running_mean, const at::Tensor& running_variance);

/// x with each value 0 with the probability `rate`, else divided by 1 − rate. The draw belongs to (seed, step, layer,
/// row of the global batch, column), whichever trainer has the row: Philox4x32-10.
at::Tensor dropout(const at::Tensor& x, double rate, uint64_t seed, uint64_t step, uint32_t layer,
                   int64_t first_row);

}  // namespace millstream::train
