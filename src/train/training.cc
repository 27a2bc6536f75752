// Training as a job of ranks: the run directory, the loader, the trainers' loops, and what they leave behind.
#include <filesystem>

#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <torch/headeronly/version.h>

#include "base/cpu_share.h"
#include "base/interrupt.h"
#include "base/keep_memory.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/trace.h"
#include "base/trace_clock.h"
#include "comm/clock.h"
#include "features/fitted_json.h"
#include "loader/bottleneck.h"
#include "plan/planner.h"
#include "train/bundle.h"
#include "train/checkpoint.h"
#include "train/library_functions.h"
#include "train/process_group.h"
#include "train/run_directory.h"
#include "train/torch_error.h"
#include "train/trainer.h"

namespace millstream::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kStoppedEarly = "training stopped early";

double seconds_since(int64_t begin_ns) {
  return static_cast<double>(monotonic_ns() - begin_ns) * 1e-9;
}

/// Metrics travel in JSON, where NaN has no place.
Json metrics_to_json(const std::map<std::string, double>& metrics) {
  Json json = Json::object();
  for (const auto& [name, value] : metrics) json[name] = value;
  return json;
}

/// What each rank adds to the summary.
Json describe_rank(const loader::LoaderCounters& counters,
                   const std::vector<loader::LoaderCounters>& by_epoch, const TrainerResult* trained) {
  Json json = {{"waiting", counters.seconds_waiting},
               {"reading", counters.seconds_reading},
               {"computing", counters.seconds_computing},
               {"sending", counters.seconds_sending},
               {"for_room", counters.seconds_for_room},
               {"survey", counters.seconds_survey},
               {"feeding_threads", counters.feeding_threads},
               {"reducing", seconds_in_collectives()},
               {"peak_rss", peak_rss_bytes()},
               {"trained", trained != nullptr}};
  for (const loader::LoaderCounters& epoch : by_epoch) {
    json["epochs_of_loader"].push_back({{"waiting", epoch.seconds_waiting},
                                        {"reading", epoch.seconds_reading},
                                        {"computing", epoch.seconds_computing},
                                        {"sending", epoch.seconds_sending},
                                        {"for_room", epoch.seconds_for_room}});
  }
  if (trained != nullptr) {
    json["rows"] = trained->rows;
    json["rows_now"] = trained->rows_now;
    json["steps"] = trained->steps;
    json["epochs"] = trained->epochs;
    json["seconds_training"] = trained->seconds_training;
    json["seconds_waiting"] = trained->seconds_waiting;
    json["seconds_to_first_batch"] = trained->seconds_to_first_batch;
    json["loss_first"] = trained->loss_first;
    json["loss_last"] = trained->loss_last;
    json["parameters"] = trained->parameters;
    json["rows_valid"] = trained->rows_valid;
    json["valid"] = metrics_to_json(trained->valid);
  }
  return json;
}

/// One line: what the training waited for, where, and what would help.
std::string describe_bottleneck(const std::vector<Json>& ranks, const loader::RunFacts& facts) {
  std::vector<loader::RankAccount> accounts;
  for (const Json& rank : ranks) {
    loader::RankAccount account;
    account.loader.seconds_reading = rank["reading"];
    account.loader.seconds_computing = rank["computing"];
    account.loader.seconds_sending = rank["sending"];
    account.loader.seconds_for_room = rank["for_room"];
    account.feeding_threads = rank["feeding_threads"];
    account.trained = rank["trained"];
    if (account.trained) {
      account.loader.seconds_waiting = rank["seconds_waiting"];
      account.seconds_training = rank["seconds_training"];
      account.seconds_reducing = rank["reducing"];
    }
    accounts.push_back(account);
  }
  return loader::describe_bottleneck(accounts, facts);
}

/// RUN/accounting.json: the seconds of each rank, in all and by epoch.
Status write_accounting(const std::string& directory, const std::vector<Json>& ranks) {
  Json json = {{"ranks", ranks}};
  for (Json& rank : json["ranks"]) rank.erase("valid");
  return write_file_durably((std::filesystem::path(directory) / "accounting.json").string(),
                            json.dump(1) + "\n");
}

