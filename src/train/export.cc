#include "train/export.h"

#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "exec/atomic_file.h"
#include "train/library_functions.h"
#include "train/run_directory.h"
#include "train/torch_error.h"

namespace millstream::train {
namespace {

/// TorchScript's attributes are identifiers: "layers.0.weight" becomes "layers_0_weight".
class Names {
 public:
  std::string add(const std::string& name) {
    std::string identifier;
    for (const char c : name) identifier += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    while (!used_.insert(identifier).second) identifier += '_';
    return by_name_[name] = identifier;
  }
  std::string operator()(const std::string& name) const { return "self." + by_name_.at(name); }
  bool has(const std::string& name) const { return by_name_.count(name) != 0; }

 private:
  std::map<std::string, std::string> by_name_;
  std::set<std::string> used_;
};

/// The forward pass of Network (model.cc) as TorchScript's source.
std::string forward_source(const Model& model, const ModelConfig& config, const Names& names) {
  const ModelInputs& inputs = model.inputs();
  std::string body;
  const auto line = [&](const std::string& text) { body += "    " + text + "\n"; };
  if (names.has("wide.weight")) line(fmt::format("wide = torch.linear(features, {})", names("wide.weight")));
  if (!inputs.embeddings.empty()) {
    std::vector<std::string> parts;
    if (inputs.features > 0) parts.emplace_back("features");
    bool wide = names.has("wide.weight");
    for (size_t i = 0; i < inputs.embeddings.size(); ++i) {
      const std::string& name = inputs.embeddings[i].name;
      parts.push_back(fmt::format("torch.embedding({}, ids[:, {}])",
                                  names(fmt::format("embeddings.{}.weight", name)), i));
      if (config.kind != "wide_deep") continue;
      line(fmt::format("wide = {}torch.embedding({}, ids[:, {}])", wide ? "wide + " : "",
                       names(fmt::format("wide_embeddings.{}.weight", name)), i));
      wide = true;
    }
    line(fmt::format("x = torch.cat([{}], 1)", fmt::join(parts, ", ")));
  } else {
    line("x = features");
  }
  if (config.kind == "dcn") {
    line("first = x");
    for (int64_t layer = 0; layer < config.cross_layers; ++layer)
      line(fmt::format("x = first * torch.linear(x, {}, {}) + x",
                       names(fmt::format("cross.{}.weight", layer)),
                       names(fmt::format("cross.{}.bias", layer))));
  }
  for (size_t layer = 0, member = 0; layer <= config.hidden.size(); ++layer) {
    const auto of = [&](const char* what) { return names(fmt::format("layers.{}.{}", member, what)); };
    line(fmt::format("x = torch.linear(x, {}, {})", of("weight"), of("bias")));
    ++member;
    if (layer == config.hidden.size()) break;
    if (config.batch_norm) {
      line(fmt::format("x = torch.batch_norm(x, {}, {}, {}, {}, False, 0.1, 1e-05, False)", of("weight"),
                       of("bias"), of("running_mean"), of("running_var")));
      ++member;
    }
    line("x = torch.relu(x)");
    member += config.dropout > 0 ? 2 : 1;
  }
  if (config.kind == "wide_deep") line("x = x + wide");
  line(model.outputs() == 1 ? "return torch.squeeze(x, 1)" : "return x");
  return fmt::format("def forward(self, features: Tensor{}) -> Tensor:\n{}",
                     inputs.embeddings.empty() ? "" : ", ids: Tensor", body);
}

}  // namespace

torch::jit::Module script_of(const Model& model, const ModelConfig& config) {
  torch::jit::Module module("MillstreamModel");
  Names names;
  for (const NamedTensor& parameter : model.parameters())
    module.register_parameter(names.add(parameter.name), parameter.tensor.detach().clone(),
                              /*is_buffer=*/false);
  for (const NamedTensor& buffer : model.buffers())
    module.register_parameter(names.add(buffer.name), buffer.tensor.detach().clone(), /*is_buffer=*/true);
  module.define(forward_source(model, config, names));
  module.eval();
  return module;
}

std::string state_dict_of(const Model& model) {
  c10::Dict<std::string, at::Tensor> tensors;
  for (const auto* list : {&model.parameters(), &model.buffers()})
    for (const NamedTensor& named : *list) tensors.insert(named.name, named.tensor.detach().clone());
  const std::vector<char> bytes = torch::jit::pickle_save(c10::IValue(tensors));
  return {bytes.begin(), bytes.end()};
}

Result<std::unique_ptr<Model>> model_of_bundle(const Bundle& bundle, const std::string& path) {
  MILLSTREAM_ASSIGN(const auto type, scalar_type(bundle.precision));
  const ModelInputs inputs(bundle.model_inputs - static_cast<int64_t>(bundle.embeddings.size()),
                           bundle.embeddings);
  // The weights' sizes are checked against the description before anything of that size is allocated.
  int64_t weight_bytes = 0;
  for (const StoredTensor& tensor : bundle.weights.tensors)
    weight_bytes += static_cast<int64_t>(tensor.bytes.size());
  const auto tensors = plan_tensors(bundle.model, inputs);
  if (!tensors.ok()) return data_error("the bundle {} is damaged: {}", path, tensors.status().message());
  const double expected = count_elements(*tensors) * (type == at::kDouble ? 8 : 4);
  if (expected != static_cast<double>(weight_bytes))
    return data_error(
        "the bundle {} is damaged: its model has {:.0f} bytes of weights and weights.safetensors {}", path,
        expected, weight_bytes);
  MILLSTREAM_ASSIGN(auto model, make_model(bundle.model, inputs, type, 0));
  const Status loaded = model->load(bundle.weights.tensors);
  if (!loaded.ok()) return with_context(loaded, fmt::format("the bundle {} is damaged", path));
  return model;
}

Status export_bundle(const ExportJob& work) {
  return catch_torch("exporting", [&]() -> Status {
    MILLSTREAM_TRY(exec::check_output_path(work.output, work.overwrite));
    MILLSTREAM_ASSIGN(const Bundle bundle, read_bundle(work.bundle));
    MILLSTREAM_ASSIGN(const auto model, model_of_bundle(bundle, work.bundle));
    std::string bytes;
    if (work.format == "state_dict") {
      bytes = state_dict_of(*model);
    } else if (work.format == "torchscript") {
      std::ostringstream stream;
      script_of(*model, bundle.model).save(stream);
      bytes = std::move(stream).str();
    } else {
      return usage_error("a bundle can be exported to torchscript or state_dict, not to '{}'", work.format);
    }
    return write_file_durably(work.output, bytes);
  });
}

}  // namespace millstream::train
