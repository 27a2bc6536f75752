#include "loader/data_loader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpu_share.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/progress.h"
#include "base/trace.h"
#include "exec/block_source.h"
#include "features/feature_plan.h"
#include "features/row_packer.h"
#include "loader/feeding.h"
#include "loader/survey.h"
#include "plan/planner.h"

namespace millstream::loader {
namespace {

constexpr double kBudgetShare = 0.7;  // of this rank's share of the memory, where none is set
constexpr int kFeedingPriority = 10;  // nice of feeding threads beside a trainer

Status check_config(const DataConfig& data, const LoaderConfig& config, int64_t epochs) {
  const auto positive = [](const char* name, int64_t value) -> Status {
    if (value > 0) return Status::OK();
    return usage_error("{} is {}; it must be at least 1", name, value);
  };
  MILLSTREAM_TRY(positive("loader.batch_size", config.batch_size));
  MILLSTREAM_TRY(positive("loader.window", config.window));
  MILLSTREAM_TRY(positive("loader.lanes", config.lanes));
  MILLSTREAM_TRY(positive("loader.prefetch", config.prefetch));
  if (config.batch_size > (int64_t{1} << 30)) {
    return usage_error("loader.batch_size is {}; it can be at most {}", config.batch_size, int64_t{1} << 30);
  }
  if (config.window > (int64_t{1} << 40)) {
    return usage_error("loader.window is {}; it can be at most {}", config.window, int64_t{1} << 40);
  }
  if (epochs < 0) return usage_error("the number of epochs is {}; it can't be negative", epochs);
  if (!(data.valid_fraction >= 0 && data.valid_fraction < 1)) {
    return usage_error("data.valid is {}; a fraction is at least 0 and less than 1", data.valid_fraction);
  }
  if (data.valid && data.valid_fraction > 0) {
    return usage_error("data.valid can be a fraction or a query, not both");
  }
  if (data.target.empty())
    return usage_error("data.target is missing: the column of the query that is predicted");
  if (data.limit_rows < 0)
    return usage_error("the limit on rows is {}; it can't be negative", data.limit_rows);
  return Status::OK();
}

// Features first, then targets, each 64-byte aligned.
SlotLayout make_layout(const features::RowPacker& packer, const std::string& target, int64_t rows) {
  SlotLayout layout;
  layout.rows = rows;
  const int64_t row_bytes = int64_t{4} * packer.num_features();
  layout.segments.push_back({"features", SegmentType::kFloat32, packer.feature_names(), 0, row_bytes});
  const int64_t offset = (rows * row_bytes + 63) / 64 * 64;
  layout.segments.push_back({"target", SegmentType::kFloat32, {target}, offset, 4});
  layout.bytes = offset + rows * 4;
  return layout;
}

// Zeroed pages of this process.
Result<std::shared_ptr<uint8_t>> private_memory(int64_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return failed_error("no memory for the slots of the trainer ({}): {}", format_bytes(bytes),
                        std::strerror(errno));
  }
  return std::shared_ptr<uint8_t>(static_cast<uint8_t*>(memory), [bytes](uint8_t* p) { ::munmap(p, bytes); });
}

// The first tag of a loader's messages. Loaders one after the other have tags of their own, so that what a given-up
// one left unreceived is never taken for the next one's. The ranks make loaders together and count alike.
int next_tags() {
  static std::atomic<int> number{0};
  return kLoaderTag + (number.fetch_add(1) % kLoaderTagSets) * kMaxStreams;
}

// What a rank tells the others of itself.
struct RankFacts {
  int32_t feeding_threads = 0;
  int32_t node = 0;           // the lowest rank that it shares memory with
  int32_t shared_memory = 0;  // the rings of the node are in shared memory
};

class Loader final : public DataLoader {
 public:
  Loader(comm::Job& job, const comm::Roles& roles, DataConfig data, LoaderConfig config, int64_t epochs)
      : job_(job),
        roles_(roles),
        data_(std::move(data)),
        config_(std::move(config)),
        epochs_(epochs),
        began_ns_(monotonic_ns()),
        trainer_(roles.trainer_index(job.rank())) {}

