// predict and evaluate: a bundle's query, transforms and model over other files.
//
// Entry points are dealt to the threads of all ranks in rounds, in order; each is scored by one thread. predict
// gathers a round's predictions and rank 0 writes them in order, so that memory is bounded by a round; evaluate
// merges sums in the order of entry points, so that its numbers do not depend on the number of ranks and threads.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/cpu_share.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/trace.h"
#include "exec/atomic_file.h"
#include "exec/block_source.h"
#include "exec/parquet_writer.h"
#include "expr/text.h"
#include "expr/type.h"
#include "features/feature_plan.h"
#include "features/fitted_json.h"
#include "features/row_packer.h"
#include "loader/row_rules.h"
#include "loader/streaming_query.h"
#include "plan/planner.h"
#include "train/bundle.h"
#include "train/export.h"
#include "train/library_functions.h"
#include "train/loss.h"
#include "train/metrics.h"
#include "train/model.h"
#include "train/torch_error.h"

namespace millstream::train {
namespace {

constexpr int64_t kForwardRows = 16 * 1024;

/// Everything that turns the blocks of the inputs into predictions. Immutable once made; used by several threads.
struct Scorer {
  Bundle bundle;
  std::unique_ptr<Model> model;
  std::unique_ptr<exec::BlockSource> source;
  std::optional<features::RowPacker> packer;
  std::unique_ptr<loader::RowRules> rules;
  bool with_target = false;
};

/// Predictions of one block, and what they were compared with.
struct ScoredBlock {
  std::vector<double> predictions;    ///< float32 models: floats, exactly
  std::vector<double> probabilities;  ///< of the predicted classes
  std::vector<uint8_t> present;  ///< a row each; empty: all. Rows that on_null = drop leaves out have none
  EvaluationSums sums;
};

/// Types that can stand in one column of a table (design, section 4).
bool can_unify(const arrow::DataType& a, const arrow::DataType& b) {
  if (a.Equals(b) || expr::is_null_type(a) || expr::is_null_type(b)) return true;
  if (expr::is_numeric_type(a) && expr::is_numeric_type(b)) return true;
  return expr::is_timestamp_type(a) && expr::is_timestamp_type(b) &&
         expr::is_timestamp_with_zone_type(a) == expr::is_timestamp_with_zone_type(b);
}

std::string name_files(const plan::SourceTable& table) {
  const auto& files = table.files();
  if (files.empty()) return "the input";
  return files.size() == 1 ? files[0].path : fmt::format("{} and {} more", files[0].path, files.size() - 1);
}

// `missing`: where the columns go that are not there; null: that is an error.
// The prediction query over inputs to which the missing columns are added, as nulls of the recorded types.
Result<std::string> with_nulls(const Bundle& bundle, const std::vector<const BundleInput*>& missing) {
  constexpr std::string_view kFrom = " FROM 'input'";
  std::string query = bundle.prediction_query;
  if (missing.empty()) return query;
  if (!bundle.base_directory.empty() || !query.ends_with(kFrom))
    return usage_error(
        "--missing-as-null is for bundles whose query is one of a single table, row by row; this one's is "
        "not, and "
        "the input has no column '{}'",
        missing[0]->name);
  query.resize(query.size() - kFrom.size());
  query += " FROM (SELECT *";
  for (const BundleInput* input : missing) {
    const bool typed = input->type != expr::sql_type_name(*arrow::null());
    query += typed ? fmt::format(", CAST(NULL AS {}) AS ", input->type) : ", NULL AS ";
    expr::append_quoted(query, input->name, '"');
    notice_f("the input has no column '{}': it is taken for one of nulls", input->name);
  }
  return query + std::string(kFrom) + ")";
}

Status check_inputs(const plan::SourceTable& table, const Bundle& bundle, bool with_target,
                    std::vector<const BundleInput*>* missing) {
  for (const BundleInput& input : bundle.inputs) {
    if (!with_target && !input.for_features) continue;
    const char* reader = input.for_features ? "features" : "filter or target";
    expr::TypePtr recorded = arrow::null();  // "NULL", which no cast can name: a column that held no value
    if (input.type != expr::sql_type_name(*recorded)) {
      MILLSTREAM_ASSIGN(recorded, expr::parse_type(input.type));
    }
    std::shared_ptr<arrow::Field> found;
    for (const auto& field : table.schema()->fields())
      if (std::equal(field->name().begin(), field->name().end(), input.name.begin(), input.name.end(),
                     [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); }))
        found = field;
    if (!found && missing != nullptr) {
      missing->push_back(&input);
      continue;
    }
    if (!found)
      return data_error("{} has no column '{}': the bundle's {} need it, with type {}{}", name_files(table),
                        input.name, reader, input.type,
                        with_target ? "" : "; --missing-as-null takes it for one of nulls");
    if (!can_unify(*found->type(), *recorded)) {
      std::string why;
      if (expr::is_numeric_type(*recorded))
        why = table.not_a_number(table.schema()->GetFieldIndex(found->name()));
      if (!why.empty()) why = fmt::format(" ({} is no number)", why);
      return data_error("column '{}' of {} is {}{}: the bundle's {} need a type that goes with {}",
                        input.name, name_files(table), expr::sql_type_name(*found->type()), why, reader,
                        input.type);
    }
  }
  return Status::OK();
}

int threads_of(const comm::Job& job, const PredictJob& work) {
  const int threads = work.loader.threads > 0 ? work.loader.threads
                                              : job.topology().ranks[static_cast<size_t>(job.rank())].threads;
  return std::max(1, threads);
}

Result<std::unique_ptr<Scorer>> make_scorer(comm::Job& job, loader::PhaseAgreement& phase, Bundle bundle,
                                            plan::Catalog& catalog, const PredictJob& work,
                                            bool with_target) {
  auto scorer = std::make_unique<Scorer>();
  scorer->with_target = with_target;
  // Types that differ from the recorded ones give query errors that would blame a query nobody sees: check first.
  std::error_code ignored;
  const std::string here = std::filesystem::current_path(ignored).string();
  const loader::DataConfig* const test_of = work.test_of;
  std::vector<const BundleInput*> missing;
  if (test_of == nullptr) {
    MILLSTREAM_ASSIGN(const auto table, catalog.open({work.inputs, here, {}}));
    MILLSTREAM_TRY(
        check_inputs(*table, bundle, with_target, work.missing_as_null && !with_target ? &missing : nullptr));
  }

  std::vector<std::string> columns = features::feature_inputs(bundle.features);
  if (with_target) columns.push_back(bundle.target);
  std::string query = bundle.query;
  if (!with_target) {
    MILLSTREAM_ASSIGN(query, with_nulls(bundle, missing));
  }
  plan::QueryOptions options{fmt::format("the query of bundle {}", work.bundle), here, work.inputs};
  if (test_of != nullptr) {
    if (test_of->test) query = *test_of->test;
    options = {test_of->test ? "data.test" : "data.train", test_of->base_directory, {}};
  } else if (!bundle.base_directory.empty()) {
    options.base_directory = bundle.base_directory;
    for (std::string& input : options.replace_inputs) input = (std::filesystem::path(here) / input).string();
  }
  MILLSTREAM_ASSIGN(plan::Pipeline pipeline,
                    loader::make_streaming_query({.job = &job,
                                                  .phase = &phase,
                                                  .catalog = &catalog,
                                                  .sql = query,
                                                  .options = options,
                                                  .cache_directory = work.loader.cache_directory,
                                                  .threads = threads_of(job, work),
                                                  .memory_bytes = work.loader.memory_bytes}));
  loader::Split split;
  if (test_of != nullptr && !test_of->test) {
    MILLSTREAM_ASSIGN(split, loader::Split::make(*test_of, pipeline.schema));
    for (const std::string& column : split.columns())
      if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
  }
  MILLSTREAM_ASSIGN(pipeline, plan::select_outputs(pipeline, columns));
  MILLSTREAM_TRY(split.bind(*pipeline.schema));

  MILLSTREAM_ASSIGN(const features::Fitted fitted,
                    features::fitted_from_json(bundle.fitted_json, pipeline.schema));
  if (static_cast<int64_t>(fitted.columns.size()) != bundle.model_inputs)
    return data_error("the bundle {} is damaged: its features make {} columns and its model takes {}",
                      work.bundle, fitted.columns.size(), bundle.model_inputs);
  MILLSTREAM_ASSIGN(auto packer,
                    features::RowPacker::make(fitted, with_target ? bundle.target : "", /*of_bundle=*/true));
  scorer->packer.emplace(std::move(packer));

  MILLSTREAM_ASSIGN(scorer->model, model_of_bundle(bundle, work.bundle));

  // The same rules as in training: what may be null, and what leaves a row out.
  std::vector<features::RawColumnRule> rules;
  if (with_target) {
    MILLSTREAM_ASSIGN(
        const auto feature_plan,
        features::FeaturePlan::make(*pipeline.schema, bundle.features, bundle.target, bundle.on_null_target));
    rules = feature_plan.rules();
  } else {
    int column = 0;
    for (const features::FeatureSpec& spec : bundle.features) {
      const bool filled = features::steps_take_nulls(spec.steps);
      for (size_t i = 0; i < spec.columns.size(); ++i)
        rules.push_back(
            {.column = column++, .nulls_allowed = filled, .on_null = spec.on_null, .on_nan = spec.on_nan});
    }
  }
  scorer->source = std::make_unique<exec::BlockSource>(std::move(pipeline));
  scorer->rules = std::make_unique<loader::RowRules>(scorer->source->table(), std::move(rules), split,
                                                     /*of_bundle=*/true);
  if (split.has_test()) scorer->rules->take_only(loader::Part::kTest);
  scorer->bundle = std::move(bundle);
  return scorer;
}

/// The model over packed rows: appends the predictions, or compares with the target where there is one.
Status forward(const Scorer& scorer, const float* packed, int64_t rows, ScoredBlock& scored) {
  const int64_t stride = scorer.packer->row_floats(), inputs = scorer.packer->num_features();
  at::Tensor features =
      at::from_blob(const_cast<float*>(packed), {rows, inputs}, {stride, 1}, at::TensorOptions(at::kFloat));
  if (scorer.model->type() != at::kFloat) features = features.to(scorer.model->type());
  const Task task = task_of(scorer.bundle.loss);
  ModelBatch batch(features);
  if (scorer.packer->num_ids() > 0)
    batch.ids = ids_in(packed + scorer.packer->first_id(), rows, scorer.packer->num_ids(), stride);
  at::Tensor outputs = scorer.model->forward(batch).to(at::kDouble).contiguous();
  if (scorer.with_target) {
    MILLSTREAM_TRY(
        check_targets(task, scorer.model->outputs(), scorer.bundle.target, packed + inputs, rows, stride));
    scored.sums.add(outputs.const_data_ptr<double>(), packed + inputs, rows, stride);
    return Status::OK();
  }
  auto append = [rows](const at::Tensor& values, std::vector<double>& out) {
    const at::Tensor flat = values.to(at::kDouble).contiguous();
    out.insert(out.end(), flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + rows);
  };
  if (task == Task::kBinary) outputs = at::sigmoid(outputs);
  if (task == Task::kClasses) {
    const auto [probability, best] = at::softmax(outputs, 1).max(1);
    append(probability, scored.probabilities);
    outputs = best;
  }
  append(outputs, scored.predictions);
  return Status::OK();
}

Result<ScoredBlock> score_block(const Scorer& scorer, int entry_point, const exec::BlockRows& block,
                                loader::SelectedRows& selected, std::vector<float>& packed) {
  ScoredBlock scored{.sums = EvaluationSums(task_of(scorer.bundle.loss), scorer.bundle.model.outputs())};
  const int64_t rows = block.rows->num_rows();
  MILLSTREAM_TRY(scorer.rules->select(entry_point, block, rows, &selected));
  const int64_t kept = selected.train_rows;
  scored.predictions.reserve(static_cast<size_t>(kept));
  for (int64_t begin = 0; begin < kept; begin += kForwardRows) {
    const int64_t count = std::min(kForwardRows, kept - begin);
    packed.resize(static_cast<size_t>(count * scorer.packer->row_floats()));
    Status status;
    if (selected.all_train) {
      const auto slice = block.rows->Slice(begin, count);
      status = scorer.packer->pack(*slice, nullptr, count, packed.data());
      if (auto position = error_position(status)) {  // a row of the slice
        position->row += begin;
        status = with_category(status, error_category(status), position);
      }
    } else {
      status = scorer.packer->pack(*block.rows, selected.train.data() + begin, count, packed.data());
    }
    if (!status.ok()) return loader::locate_error(status, scorer.source->table(), entry_point, block);
    status = forward(scorer, packed.data(), count, scored);
    if (!status.ok()) return loader::locate_error(status, scorer.source->table(), entry_point, block);
  }
  if (!selected.all_train && kept < rows && !scorer.with_target) {
    // Room for the rows that were left out.
    scored.present.assign(static_cast<size_t>(rows), 0);
    for (int64_t i = 0; i < kept; ++i)
      scored.present[static_cast<size_t>(selected.train[static_cast<size_t>(i)])] = 1;
    for (std::vector<double>* column : {&scored.predictions, &scored.probabilities}) {
      if (column->empty()) continue;
      std::vector<double> all(static_cast<size_t>(rows), 0);
      for (int64_t i = 0; i < kept; ++i)
        all[static_cast<size_t>(selected.train[static_cast<size_t>(i)])] = (*column)[static_cast<size_t>(i)];
      *column = std::move(all);
    }
  }
  return scored;
}

/// Scores an entry point; `take` gets its blocks in order.
Status score_entry_point(comm::Job& job, const Scorer& scorer, int entry_point,
                         const std::function<void(ScoredBlock)>& take) {
  return catch_torch("predicting", [&]() -> Status {
    const at::NoGradGuard no_grad;
    MILLSTREAM_ASSIGN(const auto stream, scorer.source->open(entry_point));
    loader::SelectedRows selected;
    std::vector<float> packed;
    for (;;) {
      TraceSpan span("predict block", entry_point);
      MILLSTREAM_TRY(interrupt_status());
      // A peer's error ends the work here too, but for what stands before it: the first error in the data is the
      // one to report, whatever the number of ranks.
      if (job.failed()) {
        const Status failure = job.failure();
        const auto position = error_position(failure);
        const plan::EntryPoint& here =
            scorer.source->table().entry_points()[static_cast<size_t>(entry_point)];
        if (!position || *position < SourcePosition{here.file, here.first_row}) return failure;
      }
      MILLSTREAM_ASSIGN(const auto block, stream->next());
      if (!block) return Status::OK();
      MILLSTREAM_ASSIGN(auto scored, score_block(scorer, entry_point, *block, selected, packed));
      take(std::move(scored));
      beat();
    }
  });
}

/// Runs body(0 … count-1) on threads of their own; the first failure by number.
Status on_threads(int count, const std::function<Status(int)>& body) {
  std::vector<Status> statuses(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 1; i < count; ++i)
    threads.emplace_back([&, i] { statuses[static_cast<size_t>(i)] = body(i); });
  if (count > 0) statuses[0] = body(0);
  for (std::thread& thread : threads) thread.join();
  size_t best = 0;
  for (size_t i = 1; i < statuses.size(); ++i)
    if (!statuses[i].ok() && (statuses[best].ok() || reported_before(statuses[i], 0, statuses[best], 0)))
      best = i;
  return statuses.empty() ? Status::OK() : statuses[best];
}

/// How the entry points are dealt: in rounds of `width`, this rank's threads being [first, first + threads) of them.
struct Deal {
  int width = 0, first = 0, threads = 0;
};
Result<Deal> make_deal(comm::Job& job, int threads) {
  std::vector<int> all(static_cast<size_t>(job.size()));
  MILLSTREAM_TRY(job.world().all_gather(&threads, sizeof threads, all.data()));
  Deal deal;
  deal.threads = threads;
  for (int rank = 0; rank < job.size(); ++rank) {
    if (rank == job.rank()) deal.first = deal.width;
    deal.width += all[static_cast<size_t>(rank)];
  }
  return deal;
}

/// Everything between two agreements goes through here: a rank that fails, or that a failing peer interrupts in a
/// collective, comes to the agreement like the others.
template <class Body>
Status agree_on(comm::Job& job, Body&& body) {
  return job.agree(catch_torch("predicting", body));
}

Result<std::unique_ptr<Scorer>> open_scorer(comm::Job& job, plan::Catalog& catalog, const PredictJob& work,
                                            bool with_target) {
  std::unique_ptr<Scorer> scorer;
  loader::PhaseAgreement phase(job);
  MILLSTREAM_TRY(phase.agree(catch_torch("predicting", [&]() -> Status {
    // Rank 0 reads: ranks of other hosts need not see the bundle.
    std::string bytes;
    if (job.rank() == 0) {
      MILLSTREAM_ASSIGN(const Bundle bundle, read_bundle(work.bundle));
      bytes = encode_bundle(bundle);
    }
    MILLSTREAM_ASSIGN(bytes, job.world().broadcast_bytes(bytes, 0));
    MILLSTREAM_ASSIGN(Bundle bundle, decode_bundle(bytes));
    MILLSTREAM_ASSIGN(scorer, make_scorer(job, phase, std::move(bundle), catalog, work, with_target));
    return Status::OK();
  })));
  at::set_num_threads(1);  // threads score entry points side by side
  return scorer;
}

/// A round's predictions of one entry point as bytes: count, whether some are absent, values, probabilities where
/// there are classes, flags.
std::string encode_predictions(const std::vector<ScoredBlock>& blocks) {
  std::string out;
  for (const ScoredBlock& block : blocks) {
    const uint64_t head[2] = {block.predictions.size(), block.present.empty() ? 0u : 1u};
    out.append(reinterpret_cast<const char*>(head), sizeof head);
    out.append(reinterpret_cast<const char*>(block.predictions.data()),
               block.predictions.size() * sizeof(double));
    out.append(reinterpret_cast<const char*>(block.probabilities.data()),
               block.probabilities.size() * sizeof(double));
    out.append(reinterpret_cast<const char*>(block.present.data()), block.present.size());
  }
  return out;
}

/// `values` as an array of double, float or int64; `present` may be null.
Result<std::shared_ptr<arrow::Array>> make_array(const arrow::DataType& type,
                                                 const std::vector<double>& values, const uint8_t* present) {
  auto make = [&]<class Builder, class T>(Builder builder, T) -> Result<std::shared_ptr<arrow::Array>> {
    const std::vector<T> narrow(values.begin(), values.end());
    MILLSTREAM_TRY(builder.AppendValues(narrow.data(), static_cast<int64_t>(narrow.size()), present));
    return builder.Finish();
  };
  if (type.id() == arrow::Type::DOUBLE) return make(arrow::DoubleBuilder(), double());
  if (type.id() == arrow::Type::INT64) return make(arrow::Int64Builder(), int64_t());
  return make(arrow::FloatBuilder(), float());
}

class PredictionFile {
 public:
  PredictionFile(std::unique_ptr<exec::ParquetFileWriter> writer, std::shared_ptr<arrow::Schema> schema)
      : writer_(std::move(writer)), schema_(std::move(schema)) {}

