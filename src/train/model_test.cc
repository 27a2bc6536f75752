#include "train/model.h"

#include <cmath>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace millstream::train
