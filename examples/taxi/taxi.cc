// taxi.toml in C++, with a training loop of one's own: TaxiDemandNN on New York's for-hire trips.
//
//   build/bin/taxi_example data/taxi
//   .venv/bin/mpiexec -n 2 build/bin/taxi_example data/taxi

#include <cstdio>

#include "comm/job.h"
#include "exec/file_catalog.h"
#include "loader/data_loader.h"
#include "plan/frame.h"
#include "train/distributed.h"
#include "train/metrics.h"
#include "train/model.h"
#include "train/optimizer.h"
#include "train/process_group.h"

using namespace millstream;  // NOLINT

const std::vector<std::string> kFeatures = {
    "PULocationID", "DOLocationID", "trip_time", "base_passenger_fare",
    "tolls",        "sales_tax",    "tips",      "driver_pay"};

at::Tensor tensor(const loader::Batch& batch, int segment, int64_t columns) {
  return at::from_blob(const_cast<float*>(batch.floats(segment)), {batch.rows, columns}, at::kFloat);
}

Status train_taxi(comm::Job& job, const std::string& trips) {
  // Which ranks train, and the data: a lazy frame, scaled features, a tenth of the rows kept for testing.
  MILLSTREAM_ASSIGN(const auto roles, comm::assign_roles(job.topology(), "auto"));
  loader::DataConfig data;
  data.train = scan(trips + "/fhvhv_tripdata_*.parquet").filter("trip_miles > 0 AND trip_time > 0");
  data.target = "trip_miles";
  data.features = {{.columns = kFeatures, .steps = {{"standard_scale", {}}}}};
  data.valid_fraction = 0.1;
  const auto catalog = exec::make_file_catalog(job.topology().ranks[job.rank()].threads);
  MILLSTREAM_ASSIGN(auto loader,
                    loader::DataLoader::make(job, roles, *catalog, data, {.batch_size = 1024}, 5));

  std::vector<int> ranks;
  for (const auto& trainer : roles.trainers) ranks.push_back(trainer.rank);
  MILLSTREAM_ASSIGN(auto trainers, job.make_communicator(ranks));
  MILLSTREAM_ASSIGN(auto gradients, job.make_communicator(ranks));
  if (!trainers) return loader->finish();  // this rank only prepares rows

  // The model, its optimiser, and its replicas.
  MILLSTREAM_ASSIGN(const auto model,
                    train::make_model({.hidden = {64, 32}}, kFeatures.size(), at::kFloat, /*seed=*/0));
  MILLSTREAM_ASSIGN(const auto optimizer,
                    train::make_optimizer({.learning_rate = 1e-3}, model->parameters()));
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  if (roles.trainers.size() > 1) group = train::make_process_group(std::move(gradients), "gradients");
  MILLSTREAM_ASSIGN(const auto parallel, train::DistributedDataParallel::make(*model, group));

  // The loop. While a step runs, the other threads and ranks fill the next batches.
  train::RegressionSums test;
  while (true) {
    MILLSTREAM_ASSIGN(const auto batch, loader->next());
    if (!batch) break;
    const auto features = tensor(*batch, 0, static_cast<int64_t>(kFeatures.size()));
    const auto target = tensor(*batch, 1, 1).squeeze(1);
    if (batch->pass.kind == loader::PassKind::kTrain) {
      parallel->clear_gradients();
      const auto loss = at::mse_loss(model->forward(features), target, at::Reduction::Sum);
      parallel->backward(loss * parallel->loss_scale(batch->global_rows));
      optimizer->step();
    } else {
      if (batch->step == 0) test = {};
      at::NoGradGuard no_gradient;
      const auto predicted = model->forward(features).contiguous();
      test.add(predicted.data_ptr<float>(), target.data_ptr<float>(), batch->rows);
    }
    loader->release();
    if (batch->pass.kind == loader::PassKind::kValid && batch->step + 1 == loader->steps_per_validation()) {
      double sums[] = {test.squared_error, static_cast<double>(test.rows)};
      MILLSTREAM_TRY(trainers->all_reduce(sums, 2, comm::DataType::kDouble, comm::ReduceOp::kSum));
      if (trainers->rank() == 0)
        std::printf("epoch %d: test rmse %.4f miles over %.0f trips\n", static_cast<int>(batch->pass.epoch),
                    std::sqrt(sums[0] / sums[1]), sums[1]);
    }
  }
  return loader->finish();
}

int main(int argc, char** argv) {
  auto job = comm::Job::start({});
  if (!job.ok()) return std::fprintf(stderr, "%s\n", job.status().message().c_str()), exit_code(job.status());
  Status status = train_taxi(**job, argc > 1 ? argv[1] : "data/taxi");
  if (!status.ok()) (*job)->fail(status);  // wakes whoever waits for this rank
  const bool speaks = (*job)->rank() == 0;
  status = (*job)->finish(status);
  if (!status.ok() && speaks) std::fprintf(stderr, "%s\n", status.message().c_str());
  return exit_code(status);
}
