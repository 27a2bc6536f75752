#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "base/interrupt.h"
#include "base/progress.h"
#include "base/trace.h"
#include "train/distributed.h"
#include "train/event_file.h"
#include "train/fused_mlp.h"
#include "train/learning_rate.h"
#include "train/loss.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/process_group.h"
#include "train/torch_error.h"

namespace millstream::train {
namespace {

using loader::Batch;
using loader::PassKind;

double seconds_since(int64_t begin_ns) {
  return static_cast<double>(monotonic_ns() - begin_ns) * 1e-9;
}

/// The checkpoint's tensors whose names begin with `kind`, without it.
std::vector<StoredTensor> tensors_named(const Checkpoint& checkpoint, const std::string& kind) {
  std::vector<StoredTensor> out;
  for (const StoredTensor& tensor : checkpoint.state) {
    if (tensor.name.rfind(kind, 0) != 0) continue;
    out.push_back(tensor);
    out.back().name.erase(0, kind.size());
  }
  return out;
}

class Trainer {
 public:
  Trainer(comm::Job& job, loader::DataLoader& loader, TrainerSetting setting)
      : job_(job),
        loader_(loader),
        setting_(std::move(setting)),
        task_(task_of(setting_.config.loss)),
        valid_(task_, setting_.model.outputs()) {}

  Result<TrainerResult> run() {
    MILLSTREAM_TRY(start());
    MILLSTREAM_TRY(loop());
    // The caller is about to end the feeding: nobody is left in a collective then.
    if (result_.stopped_early && setting_.reports) (void)setting_.reports->barrier();
    finish();
    return std::move(result_);
  }

 private:
  Status start();
  Status loop();
  Status train_step(const Batch& batch);
  Status report(const Batch& batch, bool end_of_epoch);
  Status valid_step(const Batch& batch);
  Status end_validation(const loader::Pass& pass);
  Status write_epoch(int64_t epoch);
  Status resume(const Checkpoint& from);
  Status look_at_signals(int64_t number);
  Status checkpoint_if_due(const Batch& batch);
  Status save();
  void show_progress(const Batch& batch);
  void finish();

  bool first_trainer() const { return setting_.trainer == 0; }
  /// The batch's rows as the model takes them; of float32 it is a view of the slot.
  ModelBatch inputs_of_rows(const Batch& batch) const;
  at::Tensor features_of(const Batch& batch) const;
  at::Tensor target_of(const Batch& batch) const;
  /// What the batch's rows count, in the model's type; undefined where all count 1.
  at::Tensor weights_of(const Batch& batch, const at::Tensor& target) const;
  /// Rows of the batches that make up the optimizer's step which `batch` belongs to; `last` is set for its last one.
  int64_t rows_of_update(const Batch& batch, bool* last) const;
  Status check_targets(const Batch& batch) const;
  Status check_loss(const Batch& batch, double value) const;
  Status diverged(const std::string& what) const;
  Status divide_by_weight();
  Status write_histograms();
  double wait_fraction() const;

  comm::Job& job_;
  loader::DataLoader& loader_;
  TrainerSetting setting_;
  const Task task_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  // Gradients come from one of the two.
  std::unique_ptr<FusedMlp> fused_;
  std::unique_ptr<DistributedDataParallel> parallel_;
  std::vector<at::Tensor> parameters_;
  at::Tensor class_weights_;  ///< undefined: none
  std::optional<LearningRate> learning_rate_;
  int64_t updates_ = 0;  ///< steps of the optimizer
  double rate_ = 0;      ///< learning rate of the last one
  LineFile metrics_file_;
  EventFile events_;
  TrainerResult result_;

  // Of this trainer, since the last report; then of all trainers, over the epoch. Rows count by their weights.
  double window_loss_ = 0, epoch_loss_ = 0;
  double window_rows_ = 0, epoch_rows_ = 0;
  double update_weight_ = 0;  ///< of this trainer's rows in the optimizer's step so far
  int64_t rows_seen_ = 0;     ///< of all trainers, all epochs
  double last_loss_ = 0;
  int64_t report_every_ = 1;
  EvaluationSums valid_;
  double best_ = 0;
  bool has_best_ = false;
  int64_t epochs_since_best_ = 0;
  std::map<std::string, double> last_valid_;