  Status write(std::string_view bytes) {
    while (!bytes.empty()) {
      uint64_t head[2];
      std::memcpy(head, bytes.data(), sizeof head);
      bytes.remove_prefix(sizeof head);
      std::vector<std::vector<double>> columns(static_cast<size_t>(schema_->num_fields()));
      for (auto& values : columns) {
        values.resize(head[0]);
        std::memcpy(values.data(), bytes.data(), head[0] * sizeof(double));
        bytes.remove_prefix(head[0] * sizeof(double));
      }
      const auto* present = head[1] != 0 ? reinterpret_cast<const uint8_t*>(bytes.data()) : nullptr;
      if (present != nullptr) bytes.remove_prefix(head[0]);
      arrow::ArrayVector arrays;
      for (size_t i = 0; i < columns.size(); ++i) {
        MILLSTREAM_ASSIGN(auto array,
                          make_array(*schema_->field(static_cast<int>(i))->type(), columns[i], present));
        arrays.push_back(std::move(array));
      }
      MILLSTREAM_TRY(
          writer_->write(*arrow::RecordBatch::Make(schema_, static_cast<int64_t>(head[0]), arrays)));
    }
    return Status::OK();
  }
  Status close() { return writer_->close(); }
  int64_t rows() const { return writer_->rows_written(); }

