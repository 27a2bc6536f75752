#include "train/model.h"

#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cpu_share.h"
#include "base/philox.h"
#include "train/layers.h"

namespace millstream::train {
namespace {

TensorType stored_type(at::ScalarType type) {
  return type == at::kDouble ? TensorType::kFloat64 : TensorType::kFloat32;
}

constexpr double kTau = 6.283185307179586;

/// Uniform in [-bound, bound), or normal with the deviation `bound`.
at::Tensor random_tensor(const TensorPlan& plan, bool normal, double bound, at::ScalarType type,
                         uint64_t seed) {
  constexpr uint32_t kInitStream = 0x696e6974;  // apart from the loader's streams
  PhiloxStream stream(seed, kInitStream, plan.stream, 0);
  at::Tensor values = at::empty(plan.shape, at::TensorOptions(at::kDouble));
  double* data = values.data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    if (normal) {  // Box and Muller
      const double radius = std::sqrt(-2 * std::log(1 - stream.uniform()));
      data[i] = bound * radius * std::cos(kTau * stream.uniform());
    } else {
      data[i] = (2 * stream.uniform() - 1) * bound;
    }
  }
  return values.to(type);
}

at::Tensor initial_tensor(const TensorPlan& plan, const std::string& init, at::ScalarType type,
                          uint64_t seed) {
  const double from = static_cast<double>(plan.inputs), to = static_cast<double>(plan.shape[0]);
  switch (plan.init) {
    case TensorPlan::Init::kWeight:
      if (init == "xavier_uniform") return random_tensor(plan, false, std::sqrt(6 / (from + to)), type, seed);
      if (init == "xavier_normal") return random_tensor(plan, true, std::sqrt(2 / (from + to)), type, seed);
      if (init == "kaiming_uniform") return random_tensor(plan, false, std::sqrt(6 / from), type, seed);
      if (init == "kaiming_normal") return random_tensor(plan, true, std::sqrt(2 / from), type, seed);
      return random_tensor(plan, false, 1 / std::sqrt(from), type, seed);
    case TensorPlan::Init::kBias:
      if (init != "torch") return at::zeros(plan.shape, at::TensorOptions(type));
      return random_tensor(plan, false, 1 / std::sqrt(from), type, seed);
    case TensorPlan::Init::kEmbedding:
      return random_tensor(plan, true, 1, type, seed);
    case TensorPlan::Init::kOne:
      return at::ones(plan.shape, at::TensorOptions(type));
    case TensorPlan::Init::kZero:
      break;
  }
  return at::zeros(plan.shape, at::TensorOptions(type));
}

/// mlp, wide_deep and dcn: what they share is most of them.
class Network final : public Model {
 public:
  Network(const ModelConfig& config, const ModelInputs& inputs, const std::vector<TensorPlan>& tensors,
          at::ScalarType type, uint64_t seed)
      : Model(inputs, config.outputs(), type), config_(config), seed_(seed) {
    for (const TensorPlan& plan : tensors) {
      at::Tensor tensor = initial_tensor(plan, config.init, type, seed);
      if (plan.learned)
        add_parameter(plan.name, tensor);
      else
        buffers_.push_back({plan.name, tensor});
      by_name_[plan.name] = std::move(tensor);
    }
    // Looked up once: a step should not read names.
    for (const EmbeddingInput& embedding : inputs_.embeddings) {
      embeddings_.push_back(by_name_.at(fmt::format("embeddings.{}.weight", embedding.name)));
      if (config_.kind == "wide_deep")
        wide_embeddings_.push_back(by_name_.at(fmt::format("wide_embeddings.{}.weight", embedding.name)));
    }
    if (config_.kind == "wide_deep" && inputs_.features > 0) wide_ = by_name_.at("wide.weight");
    if (config_.kind == "dcn") {
      for (int64_t layer = 0; layer < config_.cross_layers; ++layer)
        cross_.push_back({by_name_.at(fmt::format("cross.{}.weight", layer)),
                          by_name_.at(fmt::format("cross.{}.bias", layer))});
    }
    for (size_t layer = 0, member = 0; layer <= config_.hidden.size(); ++layer) {
      Dense dense;
      dense.weight = by_name_.at(fmt::format("layers.{}.weight", member));
      dense.bias = by_name_.at(fmt::format("layers.{}.bias", member++));
      const bool last = layer == config_.hidden.size();
      if (!last && config_.batch_norm) {
        dense.norm_weight = by_name_.at(fmt::format("layers.{}.weight", member));
        dense.norm_bias = by_name_.at(fmt::format("layers.{}.bias", member));
        dense.running_mean = by_name_.at(fmt::format("layers.{}.running_mean", member));
        dense.running_variance = by_name_.at(fmt::format("layers.{}.running_var", member++));
      }
      member += config_.dropout > 0 ? 2 : 1;  // ReLU and Dropout
      dense_.push_back(std::move(dense));
    }
    by_name_.clear();
  }

