#include "train/optimizer.h"

#include <cmath>

#include <gtest/gtest.h>

namespace millstream::train {
namespace {

// Reference values come from the formulas of torch's documentation, written out on scalars.
struct Reference {
  std::string kind;
  double rate, decay, momentum;
  double mean = 0, square = 0;
  int t = 0;
  double step(double p, double g) {
    ++t;
    if (kind == "sgd") {
      g += decay * p;
      mean = momentum * mean + g;
      return p - rate * (momentum != 0 ? mean : g);
    }
    if (kind == "adamw") p -= rate * decay * p;
    if (kind == "adam") g += decay * p;
    mean = 0.9 * mean + 0.1 * g;
    square = 0.999 * square + 0.001 * g * g;
    const double corrected = std::sqrt(square / (1 - std::pow(0.999, t))) + 1e-8;
    return p - rate * (mean / (1 - std::pow(0.9, t))) / corrected;
  }
};

void check(const std::string& kind, double decay, double momentum, at::ScalarType type, double tolerance) {
  SCOPED_TRACE(kind + " decay " + std::to_string(decay) + " momentum " + std::to_string(momentum));
  constexpr int kSize = 37;  // neither one vector of the kernel nor a multiple
  TrainConfig config;
  config.optimizer = kind;
  config.learning_rate = 0.01;
  config.weight_decay = decay;
  config.momentum = momentum;
  at::Tensor parameter = at::linspace(-1, 1, kSize, at::TensorOptions(at::kDouble)).to(type);
  parameter.set_requires_grad(true);
  auto optimizer = *make_optimizer(config, {{"p", parameter}});
  std::vector<Reference> references(kSize, {kind, 0.01, decay, momentum});
  std::vector<double> expected;
  for (int i = 0; i < kSize; ++i) expected.push_back(parameter[i].item<double>());
  for (int step = 0; step < 20; ++step) {
    at::Tensor gradient = at::empty({kSize}, at::TensorOptions(at::kDouble));
    for (int i = 0; i < kSize; ++i) {
      const double g = std::sin(0.7 * step + i);
      gradient[i] = g;
      expected[i] = references[i].step(expected[i], g);
    }
    parameter.mutable_grad() = gradient.to(type);
    optimizer->step();
  }
  for (int i = 0; i < kSize; ++i) EXPECT_NEAR(parameter[i].item<double>(), expected[i], tolerance) << i;
}

TEST(Optimizer, StepsFollowTheFormulas) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const double tolerance = type == at::kFloat ? 5e-6 : 1e-13;
    for (const double decay : {0.0, 0.1}) {
      check("adam", decay, 0, type, tolerance);
      check("adamw", decay, 0, type, tolerance);
      check("sgd", decay, 0, type, tolerance);
      check("sgd", decay, 0.9, type, tolerance);
    }
  }
}

TEST(Optimizer, StateIsNamedAndAMissingGradientIsAnError) {
  at::Tensor parameter = at::ones({3}).set_requires_grad(true);
  auto adam = *make_optimizer({}, {{"w", parameter}});
  std::vector<std::string> names;
  for (const auto& state : adam->state()) names.push_back(state.name);
  EXPECT_EQ(names, (std::vector<std::string>{"exp_avg.w", "exp_avg_sq.w", "step.w"}));
  EXPECT_THROW(adam->step(), c10::Error);
  parameter.mutable_grad() = at::ones({3});
  adam->step();
  EXPECT_EQ(adam->state()[2].tensor.item<float>(), 1);
}

}  // namespace
}  // namespace millstream::train
