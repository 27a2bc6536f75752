#pragma once
// Models: named tensors and a forward pass that autograd differentiates.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "base/status.h"
#include "train/config.h"
#include "train/safetensors.h"

namespace millstream::train {

struct NamedTensor {
  std::string name;  ///< as in a PyTorch state_dict: "layers.0.weight"
  at::Tensor tensor;
};

/// Used by one thread at a time.
class Model {
 public:
  virtual ~Model() = default;
  /// [rows, inputs] -> [rows], or [rows, outputs] where the model has several. Any number of rows, also zero.
  virtual at::Tensor forward(const at::Tensor& features) const = 0;

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  at::ScalarType type() const { return type_; }
  /// What is learned, in a fixed order.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  /// What is kept beside it (running means).
  const std::vector<NamedTensor>& buffers() const { return buffers_; }
  std::vector<at::Tensor> parameter_tensors() const;
  int64_t parameter_count() const;

  /// Parameters and buffers as bytes and back. Loading checks that exactly the model's tensors are there,
  /// with its shapes and type (data errors).
  std::vector<StoredTensor> store() const;
  Status load(const std::vector<StoredTensor>& tensors);

 protected:
  Model(int64_t inputs, int64_t outputs, at::ScalarType type)
      : inputs_(inputs), outputs_(outputs), type_(type) {}
  void add_parameter(std::string name, at::Tensor tensor);

  int64_t inputs_, outputs_;
  at::ScalarType type_;
  std::vector<NamedTensor> parameters_, buffers_;
};

/// Tensors of float or double as they are stored.
std::vector<StoredTensor> store_tensors(const std::vector<NamedTensor>& tensors);

/// The model of the recipe with its initial weights. They are torch.nn.Linear's distribution (kaiming_uniform
/// with a = sqrt(5): uniform in ±1/sqrt(inputs), biases too), drawn from Philox streams named by seed and
/// tensor: the same on every rank and machine. Usage errors: unknown kind, a size below 1.
Result<std::unique_ptr<Model>> make_model(const ModelConfig& config, int64_t inputs, at::ScalarType type,
                                          uint64_t seed);

/// "float32" or "float64".
Result<at::ScalarType> scalar_type(const std::string& precision);

}  // namespace millstream::train
