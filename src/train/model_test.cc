#include "train/model.h"

#include <cmath>

#include <gtest/gtest.h>

#include "train/layers.h"

namespace millstream::train {
namespace {

TEST(Model, TaxiDemandNetIsTheDefault) {
  auto model = make_model({}, 8, at::kFloat, 0);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  std::vector<std::string> names;
  for (const auto& parameter : (*model)->parameters()) names.push_back(parameter.name);
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.2.weight",
                                             "layers.2.bias", "layers.4.weight", "layers.4.bias"}));
  EXPECT_EQ((*model)->parameter_count(), 8 * 64 + 64 + 64 * 32 + 32 + 32 + 1);
  EXPECT_EQ((*model)->forward(at::zeros({5, 8})).sizes().vec(), (std::vector<int64_t>{5}));
  EXPECT_EQ((*model)->forward(at::zeros({0, 8})).sizes().vec(), (std::vector<int64_t>{0}));
}

TEST(Model, InitialWeightsAreUniformSeededAndTheSameInBothPrecisions) {
  auto model = *make_model({"mlp", {256}}, 16, at::kFloat, 7);
  auto again = *make_model({"mlp", {256}}, 16, at::kFloat, 7);
  auto other = *make_model({"mlp", {256}}, 16, at::kFloat, 8);
  auto precise = *make_model({"mlp", {256}}, 16, at::kDouble, 7);
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    const at::Tensor& values = model->parameters()[i].tensor;
    EXPECT_TRUE(values.equal(again->parameters()[i].tensor));
    EXPECT_FALSE(values.equal(other->parameters()[i].tensor));
    EXPECT_TRUE(values.equal(precise->parameters()[i].tensor.to(at::kFloat)));
  }
  const at::Tensor weight = precise->parameters()[0].tensor;
  const double bound = 1 / std::sqrt(16.0);
  EXPECT_LE(weight.abs().max().item<double>(), bound);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 0.02 * bound);
  EXPECT_NEAR(weight.var().item<double>(), bound * bound / 3, 0.03 * bound * bound);
}

TEST(Model, ForwardAsByHand) {
  auto model = *make_model({"mlp", {2}}, 2, at::kDouble, 0);
  const std::vector<double> values{1, -1, 2, 0, 0, 1, 3, 5, 0.5};  // W1 (2x2), b1, W2 (1x2), b2
  std::vector<StoredTensor> stored = model->store();
  size_t at = 0;
  for (StoredTensor& tensor : stored) {
    std::memcpy(tensor.bytes.data(), values.data() + at, tensor.bytes.size());
    at += tensor.bytes.size() / sizeof(double);
  }
  ASSERT_TRUE(model->load(stored).ok());
  // x = (2, 5): hidden = relu(2-5, 4+1) = (0, 5); 5*5 + 0.5
  EXPECT_DOUBLE_EQ(model->forward(at::tensor({2.0, 5.0}, at::kDouble).view({1, 2})).item<double>(), 25.5);
}

TEST(Model, LoadRefusesWhatIsNotItsOwn) {
  auto model = *make_model({"mlp", {4}}, 3, at::kFloat, 0);
  auto stored = model->store();
  EXPECT_TRUE(model->load(stored).ok());
  auto missing = stored;
  missing.pop_back();
  EXPECT_EQ(model->load(missing).message(), "the weights lack the model's tensor 'layers.2.bias'");
  auto extra = stored;
  extra.push_back(extra[0]);
  extra.back().name = "other";
  EXPECT_EQ(model->load(extra).message(), "the weights have 5 tensors where the model has 4");
  auto wider = (*make_model({"mlp", {4}}, 4, at::kFloat, 0))->store();
  EXPECT_EQ(model->load(wider).message(),
            "the weights' tensor 'layers.0.weight' is float32 of shape [4, 4]; the model needs float32 of "
            "shape [4, 3]");
}

