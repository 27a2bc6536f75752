#pragma once
// Models: named tensors and a forward pass that autograd differentiates.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "base/status.h"
#include "features/fitted.h"
#include "train/config.h"
#include "train/safetensors.h"

namespace millstream::train {

struct NamedTensor {
  std::string name;  ///< as in a PyTorch state_dict: "layers.0.weight"
  at::Tensor tensor;
};

/// What a model is made for.
struct ModelInputs {
  int64_t features = 0;  ///< numbers
  std::vector<EmbeddingInput> embeddings;
  ModelInputs(int64_t features, std::vector<EmbeddingInput> embeddings = {})
      : features(features), embeddings(std::move(embeddings)) {}
  /// Numbers that a row is for the model's layers: features and embedded ids.
  int64_t width() const;
};

/// What the fitted features are for a model.
ModelInputs inputs_of(const features::Fitted& fitted);
/// Ids among 4-byte words: `rows` rows of `count`, each `stride` words after the one before. A view.
at::Tensor ids_in(const void* words, int64_t rows, int64_t count, int64_t stride);

/// A tensor that a model of this configuration has, before there is one.
struct TensorPlan {
  std::string name;
  std::vector<int64_t> shape;
  enum class Init : uint8_t { kWeight, kBias, kEmbedding, kZero, kOne } init = Init::kWeight;
  int64_t inputs = 0;   ///< kWeight, kBias: of its layer
  uint32_t stream = 0;  ///< of random numbers
  bool learned = true;
};
/// Names and shapes, in the order of the model. Usage errors: those of make_model().
Result<std::vector<TensorPlan>> plan_tensors(const ModelConfig& config, const ModelInputs& inputs);
/// Their elements, exactly up to 2^53.
double count_elements(const std::vector<TensorPlan>& tensors);

/// Rows for a model, and where they stand.
struct ModelBatch {
  at::Tensor features;    ///< [rows, features], in the model's type
  at::Tensor ids;         ///< [rows, embeddings], int32; undefined where there are none
  bool training = false;  ///< dropout, and the batch's own normalisation
  uint64_t step = 0;      ///< training: number of the batch in the run
  int64_t first_row = 0;  ///< training: of these rows in the global batch
  ModelBatch(at::Tensor features) : features(std::move(features)) {}
  ModelBatch(at::Tensor features, at::Tensor ids) : features(std::move(features)), ids(std::move(ids)) {}
};

/// Used by one thread at a time; by several where none trains.
class Model {
 public:
  virtual ~Model() = default;
  /// [rows], or [rows, outputs] where the model has several. Any number of rows, also zero. Of a training batch it may
  /// be collective over the group.
  virtual at::Tensor forward(const ModelBatch& batch) const = 0;

  const ModelInputs& inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  at::ScalarType type() const { return type_; }
  /// A batch without rows.
  ModelBatch empty_batch() const;
  /// The trainers over whose rows batches are normalised; null: this one alone.
  void set_group(c10::intrusive_ptr<c10d::ProcessGroup> group) { group_ = std::move(group); }
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
  Model(ModelInputs inputs, int64_t outputs, at::ScalarType type)
      : inputs_(std::move(inputs)), outputs_(outputs), type_(type) {}
  void add_parameter(std::string name, at::Tensor tensor);

  ModelInputs inputs_;
  int64_t outputs_;
  at::ScalarType type_;
  std::vector<NamedTensor> parameters_, buffers_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

/// Tensors of float or double as they are stored.
std::vector<StoredTensor> store_tensors(const std::vector<NamedTensor>& tensors);

/// The model of the recipe with its initial weights, by `model.init`, drawn from Philox streams named by seed and
/// tensor: the same on every rank and machine. Tensors are named as in a state_dict of
///   layers       torch.nn.Sequential of Linear, BatchNorm1d where batch_norm, ReLU, Dropout where dropout; …, Linear
///   embeddings   torch.nn.ModuleDict of Embedding, by column
///   wide         Linear without bias, and wide_embeddings as above: kind = "wide_deep"
///   cross        torch.nn.ModuleList of Linear: kind = "dcn"
/// Usage errors: unknown kind, a size below 1, more than the memory has.
Result<std::unique_ptr<Model>> make_model(const ModelConfig& config, const ModelInputs& inputs,
                                          at::ScalarType type, uint64_t seed);

/// "float32" or "float64".
Result<at::ScalarType> scalar_type(const std::string& precision);

}  // namespace millstream::train
