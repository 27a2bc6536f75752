#pragma once
// Any torch::nn::Module as a model, for programs of one's own: batches of the loader, replicas, optimisers, checkpoints
// and exports take it like those of recipes.

#include <memory>

#include <torch/nn/module.h>

#include "train/random_numbers.h"

namespace millstream::train {

/// `Module` is a torch::nn::Module with `at::Tensor forward(features)`, or `forward(features, ids)` where inputs() has
/// embeddings: what src/train/script_model.h says of modules from files holds here too. `seed` is of random numbers in
/// it (dropout).
template <class Module>
class ModuleModel final : public Model {
 public:
  ModuleModel(std::shared_ptr<Module> module, const ModelInputs& inputs, int64_t outputs, at::ScalarType type,
              uint64_t seed)
      : Model(inputs, outputs, type), seed_(seed), module_(std::move(module)) {
    module_->to(type);
    module_->eval();
    for (const auto& parameter : module_->named_parameters())
      add_parameter(parameter.key(), parameter.value());
    for (const auto& buffer : module_->named_buffers())
      if (buffer.value().scalar_type() == type) buffers_.push_back({buffer.key(), buffer.value()});
  }

  at::Tensor forward(const ModelBatch& batch) const override {
    if (batch.training != module_->is_training()) module_->train(batch.training);
    if (batch.training) seed_random_numbers(seed_, batch);
    at::Tensor out;
    if constexpr (requires { module_->forward(batch.features, batch.ids); })
      out = module_->forward(batch.features, batch.ids);
    else
      out = module_->forward(batch.features);
    return outputs_ == 1 && out.dim() == 2 ? out.squeeze(1) : out;
  }

 private:
  const uint64_t seed_;
  std::shared_ptr<Module> module_;
};

}  // namespace millstream::train