 private:
  std::unique_ptr<exec::ParquetFileWriter> writer_;
  std::shared_ptr<arrow::Schema> schema_;
};

/// Scores and writes round after round; stops at this rank's or a peer's failure.
Status predict_rounds(comm::Job& job, const Scorer& scorer, const Deal& deal, PredictionFile* file) {
  const int entry_points = static_cast<int>(scorer.source->table().entry_points().size());
  for (int begin = 0; begin < entry_points; begin += deal.width) {
    std::vector<std::string> parts(static_cast<size_t>(deal.threads));
    MILLSTREAM_TRY(on_threads(deal.threads, [&](int thread) -> Status {
      const int entry_point = begin + deal.first + thread;
      if (entry_point >= entry_points) return Status::OK();
      std::vector<ScoredBlock> blocks;
      MILLSTREAM_TRY(score_entry_point(job, scorer, entry_point,
                                       [&](ScoredBlock block) { blocks.push_back(std::move(block)); }));
      parts[static_cast<size_t>(thread)] = encode_predictions(blocks);
      return Status::OK();
    }));
    std::string mine;
    for (std::string& part : parts) mine += std::exchange(part, {});
    if (job.size() == 1) {
      MILLSTREAM_TRY(file->write(mine));
      continue;
    }
    MILLSTREAM_ASSIGN(const auto all, job.world().allgather_bytes(mine));
    if (file == nullptr) continue;
    for (const std::string& bytes : all) MILLSTREAM_TRY(file->write(bytes));
  }
  return Status::OK();
}

}  // namespace

