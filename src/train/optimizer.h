#pragma once
// Adam, AdamW and SGD, by torch's formulas: the fused kernels that Python's `fused=True` runs.

#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "base/status.h"
#include "train/config.h"
#include "train/model.h"

namespace millstream::train {

/// Used by the thread that trains. step() reads each parameter's .grad() and throws c10::Error where one is
/// missing.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step() = 0;
  /// Of the steps from now on.
  virtual void set_learning_rate(double rate) = 0;
  /// The state beside the parameters ("exp_avg.layers.0.weight"), views that can be read and written.
  virtual std::vector<NamedTensor> state() const = 0;
};

/// Scales the gradients so that the norm of all of them together is at most `most`, as torch's clip_grad_norm_.
void clip_gradients(const std::vector<at::Tensor>& parameters, double most);

/// Adam and AdamW have torch's defaults betas (0.9, 0.999) and eps 1e-8; SGD has no dampening and no
/// Nesterov.
Result<std::unique_ptr<Optimizer>> make_optimizer(const TrainConfig& config,
                                                  const std::vector<NamedTensor>& parameters);

}  // namespace millstream::train