  ~Loader() override {
    // Given up before its end: the streams stop, this trainer takes nothing more.
    context_.stopping.store(1, std::memory_order_release);
    if (trainer_ >= 0 && started_) {
      const Ring& ring = context_.trainers[trainer_].ring;
      ring.released().store(static_cast<uint32_t>(context_.plan->num_batches()), std::memory_order_release);
      futex_wake_all(ring.released());
    }
    for (const auto& stream : streams_) stream->wake();
    join();
  }

  Status plan(plan::Catalog& catalog);
  Status survey_all();
  Status allocate();
  void start();

  const SurveyResult& survey() const override { return survey_result_; }
  const std::string& survey_key() const override { return surveyed_.key; }
  const SlotLayout& layout() const override { return context_.layout; }
  int64_t steps_per_epoch() const override { return feed_plan_->batches_of(PassKind::kTrain); }
  int64_t steps_per_validation() const override {
    return config_.validation_passes ? feed_plan_->batches_of(PassKind::kValid) : 0;
  }
  const std::vector<Pass>& passes() const override { return feed_plan_->passes(); }
  Result<std::optional<Batch>> next() override;
  StreamPosition position() const override { return feed_plan_->position_of(next_batch_); }
  void release() override;
  Status finish() override {
    join();
    std::lock_guard lock(mutex_);
    if (status_.ok() && job_.failed()) return job_.failure();
    return status_;
  }
  LoaderCounters counters() const override;

 private:
  int threads() const {
    return config_.threads > 0 ? config_.threads : job_.topology().ranks[job_.rank()].threads;
  }
  Status check_valid_query(const arrow::Schema& schema) const;
  Status check_memory() const;
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  comm::Job& job_;
  const comm::Roles roles_;
  const DataConfig data_;
  LoaderConfig config_;
  const int64_t epochs_;
  const int64_t began_ns_;
  const int trainer_;

  std::unique_ptr<features::FeaturePlan> feature_plan_;
  std::unique_ptr<exec::BlockSource> train_table_, valid_table_;
  SurveyOutcome surveyed_;
  SurveyResult survey_result_;
  double seconds_survey_ = 0;
  std::unique_ptr<RowRules> train_rules_, valid_rules_;
  std::unique_ptr<RowSource> train_, valid_;
  std::unique_ptr<features::RowPacker> packer_;
  std::unique_ptr<FeedPlan> feed_plan_;
  std::shared_ptr<void> ring_memory_;
  int64_t ring_bytes_ = 0;
  int feeding_threads_ = 0;
  bool started_ = false;
  FeedContext context_;
  std::vector<int> my_streams_;
  std::unique_ptr<MessageReceiver> receiver_;
  std::vector<std::unique_ptr<FeedingStream>> streams_;
  std::vector<std::thread> threads_;

  mutable std::mutex mutex_;  // of status_
  Status status_;

