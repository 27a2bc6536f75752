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

Status check_schedule(const TrainConfig& config) {
  MILLSTREAM_TRY(check_choice("train.schedule", config.schedule, {"constant", "linear", "cosine", "step"}));
  if (config.warmup_steps < 0)
    return usage_error("train.warmup_steps is {}; it can't be negative", config.warmup_steps);
  MILLSTREAM_TRY(check_not_negative("train.learning_rate_end", config.learning_rate_end));
  const bool has_end = config.schedule == "linear" || config.schedule == "cosine";
  if (config.learning_rate_end != 0 && !has_end)
    return usage_error(
        "train.learning_rate_end is {}, but only the schedules linear and cosine have an end and "
        "train.schedule "
        "is {}",
        config.learning_rate_end, config.schedule);
  if (config.decay_every < 1)
    return usage_error("train.decay_every is {}; it must be at least 1", config.decay_every);
  if (!(config.decay_factor > 0 && config.decay_factor < 1))
    return usage_error("train.decay_factor is {}; it must be a number between 0 and 1", config.decay_factor);
  const TrainConfig defaults;
  if (config.schedule == "step") return Status::OK();
  if (config.decay_every != defaults.decay_every || config.decay_factor != defaults.decay_factor)
    return usage_error(
        "train.decay_every and train.decay_factor belong to the schedule step, but train.schedule is {}",
        config.schedule);
  return Status::OK();
}

}  // namespace

Status validate(const ModelConfig& config) {
  MILLSTREAM_TRY(check_choice("model.kind", config.kind, {"mlp", "wide_deep", "dcn"}));
  MILLSTREAM_TRY(
      check_choice("model.init", config.init,
                   {"torch", "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal"}));
  if (!(config.dropout >= 0 && config.dropout < 1))
    return usage_error("model.dropout is {}; it must be at least 0 and below 1", config.dropout);
  if (config.cross_layers < 1 || config.cross_layers > 100)
    return usage_error("model.cross_layers is {}; there are 1 to 100", config.cross_layers);
  if (config.cross_layers != ModelConfig().cross_layers && config.kind != "dcn")
    return usage_error("model.cross_layers is {}, but only the kind dcn has such layers and model.kind is {}",
                       config.cross_layers, config.kind);
  if (config.hidden.empty() && (config.dropout > 0 || config.batch_norm))
    return usage_error("model.{} is of hidden layers, and model.hidden is []",
                       config.batch_norm ? "batch_norm" : "dropout");
  for (int64_t size : config.hidden)
    if (size < 1 || size > (int64_t{1} << 24))
      return usage_error("model.hidden has a layer of {} units; a layer has 1 to {}", size, int64_t{1} << 24);
  if (config.classes != 0 && (config.classes < 2 || config.classes > (int64_t{1} << 24)))
    return usage_error("model.classes is {}; there are 2 to {} classes", config.classes, int64_t{1} << 24);
  return Status::OK();
}

Status validate(const TrainConfig& config) {
  if (config.epochs < 1) return usage_error("train.epochs is {}; it must be at least 1", config.epochs);
  MILLSTREAM_TRY(check_choice("train.optimizer", config.optimizer, {"adam", "adamw", "sgd"}));
  MILLSTREAM_TRY(check_choice("train.loss", config.loss, {"mse", "mae", "huber", "bce", "cross_entropy"}));
  MILLSTREAM_TRY(check_choice("train.precision", config.precision, {"float32", "float64"}));
  MILLSTREAM_TRY(check_not_negative("train.learning_rate", config.learning_rate));
  MILLSTREAM_TRY(check_not_negative("train.weight_decay", config.weight_decay));
  MILLSTREAM_TRY(check_not_negative("train.momentum", config.momentum));
  if (config.momentum != 0 && config.optimizer != "sgd")
    return usage_error(
        "train.momentum is {}, but only the optimizer sgd has a momentum and train.optimizer is {}",
        config.momentum, config.optimizer);
  MILLSTREAM_TRY(check_schedule(config));
  MILLSTREAM_TRY(check_not_negative("train.clip_norm", config.clip_norm));
  if (config.accumulate < 1)
    return usage_error("train.accumulate is {}; it must be at least 1", config.accumulate);
  if (config.patience < 0) return usage_error("train.patience is {}; it can't be negative", config.patience);
  if (config.checkpoint_every < 0)
    return usage_error("train.checkpoint_every is {}; it can't be negative", config.checkpoint_every);
  if (config.keep_checkpoints < 1)
    return usage_error("train.keep_checkpoints is {}; it must be at least 1", config.keep_checkpoints);
  if (!(std::isfinite(config.huber_delta) && config.huber_delta > 0))
    return usage_error("train.huber_delta is {}; it must be a number above 0", config.huber_delta);
  if (config.huber_delta != 1 && config.loss != "huber")
    return usage_error("train.huber_delta is {}, but only the loss huber has one and train.loss is {}",
                       config.huber_delta, config.loss);
  return Status::OK();
}

Status validate(const ModelConfig& model, const TrainConfig& config) {
  MILLSTREAM_TRY(validate(model));
  MILLSTREAM_TRY(validate(config));
  if (config.loss == "cross_entropy" && model.classes == 0)
    return usage_error(
        "model.classes is missing: with train.loss = \"cross_entropy\" it is the number of classes, one more "
        "than "
        "the largest value of the target");
  if (config.loss != "cross_entropy" && model.classes != 0)
    return usage_error(
        "model.classes is {}, but only the loss cross_entropy has classes and train.loss is {}",
        model.classes, config.loss);
  if (config.class_weights.empty()) return Status::OK();
  const int64_t wanted = config.loss == "bce" ? 2 : model.classes;
  if (wanted == 0)
    return usage_error(
        "train.class_weights belongs to the losses bce and cross_entropy, but train.loss is {}", config.loss);
  if (static_cast<int64_t>(config.class_weights.size()) != wanted)
    return usage_error("train.class_weights has {} numbers where there are {} classes",
                       config.class_weights.size(), wanted);
  bool any = false;
  for (const double weight : config.class_weights) {
    MILLSTREAM_TRY(check_not_negative("a number in train.class_weights", weight));
    any = any || weight > 0;
  }
  if (!any) return usage_error("train.class_weights are all 0: there is nothing to learn");
  return Status::OK();
}

}  // namespace millstream::train
