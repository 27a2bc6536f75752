// The loader in a loop of one's own, without a framework: a linear model of the taxi fares' distance, trained by plain
// stochastic gradient descent, on any number of ranks. It stops after so many steps and goes on where it left off, with
// exactly the batches that come next, on as many ranks as you like.
//
//   build/bin/own_loop data/taxi state 100        the first 100 steps; weights and place go to the file `state`
//   .venv/bin/mpiexec -n 3 build/bin/own_loop data/taxi state 1000000000        the rest, on three ranks

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "comm/job.h"
#include "exec/file_catalog.h"
#include "loader/data_loader.h"
#include "plan/frame.h"

using namespace millstream;  // NOLINT

const std::vector<std::string> kFeatures = {"trip_time", "base_passenger_fare", "tolls", "tips"};
constexpr double kRate = 0.1;

// The file: the loader's state in a line, then bias and weights, bit for bit.
std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The steps of one who has the whole batch: without GPUs one rank trains, the others prepare rows.
Status take_steps(DataLoader& loader, const std::string& path, int64_t most_steps,
                  std::vector<double> model) {
  const size_t width = kFeatures.size();
  double squares = 0;
  int64_t rows = 0, steps = 0;
  for (; steps < most_steps; ++steps) {
    MILLSTREAM_ASSIGN(const auto batch, loader.next());
    if (!batch) break;
    const float* const x = batch->floats(0);
    const float* const y = batch->floats(1);
    std::vector<double> gradient(model.size());
    for (int64_t i = 0; i < batch->rows; ++i) {
      double error = model[0] - y[i];
      for (size_t k = 0; k < width; ++k) error += model[k + 1] * x[i * width + k];
      gradient[0] += error;
      for (size_t k = 0; k < width; ++k) gradient[k + 1] += error * x[i * width + k];
      squares += error * error;
    }
    for (size_t k = 0; k < model.size(); ++k)
      model[k] -= kRate * gradient[k] / static_cast<double>(batch->rows);
    rows += batch->rows;
    loader.release();
  }
  std::printf("steps %lld  mean squared error %.6f  next %s\n", static_cast<long long>(steps),
              rows ? squares / static_cast<double>(rows) : 0.0, loader.state().c_str());
  std::ofstream file(path);
  file << loader.state() << "\n";
  for (const double value : model) {
    char text[40];
    std::snprintf(text, sizeof(text), "%a", value);
    file << text << "\n";
  }
  return file.flush() ? Status::OK() : make_error(ErrorCategory::kFile, path + " can't be written");
}

Status train_line(comm::Job& job, const std::string& trips, const std::string& path, int64_t most_steps) {
  MILLSTREAM_ASSIGN(const auto roles, comm::assign_roles(job.topology(), "auto"));
  loader::DataConfig data;
  data.train = scan(trips + "/fhvhv_tripdata_*.parquet").filter("trip_miles > 0 AND trip_time > 0");
  data.target = "trip_miles";
  data.features = {{.columns = kFeatures, .steps = {{"standard_scale", {}}}}};
  const auto catalog = exec::make_file_catalog(job.topology().ranks[job.rank()].threads);
  MILLSTREAM_ASSIGN(auto loader,
                    DataLoader::make(job, roles, *catalog, data, {.batch_size = 1024}, /*epochs=*/2));

  // Where an earlier run left off. All ranks give the loader the same state.
  std::vector<double> model(kFeatures.size() + 1);
  MILLSTREAM_ASSIGN(const std::string saved, job.world().broadcast_bytes(read_file(path), 0));
  if (!saved.empty()) {
    std::stringstream lines(saved);
    std::string state, number;
    std::getline(lines, state);
    for (double& value : model) {
      lines >> number;
      value = std::strtod(number.c_str(), nullptr);
    }
    MILLSTREAM_TRY(loader->load_state(state));
  }

  Status status;
  if (roles.is_trainer(job.rank())) status = take_steps(*loader, path, most_steps, model);
  if (!status.ok()) job.fail(status);  // wakes whoever waits for this rank
  // Ranks that only prepare rows wait here, while their threads do; then the loader may go on all of them.
  return job.agree(status);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: own_loop FOLDER_OF_TRIPS STATE_FILE STEPS\n");
    return 2;
  }
  auto job = comm::Job::start({});
  if (!job.ok()) {
    std::fprintf(stderr, "%s\n", job.status().message().c_str());
    return exit_code(job.status());
  }
  Status status = train_line(**job, argv[1], argv[2], std::atoll(argv[3]));
  const bool speaks = (*job)->rank() == 0;
  status = (*job)->finish(status);
  if (!status.ok() && speaks) std::fprintf(stderr, "%s\n", status.message().c_str());
  return exit_code(status);
}