TEST(Model, BadConfigurations) {
  EXPECT_EQ(make_model({"mpl", {}}, 3, at::kFloat, 0).status().message(),
            "model.kind is 'mpl'; did you mean 'mlp'?");
  EXPECT_FALSE(make_model({"mlp", {0}}, 3, at::kFloat, 0).ok());
  EXPECT_EQ(exit_code(make_model({}, 0, at::kFloat, 0).status()), 2);
  TrainConfig config;
  config.momentum = 0.9;
  EXPECT_EQ(validate(config).message(),
            "train.momentum is 0.9, but only the optimizer sgd has a momentum and train.optimizer is adam");
  config = {};
  config.optimizer = "adamW";
  EXPECT_EQ(validate(config).message(), "train.optimizer is 'adamW'; did you mean 'adamw'?");
  config = {};
  config.learning_rate = std::nan("");
  EXPECT_FALSE(validate(config).ok());
}

TEST(Model, EveryKindByItsFormula) {
  const ModelInputs inputs(3, {{"a", 5, 2}, {"b", 4, 1}});
  const at::Tensor features = at::randn({6, 3}, at::kDouble),
                   ids = at::tensor({0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 3, 1}, at::kInt).view({6, 2});
  const auto named = [](const Model& model, const std::string& name) {
    for (const auto* list : {&model.parameters(), &model.buffers()})
      for (const NamedTensor& tensor : *list)
        if (tensor.name == name) return tensor.tensor;
    ADD_FAILURE() << "no " << name;
    return at::Tensor();
  };
  for (const char* kind : {"mlp", "wide_deep", "dcn"}) {
    ModelConfig config{.kind = kind, .hidden = {4}};
    config.cross_layers = 2;
    if (config.kind != "dcn") config.cross_layers = ModelConfig().cross_layers;
    auto model = *make_model(config, inputs, at::kDouble, 3);
    const auto of = [&](const std::string& name) { return named(*model, name); };
    if (config.kind == "wide_deep") {
      const at::NoGradGuard no_grad;
      of("wide_embeddings.a.weight").normal_();  // zero at first
    }
    const at::Tensor x = at::cat({features, of("embeddings.a.weight").index_select(0, ids.select(1, 0)),
                                  of("embeddings.b.weight").index_select(0, ids.select(1, 1))},
                                 1);
    at::Tensor deep = x;
    if (config.kind == "dcn")
      for (const char* layer : {"cross.0.", "cross.1."})
        deep =
            x * (at::matmul(deep, of(std::string(layer) + "weight").t()) + of(std::string(layer) + "bias")) +
            deep;
    deep = at::relu(at::matmul(deep, of("layers.0.weight").t()) + of("layers.0.bias"));
    at::Tensor expected = (at::matmul(deep, of("layers.2.weight").t()) + of("layers.2.bias")).squeeze(1);
    if (config.kind == "wide_deep")
      expected = expected + at::matmul(features, of("wide.weight").t()).squeeze(1) +
                 of("wide_embeddings.a.weight").index_select(0, ids.select(1, 0)).squeeze(1);
    EXPECT_TRUE(model->forward({features, ids}).allclose(expected, 1e-12, 1e-12)) << kind;
    EXPECT_EQ(count_elements(*plan_tensors(config, inputs)), static_cast<double>(model->parameter_count()))
        << kind;
    // What was trained is what is loaded.
    auto other = *make_model(config, inputs, at::kDouble, 4);
    ASSERT_TRUE(other->load(model->store()).ok());
    EXPECT_TRUE(other->forward({features, ids}).equal(model->forward({features, ids}))) << kind;
  }
}

