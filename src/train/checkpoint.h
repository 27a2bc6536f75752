#pragma once
// Checkpoints: all that a run needs to go on as if it had not been interrupted. A run directory has
//   checkpoints/step-N/state.safetensors   tensors: model.*, optimizer.*, best.*
//   checkpoints/step-N/checkpoint.json     position, counts, metrics, and what the run depends on
//   checkpoints/step-N/checksums           XXH3-128 of the two
// N counts the batches that were trained on.
//
// 1. A checkpoint is whole or absent: it is written beside its place, synced, and renamed. One that can't be written
//    leaves the ones before untouched.
// 2. Reading verifies the checksums; nothing in a checkpoint is code.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "train/safetensors.h"

namespace millstream::train {

struct Checkpoint {
  int64_t epoch = 0, step = 0;  ///< where the loader goes on: loader::StreamPosition
  int64_t batches = 0;          ///< trained on
  int64_t updates = 0;          ///< steps of the optimizer
  int64_t rows = 0;
  int64_t epochs_done = 0;
  std::string survey_key;
  /// What the weights depend on, beside the data: recipe keys and their values as text.
  std::map<std::string, std::string> recipe;

  // What reports go on from, of all trainers.
  double window_loss = 0, epoch_loss = 0, last_loss = 0, loss_first = 0;
  double window_rows = 0, epoch_rows = 0;  ///< by their weights
  int64_t metrics_bytes = 0;               ///< of metrics.jsonl

  bool has_best = false;
  double best = 0;
  int64_t epochs_since_best = 0, rows_valid = 0;
  std::map<std::string, double> valid;  ///< of the best weights

  std::vector<StoredTensor> state;
};

/// Writes `run`/checkpoints/step-N and removes all but the newest `keep`. A file error says what is kept.
Status write_checkpoint(const std::string& run, const Checkpoint& checkpoint, int64_t keep);
/// Data errors name the file that is damaged.
Result<Checkpoint> read_checkpoint(const std::string& path);
/// The checkpoints of a run, newest first. Empty also where there is no such folder.
std::vector<std::string> list_checkpoints(const std::string& run);

/// A checkpoint as one piece of text and back, for other ranks.
std::string encode_checkpoint(const Checkpoint& checkpoint);
Result<Checkpoint> decode_checkpoint(std::string_view bytes);

/// A usage error that says what differs between the checkpoint and the run that wants to go on from it.
Status compare_runs(const Checkpoint& checkpoint, const std::map<std::string, std::string>& recipe);

}  // namespace millstream::train
