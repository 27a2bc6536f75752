#include "train/model.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cpu_share.h"
#include "base/philox.h"

namespace millstream::train {
namespace {

TensorType stored_type(at::ScalarType type) {
  return type == at::kDouble ? TensorType::kFloat64 : TensorType::kFloat32;
}

/// Uniform in [-bound, bound): the tensor'th tensor of the seed.
at::Tensor uniform_tensor(at::IntArrayRef shape, double bound, at::ScalarType type, uint64_t seed,
                          uint32_t tensor) {
  constexpr uint32_t kInitStream = 0x696e6974;  // apart from the loader's streams
  PhiloxStream stream(seed, kInitStream, tensor, 0);
  at::Tensor values = at::empty(shape, at::TensorOptions(at::kDouble));
  double* data = values.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = (2 * stream.uniform() - 1) * bound;
  return values.to(type);
}

/// Linear, ReLU, …, Linear. Named as torch.nn.Sequential numbers its members, so that the
/// weights load into one: the ReLUs have the odd numbers.
class Mlp final : public Model {
 public:
  Mlp(const ModelConfig& config, int64_t inputs, at::ScalarType type, uint64_t seed)
      : Model(inputs, config.outputs(), type) {
    const std::vector<int64_t>& hidden = config.hidden;
    int64_t from = inputs;
    for (size_t layer = 0; layer <= hidden.size(); ++layer) {
      const int64_t to = layer < hidden.size() ? hidden[layer] : outputs_;
      const double bound = 1 / std::sqrt(static_cast<double>(from));
      const auto number = static_cast<uint32_t>(layer);
      add_parameter(fmt::format("layers.{}.weight", 2 * layer),
                    uniform_tensor({to, from}, bound, type, seed, 2 * number));
      add_parameter(fmt::format("layers.{}.bias", 2 * layer),
                    uniform_tensor({to}, bound, type, seed, 2 * number + 1));
      from = to;
    }
  }

  at::Tensor forward(const at::Tensor& features) const override {
    at::Tensor x = features;
    for (size_t i = 0; i < parameters_.size(); i += 2) {
      if (i > 0) x = at::relu(x);
      x = at::linear(x, parameters_[i].tensor, parameters_[i + 1].tensor);
    }
    return outputs_ == 1 ? x.squeeze(1) : x;
  }
};

}  // namespace

std::vector<at::Tensor> Model::parameter_tensors() const {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters_) tensors.push_back(parameter.tensor);
  return tensors;
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const NamedTensor& parameter : parameters_) count += parameter.tensor.numel();
  return count;
}

void Model::add_parameter(std::string name, at::Tensor tensor) {
  tensor.set_requires_grad(true);
  parameters_.push_back({std::move(name), std::move(tensor)});
}

std::vector<StoredTensor> Model::store() const {
  std::vector<StoredTensor> stored = store_tensors(parameters_);
  for (StoredTensor& tensor : store_tensors(buffers_)) stored.push_back(std::move(tensor));
  return stored;
}

std::vector<StoredTensor> store_tensors(const std::vector<NamedTensor>& tensors) {
  std::vector<StoredTensor> stored;
  for (const NamedTensor& named : tensors) {
    const at::Tensor values = named.tensor.detach().contiguous();
    stored.push_back({named.name, stored_type(values.scalar_type()), values.sizes().vec(),
                      std::string(static_cast<const char*>(values.data_ptr()), values.nbytes())});
  }
  return stored;
}

Status Model::load(const std::vector<StoredTensor>& tensors) {
  const at::NoGradGuard no_grad;
  size_t expected = 0;
  for (const auto* list : {&parameters_, &buffers_}) {
    for (const NamedTensor& named : *list) {
      ++expected;
      const StoredTensor* found = nullptr;
      for (const StoredTensor& tensor : tensors)
        if (tensor.name == named.name) found = &tensor;
      if (found == nullptr) return data_error("the weights lack the model's tensor '{}'", named.name);
      if (found->shape != named.tensor.sizes().vec() || found->type != stored_type(type_))
        return data_error("the weights' tensor '{}' is {} of shape [{}]; the model needs {} of shape [{}]",
                          named.name,
                          found->type == TensorType::kFloat64   ? "float64"
                          : found->type == TensorType::kFloat32 ? "float32"
                                                                : "another type",
                          fmt::join(found->shape, ", "), type_ == at::kDouble ? "float64" : "float32",
                          fmt::join(named.tensor.sizes().vec(), ", "));
      named.tensor.copy_(at::from_blob(const_cast<char*>(found->bytes.data()), named.tensor.sizes(),
                                       at::TensorOptions(type_)));
    }
  }
  if (tensors.size() != expected)
    return data_error("the weights have {} tensors where the model has {}", tensors.size(), expected);
  return Status::OK();
}

Result<std::unique_ptr<Model>> make_model(const ModelConfig& config, int64_t inputs, at::ScalarType type,
                                          uint64_t seed) {
  MILLSTREAM_TRY(validate(config));
  if (inputs < 1) return usage_error("the model has no input: the recipe names no feature");
  // Told before the allocator would.
  double parameters = 0, from = static_cast<double>(inputs);
  for (size_t layer = 0; layer <= config.hidden.size(); ++layer) {
    const double to = layer < config.hidden.size() ? static_cast<double>(config.hidden[layer])
                                                   : static_cast<double>(config.outputs());
    parameters += (from + 1) * to;
    from = to;
  }
  const double bytes = parameters * static_cast<double>(at::elementSize(type));
  const int64_t memory = available_memory_bytes();
  if (bytes > static_cast<double>(memory)) {
    return usage_error(
        "the model would have {:.0f} parameters, {:.1f} GiB of weights alone; the memory has {}: fewer or "
        "smaller "
        "layers are needed (model.hidden)",
        parameters, bytes / (1 << 30), format_bytes(memory));
  }
  return std::make_unique<Mlp>(config, inputs, type, seed);
}

Result<at::ScalarType> scalar_type(const std::string& precision) {
  if (precision == "float32") return at::kFloat;
  if (precision == "float64") return at::kDouble;
  return usage_error("train.precision is '{}'; it can be float32 or float64", precision);
}

}  // namespace millstream::train
