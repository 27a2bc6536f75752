#pragma once
// The loop of one trainer: takes the loader's batches pass by pass, steps, validates, reports.
//
// 1. Every trainer runs it over the same passes. Numbers that are reported (losses, metrics) are those of all rows of
//    all trainers; they are put together at fixed steps, the same on all, in the order of trainers.
// 2. It ends with the stream, or with an error: a loss that is not finite, a signal, a failure of the job. The caller
//    tells the job.
// 3. Progress, metrics.jsonl and checkpoints are the affair of trainer 0 alone.
// 4. Trainers agree at fixed batches, about 20 times a second, whether a signal came to one of them: SIGINT and SIGTERM
//    end the loop after a step of the optimizer and a checkpoint, SIGUSR1 only makes one. Checkpoints lie between steps
//    of the optimizer.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/job.h"
#include "loader/data_loader.h"
#include "train/checkpoint.h"
#include "train/model.h"
#include "train/run_directory.h"
#include "train/training.h"

namespace millstream::train {

struct TrainerSetting {
  const TrainConfig& config;
  const ModelConfig& model;
  int64_t batch_size = 0;
  /// Of the trainers; null with one.
  std::unique_ptr<comm::Communicator> gradients;
  std::unique_ptr<comm::Communicator> reports;
  int trainer = 0;
  std::string run;                       ///< the run directory; empty: nothing is written
  std::string run_name;                  ///< the same as the user names it, on every trainer
  std::vector<std::string> first_lines;  ///< of metrics.jsonl, of a new run
  const Checkpoint* resume = nullptr;
  std::map<std::string, std::string> recipe;  ///< of checkpoints
  std::function<void(const TrainProgress&)> progress;
};

struct TrainerResult {
  int64_t rows = 0;      ///< of all trainers
  int64_t rows_now = 0;  ///< of those, since the start or the resumption
  int64_t steps = 0;     ///< batches
  int64_t epochs = 0;
  bool stopped_early = false;   ///< train.patience ran out: batches are left that nobody takes
  double seconds_training = 0;  ///< from the first batch to the end of the last pass
  double seconds_waiting = 0;   ///< of those
  double seconds_to_first_batch = 0;
  double loss_first = 0;  ///< mean of the first batch
  double loss_last = 0;   ///< mean since the report before the last one: a twentieth of an epoch
  std::map<std::string, double> valid;  ///< of `weights`
  int64_t rows_valid = 0;
  int64_t parameters = 0;
  std::vector<StoredTensor> weights;  ///< the best by validation, else the last; trainer 0 only
};

Result<TrainerResult> run_trainer(comm::Job& job, loader::DataLoader& loader, TrainerSetting setting);

}  // namespace millstream::train