  // Signals, as all trainers know of them.
  int64_t next_look_ = 0, last_look_ = 0, last_look_ns_ = 0;
  int32_t stop_signal_ = 0, requests_ = 0, requests_before_ = 0;
  bool checkpoint_due_ = false;
  int64_t last_checkpoint_ = 0;                 ///< batches it was made after; 0: there is none
  int64_t rows_before_ = 0, steps_before_ = 0;  ///< of the run that this one goes on with

  int64_t start_ns_ = 0, first_batch_ns_ = 0, next_progress_ns_ = 0;
  double waiting_before_ = 0;
};

Status Trainer::start() {
  start_ns_ = monotonic_ns();
  MILLSTREAM_ASSIGN(const at::ScalarType type, scalar_type(setting_.config.precision));
  MILLSTREAM_ASSIGN(
      model_, make_model(setting_.model, inputs_of(loader_.survey().fitted), type, setting_.config.seed));
  if (setting_.resume != nullptr) {
    const auto stored = tensors_named(*setting_.resume, "model.");
    MILLSTREAM_TRY(with_context(model_->load(stored), "the checkpoint doesn't fit the recipe"));
  }
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  if (setting_.gradients) group = make_process_group(std::move(setting_.gradients), "gradients");
  MILLSTREAM_ASSIGN(fused_, FusedMlp::make(*model_, setting_.model, setting_.config, group));
  if (!fused_) {
    MILLSTREAM_ASSIGN(parallel_, DistributedDataParallel::make(*model_, group));
  }
  MILLSTREAM_ASSIGN(optimizer_, make_optimizer(setting_.config, model_->parameters()));
  parameters_ = model_->parameter_tensors();
  if (!setting_.config.class_weights.empty())
    class_weights_ = at::tensor(setting_.config.class_weights).to(type);
  const int64_t steps = loader_.steps_per_epoch(), accumulate = setting_.config.accumulate;
  learning_rate_.emplace(setting_.config, (steps + accumulate - 1) / accumulate);
  result_.parameters = model_->parameter_count();
  if (setting_.config.patience > 0 && loader_.steps_per_validation() == 0)
    return usage_error(
        "train.patience is {}, but there are no validation rows to be patient with: set data.valid",
        setting_.config.patience);
  report_every_ = std::max<int64_t>(1, loader_.steps_per_epoch() / 20);
  const std::string metrics = setting_.run + "/metrics.jsonl";
  requests_before_ = checkpoint_requests();
  if (setting_.resume != nullptr) {
    MILLSTREAM_TRY(resume(*setting_.resume));
    if (!setting_.run.empty()) MILLSTREAM_TRY(metrics_file_.reopen(metrics, setting_.resume->metrics_bytes));
  } else if (!setting_.run.empty()) {
    MILLSTREAM_TRY(metrics_file_.open(metrics));
    for (const std::string& line : setting_.first_lines) MILLSTREAM_TRY(metrics_file_.write(line));
  }
  if (!setting_.run.empty() && setting_.config.tensorboard)
    MILLSTREAM_TRY(events_.open(setting_.run + "/tensorboard", result_.steps));
  return Status::OK();
}

Status Trainer::loop() {
  for (int64_t number = 0;; ++number) {
    MILLSTREAM_ASSIGN(const std::optional<Batch> batch, loader_.next());
    if (!batch) break;
    if (first_batch_ns_ == 0) {
      first_batch_ns_ = monotonic_ns();
      waiting_before_ = loader_.counters().seconds_waiting;
      set_phase("training");
    }
    if (job_.failed()) return job_.failure();
    {
      TraceSpan span(batch->pass.kind == PassKind::kTrain ? "step" : "validation step", number);
      MILLSTREAM_TRY(batch->pass.kind == PassKind::kTrain ? train_step(*batch) : valid_step(*batch));
    }
    loader_.release();
    beat();
    if (first_trainer()) show_progress(*batch);
    if (batch->pass.kind == PassKind::kTrain) {
      const bool last = batch->step + 1 == loader_.steps_per_epoch();
      if (last || result_.steps == 1 || (batch->step + 1) % report_every_ == 0)
        MILLSTREAM_TRY(report(*batch, last));
      if (last && loader_.steps_per_validation() == 0) MILLSTREAM_TRY(write_epoch(batch->pass.epoch));
    } else if (batch->step + 1 == loader_.steps_per_validation()) {
      MILLSTREAM_TRY(end_validation(batch->pass));
      if (result_.stopped_early) break;
    }
    MILLSTREAM_TRY(look_at_signals(number));
    MILLSTREAM_TRY(checkpoint_if_due(*batch));
  }
  return Status::OK();
}

Status Trainer::resume(const Checkpoint& from) {
  const at::NoGradGuard no_grad;
  const auto stored = tensors_named(from, "optimizer.");
  for (const NamedTensor& mine : optimizer_->state()) {
    const auto found = std::find_if(stored.begin(), stored.end(),
                                    [&](const StoredTensor& tensor) { return tensor.name == mine.name; });
    if (found == stored.end() || found->shape != mine.tensor.sizes().vec() ||
        found->bytes.size() != mine.tensor.nbytes())
      return data_error(
          "the checkpoint doesn't fit the recipe: the optimizer's '{}' is not there or of another shape",
          mine.name);
    std::memcpy(mine.tensor.data_ptr(), found->bytes.data(), found->bytes.size());
  }
  updates_ = from.updates;
  if (updates_ > 0) rate_ = learning_rate_->at(updates_ - 1);
  result_.steps = steps_before_ = last_checkpoint_ = from.batches;
  rows_seen_ = rows_before_ = from.rows;
  result_.epochs = from.epochs_done;
  if (first_trainer()) {
    window_loss_ = from.window_loss;
    window_rows_ = from.window_rows;
  }
  epoch_loss_ = from.epoch_loss;
  epoch_rows_ = from.epoch_rows;
  last_loss_ = result_.loss_last = from.last_loss;
  result_.loss_first = from.loss_first;
  has_best_ = from.has_best;
  best_ = from.best;
  epochs_since_best_ = from.epochs_since_best;
  result_.rows_valid = from.rows_valid;
  result_.valid = from.valid;
  if (has_best_ && first_trainer()) result_.weights = tensors_named(from, "best.");
  return Status::OK();
}

Status Trainer::look_at_signals(int64_t number) {
  if (number < next_look_) return Status::OK();
  const int64_t now = monotonic_ns();
  const int64_t batches = number - last_look_, since = last_look_ns_ == 0 ? 0 : now - last_look_ns_;
  int64_t seen[3] = {interrupt_signal(), checkpoint_requests() - requests_before_,
                     batches > 0 ? since / batches : 0};
  // The largest of all trainers: what each of them sees alone would part their ways.
  if (setting_.reports)
    MILLSTREAM_TRY(setting_.reports->all_reduce(seen, 3, comm::DataType::kInt64, comm::ReduceOp::kMax));
  stop_signal_ = static_cast<int32_t>(seen[0]);
  if (seen[1] > requests_) checkpoint_due_ = true;
  requests_ = static_cast<int32_t>(seen[1]);
  if (stop_signal_ != 0) checkpoint_due_ = true;
  constexpr int64_t kLookEveryNs = 50'000'000;
  last_look_ = number;
  last_look_ns_ = now;
  next_look_ = number + (seen[2] > 0 ? std::clamp<int64_t>(kLookEveryNs / seen[2], 1, 1000) : 1);
  return Status::OK();
}

Status Trainer::checkpoint_if_due(const Batch& batch) {
  const TrainConfig& config = setting_.config;
  const bool training = batch.pass.kind == PassKind::kTrain;
  const bool end_of_epoch =
      training ? loader_.steps_per_validation() == 0 && batch.step + 1 == loader_.steps_per_epoch()
               : batch.step + 1 == loader_.steps_per_validation();
  if (config.checkpoint_every == 0 ? config.checkpoint_epochs && end_of_epoch
                                   : training && result_.steps % config.checkpoint_every == 0)
    checkpoint_due_ = true;
  bool between_updates = true;
  if (training) (void)rows_of_update(batch, &between_updates);
  if (!checkpoint_due_ || !between_updates) return Status::OK();
  checkpoint_due_ = false;
  const Status saved = save();
  if (saved.ok()) last_checkpoint_ = result_.steps;
  if (stop_signal_ == 0) return saved;
  // Trainer 0's message is the one that is told: it knows what became of the checkpoint.
  if (setting_.reports) (void)setting_.reports->barrier();
  const char* signal = stop_signal_ == SIGINT ? "SIGINT" : "SIGTERM";
  if (!saved.ok())
    return make_error_f(ErrorCategory::kInterrupted, "interrupted by {}; {}", signal, saved.message());
  return make_error_f(
      ErrorCategory::kInterrupted,
      "interrupted by {} after step {}, of which a checkpoint was made; --resume {} goes on from there",
      signal, result_.steps, setting_.run_name);
}

Status Trainer::save() {
  TraceSpan span("checkpoint", result_.steps);
  double window[2] = {window_loss_, window_rows_};
  if (setting_.reports)
    MILLSTREAM_TRY(setting_.reports->all_reduce(window, 2, comm::DataType::kDouble, comm::ReduceOp::kSum));
  if (!first_trainer() || setting_.run.empty()) return Status::OK();
  Checkpoint checkpoint;
  const loader::StreamPosition position = loader_.position();
  checkpoint.epoch = position.epoch;
  checkpoint.step = position.step;
  checkpoint.batches = result_.steps;
  checkpoint.updates = updates_;
  checkpoint.rows = rows_seen_;
  checkpoint.epochs_done = result_.epochs;
  checkpoint.survey_key = loader_.survey_key();
  checkpoint.recipe = setting_.recipe;
  checkpoint.window_loss = window[0];
  checkpoint.window_rows = window[1];
  checkpoint.epoch_loss = epoch_loss_;
  checkpoint.epoch_rows = epoch_rows_;
  checkpoint.last_loss = last_loss_;
  checkpoint.loss_first = result_.loss_first;
  checkpoint.metrics_bytes = metrics_file_.bytes();
  checkpoint.has_best = has_best_;
  checkpoint.best = best_;
  checkpoint.epochs_since_best = epochs_since_best_;
  checkpoint.rows_valid = result_.rows_valid;
  checkpoint.valid = result_.valid;
  const auto add = [&](const char* kind, const std::vector<StoredTensor>& tensors) {
    for (StoredTensor tensor : tensors) {
      tensor.name = kind + tensor.name;
      checkpoint.state.push_back(std::move(tensor));
    }
  };
  add("model.", model_->store());
  add("optimizer.", store_tensors(optimizer_->state()));
  if (has_best_) add("best.", result_.weights);
  MILLSTREAM_TRY(write_checkpoint(setting_.run, checkpoint, setting_.config.keep_checkpoints));
  beat();
  return Status::OK();
}

at::Tensor Trainer::features_of(const Batch& batch) const {
  const loader::Segment& segment = batch.layout->segments[0];
  const int64_t stride = segment.row_bytes / static_cast<int64_t>(sizeof(float));
  const at::Tensor view =
      at::from_blob(const_cast<float*>(batch.floats(0)), {batch.rows, model_->inputs().features}, {stride, 1},
                    at::TensorOptions(at::kFloat));
  return model_->type() == at::kFloat ? view : view.to(model_->type());
}

ModelBatch Trainer::inputs_of_rows(const Batch& batch) const {
  ModelBatch rows(features_of(batch));
  if (batch.layout->ids >= 0) {
    const int64_t count = static_cast<int64_t>(model_->inputs().embeddings.size());
    rows.ids = ids_in(batch.ints(batch.layout->ids), batch.rows, count, count);
  }
  return rows;
}

at::Tensor Trainer::target_of(const Batch& batch) const {
  const loader::Segment& segment = batch.layout->segments[1];
  const int64_t stride = segment.row_bytes / static_cast<int64_t>(sizeof(float));
  const at::Tensor view = at::from_blob(const_cast<float*>(batch.floats(1)), {batch.rows}, {stride},
                                        at::TensorOptions(at::kFloat));
  return model_->type() == at::kFloat ? view : view.to(model_->type());
}

int64_t Trainer::rows_of_update(const Batch& batch, bool* last) const {
  const int64_t accumulate = setting_.config.accumulate, steps = loader_.steps_per_epoch();
  const int64_t first = batch.step - batch.step % accumulate, end = std::min(first + accumulate, steps);
  *last = batch.step + 1 == end;
  return std::min(end * setting_.batch_size, loader_.survey().rows_train) - first * setting_.batch_size;
}

Status Trainer::check_targets(const Batch& batch) const {
  const loader::Segment& segment = batch.layout->segments[1];
  return train::check_targets(task_, model_->outputs(), segment.columns.at(0), batch.floats(1), batch.rows,
                              segment.row_bytes / static_cast<int64_t>(sizeof(float)));
}

at::Tensor Trainer::weights_of(const Batch& batch, const at::Tensor& target) const {
  at::Tensor weights;
  if (batch.layout->weight >= 0)
    weights = at::from_blob(const_cast<float*>(batch.floats(batch.layout->weight)), {batch.rows},
                            at::TensorOptions(at::kFloat))
                  .to(model_->type());
  if (!class_weights_.defined()) return weights;
  const at::Tensor of_class = class_weights_.index_select(0, target.to(at::kLong));
  return weights.defined() ? weights * of_class : of_class;
}

Status Trainer::divide_by_weight() {
  double total = update_weight_;
  if (setting_.reports)
    MILLSTREAM_TRY(setting_.reports->all_reduce(&total, 1, comm::DataType::kDouble, comm::ReduceOp::kSum));
  // Rows that all count nothing have no gradient either.
  const at::NoGradGuard no_grad;
  if (total > 0)
    for (const at::Tensor& parameter : parameters_) parameter.grad().mul_(1 / total);
  return Status::OK();
}

Status Trainer::diverged(const std::string& what) const {
  std::string checkpoint;
  if (last_checkpoint_ > 0)
    checkpoint = fmt::format(
        "; the last checkpoint before it is that of step {}: --resume {} --resume-anyway --set "
        "train.learning_rate=... goes "
        "on from there",
        last_checkpoint_, setting_.run_name);
  return failed_error(
      "training diverged: {}; a smaller train.learning_rate (it is {}) or scaled features may help{}", what,
      setting_.config.learning_rate, checkpoint);
}

Status Trainer::check_loss(const Batch& batch, double value) const {
  if (std::isfinite(value)) return Status::OK();
  return diverged(fmt::format("the loss is {} in epoch {}, step {} of {}",
                              std::isnan(value) ? "NaN" : "infinite", batch.pass.epoch + 1, batch.step + 1,
                              loader_.steps_per_epoch()));
}

Status Trainer::train_step(const Batch& batch) {
  MILLSTREAM_TRY(check_targets(batch));
  bool last = false;
  const int64_t rows = rows_of_update(batch, &last);
  const at::Tensor features = features_of(batch), target = target_of(batch),
                   weights = weights_of(batch, target);
  // With weights the divisor is known only when all batches of the step are: gradients are divided then.
  const double weight = weights.defined() ? weights.sum().item<double>() : static_cast<double>(batch.rows);
  const int64_t divisor = weights.defined() ? 1 : rows;
  double value = 0;
  if (fused_) {
    const bool first = batch.step % setting_.config.accumulate == 0;
    value = fused_->gradients(features, target, weights, 1.0 / static_cast<double>(divisor), /*add=*/!first,
                              /*reduce=*/last);
    MILLSTREAM_TRY(check_loss(batch, value));
  } else {
    at::Tensor loss;
    {
      TraceSpan span("forward");
      ModelBatch rows_of_model = inputs_of_rows(batch);
      rows_of_model.training = true;
      rows_of_model.step = static_cast<uint64_t>(result_.steps);
      rows_of_model.first_row = batch.first_row;
      loss = summed_loss(setting_.config, model_->forward(rows_of_model), target, weights);
    }
    value = loss.item<double>();
    MILLSTREAM_TRY(check_loss(batch, value));
    TraceSpan span("backward");
    parallel_->backward(loss * parallel_->loss_scale(divisor), /*reduce=*/last);
  }
  update_weight_ += weight;
  if (last) {
    TraceSpan span("optimizer");
    if (weights.defined()) MILLSTREAM_TRY(divide_by_weight());
    update_weight_ = 0;
    if (setting_.config.clip_norm > 0) clip_gradients(parameters_, setting_.config.clip_norm);
    rate_ = learning_rate_->at(updates_++);
    optimizer_->set_learning_rate(rate_);
    optimizer_->step();
    if (setting_.config.histograms && events_.is_open() && batch.step + 1 == loader_.steps_per_epoch())
      MILLSTREAM_TRY(write_histograms());
    if (parallel_) parallel_->clear_gradients();
  }
  window_loss_ += value;
  window_rows_ += weight;
  rows_seen_ += batch.global_rows;
  ++result_.steps;
  return Status::OK();
}

Status Trainer::write_histograms() {
  std::vector<std::pair<std::string, Histogram>> histograms;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const at::Tensor values = tensor.detach().to(at::kDouble).contiguous();
    Histogram histogram;
    for (int64_t i = 0; i < values.numel(); ++i) histogram.add(values.const_data_ptr<double>()[i]);
    histograms.emplace_back(name, std::move(histogram));
  };
  for (const NamedTensor& parameter : model_->parameters()) {
    add("weights/" + parameter.name, parameter.tensor);
    add("gradients/" + parameter.name, parameter.tensor.grad());
  }
  return events_.write_histograms(result_.steps + 1, histograms);
}

Status Trainer::report(const Batch& batch, bool end_of_epoch) {
  double sums[2] = {window_loss_, window_rows_};
  if (setting_.reports)
    MILLSTREAM_TRY(setting_.reports->all_reduce(sums, 2, comm::DataType::kDouble, comm::ReduceOp::kSum));
  window_loss_ = 0;
  window_rows_ = 0;
  epoch_loss_ += sums[0];
  epoch_rows_ += sums[1];
  if (sums[1] > 0) last_loss_ = sums[0] / sums[1];
  if (result_.steps == 1) result_.loss_first = last_loss_;
  result_.loss_last = last_loss_;
  if (!first_trainer()) return Status::OK();
  const double seconds = seconds_since(first_batch_ns_);
  const double speed = seconds > 0 ? static_cast<double>(rows_seen_ - rows_before_) / seconds : 0.0;
  if (events_.is_open())
    MILLSTREAM_TRY(events_.write_scalars(result_.steps, {{"train/loss", last_loss_},
                                                         {"train/learning_rate", rate_},
                                                         {"train/rows_per_second", speed},
                                                         {"train/wait_fraction", wait_fraction()}}));
  return metrics_file_.write(fmt::format(
      R"({{"kind":"step","epoch":{},"step":{},"steps":{},"rows":{},"loss":{},"learning_rate":{},"rows_per_second":{:.0f},"wait_fraction":{:.4f}}})",
      batch.pass.epoch + 1, batch.step + 1, loader_.steps_per_epoch(), rows_seen_, last_loss_, rate_, speed,
      wait_fraction()));
}

Status Trainer::valid_step(const Batch& batch) {
  MILLSTREAM_TRY(check_targets(batch));
  const at::NoGradGuard no_grad;
  const at::Tensor predicted = model_->forward(inputs_of_rows(batch)).contiguous();
  const float* actual = batch.floats(1);
  const int64_t stride = batch.layout->segments[1].row_bytes / static_cast<int64_t>(sizeof(float));
  if (model_->type() == at::kDouble) {
    valid_.add(predicted.const_data_ptr<double>(), actual, batch.rows, stride);
  } else {
    valid_.add(predicted.const_data_ptr<float>(), actual, batch.rows, stride);
  }
  return Status::OK();
}

Status Trainer::end_validation(const loader::Pass& pass) {
  EvaluationSums all(task_, model_->outputs());
  std::swap(all, valid_);
  if (setting_.reports) {
    MILLSTREAM_ASSIGN(const auto parts, setting_.reports->allgather_bytes(all.encode()));
    all = EvaluationSums(task_, model_->outputs());
    for (const std::string& part : parts) MILLSTREAM_TRY(all.merge_encoded(part));
  }
  last_valid_ = all.metrics();
  result_.rows_valid = all.rows();
  if (all.rows() > 0) {
    const char* name = deciding_metric(setting_.config.loss);
    const double score = last_valid_.at(name);
    if (!std::isfinite(score))
      return diverged(fmt::format("after epoch {} the model's {} on the validation rows is not finite",
                                  pass.epoch + 1, name));
    ++epochs_since_best_;
    if (!has_best_ || score < best_) {
      has_best_ = true;
      epochs_since_best_ = 0;
      best_ = score;
      result_.valid = last_valid_;
      if (first_trainer()) result_.weights = model_->store();
    }
    const int64_t patience = setting_.config.patience;
    result_.stopped_early =
        patience > 0 && epochs_since_best_ >= patience && pass.epoch + 1 < setting_.config.epochs;
  }
  return write_epoch(pass.epoch);
}

Status Trainer::write_epoch(int64_t epoch) {
  const double loss = epoch_rows_ > 0 ? epoch_loss_ / epoch_rows_ : 0;
  epoch_loss_ = 0;
  epoch_rows_ = 0;
  std::string valid;
  for (const auto& [name, value] : last_valid_)
    valid += fmt::format(R"({}"{}":{})", valid.empty() ? "" : ",", name, value);
  const auto metrics = std::exchange(last_valid_, {});
  ++result_.epochs;
  if (!first_trainer()) return Status::OK();
  if (events_.is_open()) {
    std::vector<std::pair<std::string, double>> scalars{{"epoch/loss", loss}};
    for (const auto& [name, value] : metrics) scalars.emplace_back("valid/" + name, value);
    MILLSTREAM_TRY(events_.write_scalars(result_.steps, scalars));
  }
  return metrics_file_.write(fmt::format(
      R"({{"kind":"epoch","epoch":{},"steps":{},"rows":{},"loss":{},"valid":{{{}}},"seconds":{:.3f}}})",
      epoch + 1, result_.steps, rows_seen_, loss, valid, seconds_since(first_batch_ns_)));
}

double Trainer::wait_fraction() const {
  const double seconds = seconds_since(first_batch_ns_);
  return seconds > 0 ? std::max(0.0, loader_.counters().seconds_waiting - waiting_before_) / seconds : 0;
}

void Trainer::show_progress(const Batch& batch) {
  const int64_t now = monotonic_ns();
  if (!setting_.progress || now < next_progress_ns_) return;
  next_progress_ns_ = now + 200'000'000;
  TrainProgress progress;
  progress.epoch = batch.pass.epoch;
  progress.epochs = setting_.config.epochs;
  progress.steps = loader_.steps_per_epoch();
  progress.step = batch.pass.kind == PassKind::kTrain ? batch.step + 1 : progress.steps;
  progress.rows = rows_seen_;
  const double seconds = seconds_since(first_batch_ns_);
  progress.rows_per_second = seconds > 0 ? static_cast<double>(rows_seen_ - rows_before_) / seconds : 0;
  progress.loss = last_loss_;
  progress.wait_fraction = wait_fraction();
  const int64_t all = progress.epochs * progress.steps, done = result_.steps - steps_before_;
  if (done > 0)
    progress.seconds_left = seconds * static_cast<double>(all - result_.steps) / static_cast<double>(done);
  setting_.progress(progress);
}

void Trainer::finish() {
  result_.rows = rows_seen_;
  result_.rows_now = rows_seen_ - rows_before_;
  if (first_batch_ns_ != 0) {
    result_.seconds_training = seconds_since(first_batch_ns_);
    result_.seconds_waiting = std::max(0.0, loader_.counters().seconds_waiting - waiting_before_);
  }
  result_.seconds_to_first_batch = loader_.counters().seconds_to_first_batch;
  if (first_trainer() && !has_best_) result_.weights = model_->store();
}

}  // namespace

Result<TrainerResult> run_trainer(comm::Job& job, loader::DataLoader& loader, TrainerSetting setting) {
  Result<TrainerResult> result = catch_torch("training", [&]() -> Result<TrainerResult> {
    Trainer trainer(job, loader, std::move(setting));
    return trainer.run();
  });
  // Where a peer's failure surfaced as an exception of a collective, the job knows what it was.
  if (!result.ok() && job.failed()) return job.failure();
  return result;
}

}  // namespace millstream::train
