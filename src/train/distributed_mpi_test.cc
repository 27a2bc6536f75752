// Gradients and weights of T trainers against one process that sees whole batches.
#include <numeric>

#include <gtest/gtest.h>

#include "comm/mpi_test.h"
#include "train/distributed.h"
#include "train/fused_mlp.h"
#include "train/loss.h"
#include "train/optimizer.h"
#include "train/process_group.h"

namespace millstream::train {
namespace {

using comm::test_job;

c10::intrusive_ptr<c10d::ProcessGroup> group_of(int trainers) {
  std::vector<int> ranks(static_cast<size_t>(trainers));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto communicator = test_job().make_communicator(ranks);
  EXPECT_TRUE(communicator.ok()) << communicator.status().ToString();
  if (!communicator.ok() || !*communicator) return nullptr;
  return make_process_group(std::move(communicator).ValueUnsafe(), "test");
}

/// Batch number `step`: the same on every rank.
std::pair<at::Tensor, at::Tensor> batch_of(int step, int64_t rows, int64_t inputs) {
  const auto options = at::TensorOptions(at::kDouble);
  at::Tensor features =
      at::arange(rows * inputs, options).add(1000.0 * step).mul(0.37).sin().view({rows, inputs});
  at::Tensor target = features.sum(1).mul(0.5).add(at::arange(rows, options).mul(0.11).cos());
  return {features, target};
}

/// Trainer t's rows of n: the loader's shares.
std::pair<int64_t, int64_t> share(int trainer, int trainers, int64_t rows) {
  return {trainer * rows / trainers, (trainer + 1) * rows / trainers};
}

void step(DistributedDataParallel& parallel, Model& model, const at::Tensor& features,
          const at::Tensor& target, int64_t begin, int64_t end) {
  const at::Tensor loss = at::mse_loss(model.forward(features.slice(0, begin, end)),
                                       target.slice(0, begin, end), at::Reduction::Sum);
  parallel.backward(loss * parallel.loss_scale(features.size(0)));
}

void expect_close(const at::Tensor& mine, const at::Tensor& reference, const std::string& what) {
  const double scale = reference.abs().max().item<double>();
  EXPECT_LE((mine - reference).abs().max().item<double>(), 1e-9 * scale + 1e-15)
      << what;  // sums can cancel out
}

TEST(DistributedDataParallel, GradientsAreThoseOfTheWholeBatch) {
  const int trainers = test_job().size(), trainer = test_job().rank();
  auto group = group_of(trainers);
  // Two layers a bucket or so, and batches of which some trainers get nothing.
  for (const DistributedOptions options : {DistributedOptions{}, DistributedOptions{256, 4096}}) {
    auto model = *make_model({"mlp", {64, 32}}, 8, at::kDouble, 3);
    auto whole = *make_model({"mlp", {64, 32}}, 8, at::kDouble, 3);
    auto parallel = *DistributedDataParallel::make(*model, group, options);
    auto alone = *DistributedDataParallel::make(*whole, nullptr);
    EXPECT_EQ(parallel->trainers(), trainers);
    for (const int64_t rows : {1, 2, 3, 5, 64, 257}) {
      const auto [features, target] = batch_of(static_cast<int>(rows), rows, 8);
      const auto [begin, end] = share(trainer, trainers, rows);
      step(*parallel, *model, features, target, begin, end);
      step(*alone, *whole, features, target, 0, rows);
      for (size_t i = 0; i < model->parameters().size(); ++i)
        expect_close(model->parameters()[i].tensor.grad(), whole->parameters()[i].tensor.grad(),
                     model->parameters()[i].name + " with " + std::to_string(rows) + " rows");
      parallel->clear_gradients();
      alone->clear_gradients();
    }
  }
}

TEST(DistributedDataParallel, HundredStepsGiveTheSameWeights) {
  const int trainers = test_job().size(), trainer = test_job().rank();
  auto group = group_of(trainers);
  for (const char* kind : {"adam", "adamw", "sgd"}) {
    TrainConfig config;
    config.optimizer = kind;
    config.weight_decay = 0.01;
    config.momentum = config.optimizer == "sgd" ? 0.9 : 0;
    auto model = *make_model({"mlp", {16}}, 4, at::kDouble, 1);
    auto whole = *make_model({"mlp", {16}}, 4, at::kDouble, 1);
    auto parallel = *DistributedDataParallel::make(*model, group);
    auto alone = *DistributedDataParallel::make(*whole, nullptr);
    auto optimizer = *make_optimizer(config, model->parameters()),
         reference = *make_optimizer(config, whole->parameters());
    for (int number = 0; number < 100; ++number) {
      const int64_t rows = number % 10 == 9 ? 2 : 48;  // the last batch of an epoch is small
      const auto [features, target] = batch_of(number, rows, 4);
      const auto [begin, end] = share(trainer, trainers, rows);
      step(*parallel, *model, features, target, begin, end);
      step(*alone, *whole, features, target, 0, rows);
      optimizer->step();
      reference->step();
      parallel->clear_gradients();
      alone->clear_gradients();
    }
    for (size_t i = 0; i < model->parameters().size(); ++i)
      expect_close(model->parameters()[i].tensor.detach(), whole->parameters()[i].tensor.detach(),
                   std::string(kind) + " " + model->parameters()[i].name);
  }
}

TEST(DistributedDataParallel, EveryLossWithAccumulationAndClipping) {
  const int trainers = test_job().size(), trainer = test_job().rank();
  auto group = group_of(trainers);
  for (const char* loss : {"mse", "mae", "huber", "bce", "cross_entropy"}) {
    TrainConfig config;
    config.loss = loss;
    ModelConfig kind{"mlp", {16}};
    if (config.loss == "cross_entropy") kind.classes = 3;
    auto model = *make_model(kind, 4, at::kDouble, 1), whole = *make_model(kind, 4, at::kDouble, 1);
    auto parallel = *DistributedDataParallel::make(*model, group);
    auto alone = *DistributedDataParallel::make(*whole, nullptr);
    auto optimizer = *make_optimizer(config, model->parameters()),
         reference = *make_optimizer(config, whole->parameters());
    for (int number = 0; number < 20; ++number) {
      // Two batches a step, the second one small: together one batch of the reference.
      const int64_t rows = 50, first = 48;
      auto [features, target] = batch_of(number, rows, 4);
      if (task_of(loss) == Task::kBinary) target = target.gt(0).to(at::kDouble);
      if (task_of(loss) == Task::kClasses) target = target.abs().mul(2).floor().clamp(0, 2);
      for (const auto& [from, to] : {std::pair{int64_t{0}, first}, {first, rows}}) {
        const auto [begin, end] = share(trainer, trainers, to - from);
        const at::Tensor sum =
            summed_loss(config, model->forward(features.slice(0, from + begin, from + end)),
                        target.slice(0, from + begin, from + end));
        parallel->backward(sum * parallel->loss_scale(rows), to == rows);
      }
      alone->backward(summed_loss(config, whole->forward(features), target) * alone->loss_scale(rows));
      clip_gradients(model->parameter_tensors(), 0.1);
      clip_gradients(whole->parameter_tensors(), 0.1);
      for (size_t i = 0; i < model->parameters().size(); ++i)
        expect_close(model->parameters()[i].tensor.grad(), whole->parameters()[i].tensor.grad(),
                     std::string(loss) + " " + model->parameters()[i].name);
      optimizer->step();
      reference->step();
      parallel->clear_gradients();
      alone->clear_gradients();
    }
  }
}

TEST(FusedMlp, GivesWhatAutogradGives) {
  const int trainers = test_job().size(), trainer = test_job().rank();
  auto group = group_of(trainers);
  for (const char* loss : {"mse", "mae", "huber", "bce", "cross_entropy"}) {
    // One bucket, and one or two layers a bucket.
    for (const DistributedOptions options : {DistributedOptions{}, DistributedOptions{256, 4096}}) {
      for (const std::vector<int64_t>& hidden : {std::vector<int64_t>{64, 32}, {}, {5}}) {
        TrainConfig config;
        config.loss = loss;
        ModelConfig kind{"mlp", hidden};
        if (config.loss == "cross_entropy") kind.classes = 3;
        auto model = *make_model(kind, 8, at::kDouble, 3), whole = *make_model(kind, 8, at::kDouble, 3);
        auto fused = *FusedMlp::make(*model, kind, config, group, options);
        ASSERT_NE(fused, nullptr);
        auto alone = *DistributedDataParallel::make(*whole, nullptr);
        auto optimizer = *make_optimizer(config, model->parameters()),
             reference = *make_optimizer(config, whole->parameters());
        int number = 0;
        for (const int64_t rows :
             {64, 1, 2, 2700, 64, 3}) {  // some trainers get nothing, some several chunks
          auto [features, target] = batch_of(++number, rows, 8);
          if (task_of(loss) == Task::kBinary) target = target.gt(0).to(at::kDouble);
          if (task_of(loss) == Task::kClasses) target = target.abs().mul(2).floor().clamp(0, 2);
          // Weights with the small buckets.
          const at::Tensor weights =
              options.bucket_bytes == 4096 ? at::arange(rows, target.options()).remainder(5) : at::Tensor();
          const auto weights_of = [&](int64_t from, int64_t to) {
            return weights.defined() ? weights.slice(0, from, to) : weights;
          };
          // Two batches a step, of which the second is the larger.
          double sum = 0;
          const int64_t middle = rows / 3;
          for (const bool second : {false, true}) {
            const int64_t from = second ? middle : 0, to = second ? rows : middle;
            const auto [begin, end] = share(trainer, trainers, to - from);
            sum += fused->gradients(features.slice(0, from + begin, from + end),
                                    target.slice(0, from + begin, from + end),
                                    weights_of(from + begin, from + end), 1.0 / static_cast<double>(rows),
                                    /*add=*/second, /*reduce=*/second);
          }
          const at::Tensor expected = summed_loss(config, whole->forward(features), target, weights);
          alone->backward(expected * alone->loss_scale(rows));
          if (trainers == 1) {
            EXPECT_NEAR(sum, expected.item<double>(), 1e-12 * expected.item<double>());
          }
          for (size_t i = 0; i < model->parameters().size(); ++i)
            expect_close(model->parameters()[i].tensor.grad(), whole->parameters()[i].tensor.grad(),
                         std::string(loss) + " " + model->parameters()[i].name + " with " +
                             std::to_string(rows) + " rows");
          optimizer->step();
          reference->step();
          alone->clear_gradients();
          for (size_t i = 0; i < model->parameters().size(); ++i)
            expect_close(model->parameters()[i].tensor.detach(), whole->parameters()[i].tensor.detach(),
                         loss);
        }
      }
    }
  }
}

/// Every kind of model with all that it can have: normalisation, dropout, embeddings.
std::vector<std::pair<ModelConfig, ModelInputs>> all_models() {
  const std::vector<EmbeddingInput> ids{{"zone", 7, 3}, {"day", 4, 2}};
  std::vector<std::pair<ModelConfig, ModelInputs>> models;
  for (const char* kind : {"mlp", "wide_deep", "dcn"}) {
    for (const bool whole : {false, true}) {
      ModelConfig config{.kind = kind, .hidden = {16, 8}};
      config.batch_norm = whole;
      config.dropout = whole ? 0.3 : 0;
      models.push_back({config, ModelInputs(4, ids)});
      if (whole) models.push_back({config, ModelInputs(4)});
      if (!whole) models.push_back({config, ModelInputs(0, ids)});
    }
  }
  return models;
}

TEST(DistributedDataParallel, EveryModelTrainsAsOnOneTrainer) {
  const int trainers = test_job().size(), trainer = test_job().rank();
  auto group = group_of(trainers);
  for (const auto& [kind, inputs] : all_models()) {
    const std::string name = kind.kind + (kind.batch_norm ? " with batch_norm and dropout" : "") + " of " +
                             std::to_string(inputs.width());
    TrainConfig config;
    config.learning_rate = 0.01;
    auto model = *make_model(kind, inputs, at::kDouble, 5), whole = *make_model(kind, inputs, at::kDouble, 5);
    auto parallel = *DistributedDataParallel::make(*model, group);
    auto alone = *DistributedDataParallel::make(*whole, nullptr);
    auto optimizer = *make_optimizer(config, model->parameters()),
         reference = *make_optimizer(config, whole->parameters());
    uint64_t number = 0;
    for (const int64_t rows : {40, 3, 1, 2, 41, 5}) {  // some trainers get nothing
      ++number;
      const auto [features, target] = batch_of(static_cast<int>(number), rows, 4);
      const at::Tensor ids =
          at::stack({at::arange(rows).mul(5).add(static_cast<int64_t>(number)).remainder(7),
                     at::arange(rows).remainder(4)},
                    1)
              .to(at::kInt);
      const at::Tensor weights = at::arange(rows, target.options()).remainder(3).add(0.5);
      const auto loss_of = [&](Model& its, int64_t begin, int64_t end) {
        ModelBatch batch(features.slice(0, begin, end).slice(1, 0, inputs.features));
        if (!inputs.embeddings.empty()) batch.ids = ids.slice(0, begin, end);
        batch.training = true;
        batch.step = number;
        batch.first_row = begin;
        return summed_loss(config, its.forward(batch), target.slice(0, begin, end),
                           weights.slice(0, begin, end));
      };
      const auto [begin, end] = share(trainer, trainers, rows);
      parallel->backward(loss_of(*model, begin, end) * parallel->loss_scale(rows));
      alone->backward(loss_of(*whole, 0, rows) * alone->loss_scale(rows));
      // Normalised by one row every gradient before it is nothing but rounding.
      if (rows > 1 || !kind.batch_norm) {
        for (size_t i = 0; i < model->parameters().size(); ++i)
          EXPECT_LE((model->parameters()[i].tensor.grad() - whole->parameters()[i].tensor.grad())
                        .abs()
                        .max()
                        .item<double>(),
                    1e-9 * (1 + whole->parameters()[i].tensor.grad().abs().max().item<double>()))
              << name << ", " << model->parameters()[i].name << ", " << rows << " rows";
        optimizer->step();
        reference->step();
      }
      parallel->clear_gradients();
      alone->clear_gradients();
    }
    // Adam divides by the gradient's size: where that is rounding alone, so is the step.
    for (size_t i = 0; i < model->buffers().size(); ++i)
      EXPECT_LE((model->buffers()[i].tensor - whole->buffers()[i].tensor).abs().max().item<double>(), 1e-6)
          << name << ", " << model->buffers()[i].name;
  }
}

TEST(DistributedDataParallel, StartsFromTheFirstTrainersWeights) {
  auto group = group_of(test_job().size());
  auto model = *make_model({"mlp", {8}}, 4, at::kFloat, static_cast<uint64_t>(test_job().rank()));
  auto first = *make_model({"mlp", {8}}, 4, at::kFloat, 0);
  auto parallel = *DistributedDataParallel::make(*model, group);
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_TRUE(model->parameters()[i].tensor.equal(first->parameters()[i].tensor));
    EXPECT_FALSE(model->parameters()[i].tensor.grad().defined());  // the pass over an empty batch leaves none
  }
}

TEST(DistributedDataParallel, DifferentModelsAreAnErrorOnEveryRank) {
  if (test_job().size() < 2) GTEST_SKIP() << "needs two trainers";
  auto group = group_of(test_job().size());
  auto model = *make_model({"mlp", {test_job().rank() == 1 ? 9 : 8}}, 4, at::kFloat, 0);
  const auto parallel = DistributedDataParallel::make(*model, group);
  EXPECT_EQ(
      parallel.status().message(),
      "the trainers have different models: trainer 1 has 'layers.0.weight Float [9, 4]' where trainer 0 has "
      "'layers.0.weight Float [8, 4]'");
}

TEST(DistributedDataParallel, ASubsetOfTheRanksTrains) {
  if (test_job().size() < 3) GTEST_SKIP() << "needs three ranks";
  auto group = group_of(2);
  if (!group) return;
  auto model = *make_model({"mlp", {8}}, 4, at::kDouble, 0);
  auto parallel = *DistributedDataParallel::make(*model, group);
  const auto [features, target] = batch_of(0, 10, 4);
  const auto [begin, end] = share(test_job().rank(), 2, 10);
  step(*parallel, *model, features, target, begin, end);
  EXPECT_TRUE(model->parameters()[0].tensor.grad().defined());
}

}  // namespace
}  // namespace millstream::train
