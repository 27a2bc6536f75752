#include "train/loss.h"

namespace millstream::train {

at::Tensor summed_loss(const TrainConfig& config, const at::Tensor& outputs, const at::Tensor& target,
                       const at::Tensor& weights) {
  const auto reduction = weights.defined() ? at::Reduction::None : at::Reduction::Sum;
  at::Tensor loss;
  if (config.loss == "mae")
    loss = at::l1_loss(outputs, target, reduction);
  else if (config.loss == "huber")
    loss = at::huber_loss(outputs, target, reduction, config.huber_delta);
  else if (config.loss == "bce")
    loss = at::binary_cross_entropy_with_logits(outputs, target, {}, {}, reduction);
  else if (config.loss == "cross_entropy")
    loss = at::cross_entropy_loss(outputs, target.to(at::kLong), {}, reduction);
  else
    loss = at::mse_loss(outputs, target, reduction);
  return weights.defined() ? (loss * weights).sum() : loss;
}

Status check_targets(Task task, int64_t classes, const std::string& column, const float* target, int64_t rows,
                     int64_t stride) {
  if (task == Task::kRegression) return Status::OK();
  const float most = task == Task::kBinary ? 1 : static_cast<float>(classes - 1);
  for (int64_t i = 0; i < rows; ++i) {
    const float y = target[i * stride];
    if (y >= 0 && y <= most && y == static_cast<float>(static_cast<int64_t>(y))) continue;
    if (task == Task::kBinary)
      return data_error("the target '{}' has the value {}; with the loss bce it must be 0 or 1", column, y);
    return data_error(
        "the target '{}' has the value {}; with the loss cross_entropy it must be a whole number from 0 to "
        "{} "
        "(model.classes is {})",
        column, y, classes - 1, classes);
  }
  return Status::OK();
}

}  // namespace millstream::train
