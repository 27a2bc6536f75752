// Modules from files: what they must be, and that they train as their equals made here do.
#include "train/script_model.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "train/distributed.h"
#include "train/export.h"
#include "train/optimizer.h"

namespace millstream::train {
namespace {

/// The module in a file of its own.
std::string saved(const torch::jit::Module& module) {
  static int number = 0;
  const std::string path = ::testing::TempDir() + "/millstream_module_" + std::to_string(getpid()) + "_" +
                           std::to_string(number++) + ".pt";
  module.save(path);
  return path;
}

Result<std::unique_ptr<Model>> load(const std::string& path, const ModelInputs& inputs, at::ScalarType type,
                                    uint64_t seed, int64_t outputs = 1) {
  auto model = load_script_model(path, inputs, outputs, type, seed);
  std::filesystem::remove(path);
  return model;
}

std::string module_of(const std::string& source, bool with_parameter = true) {
  torch::jit::Module module("Net");
  if (with_parameter) module.register_parameter("weight", at::ones({1, 3}), false);
  module.register_attribute("training", c10::BoolType::get(), true);  // as torch.jit.script does
  module.define(source);
  return saved(module);
}

TEST(ScriptModel, TrainsAsTheModelThatItWasMadeOf) {
  const ModelInputs inputs(3, {{"zone", 5, 2}});
  ModelConfig config{.kind = "dcn", .hidden = {6}};
  auto ours = *make_model(config, inputs, at::kDouble, 1);
  auto theirs = load(saved(script_of(*ours, config)), inputs, at::kDouble, 9);
  ASSERT_TRUE(theirs.ok()) << theirs.status().ToString();
  EXPECT_EQ((*theirs)->parameter_count(), ours->parameter_count());
  TrainConfig train;
  train.learning_rate = 0.01;
  auto optimizer = *make_optimizer(train, ours->parameters()),
       other = *make_optimizer(train, (*theirs)->parameters());
  auto parallel = *DistributedDataParallel::make(*ours, nullptr),
       second = *DistributedDataParallel::make(**theirs, nullptr);
  for (int step = 0; step < 5; ++step) {
    ModelBatch batch(at::randn({9, 3}, at::kDouble), at::arange(9, at::kInt).remainder(5).view({9, 1}));
    batch.training = true;
    const at::Tensor target = at::randn({9}, at::kDouble);
    parallel->backward(at::mse_loss(ours->forward(batch), target));
    second->backward(at::mse_loss((*theirs)->forward(batch), target));
    optimizer->step();
    other->step();
    parallel->clear_gradients();
    second->clear_gradients();
    batch.training = false;
    EXPECT_TRUE(ours->forward(batch).allclose((*theirs)->forward(batch), 1e-10, 1e-10)) << step;
  }
  // Weights go out and in, and the module that is exported has them.
  auto again = *load(saved(script_of(*ours, config)), inputs, at::kDouble, 9);
  ASSERT_TRUE(again->load((*theirs)->store()).ok());
  const ModelBatch batch(at::randn({4, 3}, at::kDouble), at::zeros({4, 1}, at::kInt));
  EXPECT_TRUE(again->forward(batch).equal((*theirs)->forward(batch)));
  const std::string path = ::testing::TempDir() + "/millstream_saved_" + std::to_string(getpid()) + ".pt";
  ASSERT_TRUE(save_script_model(*again, path).ok());
  auto restored = *load(path, inputs, at::kDouble, 9);
  EXPECT_TRUE(restored->forward(batch).equal(again->forward(batch)));
  EXPECT_EQ(save_script_model(*ours, path).message(),
            "the model that is to be saved as " + path + " is no TorchScript module");
}

TEST(ScriptModel, DropoutIsDrawnByStepAndRow) {
  auto model =
      *load(module_of("def forward(self, x):\n    return torch.dropout(torch.linear(x, self.weight), 0.5, "
                      "self.training)\n"),
            3, at::kFloat, 4);
  ModelBatch batch(at::ones({200, 3}));
  EXPECT_TRUE(model->forward(batch).equal(at::full({200}, 3.0F)));
  batch.training = true;
  batch.step = 7;
  const at::Tensor first = model->forward(batch);
  EXPECT_FALSE(first.equal(at::full({200}, 3.0F)));
  batch.step = 8;
  EXPECT_FALSE(model->forward(batch).equal(first));
  batch.step = 7;
  EXPECT_TRUE(model->forward(batch).equal(first));
}

TEST(ScriptModel, WhatDoesNotFitIsSaid) {
  // Without the file's name.
  const auto message = [](const std::string& path, int64_t outputs = 1) {
    std::string text = load(path, 3, at::kFloat, 0, outputs).status().message();
    const size_t at = text.find(path);
    EXPECT_NE(at, std::string::npos) << text;
    return text.erase(at, path.size());
  };
  EXPECT_EQ(message(module_of("def forward(self, x, y):\n    return x + y\n")),
            "the module : its forward takes 2 arguments; it is given one, the features");
  EXPECT_EQ(message(module_of("def forward(self, x):\n    return x\n", false)),
            "the module  has no parameters: there is nothing to train");
  EXPECT_EQ(message(module_of("def forward(self, x):\n    return x * self.weight\n")),
            "the module : of 2 rows it gives a tensor of shape [2, 3]; it must give [2]");
  EXPECT_EQ(message(module_of("def forward(self, x):\n    return x * self.weight\n"), 4),
            "the module : of 2 rows it gives a tensor of shape [2, 3]; it must give [2, 4]");
  EXPECT_EQ(message(module_of("def forward(self, x):\n    return torch.linear(x, self.weight[:, :2])\n"))
                .rfind("the module  does not take features [rows, 3], here with 2 rows: ", 0),
            0u);
  const std::string other = ::testing::TempDir() + "/millstream_other_" + std::to_string(getpid()) + ".pt";
  std::ofstream(other) << "no module";
  EXPECT_EQ(message(other).rfind("the module : it is no TorchScript module that can be loaded: ", 0), 0u);
  EXPECT_EQ(exit_code(load_script_model(other, 3, 1, at::kFloat, 0).status()), 3);  // gone
}

}  // namespace
}  // namespace millstream::train
