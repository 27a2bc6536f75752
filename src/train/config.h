#pragma once
// What the user asked of model and training: the [model] and [train] tables of a recipe. No torch here.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace millstream::train {

struct ModelConfig {
  std::string kind = "mlp";
  std::vector<int64_t> hidden = {64, 32};
};

struct TrainConfig {
  int64_t epochs = 5;
  std::string optimizer = "adam";  ///< adam, adamw, sgd
  double learning_rate = 1e-3;
  double weight_decay = 0;
  double momentum = 0;       ///< sgd
  std::string loss = "mse";  ///< mse, mae
  uint64_t seed = 0;
  std::string precision = "float32";  ///< float32, float64
};

/// Usage errors naming the recipe's key, the value, and what it can be.
Status validate(const ModelConfig& config);
Status validate(const TrainConfig& config);

}  // namespace millstream::train