  at::Tensor forward(const ModelBatch& batch) const override {
    at::Tensor x = batch.features;
    at::Tensor wide;
    if (wide_.defined()) wide = at::linear(x, wide_);
    if (!embeddings_.empty()) {
      std::vector<at::Tensor> parts;
      if (inputs_.features > 0) parts.push_back(x);
      for (size_t i = 0; i < embeddings_.size(); ++i) {
        const at::Tensor ids = batch.ids.select(1, static_cast<int64_t>(i));
        parts.push_back(at::embedding(embeddings_[i], ids));
        if (wide_embeddings_.empty()) continue;
        const at::Tensor part = at::embedding(wide_embeddings_[i], ids);
        wide = wide.defined() ? wide + part : part;
      }
      x = at::cat(parts, 1);
    }
    const at::Tensor first = x;
    for (const auto& [weight, bias] : cross_) x = at::addcmul(x, first, at::linear(x, weight, bias));
    for (size_t i = 0; i < dense_.size(); ++i) {
      const Dense& dense = dense_[i];
      x = at::linear(x, dense.weight, dense.bias);
      if (i + 1 == dense_.size()) break;
      if (dense.norm_weight.defined())
        x = batch.training ? batch_norm_of_batch(x, dense.norm_weight, dense.norm_bias, dense.running_mean,
                                                 dense.running_variance, group_.get())
                           : batch_norm_by_running(x, dense.norm_weight, dense.norm_bias, dense.running_mean,
                                                   dense.running_variance);
      x = at::relu(x);
      if (batch.training)
        x = dropout(x, config_.dropout, seed_, batch.step, static_cast<uint32_t>(i), batch.first_row);
    }
    if (wide.defined()) x = x + wide;
    return outputs_ == 1 ? x.squeeze(1) : x;
  }

 private:
  struct Dense {
    at::Tensor weight, bias, norm_weight, norm_bias, running_mean, running_variance;
  };
  const ModelConfig config_;
  const uint64_t seed_;
  std::map<std::string, at::Tensor> by_name_;
  std::vector<at::Tensor> embeddings_, wide_embeddings_;
  at::Tensor wide_;
  std::vector<std::pair<at::Tensor, at::Tensor>> cross_;
  std::vector<Dense> dense_;
};

}  // namespace

int64_t ModelInputs::width() const {
  int64_t width = features;
  for (const EmbeddingInput& embedding : embeddings) width += embedding.width;
  return width;
}

ModelInputs inputs_of(const features::Fitted& fitted) {
  ModelInputs inputs(0);
  for (const features::FeatureColumn& column : fitted.columns) {
    if (column.embedding_width > 0)
      inputs.embeddings.push_back({column.name, column.categories, column.embedding_width});
    else
      ++inputs.features;
  }
  return inputs;
}

at::Tensor ids_in(const void* words, int64_t rows, int64_t count, int64_t stride) {
  return at::from_blob(const_cast<void*>(words), {rows, count}, {stride, 1}, at::TensorOptions(at::kInt));
}

double count_elements(const std::vector<TensorPlan>& tensors) {
  double count = 0;
  for (const TensorPlan& plan : tensors) {
    double elements = 1;
    for (const int64_t size : plan.shape) elements *= static_cast<double>(size);
    count += elements;
  }
  return count;
}

