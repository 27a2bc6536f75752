// A model of one's own in C++, trained through the loader: a torch::nn::Module or a TorchScript module from a file, on the
// trips of examples/taxi.
//
//   build/bin/custom_example data/taxi             a residual network
//   build/bin/custom_example data/taxi net.pt      a TorchScript module: what it must be says train/script_model.h
//   .venv/bin/mpiexec -n 2 build/bin/custom_example data/taxi

#include <cstdio>

#include <torch/nn/modules/linear.h>

#include "comm/job.h"
#include "exec/file_catalog.h"
#include "loader/data_loader.h"
#include "train/distributed.h"
#include "train/metrics.h"
#include "train/module_model.h"
#include "train/optimizer.h"
#include "train/process_group.h"
#include "train/script_model.h"

using namespace millstream;  // NOLINT

class Residual : public torch::nn::Module {
 public:
  Residual(int64_t inputs, int64_t width, int blocks)
      : first_(register_module("first", torch::nn::Linear(inputs, width))),
        last_(register_module("last", torch::nn::Linear(width, 1))) {
    for (int i = 0; i < blocks; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i), torch::nn::Linear(width, width)));
  }
  at::Tensor forward(const at::Tensor& features) {
    at::Tensor x = at::relu(first_->forward(features));
    for (auto& block : blocks_) x = x + at::relu(block->forward(x));
    return last_->forward(x);
  }

 private:
  torch::nn::Linear first_, last_;
  std::vector<torch::nn::Linear> blocks_;
};

Status train_trips(comm::Job& job, const std::string& trips, const std::string& file) {
  MILLSTREAM_ASSIGN(const auto roles, comm::assign_roles(job.topology(), "auto"));
  loader::DataConfig data;
  data.train =
      "SELECT * FROM '" + trips + "/fhvhv_tripdata_*.parquet' WHERE trip_miles > 0 AND trip_time > 0";
  data.target = "trip_miles";
  data.features = {{.columns = {"trip_time", "base_passenger_fare", "tolls", "tips", "driver_pay"},
                    .steps = {{"standard_scale", {}}}}};
  data.valid_fraction = 0.1;
  const auto catalog = exec::make_file_catalog(job.topology().ranks[job.rank()].threads);
  MILLSTREAM_ASSIGN(auto loader,
                    loader::DataLoader::make(job, roles, *catalog, data, {.batch_size = 1024}, 2));

  std::vector<int> ranks;
  for (const auto& trainer : roles.trainers) ranks.push_back(trainer.rank);
  MILLSTREAM_ASSIGN(auto trainers, job.make_communicator(ranks));
  MILLSTREAM_ASSIGN(auto gradients, job.make_communicator(ranks));
  if (!trainers) return loader->finish();  // this rank only prepares rows

  // The module becomes a model; from here on nothing knows that it is not one of ours.
  at::manual_seed(0);
  const train::ModelInputs inputs = train::inputs_of(loader->survey().fitted);
  std::unique_ptr<train::Model> model;
  if (file.empty()) {
    model = std::make_unique<train::ModuleModel<Residual>>(std::make_shared<Residual>(inputs.features, 32, 2),
                                                           inputs,
                                                           /*outputs=*/1, at::kFloat, /*seed=*/0);
  } else {
    MILLSTREAM_ASSIGN(model, train::load_script_model(file, inputs, /*outputs=*/1, at::kFloat, /*seed=*/0));
  }
  MILLSTREAM_ASSIGN(const auto optimizer,
                    train::make_optimizer({.learning_rate = 1e-3}, model->parameters()));
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  if (roles.trainers.size() > 1) group = train::make_process_group(std::move(gradients), "gradients");
  MILLSTREAM_ASSIGN(const auto parallel, train::DistributedDataParallel::make(*model, group));

  train::RegressionSums test;
  uint64_t step = 0;
  while (true) {
    MILLSTREAM_ASSIGN(const auto batch, loader->next());
    if (!batch) break;
    train::ModelBatch rows(
        at::from_blob(const_cast<float*>(batch->floats(0)), {batch->rows, inputs.features}, at::kFloat));
    const at::Tensor target = at::from_blob(const_cast<float*>(batch->floats(1)), {batch->rows}, at::kFloat);
    if (batch->pass.kind == loader::PassKind::kTrain) {
      rows.training = true;
      rows.step = step++;
      rows.first_row = batch->first_row;
      const at::Tensor loss = at::mse_loss(model->forward(rows), target, at::Reduction::Sum);
      parallel->backward(loss * parallel->loss_scale(batch->global_rows));
      optimizer->step();
      parallel->clear_gradients();
    } else {
      if (batch->step == 0) test = {};
      const at::NoGradGuard no_gradient;
      const at::Tensor predicted = model->forward(rows).contiguous();
      test.add(predicted.data_ptr<float>(), target.data_ptr<float>(), batch->rows);
    }
    loader->release();
    if (batch->pass.kind == loader::PassKind::kValid && batch->step + 1 == loader->steps_per_validation()) {
      double sums[] = {test.squared_error, static_cast<double>(test.rows)};
      MILLSTREAM_TRY(trainers->all_reduce(sums, 2, comm::DataType::kDouble, comm::ReduceOp::kSum));
      if (trainers->rank() == 0)
        std::printf("epoch %d: test rmse %.4f miles, %lld parameters\n", static_cast<int>(batch->pass.epoch),
                    std::sqrt(sums[0] / sums[1]), static_cast<long long>(model->parameter_count()));
    }
  }
  return loader->finish();
}

int main(int argc, char** argv) {
  auto job = comm::Job::start({});
  if (!job.ok()) return std::fprintf(stderr, "%s\n", job.status().message().c_str()), exit_code(job.status());
  Status status = train_trips(**job, argc > 1 ? argv[1] : "data/taxi", argc > 2 ? argv[2] : "");
  if (!status.ok()) (*job)->fail(status);  // wakes whoever waits for this rank
  const bool speaks = (*job)->rank() == 0;
  status = (*job)->finish(status);
  if (!status.ok() && speaks) std::fprintf(stderr, "%s\n", status.message().c_str());
  return exit_code(status);
}
