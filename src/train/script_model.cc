#include "train/script_model.h"

#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "train/random_numbers.h"
#include "train/run_directory.h"
#include "train/torch_error.h"

namespace millstream::train {
namespace {

constexpr int64_t kMaxModuleBytes = int64_t{1} << 34;

/// The first line of what torch says.
std::string first_line(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

class ScriptModel final : public Model {
 public:
  ScriptModel(torch::jit::Module module, const ModelInputs& inputs, int64_t outputs, at::ScalarType type,
              uint64_t seed)
      : Model(inputs, outputs, type), seed_(seed), module_(std::move(module)) {
    module_.to(type);
    module_.eval();
    for (const auto& parameter : module_.named_parameters()) add_parameter(parameter.name, parameter.value);
    for (const auto& buffer : module_.named_buffers())
      if (buffer.value.scalar_type() == type) buffers_.push_back({buffer.name, buffer.value});
  }

  at::Tensor forward(const ModelBatch& batch) const override {
    if (batch.training != training_) {
      module_.train(batch.training);
      training_ = batch.training;
    }
    if (batch.training) seed_random_numbers(seed_, batch);
    std::vector<c10::IValue> arguments{batch.features};
    if (batch.ids.defined()) arguments.emplace_back(batch.ids);
    at::Tensor out = module_.forward(std::move(arguments)).toTensor();
    return outputs_ == 1 && out.dim() == 2 ? out.squeeze(1) : out;
  }

  const torch::jit::Module& module() const { return module_; }

 private:
  const uint64_t seed_;
  mutable torch::jit::Module module_;
  mutable bool training_ = false;
};

}  // namespace

Result<std::unique_ptr<Model>> load_script_model(const std::string& path, const ModelInputs& inputs,
                                                 int64_t outputs, at::ScalarType type, uint64_t seed) {
  MILLSTREAM_ASSIGN(const std::string bytes, read_whole_file(path, kMaxModuleBytes));
  std::unique_ptr<ScriptModel> model;
  try {
    std::istringstream stream(bytes);
    torch::jit::Module module = torch::jit::load(stream);
    const size_t wanted = inputs.embeddings.empty() ? 1 : 2;
    const auto method = module.find_method("forward");
    const size_t taken = method ? method->function().getSchema().arguments().size() - 1 : 0;
    if (taken != wanted)
      return usage_error(
          "the module {}: its forward takes {} argument{}; it is given {}", path, taken,
          taken == 1 ? "" : "s",
          wanted == 1 ? "one, the features" : "two, the features and the ids of embedded columns");
    model = std::make_unique<ScriptModel>(std::move(module), inputs, outputs, type, seed);
  } catch (const std::exception& error) {
    return usage_error("the module {}: it is no TorchScript module that can be loaded: {}", path,
                       first_line(error));
  }
  if (model->parameters().empty())
    return usage_error("the module {} has no parameters: there is nothing to train", path);
  const std::string shapes =
      fmt::format("features [rows, {}]{}", inputs.features,
                  inputs.embeddings.empty() ? std::string()
                                            : fmt::format(" and ids [rows, {}]", inputs.embeddings.size()));
  const at::NoGradGuard no_grad;
  for (const int64_t rows : {2, 0}) {
    ModelBatch batch(at::zeros({rows, inputs.features}, at::TensorOptions(type)));
    if (!inputs.embeddings.empty())
      batch.ids =
          at::zeros({rows, static_cast<int64_t>(inputs.embeddings.size())}, at::TensorOptions(at::kInt));
    at::Tensor out;
    try {
      out = model->forward(batch);
    } catch (const std::exception& error) {
      return usage_error("the module {} does not take {}, here with {} rows: {}", path, shapes, rows,
                         first_line(error));
    }
    const std::vector<int64_t> expected =
        outputs == 1 ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, outputs};
    if (out.sizes().vec() != expected)
      return usage_error("the module {}: of {} rows it gives a tensor of shape [{}]; it must give [{}]", path,
                         rows, fmt::join(out.sizes().vec(), ", "), fmt::join(expected, ", "));
  }
  return model;
}

Status save_script_model(const Model& model, const std::string& path) {
  const auto* script = dynamic_cast<const ScriptModel*>(&model);
  if (script == nullptr)
    return usage_error("the model that is to be saved as {} is no TorchScript module", path);
  return catch_torch("saving the module", [&]() -> Status {
    std::ostringstream stream;
    script->module().save(stream);
    return write_file_durably(path, stream.str());
  });
}

}  // namespace millstream::train