Result<std::vector<TensorPlan>> plan_tensors(const ModelConfig& config, const ModelInputs& inputs) {
  using Init = TensorPlan::Init;
  // Streams of random numbers: the layers' are their numbers, the others' begin here.
  constexpr uint32_t kEmbeddings = 1 << 16, kWideEmbeddings = 2 << 16, kWide = 3 << 16, kCross = 4 << 16;
  MILLSTREAM_TRY(validate(config));
  if (inputs.width() < 1) return usage_error("the model has no input: the recipe names no feature");
  std::vector<TensorPlan> tensors;
  for (size_t i = 0; i < inputs.embeddings.size(); ++i) {
    const EmbeddingInput& embedding = inputs.embeddings[i];
    tensors.push_back({fmt::format("embeddings.{}.weight", embedding.name),
                       {embedding.categories, embedding.width},
                       Init::kEmbedding,
                       0,
                       kEmbeddings + static_cast<uint32_t>(i)});
  }
  if (config.kind == "wide_deep") {
    if (inputs.features > 0)
      tensors.push_back(
          {"wide.weight", {config.outputs(), inputs.features}, Init::kWeight, inputs.features, kWide});
    for (size_t i = 0; i < inputs.embeddings.size(); ++i)
      tensors.push_back({fmt::format("wide_embeddings.{}.weight", inputs.embeddings[i].name),
                         {inputs.embeddings[i].categories, config.outputs()},
                         Init::kZero,
                         0,
                         kWideEmbeddings + static_cast<uint32_t>(i)});
  }
  const int64_t width = inputs.width();
  if (config.kind == "dcn") {
    for (int64_t layer = 0; layer < config.cross_layers; ++layer) {
      const uint32_t stream = kCross + 2 * static_cast<uint32_t>(layer);
      tensors.push_back(
          {fmt::format("cross.{}.weight", layer), {width, width}, Init::kWeight, width, stream});
      tensors.push_back({fmt::format("cross.{}.bias", layer), {width}, Init::kBias, width, stream + 1});
    }
  }
  int64_t from = width;
  for (size_t layer = 0, member = 0; layer <= config.hidden.size(); ++layer) {
    const bool last = layer == config.hidden.size();
    const int64_t to = last ? config.outputs() : config.hidden[layer];
    const auto stream = static_cast<uint32_t>(2 * layer);
    tensors.push_back({fmt::format("layers.{}.weight", member), {to, from}, Init::kWeight, from, stream});
    tensors.push_back({fmt::format("layers.{}.bias", member++), {to}, Init::kBias, from, stream + 1});
    if (!last && config.batch_norm) {
      tensors.push_back({fmt::format("layers.{}.weight", member), {to}, Init::kOne, 0, 0});
      tensors.push_back({fmt::format("layers.{}.bias", member), {to}, Init::kZero, 0, 0});
      tensors.push_back({fmt::format("layers.{}.running_mean", member), {to}, Init::kZero, 0, 0, false});
      tensors.push_back({fmt::format("layers.{}.running_var", member++), {to}, Init::kOne, 0, 0, false});
    }
    member += config.dropout > 0 ? 2 : 1;
    from = to;
  }
  return tensors;
}

ModelBatch Model::empty_batch() const {
  ModelBatch batch(at::empty({0, inputs_.features}, at::TensorOptions(type_)));
  if (!inputs_.embeddings.empty())
    batch.ids = at::empty({0, static_cast<int64_t>(inputs_.embeddings.size())}, at::TensorOptions(at::kInt));
  return batch;
}

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

Result<std::unique_ptr<Model>> make_model(const ModelConfig& config, const ModelInputs& inputs,
                                          at::ScalarType type, uint64_t seed) {
  MILLSTREAM_ASSIGN(const auto tensors, plan_tensors(config, inputs));
  // Told before the allocator would.
  const double elements = count_elements(tensors);
  const double bytes = elements * static_cast<double>(at::elementSize(type));
  const int64_t memory = available_memory_bytes();
  if (bytes > static_cast<double>(memory)) {
    return usage_error(
        "the model would have {:.0f} parameters, {:.1f} GiB of weights alone; the memory has {}: fewer or "
        "smaller "
        "layers are needed (model.hidden)",
        elements, bytes / (1 << 30), format_bytes(memory));
  }
  return std::make_unique<Network>(config, inputs, tensors, type, seed);
}

Result<at::ScalarType> scalar_type(const std::string& precision) {
  if (precision == "float32") return at::kFloat;
  if (precision == "float64") return at::kDouble;
  return usage_error("train.precision is '{}'; it can be float32 or float64", precision);
}

}  // namespace millstream::train
