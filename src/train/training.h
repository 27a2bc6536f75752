#pragma once
// Training, prediction and evaluation, as the program and the C++ API call them. No torch in this header: it
// is the face of libmillstream_train.so, which is opened only by commands that need it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/job.h"
#include "loader/data_loader.h"
#include "train/config.h"

namespace millstream::train {

struct TrainJob {
  loader::DataConfig data;
  loader::LoaderConfig loader;
  ModelConfig model;
  TrainConfig train;
  std::string out_directory;  ///< the run directory; made by rank 0
  bool overwrite = false;
  /// Where to go on from: a run directory or one of its checkpoints; "auto": out_directory if there is a checkpoint in
  /// it, else a new run; empty: a new run.
  std::string resume;
  bool resume_anyway = false;  ///< though recipe or data have changed
  bool trace = false;
  std::string recipe_text;  ///< kept in the run directory
};

/// What `train --json` prints; the same on every rank.
struct TrainSummary {
  int64_t rows = 0;  ///< rows trained on, all epochs together, those before a resumption too
  int64_t rows_dropped = 0;
  int64_t steps = 0;
  int64_t epochs = 0;           ///< fewer than asked for where training stopped early
  int64_t resumed_at_step = 0;  ///< 0: a new run
  int ranks = 0, trainers = 0;
  int64_t parameters = 0;
  double seconds_total = 0, seconds_survey = 0, seconds_to_first_batch = 0, seconds_training = 0;
  double rows_per_second = 0;  ///< training phase
  double wait_fraction = 0;    ///< mean over trainers
  double loss_first = 0;       ///< mean of the first batch
  double loss_last = 0;        ///< mean of the last twentieth of an epoch
  std::map<std::string, double> valid;
  std::map<std::string, double> test;  ///< of the bundled weights on the test rows
  int64_t rows_test = 0;
  std::vector<loader::DroppedRows> dropped;  ///< what was left out and why
  int64_t peak_rss_bytes = 0;                ///< largest rank
  std::string bundle, run;
  std::string bottleneck;  ///< one line for people
};

/// Called a few times a second on the rank of trainer 0 (roles.trainers[0].rank), which need not be rank 0.
struct TrainProgress {
  int64_t epoch = 0, epochs = 0;  ///< from 0
  int64_t step = 0, steps = 0;    ///< done of the epoch's
  int64_t rows = 0;               ///< so far, all epochs
  double rows_per_second = 0, loss = 0, wait_fraction = 0, seconds_left = 0;
};

struct PredictJob {
  std::string bundle;
  std::vector<std::string> inputs;
  /// predict: NAME.parquet with a column "prediction" (float32; float64 of a float64 model), one row an input row in
  /// row order: the value; with the loss bce the probability of 1; with cross_entropy the most probable class (int64),
  /// beside it a column "probability" with its probability. Null only where a null input would have left the row out of training (on_null = "drop").
  std::string output;
  bool overwrite = false;
  /// predict: a column that the inputs lack is one of nulls. Else it is an error.
  bool missing_as_null = false;
  loader::LoaderConfig loader;
  /// evaluate: not `inputs` but the test rows of this data, of which the bundle was made.
  const loader::DataConfig* test_of = nullptr;
};
struct ExportJob {
  std::string bundle;
  std::string format;  ///< torchscript, state_dict
  std::string output;
  bool overwrite = false;
};
struct EvaluateSummary {
  int64_t rows = 0;
  std::map<std::string, double> metrics;
};

/// The functions of the library. Collective over the job's ranks; errors are agreed (the same on every rank).
struct TrainLibrary {
  Result<TrainSummary> (*train)(comm::Job&, const comm::Roles&, plan::Catalog&, const TrainJob&,
                                const std::function<void(const TrainProgress&)>&);
  Result<int64_t> (*predict)(comm::Job&, plan::Catalog&, const PredictJob&);  ///< rows written
  Result<EvaluateSummary> (*evaluate)(comm::Job&, plan::Catalog&, const PredictJob&);
  std::string (*torch_version)();
  Status (*export_bundle)(const ExportJob&);  ///< of one rank alone
};
/// Opens libmillstream_train.so (beside this program's library) once. Errors say which library is missing.
/// In the static library millstream_train_opener (src/train/library.cc), which sees no torch: link that one.
Result<const TrainLibrary*> open_train_library();

}  // namespace millstream::train