TrainSummary summarize(const std::vector<Json>& ranks, const comm::Roles& roles, const TrainJob& job,
                       const loader::SurveyResult& survey, int64_t sources) {
  const Json& first = ranks[static_cast<size_t>(roles.trainers[0].rank)];
  TrainSummary summary;
  summary.rows = first["rows"];
  summary.rows_dropped = survey.rows_dropped;
  summary.dropped = survey.dropped;
  summary.steps = first["steps"];
  summary.epochs = first["epochs"];
  summary.ranks = static_cast<int>(ranks.size());
  summary.trainers = static_cast<int>(roles.trainers.size());
  summary.parameters = first["parameters"];
  summary.loss_first = first["loss_first"];
  summary.loss_last = first["loss_last"];
  for (const auto& [name, value] : first["valid"].items()) summary.valid[name] = value;
  summary.seconds_to_first_batch = first["seconds_to_first_batch"];
  summary.seconds_training = first["seconds_training"];
  if (summary.seconds_training > 0)
    summary.rows_per_second = first["rows_now"].get<double>() / summary.seconds_training;
  for (const comm::Trainer& trainer : roles.trainers) {
    const Json& its = ranks[static_cast<size_t>(trainer.rank)];
    const double seconds = its["seconds_training"];
    if (seconds > 0) summary.wait_fraction += its["seconds_waiting"].get<double>() / seconds;
  }
  summary.wait_fraction /= static_cast<double>(roles.trainers.size());
  for (const Json& rank : ranks) {
    summary.seconds_survey = std::max(summary.seconds_survey, rank["survey"].get<double>());
    summary.peak_rss_bytes = std::max(summary.peak_rss_bytes, rank["peak_rss"].get<int64_t>());
  }
  summary.bottleneck = describe_bottleneck(ranks, {.epochs = job.train.epochs,
                                                   .batch_size = job.loader.batch_size,
                                                   .sources = sources,
                                                   .shuffle = job.loader.shuffle,
                                                   .cache = survey.cache});
  summary.run = job.out_directory;
  summary.bundle = (std::filesystem::path(job.out_directory) / "bundle").string();
  return summary;
}

/// What rank 0 knows of the bundle before training.
Result<Bundle> begin_bundle(const TrainJob& job, plan::Catalog& catalog, const loader::SurveyResult& survey) {
  Bundle bundle;
  bundle.millstream_version = MILLSTREAM_VERSION;
  bundle.query = job.data.train;
  bundle.target = job.data.target;
  bundle.on_null_target = job.data.on_null_target;
  bundle.features = job.data.features;
  bundle.model = job.model;
  bundle.precision = job.train.precision;
  bundle.loss = job.train.loss;
  bundle.seed = job.train.seed;
  bundle.batch_size = job.loader.batch_size;
  bundle.rows_train = survey.rows_train;
  bundle.model_inputs = static_cast<int64_t>(survey.fitted.columns.size());
  // Prediction has no target and splits nothing: the features are described without what comes after them.
  features::Fitted fitted = survey.fitted;
  const int target = fitted.input->GetFieldIndex(job.data.target);
  if (target >= 0)
    fitted.input = arrow::schema(
        arrow::FieldVector(fitted.input->fields().begin(), fitted.input->fields().begin() + target));
  MILLSTREAM_ASSIGN(bundle.fitted_json, features::fitted_to_json(fitted));
  for (const features::FeatureColumn& column : fitted.columns)
    expr::collect_tables(*column.expression, bundle.tables);
  MILLSTREAM_ASSIGN(const plan::NodePtr plan,
                    plan::plan_query(job.data.train, catalog, {"data.train", job.data.base_directory, {}}));
  if (!plan::streams(*plan)) {
    MILLSTREAM_TRY(describe_whole_query(*plan, job.data.base_directory, bundle));
    return bundle;
  }
  MILLSTREAM_ASSIGN(const plan::Pipeline pipeline, plan::to_pipeline(plan));
  MILLSTREAM_TRY(describe_query(pipeline, features::feature_inputs(job.data.features), bundle));
  return bundle;
}

