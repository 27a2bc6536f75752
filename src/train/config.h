#pragma once
// What the user asked of model and training: the [model] and [train] tables of a recipe. No torch here.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace millstream::train {

/// A categorical input of a model: ids from 0 to categories − 1, each of which has a learned vector.
struct EmbeddingInput {
  std::string name;  ///< of the column
  int64_t categories = 0, width = 0;
};

struct ModelConfig {
  std::string kind = "mlp";  ///< mlp, wide_deep, dcn
  std::vector<int64_t> hidden = {64, 32};
  int64_t classes = 0;         ///< with the loss cross_entropy: so many outputs; else 0: one output
  double dropout = 0;          ///< of the hidden layers' outputs, [0, 1)
  bool batch_norm = false;     ///< of the hidden layers, before ReLU
  std::string init = "torch";  ///< torch, xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal
  int64_t cross_layers = 3;    ///< dcn
  int64_t outputs() const { return classes > 0 ? classes : 1; }
};

struct TrainConfig {
  int64_t epochs = 5;
  std::string optimizer = "adam";  ///< adam, adamw, sgd
  double learning_rate = 1e-3;
  std::string schedule = "constant";  ///< constant, linear, cosine, step: train/learning_rate.h
  int64_t warmup_steps = 0;
  double learning_rate_end = 0;  ///< linear, cosine
  int64_t decay_every = 1;       ///< step: epochs
  double decay_factor = 0.1;     ///< step
  double weight_decay = 0;
  double momentum = 0;       ///< sgd
  double clip_norm = 0;      ///< 0: no clipping
  int64_t accumulate = 1;    ///< batches a step of the optimizer
  std::string loss = "mse";  ///< mse, mae, huber, bce, cross_entropy
  double huber_delta = 1;
  std::vector<double>
      class_weights;              ///< bce: of the targets 0 and 1; cross_entropy: of each class; empty: all 1
  int64_t patience = 0;           ///< epochs without a better validation before training stops; 0: never
  bool checkpoint_epochs = true;  ///< a checkpoint after each epoch,
  int64_t checkpoint_every = 0;   ///< or every so many batches, > 0; else there are those of signals only
  int64_t keep_checkpoints = 2;
  bool tensorboard = true;  ///< event files
  bool histograms = false;  ///< in them, of weights and gradients, each epoch
  uint64_t seed = 0;
  std::string precision = "float32";  ///< float32, float64
};

/// Usage errors naming the recipe's key, the value, and what it can be.
Status validate(const ModelConfig& config);
Status validate(const TrainConfig& config);
/// What the two say together: classes and loss.
Status validate(const ModelConfig& model, const TrainConfig& config);

}  // namespace millstream::train