  int64_t next_batch_ = 0;
  int64_t released_ = 0;
  std::atomic<int64_t> waiting_ns_{0};
  std::atomic<int64_t> first_batch_ns_{0};
};

Status Loader::check_valid_query(const arrow::Schema& schema) const {
  const auto& needed = feature_plan_->input();
  for (const auto& field : needed->fields()) {
    const bool is_target = field->name() == data_.target;
    const int index = plan::find_output(schema, field->name());
    if (index < 0) {
      return usage_error("the validation query has no column '{}', which is {}{}", field->name(),
                         is_target ? "the target" : "a feature",
                         name_hint(field->name(), schema.field_names()));
    }
    const arrow::DataType& type = *schema.field(index)->type();
    if (is_target || features::is_tensor_type(*field->type())) {
      MILLSTREAM_TRY(
          with_context(features::check_tensor_type(field->name(), type, is_target ? "target" : "feature"),
                       "the validation query"));
    } else if (type.id() != field->type()->id()) {
      return usage_error(
          "the validation query: the feature column '{}' is a {} there, and a {} in the training query",
          field->name(), type.ToString(), field->type()->ToString());
    }
  }
  return Status::OK();
}

Status Loader::plan(plan::Catalog& catalog) {
  set_phase("planning");
  MILLSTREAM_TRY(check_config(data_, config_, epochs_));
  const auto pipeline_of = [&](const std::string& sql, const char* name,
                               const std::string& directory) -> Result<plan::Pipeline> {
    const plan::QueryOptions options{.name = name, .base_directory = directory};
    MILLSTREAM_ASSIGN(const auto node, plan::plan_query(sql, catalog, options));
    return plan::to_pipeline(node);
  };
  MILLSTREAM_ASSIGN(const plan::Pipeline train, pipeline_of(data_.train, "data.train", data_.base_directory));
  MILLSTREAM_ASSIGN(auto feature_plan, features::FeaturePlan::make(*train.schema, data_.features,
                                                                   data_.target, data_.on_null_target));
  feature_plan_ = std::make_unique<features::FeaturePlan>(std::move(feature_plan));
  const std::vector<std::string> needed = feature_plan_->input()->field_names();
  MILLSTREAM_ASSIGN(plan::Pipeline pruned, plan::select_outputs(train, needed));
  train_table_ = std::make_unique<exec::BlockSource>(std::move(pruned));
  if (data_.valid) {
    const std::string& directory =
        data_.valid_base_directory.empty() ? data_.base_directory : data_.valid_base_directory;
    MILLSTREAM_ASSIGN(const plan::Pipeline valid, pipeline_of(*data_.valid, "data.valid", directory));
    MILLSTREAM_TRY(check_valid_query(*valid.schema));
    MILLSTREAM_ASSIGN(plan::Pipeline pruned_valid, plan::select_outputs(valid, needed));
    valid_table_ = std::make_unique<exec::BlockSource>(std::move(pruned_valid));
  }
  return Status::OK();
}

Status Loader::survey_all() {
  const int64_t began = monotonic_ns();
  SurveyRequest request{.job = &job_,
                        .train = train_table_.get(),
                        .valid = valid_table_.get(),
                        .plan = feature_plan_.get(),
                        .fraction = data_.valid_fraction,
                        .limit_rows = data_.limit_rows,
                        .write_pieces = wants_pieces(train_table_->table(), config_),
                        .cache_directory = config_.cache_directory,
                        .threads = threads()};
  MILLSTREAM_ASSIGN(surveyed_, run_survey(request));
  seconds_survey_ = static_cast<double>(monotonic_ns() - began) * 1e-9;

  const Survey& survey = surveyed_.survey;
  survey_result_.fitted = feature_plan_->fitted();
  survey_result_.rows_train = survey.train.rows_train;
  survey_result_.rows_valid = survey.valid ? survey.valid->rows_train : survey.train.rows_valid;
  survey_result_.rows_filtered = survey.train.rows_read - survey.train.survived;
  survey_result_.rows_dropped = survey.train.dropped;
  if (survey_result_.rows_dropped > 0) {
    notice_f("{} of {} rows are left out for nulls or values that are not finite", survey.train.dropped,
             survey.train.used);
  }
  if (config_.batch_size > survey_result_.rows_train) {
    notice_f("the batch size {} is larger than the training data ({} rows): an epoch is one batch",
             config_.batch_size, survey_result_.rows_train);
  }
  if (data_.valid_fraction > 0 && survey_result_.rows_valid == 0) {
    notice_f("no row fell to the validation fraction {}: there is no validation", data_.valid_fraction);
  }

  MILLSTREAM_ASSIGN(auto packer, features::RowPacker::make(survey_result_.fitted, data_.target));
  packer_ = std::make_unique<features::RowPacker>(std::move(packer));
  train_rules_ =
      std::make_unique<RowRules>(train_table_->table(), feature_plan_->rules(), data_.valid_fraction);
  const auto of_train = [&](bool valid) {
    if (survey.has_pieces) {
      return make_piece_source(valid ? survey.valid_pieces : survey.train_pieces, surveyed_.piece_files,
                               train_table_->table(), feature_plan_->input());
    }
    return make_query_source(*train_table_, survey.train, *train_rules_, valid);
  };
  train_ = of_train(false);
  if (valid_table_ != nullptr) {
    valid_rules_ = std::make_unique<RowRules>(valid_table_->table(), feature_plan_->rules(), 0);
    valid_ = make_query_source(*valid_table_, *survey.valid, *valid_rules_, false);
  } else {
    valid_ = of_train(true);
  }
  return Status::OK();
}

// Memory that this rank is going to hold: a window a lane with the rows read beyond it, and the trainer's ring.
Status Loader::check_memory() const {
  const int64_t ranks_here =
      static_cast<int64_t>(job_.topology().host_ranks[job_.topology().host_of_rank[job_.rank()]].size());
  const int64_t budget =
      config_.memory_bytes > 0
          ? config_.memory_bytes
          : static_cast<int64_t>(kBudgetShare * static_cast<double>(available_memory_bytes()) /
                                 static_cast<double>(ranks_here));
  const int num_streams = static_cast<int>(context_.stream_ranks.size());
  const auto parts = feed_plan_->parts(0);
  const int num_lanes = static_cast<int>(parts->schedule().lanes().size());
  int64_t rows = 0;
  for (const int stream : my_streams_) {
    if (!parts->shuffled()) {
      rows += std::max(train_->largest_chunk(), valid_->largest_chunk());
      continue;
    }
    rows += valid_->largest_chunk();
    for (int lane = stream; lane < num_lanes; lane += num_streams) {
      const int64_t lane_rows = parts->schedule().lanes()[lane].rows;
      const int64_t window = window_rows_per_lane(parts->schedule().config(), num_lanes);
      rows += std::min(lane_rows, window) + std::min(lane_rows, std::max(window, train_->largest_chunk()));
    }
  }
  const int64_t ring = trainer_ >= 0 ? ring_bytes_ : 0;
  const int64_t need = rows * packer_->row_bytes() + ring;
  if (need <= budget) return Status::OK();
  const int64_t left = budget - ring;
  const int64_t chunks =
      static_cast<int64_t>(my_streams_.size()) * train_->largest_chunk() * packer_->row_bytes();
  const int64_t fits = (left - chunks) / (2 * packer_->row_bytes());
  return usage_error(
      "the loader needs {} on rank {} ({} for windows of {} rows of {} bytes, {} for {} slots of {} rows), "
      "its budget is "
      "{}; {}, or give more with --memory",
      format_bytes(need), job_.rank(), format_bytes(rows * packer_->row_bytes()), config_.window,
      packer_->row_bytes(), format_bytes(ring), config_.prefetch, context_.layout.rows, format_bytes(budget),
      fits > 0 && parts->shuffled()
          ? fmt::format("loader.window = {} would fit", fits)
          : "fewer or smaller batches would fit (loader.batch_size, loader.prefetch)");
}

Status Loader::allocate() {
  const auto world = [&]() -> comm::Communicator& { return job_.world(); };
  const int rank = job_.rank();
  const bool feeds = roles_.is_feeder(rank);
  feeding_threads_ = !feeds ? 0 : trainer_ >= 0 ? std::max(1, threads() - 1) : threads();
  feed_plan_ = std::make_unique<FeedPlan>(config_, epochs_, train_->counts(), valid_->counts());
  MILLSTREAM_ASSIGN(context_.start_batch, feed_plan_->batch_at({config_.start_epoch, config_.start_step}));
  next_batch_ = released_ = context_.start_batch;
  const int num_trainers = static_cast<int>(roles_.trainers.size());
  const int64_t largest_batch = std::min(config_.batch_size, std::max(feed_plan_->rows_of(PassKind::kTrain),
                                                                      feed_plan_->rows_of(PassKind::kValid)));
  context_.layout = make_layout(*packer_, data_.target, largest_share(largest_batch, num_trainers));
  ring_bytes_ = Ring::bytes_needed(config_.prefetch, context_.layout);

  // The rings of a node's trainers: in one piece of shared memory, where others on the node feed them.
  const std::vector<int>& node = job_.node_ranks();
  std::vector<int> node_trainers;
  for (const comm::Trainer& trainer : roles_.trainers) {
    if (std::find(node.begin(), node.end(), trainer.rank) != node.end())
      node_trainers.push_back(trainer.rank);
  }
  RankFacts mine{.feeding_threads = feeding_threads_, .node = node.front()};
  uint8_t* node_rings = nullptr;
  Status shared_status;
  if (config_.transport != Transport::kMessages && node.size() > 1 && !node_trainers.empty()) {
    auto memory = job_.make_shared_memory(ring_bytes_ * static_cast<int64_t>(node_trainers.size()));
    if (memory.ok()) {
      std::shared_ptr<comm::SharedMemory> shared = std::move(*memory);
      node_rings = shared->data();
      ring_memory_ = shared;
      mine.shared_memory = 1;
    } else {
      shared_status = memory.status();
      if (job_.failed()) return shared_status;
    }
  }
  // Rank 0 speaks for whichever node has no room.
  MILLSTREAM_ASSIGN(const auto statuses, world().allgather_bytes(encode_status(shared_status)));
  for (int i = 0; i < job_.size(); ++i) {
    const Status status = decode_status(statuses[i]);
    if (status.ok()) continue;
    if (config_.transport == Transport::kShared) return status;
    notice_f("slots are not in shared memory on host {}, rows go by messages there: {}",
             job_.topology().ranks[i].host, status.message());
    break;
  }
  std::vector<RankFacts> facts(job_.size());
  MILLSTREAM_TRY(world().all_gather(&mine, sizeof(mine), facts.data()));

  context_.job = &job_;
  context_.first_tag = next_tags();
  context_.plan = feed_plan_.get();
  context_.train = train_.get();
  context_.valid = valid_.get();
  context_.packer = packer_.get();
  context_.slots = config_.prefetch;
  for (int i = 0; i < job_.size(); ++i) {
    for (int k = 0; k < facts[i].feeding_threads; ++k) {
      if (i == rank) my_streams_.push_back(static_cast<int>(context_.stream_ranks.size()));
      context_.stream_ranks.push_back(i);
    }
  }
  if (context_.stream_ranks.empty()) return bug_error("no rank feeds");
  if (context_.stream_ranks.size() > kMaxStreams) {
    return usage_error("the job has {} feeding threads; {} are the most: give fewer with --threads",
                       context_.stream_ranks.size(), kMaxStreams);
  }
  const auto reaches = [&](int from, int to) {
    return from == to ||
           (facts[from].node == facts[to].node && facts[from].shared_memory && facts[to].shared_memory);
  };

  Status status = epochs_ > 0 ? check_memory() : Status::OK();
  for (const comm::Trainer& trainer : roles_.trainers) {
    TrainerLink link{.rank = trainer.rank, .direct = reaches(rank, trainer.rank)};
    if (link.direct && node_rings != nullptr) {
      const auto index =
          std::find(node_trainers.begin(), node_trainers.end(), trainer.rank) - node_trainers.begin();
      link.ring = Ring(node_rings + index * ring_bytes_, config_.prefetch, context_.layout);
    } else if (link.direct && status.ok()) {
      auto memory = private_memory(ring_bytes_);
      status = memory.status();
      if (memory.ok()) {
        link.ring = Ring(memory->get(), config_.prefetch, context_.layout);
        ring_memory_ = *memory;
      }
    }
    context_.trainers.push_back(link);
  }
  if (!status.ok()) return status;
  if (trainer_ >= 0) {
    // Before anybody feeds: make() agrees in between.
    context_.trainers[trainer_].ring.released().store(static_cast<uint32_t>(context_.start_batch),
                                                      std::memory_order_release);
    std::vector<int> remote;
    for (int stream = 0; stream < static_cast<int>(context_.stream_ranks.size()); ++stream) {
      if (!reaches(context_.stream_ranks[stream], rank)) remote.push_back(stream);
    }
    if (!remote.empty()) {
      receiver_ = std::make_unique<MessageReceiver>(context_, trainer_, std::move(remote), ring_memory_);
    }
  }
  return Status::OK();
}

void Loader::start() {
  started_ = true;
  if (receiver_ != nullptr) {
    for (int64_t i = 0; i < config_.prefetch; ++i) receiver_->post(context_.start_batch + i);
  }
  for (const int stream : my_streams_) streams_.push_back(std::make_unique<FeedingStream>(context_, stream));
  for (const auto& stream : streams_) {
    threads_.emplace_back([this, feeding = stream.get()] {
      if (trainer_ >= 0) {
        // Training has the right of way; an error means that the system does not let us, which does no harm.
        ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)),
                      ::getpriority(PRIO_PROCESS, 0) + kFeedingPriority);
      }
      const Status status = feeding->run();
      if (status.ok()) return;
      {
        std::lock_guard lock(mutex_);
        if (status_.ok() || reported_before(status, 0, status_, 0)) status_ = status;
      }
      if (error_category(status) != ErrorCategory::kPeerFailed) job_.fail(status);
    });
  }
}