Result<int64_t> predict(comm::Job& job, plan::Catalog& catalog, const PredictJob& work) {
  MILLSTREAM_TRY(
      job.agree(job.rank() == 0 ? exec::check_output_path(work.output, work.overwrite) : Status::OK()));
  MILLSTREAM_ASSIGN(const auto scorer, open_scorer(job, catalog, work, /*with_target=*/false));
  MILLSTREAM_TRY(job.agree(
      job.rank() == 0 ? exec::check_output_is_no_input(work.output, scorer->source->table()) : Status::OK()));
  set_phase("predicting");
  std::optional<PredictionFile> file;
  MILLSTREAM_TRY(agree_on(job, [&]() -> Status {
    MILLSTREAM_ASSIGN(const Deal deal, make_deal(job, threads_of(job, work)));
    if (job.rank() == 0) {
      const auto type = scorer->bundle.precision == "float64" ? arrow::float64() : arrow::float32();
      const bool classes = scorer->bundle.model.classes > 0;
      arrow::FieldVector fields{arrow::field("prediction", classes ? arrow::int64() : type)};
      if (classes) fields.push_back(arrow::field("probability", type));
      const auto schema = arrow::schema(fields);
      MILLSTREAM_ASSIGN(auto writer,
                        exec::ParquetFileWriter::open(work.output, schema, {.overwrite = work.overwrite}));
      file.emplace(std::move(writer), schema);
    }
    return predict_rounds(job, *scorer, deal, file ? &*file : nullptr);
  }));
  // Only when every rank has done its part does the file get its name.
  int64_t rows = 0;
  MILLSTREAM_TRY(agree_on(job, [&]() -> Status {
    if (file) {
      MILLSTREAM_TRY(file->close());
      rows = file->rows();
    }
    return job.world().broadcast(&rows, sizeof rows, 0);
  }));
  return rows;
}

