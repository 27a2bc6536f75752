// What PyTorch gets of a model gives what the model gives.
#include "train/export.h"

#include <sstream>

#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>

namespace millstream::train {
namespace {

TEST(Export, TorchScriptGivesWhatTheModelGives) {
  const at::NoGradGuard no_grad;
  const std::vector<EmbeddingInput> columns{{"zone of pick-up", 5, 2}, {"zone_of_pick_up", 4, 3}};
  for (const char* kind : {"mlp", "wide_deep", "dcn"}) {
    for (const bool whole : {false, true}) {
      for (const ModelInputs& inputs : {ModelInputs(3), ModelInputs(3, columns), ModelInputs(0, columns)}) {
        ModelConfig config{.kind = kind, .hidden = {6, 4}};
        config.batch_norm = whole;
        config.dropout = whole ? 0.5 : 0;
        config.classes = whole ? 3 : 0;
        auto model = *make_model(config, inputs, at::kDouble, 1);
        for (const auto* list : {&model->parameters(), &model->buffers()})
          for (const NamedTensor& named : *list)  // none is left at 0 or 1
            named.tensor.add_(at::rand(named.tensor.sizes(), named.tensor.options()));
        ModelBatch batch(at::randn({7, inputs.features}, at::kDouble));
        std::vector<c10::IValue> arguments{batch.features};
        if (!inputs.embeddings.empty()) {
          batch.ids = at::arange(14, at::kInt).remainder(4).view({7, 2});
          arguments.emplace_back(batch.ids);
        }
        std::stringstream file;
        script_of(*model, config).save(file);
        torch::jit::Module module = torch::jit::load(file);
        const at::Tensor expected = model->forward(batch), got = module.forward(arguments).toTensor();
        EXPECT_EQ(got.sizes(), expected.sizes()) << kind;
        EXPECT_TRUE(got.allclose(expected, 1e-12, 1e-12)) << kind << " " << whole << " of " << inputs.width();
      }
    }
  }
}

TEST(Export, StateDictHasTheTensorsByName) {
  ModelConfig config{.hidden = {4}};
  config.batch_norm = true;
  auto model = *make_model(config, 3, at::kFloat, 1);
  const std::string bytes = state_dict_of(*model);
  const auto tensors = torch::jit::pickle_load({bytes.begin(), bytes.end()}).toGenericDict();
  EXPECT_EQ(tensors.size(), model->parameters().size() + model->buffers().size());
  for (const auto* list : {&model->parameters(), &model->buffers()})
    for (const NamedTensor& named : *list)
      EXPECT_TRUE(tensors.at(named.name).toTensor().equal(named.tensor.detach())) << named.name;
}

}  // namespace
}  // namespace millstream::train
