#include "train/config.h"

#include <cmath>

#include "base/nearest_name.h"

namespace millstream::train {
namespace {

Status check_choice(const char* key, const std::string& value, const std::vector<std::string>& choices) {
  for (const std::string& choice : choices)
    if (value == choice) return Status::OK();
  return usage_error("{} is '{}'{}", key, value, name_hint(value, choices));
}

Status check_not_negative(const char* key, double value) {
  if (std::isfinite(value) && value >= 0) return Status::OK();
  return usage_error("{} is {}; it must be a number of at least 0", key, value);
}

}  // namespace

Status validate(const ModelConfig& config) {
  MILLSTREAM_TRY(check_choice("model.kind", config.kind, {"mlp"}));
  for (int64_t size : config.hidden)
    if (size < 1 || size > (int64_t{1} << 24))
      return usage_error("model.hidden has a layer of {} units; a layer has 1 to {}", size, int64_t{1} << 24);
  return Status::OK();
}

Status validate(const TrainConfig& config) {
  if (config.epochs < 1) return usage_error("train.epochs is {}; it must be at least 1", config.epochs);
  MILLSTREAM_TRY(check_choice("train.optimizer", config.optimizer, {"adam", "adamw", "sgd"}));
  MILLSTREAM_TRY(check_choice("train.loss", config.loss, {"mse", "mae"}));
  MILLSTREAM_TRY(check_choice("train.precision", config.precision, {"float32", "float64"}));
  MILLSTREAM_TRY(check_not_negative("train.learning_rate", config.learning_rate));
  MILLSTREAM_TRY(check_not_negative("train.weight_decay", config.weight_decay));
  MILLSTREAM_TRY(check_not_negative("train.momentum", config.momentum));
  if (config.momentum != 0 && config.optimizer != "sgd")
    return usage_error(
        "train.momentum is {}, but only the optimizer sgd has a momentum and train.optimizer is {}",
        config.momentum, config.optimizer);
  return Status::OK();
}

}  // namespace millstream::train