Status write_trace(comm::Job& job, const std::string& directory) {
  MILLSTREAM_ASSIGN(const auto offsets, comm::clock_offsets(job));
  const std::string mine = trace_events_json(job.rank(), offsets[static_cast<size_t>(job.rank())]);
  MILLSTREAM_ASSIGN(const auto parts, job.world().allgather_bytes(mine));
  if (job.rank() != 0) return Status::OK();
  std::string text = "{\"traceEvents\":[\n";
  bool first = true;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (!first) text += ",\n";
    text += part;
    first = false;
  }
  text += "\n]}\n";
  return write_file_durably((std::filesystem::path(directory) / "trace.json").string(), text);
}

/// A thread is worth its synchronisation only where a step gives it milliseconds of work; a trainer that feeds too
/// keeps a core for that.
void set_torch_threads(const comm::Job& job, const comm::Roles& roles, const TrainJob& work) {
  constexpr double kWorkOfThread = 2e8;  // multiplications and additions
  int threads = work.loader.threads;
  if (threads <= 0) threads = job.topology().ranks[static_cast<size_t>(job.rank())].threads;
  if (roles.is_feeder(job.rank())) --threads;
  double width = 0, weights = 0;
  for (const features::FeatureSpec& spec : work.data.features)
    width += static_cast<double>(spec.columns.size());
  for (const int64_t hidden : work.model.hidden) {
    weights += width * static_cast<double>(hidden);
    width = static_cast<double>(hidden);
  }
  weights += width * static_cast<double>(work.model.outputs());
  const double rows =
      static_cast<double>(work.loader.batch_size) / static_cast<double>(roles.trainers.size());
  const double useful =
      6 * weights * rows / kWorkOfThread;  // forward and twice that backward, two operations each
  at::set_num_threads(static_cast<int>(std::max(1.0, std::min<double>(threads, useful))));
}

/// Everything between two agreements goes through here: a rank that fails, or that a failing peer interrupts in a
/// collective, comes to the agreement like the others.
template <class Body>
Status agree_on(comm::Job& job, Body&& body) {
  return job.agree(catch_torch("training", body));
}

/// What decides the weights beside the data, as recipe keys. What only decides when and how much is not in it.
std::map<std::string, std::string> describe_run(const TrainJob& work) {
  const TrainConfig& train = work.train;
  std::map<std::string, std::string> out;
  const auto add = [&](const char* key, const auto& value) { out[key] = fmt::format("{}", value); };
  add("data.train", work.data.train);
  if (work.data.valid || work.data.valid_if)
    add("data.valid", work.data.valid ? *work.data.valid : *work.data.valid_if);
  else
    add("data.valid", work.data.valid_fraction);
  if (work.data.test || work.data.test_if)
    add("data.test", work.data.test ? *work.data.test : *work.data.test_if);
  else if (work.data.test_fraction > 0)
    add("data.test", work.data.test_fraction);
  if (!work.data.split_by.empty()) add("data.split_by", work.data.split_by);
  if (!work.data.stratify_by.empty()) add("data.stratify_by", work.data.stratify_by);
  if (work.data.folds > 0) {
    add("data.folds", work.data.folds);
    add("data.fold", work.data.fold);
  }
  if (work.data.on_corrupt == loader::OnCorrupt::kSkip) add("data.on_corrupt", "skip");
  add("data.target", work.data.target);
  add("data.on_null_target", work.data.on_null_target == features::OnNull::kDrop ? "drop" : "error");
  add("--limit-rows", work.data.limit_rows);
  std::string features;
  for (const features::FeatureSpec& spec : work.data.features) {
    features += spec.on_null == features::OnNull::kDrop ? "drop [" : "[";
    if (spec.on_nan != features::OnNan::kSame)
      features += fmt::format("nan {} ", static_cast<int>(spec.on_nan));
    for (const std::string& column : spec.columns) features += column + " ";
    features += "]:";
    for (const features::StepSpec& step : spec.steps) features += " " + features::step_text(step);
    features += "; ";
  }
  add("feature", features);
  add("loader.batch_size", work.loader.batch_size);
  add("loader.shuffle", work.loader.shuffle == loader::Shuffle::kNone   ? "none"
                        : work.loader.shuffle == loader::Shuffle::kFull ? "full"
                                                                        : "window");
  if (work.loader.shuffle == loader::Shuffle::kWindow) {
    add("loader.window", work.loader.window);
    add("loader.lanes", work.loader.lanes);
  }
  add("model.kind", work.model.kind);
  std::string hidden;
  for (const int64_t width : work.model.hidden)
    hidden += fmt::format("{}{}", hidden.empty() ? "" : ", ", width);
  add("model.hidden", "[" + hidden + "]");
  add("model.classes", work.model.classes);
  if (!work.data.weight.empty()) add("data.weight", work.data.weight);
  // Keys that came later are there where they are set, so that older checkpoints still fit.
  if (work.model.dropout > 0) add("model.dropout", work.model.dropout);
  if (work.model.batch_norm) add("model.batch_norm", true);
  if (work.model.init != "torch") add("model.init", work.model.init);
  if (work.model.kind == "dcn") add("model.cross_layers", work.model.cross_layers);
  if (!train.class_weights.empty())
    add("train.class_weights", fmt::format("[{}]", fmt::join(train.class_weights, ", ")));
  add("train.optimizer", train.optimizer);
  add("train.learning_rate", train.learning_rate);
  add("train.schedule", train.schedule);
  add("train.warmup_steps", train.warmup_steps);
  add("train.learning_rate_end", train.learning_rate_end);
  add("train.decay_every", train.decay_every);
  add("train.decay_factor", train.decay_factor);
  // A schedule that ends is another one over more epochs.
  if (train.schedule == "linear" || train.schedule == "cosine") add("train.epochs", train.epochs);
  add("train.weight_decay", train.weight_decay);
  add("train.momentum", train.momentum);
  add("train.clip_norm", train.clip_norm);
  add("train.accumulate", train.accumulate);
  add("train.loss", train.loss);
  add("train.huber_delta", train.huber_delta);
  add("train.seed", train.seed);
  add("train.precision", train.precision);
  return out;
}

