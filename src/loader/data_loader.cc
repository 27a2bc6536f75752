#include "loader/data_loader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpu_share.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/progress.h"
#include "base/trace.h"
#include "exec/block_source.h"
#include "features/feature_plan.h"
#include "features/row_packer.h"
#include "loader/feeding.h"
#include "loader/row_store.h"
#include "loader/shuffle_quality.h"
#include "loader/streaming_query.h"
#include "loader/survey.h"
#include "loader/survey_cache.h"
#include "plan/planner.h"

namespace millstream::loader {
namespace {

constexpr double kBudgetShare = 0.7;  // of this rank's share of the memory, where none is set
constexpr int kFewestSlots = 2;       // a recipe can ask for
constexpr int kSlots = 8;             // of a ring, where the recipe leaves it to us: so many at least …
constexpr int kMostSlots = 64;        // … and of small batches more,
constexpr int64_t kRowsAhead =
    64 * 1024;  // … for so many rows: what a feeder does in one go, some times over
constexpr int kCountingShare =
    4;                          // counting values in the survey likewise, before there are windows and rings
constexpr int kCacheShare = 2;  // the cache in memory may have one part in so many of a rank's budget
constexpr int kDiskShare = 4;  // and `auto` may fill one part in so many of the disk, or of the cache's limit
constexpr int kFeedingPriority = 10;  // nice of feeding threads beside a trainer

Status check_config(const DataConfig& data, const LoaderConfig& config, int64_t epochs) {
  const auto positive = [](const char* name, int64_t value) -> Status {
    if (value > 0) return Status::OK();
    return usage_error("{} is {}; it must be at least 1", name, value);
  };
  MILLSTREAM_TRY(positive("loader.batch_size", config.batch_size));
  MILLSTREAM_TRY(positive("loader.window", config.window));
  MILLSTREAM_TRY(positive("loader.lanes", config.lanes));
  if (config.prefetch < 0) MILLSTREAM_TRY(positive("loader.prefetch", config.prefetch));
  if (config.shuffle == Shuffle::kFull && config.cache == Cache::kNone) {
    return usage_error(
        "loader.shuffle is \"full\", which draws rows from prepared ones, and loader.cache is \"none\": take "
        "\"auto\", \"memory\" or \"disk\", or shuffle = \"window\"");
  }
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

// Features first, then targets, ids and weights, each 64-byte aligned.
SlotLayout make_layout(const features::RowPacker& packer, const DataConfig& data, int64_t rows) {
  SlotLayout layout;
  layout.rows = rows;
  const auto add = [&](const char* name, SegmentType type, std::vector<std::string> columns) {
    const int64_t row_bytes = int64_t{4} * static_cast<int64_t>(columns.size());
    const int64_t offset = (layout.bytes + 63) / 64 * 64;
    layout.segments.push_back({name, type, std::move(columns), offset, row_bytes});
    layout.bytes = offset + rows * row_bytes;
    return static_cast<int>(layout.segments.size()) - 1;
  };
  add("features", SegmentType::kFloat32, packer.feature_names());
  add("target", SegmentType::kFloat32, {data.target});
  std::vector<std::string> embedded;
  for (const features::FeatureColumn& column : packer.embedded()) embedded.push_back(column.name);
  if (!embedded.empty()) layout.ids = add("ids", SegmentType::kInt32, std::move(embedded));
  if (packer.has_weight()) layout.weight = add("weight", SegmentType::kFloat32, {data.weight});
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

// A feature or target that would be a number but for some text in a CSV file: the error names the text and its place.
Status check_text_columns(const plan::Pipeline& query, const DataConfig& data) {
  const auto check = [&](const std::string& name, const char* role) -> Status {
    const int index = query.schema->GetFieldIndex(name);
    if (index < 0) return Status::OK();
    const expr::Expression& output = *query.outputs[static_cast<size_t>(index)];
    if (output.kind != expr::Kind::kColumn || output.type->id() != arrow::Type::STRING) return Status::OK();
    const int column = query.columns[static_cast<size_t>(output.column)];
    const std::string value = query.table->not_a_number(column);
    if (value.empty()) return Status::OK();
    return usage_error(
        "the {} column '{}' is text, because {} is no number; correct the file, or write TRY_CAST({} AS "
        "DOUBLE) AS {} "
        "in the query, which is NULL where the text is no number",
        role, name, value, query.table->schema()->field(column)->name(), name);
  };
  for (const features::FeatureSpec& spec : data.features) {
    const bool takes_text =
        std::any_of(spec.steps.begin(), spec.steps.end(), [](const features::StepSpec& step) {
          return step.name == "one_hot" || step.name == "categorify" || step.name == "ordinal" ||
                 step.name == "hash_bucket" || step.name == "target_encode" || step.name == "cross";
        });
    if (takes_text) continue;
    for (const std::string& name : spec.columns) MILLSTREAM_TRY(check(name, "feature"));
  }
  MILLSTREAM_TRY(check(data.target, "target"));
  return data.weight.empty() ? Status::OK() : check(data.weight, "weight");
}

// What a rank tells the others of itself.
struct RankFacts {
  int32_t node = 0;           // the lowest rank that it shares memory with
  int32_t shared_memory = 0;  // the rings of the node are in shared memory
};

// What a rank's part of the loader holds.
struct LoaderMemory {
  int64_t rows = 0;   // bytes of packed rows: windows and chunks
  int64_t ring = 0;   // bytes of its trainer's ring
  int64_t ahead = 0;  // bytes of second windows, which a loader can do without
  int64_t total() const { return rows + ring; }
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

  ~Loader() override { stop(); }

  Status plan(plan::Catalog& catalog, PhaseAgreement* phase);
  Status survey_all(PhaseAgreement* phase);
  Status store_rows();
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
  int64_t sources() const override { return passes().empty() ? 0 : feed_plan_->parts(0)->num_sources(); }
  double shuffle_quality() const override {
    if (passes().empty()) return 1;
    return loader::shuffle_quality(train_->counts(), feed_plan_->parts(0)->schedule().config());
  }
  Result<std::optional<Batch>> next() override;
  StreamPosition position() const override { return feed_plan_->position_of(next_batch_); }
  void release() override;
  Status finish() override {
    kill_point("finish");
    join();
    std::lock_guard lock(mutex_);
    if (status_.ok() && job_.failed()) return job_.failure();
    return status_;
  }
  LoaderCounters counters() const override;
  std::vector<LoaderCounters> counters_by_epoch() const override;
  std::string state() const override;
  Status load_state(const std::string& state) override;

 private:
  int threads() const {
    return config_.threads > 0 ? config_.threads : job_.topology().ranks[job_.rank()].threads;
  }
  Status check_valid_query(const arrow::Schema& schema) const;
  std::vector<LoaderMemory> memory_of(const LoaderConfig& config) const;
  std::string advice_for(int64_t budget) const;
  Status choose_slots(int64_t largest_batch);
  Status check_memory();
  int64_t memory_budget() const;
  int64_t budget_beside_cache() const;
  Result<KeepRows> choose_cache() const;
  // Given up before its end: the streams stop, this trainer takes nothing more.
  void stop();
  Status check_state(const std::string& state, StreamPosition* position) const;
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
  Split split_;
  bool rewritten_ = false;  // the pieces are the entry points of training
  SurveyOutcome surveyed_;
  SurveyResult survey_result_;
  double seconds_survey_ = 0;
  std::unique_ptr<RowRules> train_rules_, valid_rules_;
  std::unique_ptr<RowSource> train_, valid_;
  std::unique_ptr<features::RowPacker> packer_, valid_packer_;
  std::unique_ptr<RowStore> store_;
  int64_t store_bytes_ = 0;  // that count in this rank's budget
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

  mutable std::mutex mutex_;  // of the next two
  Status status_;
  std::vector<int64_t> waiting_by_epoch_;  // nanoseconds

  int64_t next_batch_ = 0;
  int64_t released_ = 0;
  std::atomic<int64_t> waiting_ns_{0};
  std::atomic<int64_t> first_batch_ns_{0};
};

Status Loader::check_valid_query(const arrow::Schema& schema) const {
  const auto& needed = feature_plan_->input();
  for (const auto& field : needed->fields()) {
    if (field->name() == features::kPlaceColumn) continue;
    const bool is_target = field->name() == data_.target, is_weight = field->name() == data_.weight;
    const int index = plan::find_output(schema, field->name());
    if (index < 0) {
      return usage_error("the validation query has no column '{}', which is {}{}", field->name(),
                         is_target   ? "the target"
                         : is_weight ? "the weight"
                         : std::ranges::find(split_.columns(), field->name()) != split_.columns().end()
                             ? "what data.test or data.split_by reads"
                             : "a feature",
                         name_hint(field->name(), schema.field_names()));
    }
    const arrow::DataType& type = *schema.field(index)->type();
    if (is_target || features::is_tensor_type(*field->type())) {
      MILLSTREAM_TRY(with_context(features::check_tensor_type(field->name(), type,
                                                              is_target   ? "target"
                                                              : is_weight ? "weight"
                                                                          : "feature"),
                                  "the validation query"));
    } else if (type.id() != field->type()->id()) {
      return usage_error(
          "the validation query: the feature column '{}' is a {} there, and a {} in the training query",
          field->name(), type.ToString(), field->type()->ToString());
    }
  }
  return Status::OK();
}

Status Loader::plan(plan::Catalog& catalog, PhaseAgreement* phase) {
  set_phase("planning");
  MILLSTREAM_TRY(check_config(data_, config_, epochs_));
  const auto pipeline_of = [&](const std::string& sql, const char* name,
                               const std::string& directory) -> Result<plan::Pipeline> {
    return make_streaming_query({.job = &job_,
                                 .phase = phase,
                                 .catalog = &catalog,
                                 .sql = sql,
                                 .options = {.name = name, .base_directory = directory},
                                 .cache_directory = config_.cache_directory,
                                 .threads = threads(),
                                 .memory_bytes = memory_budget()});
  };
  MILLSTREAM_ASSIGN(const plan::Pipeline train, pipeline_of(data_.train, "data.train", data_.base_directory));
  MILLSTREAM_ASSIGN(split_, Split::make(data_, train.schema));
  auto made = features::FeaturePlan::make(*train.schema, data_.features, data_.target, data_.on_null_target,
                                          data_.weight, split_.columns());
  if (!made.ok()) MILLSTREAM_TRY(check_text_columns(train, data_));
  MILLSTREAM_ASSIGN(auto feature_plan, std::move(made));
  feature_plan_ = std::make_unique<features::FeaturePlan>(std::move(feature_plan));
  const std::vector<std::string> needed = feature_plan_->query_columns();
  MILLSTREAM_TRY(split_.bind(*feature_plan_->input()));
  MILLSTREAM_ASSIGN(plan::Pipeline pruned, plan::select_outputs(train, needed));
  train_table_ = std::make_unique<exec::BlockSource>(std::move(pruned));
  if (feature_plan_->needs_places()) MILLSTREAM_TRY(train_table_->add_places(features::kPlaceColumn));
  if (data_.valid) {
    const std::string& directory =
        data_.valid_base_directory.empty() ? data_.base_directory : data_.valid_base_directory;
    MILLSTREAM_ASSIGN(const plan::Pipeline valid, pipeline_of(*data_.valid, "data.valid", directory));
    MILLSTREAM_TRY(with_context(check_text_columns(valid, data_), "the validation query"));
    MILLSTREAM_TRY(check_valid_query(*valid.schema));
    MILLSTREAM_ASSIGN(plan::Pipeline pruned_valid, plan::select_outputs(valid, needed));
    valid_table_ = std::make_unique<exec::BlockSource>(std::move(pruned_valid));
    if (feature_plan_->needs_places()) MILLSTREAM_TRY(valid_table_->add_places(features::kPlaceColumn));
  }
  return Status::OK();
}

int64_t Loader::memory_budget() const {
  if (config_.memory_bytes > 0) return config_.memory_bytes;
  const auto ranks_here = job_.topology().host_ranks[job_.topology().host_of_rank[job_.rank()]].size();
  return static_cast<int64_t>(kBudgetShare * static_cast<double>(available_memory_bytes()) /
                              static_cast<double>(ranks_here));
}

// Bytes that the rows of a table have in the cache at most, as far as can be said before reading.
int64_t estimated_bytes(const exec::BlockSource& source) {
  const auto& table = source.table();
  int64_t row_bytes = 0;
  for (const auto& field : source.pipeline().schema->fields()) {
    const int bits = arrow::is_fixed_width(field->type()->id()) ? field->type()->bit_width() : 8 * 32;
    row_bytes += (bits + 7) / 8;
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < table.entry_points().size(); ++i) {
    const plan::EntryPoint& entry = table.entry_points()[i];
    // Text has hardly less bytes than its values.
    bytes += entry.rows >= 0 ? entry.rows * row_bytes : entry.bytes;
  }
  return bytes;
}

// What `loader.cache` comes to, the same on every rank.
Result<KeepRows> Loader::choose_cache() const {
  if (config_.cache == Cache::kDisk) return KeepRows::kOnDisk;
  const auto num_hosts = job_.topology().host_ranks.size();
  if (config_.cache == Cache::kMemory && num_hosts > 1) {
    return usage_error(
        "loader.cache is \"memory\", which is for jobs on one host; this one is on {}: take \"disk\" with a "
        "cache "
        "directory that all hosts see, or \"none\"",
        num_hosts);
  }
  if (config_.cache == Cache::kMemory) return KeepRows::kInMemory;
  if (rewritten_) return KeepRows::kOnDisk;
  if (config_.cache == Cache::kNone || epochs_ <= config_.start_epoch) return KeepRows::kNo;
  if (num_hosts > 1) return KeepRows::kNo;
  int64_t bytes = estimated_bytes(*train_table_);
  if (valid_table_ != nullptr) bytes += estimated_bytes(*valid_table_);
  int64_t room = memory_budget() / kCacheShare;
  MILLSTREAM_TRY(job_.world().all_reduce(&room, 1, comm::DataType::kInt64, comm::ReduceOp::kMin));
  // Entry points are dealt by bytes, not quite evenly.
  if (bytes / job_.size() + bytes / 8 <= room) return KeepRows::kInMemory;
  // What is read but once more need not go to the disk.
  uint8_t on_disk = epochs_ - config_.start_epoch > 1 &&
                    bytes <= SurveyCache(config_.cache_directory).free_bytes() / kDiskShare &&
                    bytes <= kSurveyCacheBytes / kDiskShare;
  MILLSTREAM_TRY(job_.world().broadcast(&on_disk, sizeof(on_disk), 0));
  return on_disk ? KeepRows::kOnDisk : KeepRows::kNo;
}

Status Loader::survey_all(PhaseAgreement* phase) {
  const int64_t began = monotonic_ns();
  rewritten_ = wants_pieces(train_table_->table(), config_);
  MILLSTREAM_ASSIGN(const KeepRows keep, choose_cache());
  SurveyRequest request{
      .job = &job_,
      .phase = phase,
      .train = train_table_.get(),
      .valid = valid_table_.get(),
      .plan = feature_plan_.get(),
      .split = &split_,
      .skip_corrupt = data_.on_corrupt == OnCorrupt::kSkip,
      .limit_rows = data_.limit_rows,
      .keep = keep,
      .memory_limit = memory_budget() / kCacheShare,
      .counting_memory = memory_budget() / kCountingShare,
      .keep_if_possible = config_.cache == Cache::kAuto,
      .read_again = config_.cache == Cache::kMemory || rewritten_ || epochs_ - config_.start_epoch > 1,
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
  survey_result_.spilled_bytes = survey.spilled_bytes;
  if (survey.has_pieces) {
    survey_result_.cache = keep == KeepRows::kInMemory ? Cache::kMemory : Cache::kDisk;
    for (const int64_t bytes : survey.piece_file_bytes) survey_result_.cache_bytes += bytes;
  }
  const auto tell = [&](const TableCounts& counts, const plan::SourceTable& table, bool validation) {
    for (const LedgerEntry& entry : counts.ledger) {
      std::string column;
      if (entry.rule >= 0) {
        const auto& rule = feature_plan_->rules()[static_cast<size_t>(entry.rule)];
        column = feature_plan_->input()->field(rule.column)->name();
      }
      survey_result_.dropped.push_back({table.files()[static_cast<size_t>(entry.file)].path,
                                        std::move(column),
                                        drop_reason_name(static_cast<DropReason>(entry.reason)),
                                        entry.row_groups, entry.rows, validation});
    }
  };
  tell(survey.train, train_table_->table(), false);
  if (survey.valid) tell(*survey.valid, valid_table_->table(), true);
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
  } else if ((data_.valid_if || data_.folds > 0) && survey_result_.rows_valid == 0) {
    notice("no row is one of validation: there is none");
  }

  MILLSTREAM_ASSIGN(auto packer,
                    features::RowPacker::make(survey_result_.fitted, data_.target, /*of_bundle=*/false,
                                              data_.weight, /*training=*/true));
  packer_ = std::make_unique<features::RowPacker>(std::move(packer));
  MILLSTREAM_ASSIGN(auto valid_packer, features::RowPacker::make(survey_result_.fitted, data_.target,
                                                                 /*of_bundle=*/false, data_.weight));
  valid_packer_ = std::make_unique<features::RowPacker>(std::move(valid_packer));
  train_rules_ = std::make_unique<RowRules>(train_table_->table(), feature_plan_->rules(), split_);
  const auto of_train = [&](bool valid) {
    if (survey.has_pieces) {
      // In file order pieces are dealt to the streams; a shuffled pass has the entry points that the rule says,
      // whether rows are kept or not.
      return make_piece_source(valid ? survey.valid_pieces : survey.train_pieces, surveyed_.piece_files,
                               feature_plan_->input(), *train_table_, survey.train, *train_rules_, valid,
                               !valid && !rewritten_ && config_.shuffle != Shuffle::kNone);
    }
    return make_query_source(*train_table_, survey.train, *train_rules_, valid);
  };
  train_ = of_train(false);
  if (valid_table_ != nullptr) {
    valid_rules_ = std::make_unique<RowRules>(valid_table_->table(), feature_plan_->rules(), Split());
    valid_ = survey.has_pieces
                 ? make_piece_source(survey.valid_pieces, surveyed_.piece_files, feature_plan_->input(),
                                     *valid_table_, *survey.valid, *valid_rules_, false, false)
                 : make_query_source(*valid_table_, *survey.valid, *valid_rules_, false);
  } else {
    valid_ = of_train(true);
  }
  return Status::OK();
}

// The memory that each rank is going to hold with a loader of these settings: of each of its lanes a window (and a
// second one, where there is room) and the rows read beyond it that can't be read again, of each stream a chunk of
// validation rows, and the trainer's ring.
std::vector<LoaderMemory> Loader::memory_of(const LoaderConfig& config) const {
  const FeedPlan plan(config, 1, train_->counts(), valid_->counts());
  const auto parts = plan.parts(0);
  const auto& lanes = parts->schedule().lanes();
  const size_t num_streams = context_.stream_ranks.size();
  const int64_t window = window_rows_per_lane(parts->schedule().config(), static_cast<int>(lanes.size()));
  const int64_t batch = std::min(config.batch_size, std::max(train_->rows(), valid_->rows()));
  const int64_t share = largest_share(batch, static_cast<int>(roles_.trainers.size()));
  std::vector<LoaderMemory> memory(static_cast<size_t>(job_.size()));
  for (size_t stream = 0; stream < num_streams; ++stream) {
    int64_t rows = valid_->largest_chunk(), ahead = 0;
    if (!parts->shuffled()) rows = std::max(rows, train_->largest_chunk());
    for (size_t lane = stream; parts->shuffled() && lane < lanes.size(); lane += num_streams) {
      rows += std::min(lanes[lane].rows, window);
      if (!train_->gives_again()) rows += std::min(lanes[lane].rows, train_->largest_chunk());
      ahead += std::min(lanes[lane].rows, window);
    }
    LoaderMemory& its = memory[static_cast<size_t>(context_.stream_ranks[stream])];
    its.rows += rows * packer_->row_bytes();
    its.ahead += ahead * packer_->row_bytes();
  }
  for (const comm::Trainer& trainer : roles_.trainers) {
    memory[static_cast<size_t>(trainer.rank)].ring =
        Ring::bytes_needed(config.prefetch, make_layout(*packer_, data_, share));
  }
  return memory;
}

// Settings that every rank has the memory for, as near to the wanted ones as there are: batches that leave room for
// rows, then a smaller window, else fewer lanes too, else no shuffle. Nothing where even that is too much.
std::string Loader::advice_for(int64_t budget) const {
  const auto all_within = [&](const LoaderConfig& config, auto bytes_of, int64_t limit) {
    const auto memory = memory_of(config);
    return std::all_of(memory.begin(), memory.end(),
                       [&](const LoaderMemory& rank) { return bytes_of(rank) <= limit; });
  };
  const auto fits = [&](const LoaderConfig& config) {
    return all_within(config, std::mem_fn(&LoaderMemory::total), budget);
  };
  // The most of `*value`, up to what it is, that a condition holds for; 0 and no change where there is none.
  const auto reduce = [](int64_t* value, auto&& holds) {
    const int64_t wanted = *value;
    int64_t low = 0, high = wanted;
    while (low < high) {
      *value = low + (high - low + 1) / 2;
      if (holds()) {
        low = *value;
      } else {
        high = *value - 1;
      }
    }
    *value = low > 0 ? low : wanted;
    return low;
  };
  LoaderConfig config = config_;
  std::string batches;
  const auto ring_bytes = std::mem_fn(&LoaderMemory::ring);
  if (!all_within(config, ring_bytes, budget)) {
    config.batch_size = std::min(config.batch_size, std::max(train_->rows(), valid_->rows()));
    const auto half = [&] { return all_within(config, ring_bytes, budget / 2); };
    if (reduce(&config.batch_size, half) == 0) {
      config.prefetch = std::min(kFewestSlots, config.prefetch);
      if (reduce(&config.batch_size, half) == 0) return {};
      batches = fmt::format("loader.prefetch = {}, ", config.prefetch);
    }
    batches += fmt::format("loader.batch_size = {}", config.batch_size);
    if (fits(config)) return batches + " would fit";
    batches += ", ";
  }
  if (config.shuffle != Shuffle::kWindow) {
    config.batch_size = std::min(config.batch_size, std::max(train_->rows(), valid_->rows()));
    if (reduce(&config.batch_size, [&] { return fits(config); }) == 0) return {};
    return fmt::format("loader.batch_size = {} would fit", config.batch_size);
  }
  const auto smaller_window = [&] {
    config.window = std::min(config_.window, train_->rows());
    return reduce(&config.window, [&] { return fits(config); }) > 0;
  };
  if (smaller_window()) return fmt::format("{}loader.window = {} would fit", batches, config.window);
  // Each lane holds a chunk of rows at least, whatever the window.
  for (int lanes = static_cast<int>(feed_plan_->parts(0)->schedule().lanes().size()) / 2; lanes >= 1;
       lanes /= 2) {
    config.lanes = lanes;
    if (smaller_window())
      return fmt::format("{}loader.lanes = {}, loader.window = {} would fit", batches, lanes, config.window);
  }
  config = config_;
  config.shuffle = Shuffle::kNone;
  if (fits(config)) return "loader.shuffle = \"none\" would fit";
  config.batch_size = std::min(config.batch_size, std::max(train_->rows(), valid_->rows()));
  if (reduce(&config.batch_size, [&] { return fits(config); }) == 0) return {};
  return fmt::format("loader.shuffle = \"none\", loader.batch_size = {} would fit", config.batch_size);
}

int64_t Loader::budget_beside_cache() const {
  int64_t budget = memory_budget();
  if (survey_result_.cache == Cache::kMemory) budget -= surveyed_.survey.piece_file_bytes[job_.rank()];
  return budget - store_bytes_;
}

// With shuffle = full: all training rows packed, in memory where they fit, else on disk. Collective.
Status Loader::store_rows() {
  if (config_.shuffle != Shuffle::kFull || epochs_ <= config_.start_epoch) return Status::OK();
  if (job_.topology().host_ranks.size() > 1) {
    return usage_error(
        "loader.shuffle is \"full\", which is for jobs on one host; this one is on {}: take \"window\"",
        job_.topology().host_ranks.size());
  }
  const int64_t floats = train_->rows() * packer_->row_floats();
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  const int64_t mine = bytes / job_.size();
  uint8_t in_memory = config_.cache != Cache::kDisk && mine <= budget_beside_cache() / kCacheShare;
  MILLSTREAM_TRY(job_.world().all_reduce(&in_memory, 1, comm::DataType::kUInt8, comm::ReduceOp::kMin));
  if (!in_memory && config_.cache == Cache::kMemory) {
    return usage_error(
        "loader.shuffle is \"full\" and loader.cache \"memory\": the prepared rows need {} in all, {} a "
        "rank, "
        "more than half of what is left of its budget ({}); give more with --memory, or take cache = "
        "\"disk\"",
        format_bytes(bytes), format_bytes(mine), format_bytes(budget_beside_cache()));
  }
  MILLSTREAM_ASSIGN(
      store_,
      RowStore::make(job_, floats, in_memory ? "" : SurveyCache(config_.cache_directory).directory()));
  MILLSTREAM_TRY(store_->fill(job_, *train_, *packer_, threads()));
  if (in_memory) store_bytes_ = mine;
  return Status::OK();
}

// The slots of a ring, where the recipe does not say: fewer where a rank has not the memory. Collective.
Status Loader::choose_slots(int64_t largest_batch) {
  if (config_.prefetch > 0) return Status::OK();
  int32_t slots = static_cast<int32_t>(
      std::clamp<int64_t>(kRowsAhead / std::max<int64_t>(1, largest_batch), kSlots, kMostSlots));
  LoaderConfig config = config_;
  for (config.prefetch = slots; slots > kFewestSlots; config.prefetch = --slots) {
    if (memory_of(config)[static_cast<size_t>(job_.rank())].total() <= budget_beside_cache()) break;
  }
  MILLSTREAM_TRY(job_.world().all_reduce(&slots, 1, comm::DataType::kInt32, comm::ReduceOp::kMin));
  config_.prefetch = slots;
  return Status::OK();
}

Status Loader::check_memory() {
  const int64_t budget = budget_beside_cache();
  const LoaderMemory need = memory_of(config_)[static_cast<size_t>(job_.rank())];
  context_.windows_ahead = need.total() + need.ahead <= budget;
  if (need.total() <= budget) return Status::OK();
  const auto parts = feed_plan_->parts(0);
  const std::string what = parts->shuffled()
                               ? fmt::format("{} lanes with windows of {} rows together, {} bytes a row",
                                             parts->schedule().lanes().size(),
                                             std::min(config_.window, train_->rows()), packer_->row_bytes())
                               : fmt::format("rows in file order, {} bytes a row", packer_->row_bytes());
  const std::string advice = advice_for(budget);
  return usage_error(
      "the loader needs {} on rank {} ({} for {}; {} for {} slots of {} rows), its budget {}is {}; {} with "
      "--memory",
      format_bytes(need.total()), job_.rank(), format_bytes(need.rows), what, format_bytes(need.ring),
      config_.prefetch, context_.layout.rows,
      survey_result_.cache == Cache::kMemory ? "beside the cache " : "", format_bytes(budget),
      advice.empty() ? "no settings would fit, give more" : advice + ", or give more");
}

Status Loader::allocate() {
  const auto world = [&]() -> comm::Communicator& { return job_.world(); };
  const int rank = job_.rank();
  const bool feeds = roles_.is_feeder(rank);
  const bool shares = trainer_ >= 0 && config_.consumer_computes;
  feeding_threads_ = !feeds ? 0 : shares ? std::max(1, threads() - 1) : threads();
  feed_plan_ = std::make_unique<FeedPlan>(config_, epochs_, train_->counts(), valid_->counts());
  MILLSTREAM_ASSIGN(context_.start_batch, feed_plan_->batch_at({config_.start_epoch, config_.start_step}));
  next_batch_ = released_ = context_.start_batch;
  const int num_trainers = static_cast<int>(roles_.trainers.size());
  const int64_t largest_batch = std::min(config_.batch_size, std::max(feed_plan_->rows_of(PassKind::kTrain),
                                                                      feed_plan_->rows_of(PassKind::kValid)));
  context_.layout = make_layout(*packer_, data_, largest_share(largest_batch, num_trainers));
  std::vector<int32_t> feeding_threads(job_.size());
  MILLSTREAM_TRY(world().all_gather(&feeding_threads_, sizeof(int32_t), feeding_threads.data()));
  for (int i = 0; i < job_.size(); ++i) {
    for (int k = 0; k < feeding_threads[i]; ++k) {
      if (i == rank) my_streams_.push_back(static_cast<int>(context_.stream_ranks.size()));
      context_.stream_ranks.push_back(i);
    }
  }
  MILLSTREAM_TRY(choose_slots(largest_batch));
  ring_bytes_ = Ring::bytes_needed(config_.prefetch, context_.layout);

  // The rings of a node's trainers: in one piece of shared memory, where others on the node feed them.
  const std::vector<int>& node = job_.node_ranks();
  std::vector<int> node_trainers;
  for (const comm::Trainer& trainer : roles_.trainers) {
    if (std::find(node.begin(), node.end(), trainer.rank) != node.end())
      node_trainers.push_back(trainer.rank);
  }
  RankFacts mine{.node = node.front()};
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

  kill_point("rings");
  context_.job = &job_;
  context_.first_tag = next_tags();
  context_.plan = feed_plan_.get();
  context_.train = train_.get();
  context_.valid = valid_.get();
  context_.packer = packer_.get();
  context_.store = store_.get();
  context_.valid_packer = valid_packer_.get();
  context_.slots = config_.prefetch;
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
  kill_point("feeding");
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
  kill_point("next");
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
      const int64_t waited = monotonic_ns() - began;
      waiting_ns_.fetch_add(waited, std::memory_order_relaxed);
      const auto epoch = static_cast<size_t>(batch.pass.epoch);
      std::lock_guard lock(mutex_);
      if (waiting_by_epoch_.size() <= epoch) waiting_by_epoch_.resize(epoch + 1);
      waiting_by_epoch_[epoch] += waited;
    }
  }
  if (next_batch_ == context_.start_batch)
    first_batch_ns_.store(monotonic_ns() - began_ns_, std::memory_order_relaxed);
  ++next_batch_;
  kill_point("taken");
  return batch;
}

void Loader::release() {
  MILLSTREAM_CHECK(released_ < next_batch_, "release() without a batch");
  context_.trainers[trainer_].ring.release(released_);
  if (receiver_ != nullptr) receiver_->post(released_ + config_.prefetch);
  ++released_;
  kill_point("released");
}

void Loader::stop() {
  context_.stopping.store(1, std::memory_order_release);
  if (trainer_ >= 0 && started_) {
    const Ring& ring = context_.trainers[trainer_].ring;
    ring.released().store(static_cast<uint32_t>(context_.plan->num_batches()), std::memory_order_release);
    futex_wake_all(ring.released());
  }
  for (const auto& stream : streams_) stream->wake();
  join();
}

const char* shuffle_name(Shuffle shuffle) {
  return shuffle == Shuffle::kNone ? "none" : shuffle == Shuffle::kWindow ? "window" : "full";
}

std::string Loader::state() const {
  const StreamPosition at = position();
  nlohmann::json json = {{"format", 1},
                         {"epoch", at.epoch},
                         {"step", at.step},
                         {"data", survey_key()},
                         {"seed", config_.seed},
                         {"batch_size", config_.batch_size},
                         {"shuffle", shuffle_name(config_.shuffle)}};
  if (config_.shuffle == Shuffle::kWindow) {
    json["window"] = config_.window;
    json["lanes"] = config_.lanes;
  }
  return json.dump();
}

Status Loader::check_state(const std::string& state, StreamPosition* position) const {
  const auto theirs = nlohmann::json::parse(state, nullptr, /*allow_exceptions=*/false);
  const auto mine = nlohmann::json::parse(this->state());
  const auto number = [&](const char* name) {
    return theirs.contains(name) && theirs[name].is_number_integer();
  };
  if (!theirs.is_object() || !number("format") || !number("epoch") || !number("step")) {
    return usage_error("this is no state of a DataLoader: {}", state.substr(0, 100));
  }
  if (theirs["format"] != mine["format"]) {
    return usage_error("the state is of format {}; this version writes and reads format {}",
                       theirs["format"].dump(), mine["format"].dump());
  }
  std::string different;
  for (const auto& [name, value] : mine.items()) {
    if (name == "epoch" || name == "step") continue;
    const nlohmann::json other = theirs.contains(name) ? theirs[name] : nlohmann::json();
    if (other == value) continue;
    different += different.empty() ? "" : ", ";
    different += name == "data"
                     ? "the data (files, query, features or split)"
                     : fmt::format("loader.{}, {} there and {} here", name, other.dump(), value.dump());
  }
  if (!different.empty()) return usage_error("the state is of another loader; different: {}", different);
  *position = {theirs["epoch"].get<int64_t>(), theirs["step"].get<int64_t>()};
  return feed_plan_->batch_at(*position).status();
}

Status Loader::load_state(const std::string& state) {
  StreamPosition position;
  const Status checked = check_state(state, &position);
  // No stream of any rank writes to a ring any more before the rings are made anew.
  stop();
  MILLSTREAM_TRY(job_.agree(checked));
  streams_.clear();
  receiver_.reset();
  context_.trainers.clear();
  context_.stream_ranks.clear();
  context_.stopping.store(0, std::memory_order_release);
  my_streams_.clear();
  ring_memory_.reset();
  started_ = false;
  config_.start_epoch = position.epoch;
  config_.start_step = position.step;
  PhaseAgreement phase(job_);
  if (store_ == nullptr) MILLSTREAM_TRY(phase.agree(store_rows()));
  MILLSTREAM_TRY(phase.agree(allocate()));
  start();
  return Status::OK();
}

std::vector<LoaderCounters> Loader::counters_by_epoch() const {
  std::vector<LoaderCounters> epochs;
  const auto at = [&](size_t epoch) -> LoaderCounters& {
    if (epochs.size() <= epoch) epochs.resize(epoch + 1);
    return epochs[epoch];
  };
  for (const auto& stream : streams_) {
    const auto times = stream->times_by_epoch();
    for (size_t epoch = 0; epoch < times.size(); ++epoch) {
      at(epoch).seconds_reading += static_cast<double>(times[epoch][0]) * 1e-9;
      at(epoch).seconds_computing += static_cast<double>(times[epoch][1]) * 1e-9;
      at(epoch).seconds_sending += static_cast<double>(times[epoch][2]) * 1e-9;
      at(epoch).seconds_for_room += static_cast<double>(times[epoch][3]) * 1e-9;
    }
  }
  std::lock_guard lock(mutex_);
  for (size_t epoch = 0; epoch < waiting_by_epoch_.size(); ++epoch)
    at(epoch).seconds_waiting = static_cast<double>(waiting_by_epoch_[epoch]) * 1e-9;
  return epochs;
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
  counters.feeding_threads = static_cast<int>(streams_.size());
  return counters;
}

}  // namespace

Result<std::unique_ptr<DataLoader>> DataLoader::make(comm::Job& job, const comm::Roles& roles,
                                                     plan::Catalog& catalog, const DataConfig& data,
                                                     const LoaderConfig& config, int64_t epochs) {
  auto loader = std::make_unique<Loader>(job, roles, data, config, epochs);
  PhaseAgreement phase(job);
  MILLSTREAM_TRY(phase.agree(loader->plan(catalog, &phase)));
  kill_point("planned");
  MILLSTREAM_TRY(phase.agree(loader->survey_all(&phase)));
  kill_point("surveyed");
  set_phase("preparing rows");
  MILLSTREAM_TRY(phase.agree(loader->store_rows()));
  set_phase("feeding");
  MILLSTREAM_TRY(phase.agree(loader->allocate()));
  loader->start();
  return std::unique_ptr<DataLoader>(std::move(loader));
}

}  // namespace millstream::loader