Result<std::optional<Batch>> Loader::next() {
  if (trainer_ < 0) return bug_error("next() on a rank that does not train");
  if (next_batch_ == feed_plan_->num_batches()) return std::nullopt;
  if (next_batch_ - released_ >= config_.prefetch) {
    return bug_error("next() with all {} slots of the ring unreleased", config_.prefetch);
  }
  const int pass = feed_plan_->pass_of(next_batch_);
  Batch batch;
  batch.pass = feed_plan_->passes()[pass];
  batch.step = next_batch_ - feed_plan_->first_batch(pass);
  batch.global_rows = feed_plan_->batch_rows(batch.pass.kind, batch.step);
  const RowRange share = trainer_share(batch.global_rows, trainer_, static_cast<int>(roles_.trainers.size()));
  batch.first_row = share.begin;
  batch.rows = share.rows();
  batch.layout = &context_.layout;
  const Ring& ring = context_.trainers[trainer_].ring;
  batch.slot = ring.slot(next_batch_);
  if (batch.rows > 0) {
    const std::atomic<uint32_t>& ready = ring.ready(next_batch_);
    const auto wanted = static_cast<uint32_t>(next_batch_ + 1);
    uint32_t seen = ready.load(std::memory_order_acquire);
    if (seen != wanted) {
      TraceSpan span("wait batch", next_batch_);
      const int64_t began = monotonic_ns();
      while (seen != wanted) {
        MILLSTREAM_TRY(wait_on(job_, context_.stopping, ready, seen));
        seen = ready.load(std::memory_order_acquire);
      }
      waiting_ns_.fetch_add(monotonic_ns() - began, std::memory_order_relaxed);
    }
  }
  if (next_batch_ == context_.start_batch)
    first_batch_ns_.store(monotonic_ns() - began_ns_, std::memory_order_relaxed);
  ++next_batch_;
  return batch;
}

