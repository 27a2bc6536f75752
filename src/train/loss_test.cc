// Losses, learning rates, clipping and accumulation against their formulas, written out on scalars.
#include "train/loss.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "train/distributed.h"
#include "train/learning_rate.h"
#include "train/optimizer.h"

namespace millstream::train {
namespace {

at::Tensor column(const std::vector<double>& values) {
  return at::tensor(values, at::TensorOptions(at::kDouble));
}

double loss_of(const std::string& name, const at::Tensor& outputs, const at::Tensor& target) {
  TrainConfig config;
  config.loss = name;
  if (name == "huber") config.huber_delta = 0.5;
  return summed_loss(config, outputs, target).item<double>();
}

TEST(Loss, AsByHand) {
  const std::vector<double> outputs{-3, 0.2, 1.25, 40}, target{-2, 0, 1, -1};
  double mse = 0, mae = 0, huber = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double e = std::abs(outputs[i] - target[i]);
    mse += e * e;
    mae += e;
    huber += e <= 0.5 ? e * e / 2 : 0.5 * (e - 0.25);
  }
  EXPECT_DOUBLE_EQ(loss_of("mse", column(outputs), column(target)), mse);
  EXPECT_DOUBLE_EQ(loss_of("mae", column(outputs), column(target)), mae);
  EXPECT_DOUBLE_EQ(loss_of("huber", column(outputs), column(target)), huber);

  const std::vector<double> labels{0, 1, 1, 0};
  double bce = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double p = 1 / (1 + std::exp(-outputs[i]));
    bce -= labels[i] != 0 ? std::log(p) : -outputs[i] + std::log(p);
  }
  EXPECT_NEAR(loss_of("bce", column(outputs), column(labels)), bce, 1e-12);

  const at::Tensor logits = column({1, 2, 3, -1, 0, 700}).view({2, 3});
  const double first = -(2 - std::log(std::exp(1) + std::exp(2) + std::exp(3)));
  EXPECT_NEAR(loss_of("cross_entropy", logits, column({1, 2})), first, 1e-12);
  EXPECT_EQ(loss_of("cross_entropy", logits.slice(0, 0, 0), column({})), 0);
  EXPECT_EQ(loss_of("bce", column({}), column({})), 0);
}

TEST(Loss, TargetsThatCantBe) {
  const std::vector<float> target{0, 1, 0.5f, 3};
  EXPECT_TRUE(check_targets(Task::kRegression, 1, "y", target.data(), 4, 1).ok());
  EXPECT_TRUE(check_targets(Task::kBinary, 1, "y", target.data(), 2, 1).ok());
  const Status binary = check_targets(Task::kBinary, 1, "y", target.data(), 4, 1);
  EXPECT_EQ(binary.message(), "the target 'y' has the value 0.5; with the loss bce it must be 0 or 1");
  EXPECT_EQ(exit_code(binary), 3);
  EXPECT_EQ(
      check_targets(Task::kClasses, 3, "y", target.data() + 3, 1, 1).message(),
      "the target 'y' has the value 3; with the loss cross_entropy it must be a whole number from 0 to 2 "
      "(model.classes is 3)");
  const float none = NAN, negative = -1;
  EXPECT_FALSE(check_targets(Task::kClasses, 3, "y", &none, 1, 1).ok());
  EXPECT_FALSE(check_targets(Task::kClasses, 3, "y", &negative, 1, 1).ok());
}

TEST(LearningRate, FollowsTheFormulas) {
  TrainConfig config;
  config.epochs = 5;
  config.learning_rate = 0.2;
  config.warmup_steps = 4;
  for (const char* schedule : {"constant", "linear", "cosine", "step"}) {
    config.schedule = schedule;
    config.learning_rate_end = config.schedule == "linear" || config.schedule == "cosine" ? 0.02 : 0;
    config.decay_every = config.schedule == "step" ? 2 : 1;
    config.decay_factor = config.schedule == "step" ? 0.5 : 0.1;
    ASSERT_TRUE(validate(config).ok());
    const LearningRate rate(config, 10);
    for (int k = 0; k < 4; ++k) EXPECT_DOUBLE_EQ(rate.at(k), 0.05 * (k + 1)) << schedule << " " << k;
    for (int k = 4; k < 50; ++k) {
      const double t = (k - 4) / 46.0;
      double expected = 0.2;
      if (config.schedule == "linear") expected = 0.2 - 0.18 * t;
      if (config.schedule == "cosine") expected = 0.11 + 0.09 * std::cos(std::numbers::pi * t);
      if (config.schedule == "step") expected = k < 20 ? 0.2 : k < 40 ? 0.1 : 0.05;
      EXPECT_NEAR(rate.at(k), expected, 1e-15) << schedule << " " << k;
    }
  }
}

TEST(TrainConfig, KeysThatDoNothingAreErrors) {
  const auto message = [](auto change) {
    TrainConfig config;
    change(config);
    return validate(ModelConfig{}, config).message();
  };
  EXPECT_EQ(message([](TrainConfig& c) { c.schedule = "cosin"; }),
            "train.schedule is 'cosin'; did you mean 'cosine'?");
  EXPECT_EQ(message([](TrainConfig& c) { c.learning_rate_end = 0.1; }),
            "train.learning_rate_end is 0.1, but only the schedules linear and cosine have an end and "
            "train.schedule is constant");
  EXPECT_EQ(
      message([](TrainConfig& c) { c.decay_every = 3; }),
      "train.decay_every and train.decay_factor belong to the schedule step, but train.schedule is constant");
  EXPECT_EQ(message([](TrainConfig& c) { c.huber_delta = 2; }),
            "train.huber_delta is 2, but only the loss huber has one and train.loss is mse");
  EXPECT_EQ(
      message([](TrainConfig& c) { c.loss = "cross_entropy"; }),
      "model.classes is missing: with train.loss = \"cross_entropy\" it is the number of classes, one more "
      "than the largest value of the target");
  ModelConfig classes;
  classes.classes = 4;
  EXPECT_EQ(validate(classes, TrainConfig{}).message(),
            "model.classes is 4, but only the loss cross_entropy has classes and train.loss is mse");
}

TEST(Clipping, ScalesTheNormOfAllGradientsTogether) {
  at::Tensor a = at::zeros({2}, at::TensorOptions(at::kDouble)),
             b = at::zeros({1}, at::TensorOptions(at::kDouble));
  const auto clip = [&](double most) {
    a.mutable_grad() = column({3, 0});
    b.mutable_grad() = column({-4});
    clip_gradients({a, b}, most);
  };
  clip(10);
  EXPECT_EQ(a.grad()[0].item<double>(), 3);
  EXPECT_EQ(b.grad()[0].item<double>(), -4);
  clip(1);
  EXPECT_NEAR(a.grad()[0].item<double>(), 3 / (5 + 1e-6), 1e-15);
  EXPECT_NEAR(b.grad()[0].item<double>(), -4 / (5 + 1e-6), 1e-15);
}

}  // namespace
}  // namespace millstream::train
