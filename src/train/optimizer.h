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
  /// The state beside the parameters ("exp_avg.layers.0.weight"), views that can be read and written.
  virtual std::vector<NamedTensor> state() const = 0;
};

/// Adam and AdamW have torch's defaults betas (0.9, 0.999) and eps 1e-8; SGD has no dampening and no
/// Nesterov.
Result<std::unique_ptr<Optimizer>> make_optimizer(const TrainConfig& config,
                                                  const std::vector<NamedTensor>& parameters);

}  // namespace millstream::train
