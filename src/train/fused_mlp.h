#pragma once
// The mlp's training step without autograd: matrix products into memory that is kept from step to step, by the formulas
// that autograd uses. For small models the graph costs more than the arithmetic, for large batches fresh memory does.
//
// 1. For the kind "mlp" without embeddings, normalisation or dropout, with each of the losses; make() gives nothing for
//    others, which take DistributedDataParallel.
// 2. Rows are taken in chunks whose activations stay in the cache, the same for the same number of rows; a model whose
//    gradients are worth reducing while others are computed is taken whole.
// 3. Gradients lie in one piece of memory, the last layer's first, and the parameters' .grad() are views of it. They
//    are summed over the trainers in buckets as soon as a bucket is whole.
// 4. Used by the thread that trains. make() and gradients() with `reduce` are collective over the group. Throws
//    c10::Error.

#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "train/config.h"
#include "train/distributed.h"
#include "train/model.h"

namespace millstream::train {

class FusedMlp {
 public:
  /// `model` must outlive this. `group` is null for one trainer. Null for another kind of model.
  static Result<std::unique_ptr<FusedMlp>> make(Model& model, const ModelConfig& kind,
                                                const TrainConfig& config,
                                                c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                const DistributedOptions& options = {});
  virtual ~FusedMlp() = default;

  /// The sum of the losses of these rows: features [rows, inputs] and target [rows] in the model's type, weights [rows]
  /// that multiply the losses or undefined. Leaves in .grad() the gradients of that sum times `scale`, added to those that are there where `add`; with `reduce` summed
  /// over the trainers.
  virtual double gradients(const at::Tensor& features, const at::Tensor& target, const at::Tensor& weights,
                           double scale, bool add, bool reduce) = 0;
};

}  // namespace millstream::train