/// Where a run begins: rank 0 looks, all learn.
struct Beginning {
  std::string out_directory;
  std::optional<Checkpoint> checkpoint;
};

/// The newest checkpoint of the run that is whole.
Result<std::optional<Checkpoint>> newest_checkpoint(const std::string& run) {
  Status newest;
  for (const std::string& path : list_checkpoints(run)) {
    auto checkpoint = read_checkpoint(path);
    if (checkpoint.ok()) {
      if (!newest.ok()) notice_f("{}; going on from {}", newest.message(), path);
      return std::move(checkpoint).ValueUnsafe();
    }
    if (newest.ok()) newest = checkpoint.status();
  }
  MILLSTREAM_TRY(newest);
  return std::nullopt;
}

Result<Beginning> prepare_beginning(const TrainJob& work) {
  namespace fs = std::filesystem;
  Beginning beginning{work.out_directory, {}};
  if (work.resume == "auto") {
    MILLSTREAM_ASSIGN(beginning.checkpoint, newest_checkpoint(work.out_directory));
  } else if (!work.resume.empty()) {
    std::error_code error;
    const fs::path path = fs::path(work.resume).lexically_normal();
    if (fs::exists(path / "checkpoint.json", error)) {
      beginning.out_directory = path.parent_path().parent_path().string();
      if (beginning.out_directory.empty()) beginning.out_directory = ".";
      MILLSTREAM_ASSIGN(beginning.checkpoint, read_checkpoint(path.string()));
    } else {
      beginning.out_directory = work.resume;
      MILLSTREAM_ASSIGN(beginning.checkpoint, newest_checkpoint(work.resume));
      if (!beginning.checkpoint)
        return file_error("there is no checkpoint in {}/checkpoints to go on from", work.resume);
    }
  }
  if (beginning.checkpoint) {
    if (!work.resume_anyway) MILLSTREAM_TRY(compare_runs(*beginning.checkpoint, describe_run(work)));
    MILLSTREAM_TRY(reopen_run_directory(beginning.out_directory));
  } else {
    // A run that was interrupted before its first checkpoint starts again in its place.
    const bool overwrite =
        work.overwrite || (work.resume == "auto" && fs::exists(fs::path(work.out_directory) / "recipe.toml"));
    MILLSTREAM_TRY(prepare_run_directory(beginning.out_directory, overwrite));
  }
  MILLSTREAM_TRY(
      write_file_durably((fs::path(beginning.out_directory) / "recipe.toml").string(), work.recipe_text));
  return beginning;
}