void Loader::release() {
  MILLSTREAM_CHECK(released_ < next_batch_, "release() without a batch");
  context_.trainers[trainer_].ring.release(released_);
  if (receiver_ != nullptr) receiver_->post(released_ + config_.prefetch);
  ++released_;
}

LoaderCounters Loader::counters() const {
  LoaderCounters counters;
  const auto seconds = [](const std::atomic<int64_t>& ns) {
    return static_cast<double>(ns.load(std::memory_order_relaxed)) * 1e-9;
  };
  for (const auto& stream : streams_) {
    counters.seconds_reading += seconds(stream->times().reading);
    counters.seconds_computing += seconds(stream->times().computing);
    counters.seconds_sending += seconds(stream->times().sending);
    counters.seconds_for_room += seconds(stream->times().for_room);
  }
  counters.seconds_waiting = seconds(waiting_ns_);
  counters.seconds_to_first_batch = seconds(first_batch_ns_);
  counters.seconds_survey = seconds_survey_;
  return counters;
}

}  // namespace

Result<std::unique_ptr<DataLoader>> DataLoader::make(comm::Job& job, const comm::Roles& roles,
                                                     plan::Catalog& catalog, const DataConfig& data,
                                                     const LoaderConfig& config, int64_t epochs) {
  auto loader = std::make_unique<Loader>(job, roles, data, config, epochs);
  MILLSTREAM_TRY(job.agree(loader->plan(catalog)));
  MILLSTREAM_TRY(job.agree(loader->survey_all()));
  set_phase("feeding");
  MILLSTREAM_TRY(job.agree(loader->allocate()));
  loader->start();
  return std::unique_ptr<DataLoader>(std::move(loader));
}

}  // namespace millstream::loader
