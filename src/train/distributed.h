#pragma once
// DistributedDataParallel: replicas of a model on T trainers that see different rows of each global batch and
// keep equal weights. Gradients are reduced by libtorch's c10d::Reducer, in buckets while backward runs.
//
// 1. make() and backward() are collective over the group, in the same order. Parameters are compared over the
//    trainers and those of the group's rank 0 (buffers too) become everybody's.
// 2. The Reducer divides by T. So a trainer takes loss = (sum over its rows of the loss) · T / n, n being the
// rows of
//    the whole batch: gradients are then those of the mean over all n rows, whatever the shares. A trainer
//    with zero rows runs forward and backward like the others.
// 3. The buckets are fixed before the first step: make() runs a pass over an empty batch to learn the order
// in which
//    gradients come, so that a resumed run adds floats in the same order as one that was not interrupted.
// 4. Without a group (one trainer) there is no Reducer and no communication.

#include <memory>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "base/status.h"
#include "train/model.h"

namespace millstream::train {

struct DistributedOptions {
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;
};

/// Compares the parameters and buffers (names, types, shapes) over the group's ranks, a usage error where they differ,
/// and makes those of its rank 0 everybody's. Collective. Throws c10::Error.
Status make_models_equal(Model& model, c10d::ProcessGroup& group);

class DistributedDataParallel {
 public:
  /// `model` must outlive this. `group` is null for one trainer.
  static Result<std::unique_ptr<DistributedDataParallel>> make(Model& model,
                                                               c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                               const DistributedOptions& options = {});
  ~DistributedDataParallel();

  int trainers() const { return trainers_; }
  /// What the sum of the losses of this trainer's rows is multiplied with.
  double loss_scale(int64_t global_rows) const {
    return static_cast<double>(trainers_) / static_cast<double>(global_rows);
  }
  /// Backward pass of `loss` (scaled); gradients add up until clear_gradients(). With `reduce` they are those of all
  /// trainers when it returns, else this trainer's own: every trainer passes the same. Throws c10::Error.
  void backward(const at::Tensor& loss, bool reduce = true);
  /// Forgets the gradients.
  void clear_gradients();

 private:
  DistributedDataParallel(Model& model, c10::intrusive_ptr<c10d::ProcessGroup> group);
  Status start(const DistributedOptions& options);

  Model& model_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int trainers_ = 1;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace millstream::train