Result<Beginning> share_beginning(comm::Job& job, const TrainJob& work) {
  Beginning beginning;
  std::string directory, checkpoint;
  if (job.rank() == 0) {
    MILLSTREAM_ASSIGN(beginning, prepare_beginning(work));
    directory = beginning.out_directory;
    if (beginning.checkpoint) checkpoint = encode_checkpoint(*beginning.checkpoint);
  }
  MILLSTREAM_ASSIGN(beginning.out_directory, job.world().broadcast_bytes(directory, 0));
  MILLSTREAM_ASSIGN(checkpoint, job.world().broadcast_bytes(checkpoint, 0));
  if (!checkpoint.empty() && job.rank() != 0) {
    MILLSTREAM_ASSIGN(beginning.checkpoint, decode_checkpoint(checkpoint));
  }
  return beginning;
}

Result<TrainSummary> train_job(comm::Job& job, const comm::Roles& roles, plan::Catalog& catalog,
                               const TrainJob& asked,
                               const std::function<void(const TrainProgress&)>& progress) {
  const int64_t begin_ns = monotonic_ns();
  const bool is_first = job.rank() == 0;
  TrainJob work = asked;
  Beginning beginning;
  MILLSTREAM_TRY(agree_on(job, [&]() -> Status {
    MILLSTREAM_TRY(validate(work.model, work.train));
    MILLSTREAM_ASSIGN(beginning, share_beginning(job, work));
    return Status::OK();
  }));
  work.out_directory = beginning.out_directory;
  const Checkpoint* resume = beginning.checkpoint ? &*beginning.checkpoint : nullptr;
  if (resume != nullptr) {
    work.loader.start_epoch = resume->epoch;
    work.loader.start_step = resume->step;
    if (is_first) notice_f("going on from step {} in {}", resume->batches, work.out_directory);
  }
  if (is_first && !roles.trainers.empty() && roles.trainers[0].device >= 0) {
    notice("trainers have GPUs, which this version does not use: training runs on their CPUs");
  }
  keep_freed_memory();
  set_torch_threads(job, roles, work);

  MILLSTREAM_ASSIGN(auto loader,
                    loader::DataLoader::make(job, roles, catalog, work.data, work.loader, work.train.epochs));

  if (resume != nullptr && !work.resume_anyway && resume->survey_key != loader->survey_key()) {
    const Status changed = usage_error(
        "this is not the run that was interrupted: its data has changed (the names, sizes, times or contents "
        "of the "
        "files); bring it back, start a new run with another --out, or go on all the same with "
        "--resume-anyway");
    job.fail(changed);
    (void)loader->finish();
    return job.agree(changed);
  }
  // From here on a signal is the trainers' affair, who end after their step. Other ranks end with them.
  constexpr int64_t kPatienceSeconds = 15;
  std::optional<PatientInterrupt> patient(std::in_place, kPatienceSeconds);

  std::vector<int> trainer_ranks;
  for (const comm::Trainer& trainer : roles.trainers) trainer_ranks.push_back(trainer.rank);
  const int index = roles.trainer_index(job.rank());
  Bundle bundle;
  std::optional<TrainerResult> trained;
  Status status = catch_torch("training", [&]() -> Status {
    TrainerSetting setting{.config = work.train, .model = work.model, .batch_size = work.loader.batch_size};
    setting.trainer = index;
    setting.run_name = work.out_directory;
    setting.resume = resume;
    setting.recipe = describe_run(work);
    if (trainer_ranks.size() > 1) {
      MILLSTREAM_ASSIGN(setting.gradients, job.make_communicator(trainer_ranks));
      MILLSTREAM_ASSIGN(setting.reports, job.make_communicator(trainer_ranks));
    }
    if (is_first) {
      MILLSTREAM_ASSIGN(bundle, begin_bundle(work, catalog, loader->survey()));
    }
    if (index < 0) return Status::OK();
    if (index == 0) {
      setting.run = work.out_directory;
      for (const loader::DroppedRows& dropped : loader->survey().dropped) {
        Json line = {
            {"kind", "dropped"}, {"file", dropped.file}, {"reason", dropped.reason}, {"rows", dropped.rows}};
        if (!dropped.column.empty()) line["column"] = dropped.column;
        if (dropped.row_groups > 0) line["row_groups"] = dropped.row_groups;
        if (dropped.validation) line["validation"] = true;
        setting.first_lines.push_back(line.dump(-1, ' ', false, Json::error_handler_t::replace));
      }
      setting.progress = progress;
    }
    MILLSTREAM_ASSIGN(trained, run_trainer(job, *loader, std::move(setting)));
    return Status::OK();
  });
  if (!status.ok()) job.fail(status);
  // Feeders are ahead of a training that stops early: a failure that is none wakes them.
  if (index == 0 && trained && trained->stopped_early)
    job.fail(make_error(ErrorCategory::kFailed, kStoppedEarly));
  const Status fed = loader->finish();
  const loader::SurveyResult survey = loader->survey();
  const loader::LoaderCounters counters = loader->counters();
  const auto by_epoch = loader->counters_by_epoch();
  const int64_t sources = loader->sources();
  const Status ended = job.agree(status.ok() ? fed : status);
  patient.reset();
  if (!ended.ok() && ended.message() != kStoppedEarly) return ended;
  if (!ended.ok()) {
    loader.reset();
    job.clear_failure();
  }

  set_phase("finishing");
  TrainSummary summary;
  MILLSTREAM_TRY(agree_on(job, [&]() -> Status {
    // Numbers of all ranks, the same on each.
    const std::string mine = describe_rank(counters, by_epoch, trained ? &*trained : nullptr).dump();
    MILLSTREAM_ASSIGN(const auto texts, job.world().allgather_bytes(mine));
    std::vector<Json> ranks;
    for (const std::string& text : texts) ranks.push_back(Json::parse(text));
    summary = summarize(ranks, roles, work, survey, sources);
    if (resume != nullptr) summary.resumed_at_step = resume->batches;

    // The weights go from trainer 0 to rank 0, which writes the bundle.
    std::string weights;
    if (index == 0) weights = encode_safetensors({std::move(trained->weights), {{"format", "pt"}}});
    MILLSTREAM_ASSIGN(weights, job.world().broadcast_bytes(weights, trainer_ranks[0]));
    if (is_first) {
      MILLSTREAM_ASSIGN(bundle.weights, decode_safetensors(weights));
      bundle.rows_valid = ranks[static_cast<size_t>(trainer_ranks[0])]["rows_valid"];
      bundle.steps = summary.steps;
      bundle.epochs = summary.epochs;
      bundle.metrics = summary.valid;
      MILLSTREAM_TRY(write_bundle(summary.bundle, bundle));
      MILLSTREAM_TRY(write_accounting(work.out_directory, ranks));
    }
    if (work.trace) MILLSTREAM_TRY(write_trace(job, work.out_directory));
    return Status::OK();
  }));
  if (work.data.test || work.data.test_if || work.data.test_fraction > 0) {
    PredictJob scoring;
    scoring.bundle = summary.bundle;
    scoring.loader = work.loader;
    scoring.test_of = &work.data;
    const auto scored = evaluate(job, catalog, scoring);
    if (!scored.ok()) return with_context(scored.status(), "the model is trained and bundled; its test");
    summary.test = scored->metrics;
    summary.rows_test = scored->rows;
  }
  MILLSTREAM_TRY(agree_on(job, [&]() -> Status {
    summary.seconds_total = seconds_since(begin_ns);
    return job.world().broadcast(&summary.seconds_total, sizeof(double), 0);
  }));
  return summary;
}

}  // namespace

Result<TrainSummary> train(comm::Job& job, const comm::Roles& roles, plan::Catalog& catalog,
                           const TrainJob& work, const std::function<void(const TrainProgress&)>& progress) {
  return catch_torch("training", [&] { return train_job(job, roles, catalog, work, progress); });
}

std::string torch_version() {
  return TORCH_VERSION;
}

}  // namespace millstream::train

extern "C" const millstream::train::TrainLibrary* millstream_train_library() {
  using namespace millstream::train;
  static const TrainLibrary library{&train, &predict, &evaluate, &torch_version, &export_bundle};
  return &library;
}