TEST(Model, BatchNormIsTorchs) {
  ModelConfig config{.hidden = {5}};
  config.batch_norm = true;
  auto model = *make_model(config, 3, at::kDouble, 3);
  const at::Tensor linear_weight = model->parameters()[0].tensor, linear_bias = model->parameters()[1].tensor,
                   weight = model->parameters()[2].tensor, bias = model->parameters()[3].tensor,
                   last = model->parameters()[4].tensor, last_bias = model->parameters()[5].tensor;
  {
    const at::NoGradGuard no_grad;
    weight.copy_(at::linspace(0.5, 2, 5, at::kDouble));
    bias.copy_(at::linspace(-1, 1, 5, at::kDouble));
  }
  at::Tensor mean = at::zeros({5}, at::kDouble), variance = at::ones({5}, at::kDouble);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor features = at::randn({17, 3}, at::kDouble).add(10);
    const auto by_torch = [&](bool training) {
      const at::Tensor x = at::batch_norm(at::linear(features, linear_weight, linear_bias), weight, bias,
                                          mean, variance, training, 0.1, 1e-5, false);
      return at::linear(at::relu(x), last, last_bias).squeeze(1);
    };
    ModelBatch batch(features);
    batch.training = true;
    const at::Tensor expected = by_torch(true), mine = model->forward(batch);
    EXPECT_TRUE(mine.allclose(expected, 1e-11, 1e-11));
    expected.pow(2).sum().backward();
    std::vector<at::Tensor> gradients;
    for (const NamedTensor& parameter : model->parameters()) {
      gradients.push_back(parameter.tensor.grad().clone());
      parameter.tensor.mutable_grad().reset();
    }
    mine.pow(2).sum().backward();
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_TRUE(model->parameters()[i].tensor.grad().allclose(gradients[i], 1e-8, 1e-8))
          << model->parameters()[i].name;
      model->parameters()[i].tensor.mutable_grad().reset();
    }
    EXPECT_TRUE(model->buffers()[0].tensor.allclose(mean, 1e-12, 1e-12));
    EXPECT_TRUE(model->buffers()[1].tensor.allclose(variance, 1e-12, 1e-12));
    EXPECT_TRUE(model->forward(features).allclose(by_torch(false), 1e-11, 1e-11));
  }
}

TEST(Model, DropoutBelongsToTheRowAndTheStep) {
  const at::Tensor ones = at::ones({1000, 30}, at::kDouble);
  const at::Tensor whole = dropout(ones, 0.25, 7, 3, 0, 0);
  EXPECT_TRUE(whole.slice(0, 400, 1000).equal(dropout(ones.slice(0, 400, 1000), 0.25, 7, 3, 0, 400)));
  EXPECT_FALSE(whole.equal(dropout(ones, 0.25, 7, 4, 0, 0)));
  EXPECT_FALSE(whole.equal(dropout(ones, 0.25, 7, 3, 1, 0)));
  EXPECT_FALSE(whole.equal(dropout(ones, 0.25, 8, 3, 0, 0)));
  EXPECT_NEAR(whole.eq(0).to(at::kDouble).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(whole.mean().item<double>(), 1, 0.01);
  EXPECT_TRUE(dropout(ones, 0, 7, 3, 0, 0).equal(ones));
}

TEST(Model, InitSchemesHaveTheirSpread) {
  for (const auto& [init, deviation] : {std::pair<const char*, double>{"torch", std::sqrt(1.0 / 3 / 100)},
                                        {"xavier_uniform", std::sqrt(2.0 / 400)},
                                        {"xavier_normal", std::sqrt(2.0 / 400)},
                                        {"kaiming_uniform", std::sqrt(2.0 / 100)},
                                        {"kaiming_normal", std::sqrt(2.0 / 100)}}) {
    ModelConfig config{.hidden = {300}};
    config.init = init;
    auto model = *make_model(config, 100, at::kDouble, 1);
    EXPECT_NEAR(model->parameters()[0].tensor.std().item<double>(), deviation, 0.02 * deviation) << init;
    EXPECT_EQ(model->parameters()[1].tensor.abs().max().item<double>() > 0, config.init == "torch") << init;
  }
}

}  // namespace
}  // namespace millstream::train