Result<EvaluateSummary> evaluate(comm::Job& job, plan::Catalog& catalog, const PredictJob& work) {
  MILLSTREAM_ASSIGN(const auto scorer, open_scorer(job, catalog, work, /*with_target=*/true));
  set_phase("evaluating");
  const EvaluationSums none(task_of(scorer->bundle.loss), scorer->bundle.model.outputs());
  EvaluationSums all = none;
  MILLSTREAM_TRY(agree_on(job, [&]() -> Status {
    MILLSTREAM_ASSIGN(const Deal deal, make_deal(job, threads_of(job, work)));
    const int entry_points = static_cast<int>(scorer->source->table().entry_points().size());
    std::vector<EvaluationSums> sums(static_cast<size_t>(entry_points), none);
    std::atomic<int> failed{
        entry_points};  // the lowest that failed: what comes after it is not wanted any more
    MILLSTREAM_TRY(on_threads(deal.threads, [&](int thread) -> Status {
      for (int entry_point = deal.first + thread; entry_point < failed.load(); entry_point += deal.width) {
        const Status status = score_entry_point(job, *scorer, entry_point, [&](ScoredBlock block) {
          sums[static_cast<size_t>(entry_point)].merge(block.sums);
        });
        if (status.ok()) continue;
        for (int lowest = failed.load();
             entry_point < lowest && !failed.compare_exchange_weak(lowest, entry_point);) {
        }
        return status;
      }
      return Status::OK();
    }));
    // Each entry point's sums with their length before them.
    std::string mine;
    for (EvaluationSums& its : sums) {
      const std::string bytes = std::exchange(its, none).encode();
      const uint64_t length = bytes.size();
      mine.append(reinterpret_cast<const char*>(&length), sizeof length);
      mine += bytes;
    }
    MILLSTREAM_ASSIGN(const auto parts, job.world().allgather_bytes(mine));
    std::vector<std::string_view> left(parts.begin(), parts.end());
    for (int entry_point = 0; entry_point < entry_points; ++entry_point) {
      for (std::string_view& part : left) {
        uint64_t length = 0;
        std::memcpy(&length, part.data(), sizeof length);
        MILLSTREAM_TRY(all.merge_encoded(part.substr(sizeof length, length)));  // empty but for one rank
        part.remove_prefix(sizeof length + length);
      }
    }
    if (all.rows() > 0) return Status::OK();
    return failed_error("no rows to evaluate: the bundle's query gives none for {}",
                        name_files(scorer->source->table()));
  }));
  EvaluateSummary summary;
  summary.rows = all.rows();
  summary.metrics = all.metrics();
  return summary;
}

}  // namespace millstream::train
