#include "cli/explain_command.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/cpu_share.h"
#include "base/progress.h"
#include "base/trace.h"
#include "cli/json_output.h"
#include "cli/progress_display.h"
#include "exec/block_source.h"
#include "exec/pipeline_programs.h"
#include "exec/value_text.h"
#include "expr/type.h"
#include "features/feature_plan.h"
#include "loader/split.h"
#include "plan/pipeline_report.h"
#include "plan/planner.h"

namespace millstream::cli {
namespace {

/// A query to explain: its streaming part, and the LIMITs above it.
struct Explained {
  std::string name;  ///< "data.train"; "query"
  plan::Pipeline pipeline;
  std::vector<std::string> above;
};

Result<Explained> plan_one(const std::string& sql, const std::string& name, const std::string& directory,
                           plan::Catalog& catalog) {
  const plan::QueryOptions options{.name = name, .base_directory = directory};
  MILLSTREAM_ASSIGN(plan::NodePtr node, plan::plan_query(sql, catalog, options));
  Explained result;
  result.name = name;
  for (; node->kind == plan::NodeKind::kLimit; node = node->input) {
    std::string text = node->limit >= 0 ? fmt::format("Limit {}", node->limit) : "Limit all";
    if (node->offset > 0) text += fmt::format(" after {}", node->offset);
    result.above.push_back(text);
  }
  MILLSTREAM_ASSIGN(result.pipeline, plan::to_pipeline(node));
  return result;
}

Result<std::vector<Explained>> plan_all(const Options& options, plan::Catalog& catalog,
                                        const loader::DataConfig* data) {
  std::vector<Explained> result;
  if (data == nullptr) {
    std::error_code error;
    MILLSTREAM_ASSIGN(
        auto query, plan_one(options.query, "query", std::filesystem::current_path(error).string(), catalog));
    result.push_back(std::move(query));
    return result;
  }
  // As the loader plans them: only what features and target read.
  MILLSTREAM_ASSIGN(auto train, plan_one(data->train, "data.train", data->base_directory, catalog));
  MILLSTREAM_ASSIGN(const auto split, loader::Split::make(*data, train.pipeline.schema));
  MILLSTREAM_ASSIGN(const auto features,
                    features::FeaturePlan::make(*train.pipeline.schema, data->features, data->target,
                                                data->on_null_target, data->weight, split.columns()));
  const std::vector<std::string> needed = features.query_columns();
  MILLSTREAM_ASSIGN(train.pipeline, plan::select_outputs(train.pipeline, needed));
  result.push_back(std::move(train));
  if (data->valid) {
    const std::string& directory =
        data->valid_base_directory.empty() ? data->base_directory : data->valid_base_directory;
    MILLSTREAM_ASSIGN(auto valid, plan_one(*data->valid, "data.valid", directory, catalog));
    MILLSTREAM_ASSIGN(valid.pipeline, plan::select_outputs(valid.pipeline, needed));
    result.push_back(std::move(valid));
  }
  return result;
}

struct Measured {
  plan::ObservedBounds bounds;
  exec::ScanCounts scan;
  double seconds = 0;
  /// That the filter looked at.
  int64_t rows_read() const { return scan.rows - scan.rows_pruned - scan.rows_skipped; }
};

/// Runs the query and looks at what passes its filter.
Result<Measured> measure(const plan::Pipeline& pipeline, int threads) {
  const size_t columns = pipeline.columns.size();
  plan::Pipeline wide = pipeline;
  wide.outputs.clear();
  arrow::FieldVector fields;
  for (size_t i = 0; i < columns; ++i) {
    const auto& field = pipeline.table->schema()->field(pipeline.columns[i]);
    wide.outputs.push_back(expr::make_column(static_cast<int>(i), *field));
    fields.push_back(field);
  }
  wide.outputs.insert(wide.outputs.end(), pipeline.outputs.begin(), pipeline.outputs.end());
  for (const auto& field : pipeline.schema->fields()) fields.push_back(field);
  wide.schema = arrow::schema(std::move(fields));
  const exec::BlockSource source(std::move(wide));
  const int64_t begin = monotonic_ns();

  Measured result;
  std::vector<expr::Bounds> seen(source.schema()->fields().size());
  for (expr::Bounds& bounds : seen) bounds.none = expr::BoundOrigin::kObserved;
  Status first_failure;
  int first_failed = -1;
  std::mutex mutex;
  std::atomic<int> next{0};
  const auto read = [&](int entry_point) -> Status {
    MILLSTREAM_ASSIGN(auto stream, source.open(entry_point));
    while (true) {
      MILLSTREAM_ASSIGN(auto block, stream->next());
      if (!block) return Status::OK();
      std::vector<expr::Bounds> observed;
      for (const auto& column : block->rows->columns()) observed.push_back(expr::observed_bounds(*column));
      std::lock_guard lock(mutex);
      for (size_t i = 0; i < seen.size(); ++i) seen[i] = expr::unite_bounds(seen[i], observed[i]);
    }
  };
  const auto work = [&] {
    const int count = static_cast<int>(source.table().entry_points().size());
    for (int e; (e = next.fetch_add(1)) < count;) {
      const Status status = read(e);
      if (status.ok()) continue;
      std::lock_guard lock(mutex);
      if (first_failed < 0 || e < first_failed) {
        first_failed = e;
        first_failure = status;
      }
      next = count;
    }
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  MILLSTREAM_TRY(first_failure);
  result.scan = source.counts();
  result.seconds = static_cast<double>(monotonic_ns() - begin) / 1e9;
  const auto middle = seen.begin() + static_cast<std::ptrdiff_t>(columns);
  result.bounds.columns.assign(seen.begin(), middle);
  result.bounds.outputs.assign(middle, seen.end());
  return result;
}

/// What of a query is compiled, and what the interpreter is left with.
struct Compilation {
  int loops = 0;
  std::vector<jit::Report::Kernel> kernels;
  double seconds = 0;  ///< of compiling, or of loading from the cache
  std::string ir;
};

Result<Compilation> compile(const plan::Pipeline& pipeline, bool with_ir) {
  Compilation result;
  if (jit::engine() == jit::Engine::kInterpreter) return result;
  const exec::PipelinePrograms programs(pipeline);
  const int64_t begin = monotonic_ns();
  for (const jit::Program* program : {programs.filter ? &*programs.filter : nullptr, &programs.outputs}) {
    if (!program) continue;
    MILLSTREAM_TRY(program->compile());
    const jit::Report report = program->report();
    result.loops += report.loops;
    for (const auto& kernel : report.kernels) result.kernels.push_back(kernel);
  }
  result.seconds = static_cast<double>(monotonic_ns() - begin) / 1e9;
  for (const jit::Program* program : {programs.filter ? &*programs.filter : nullptr, &programs.outputs}) {
    if (!program || !with_ir) continue;
    MILLSTREAM_ASSIGN(const std::string ir, program->ir());
    result.ir += ir;
  }
  return result;
}

std::string compilation_text(const Compilation& compilation) {
  if (jit::engine() == jit::Engine::kInterpreter)
    return "Compiled  nothing: the interpreter evaluates everything\n";
  std::string text = fmt::format("Compiled  {} loop{} in {:.1f} ms\n", compilation.loops,
                                 compilation.loops == 1 ? "" : "s", compilation.seconds * 1e3);
  for (const auto& kernel : compilation.kernels)
    text += fmt::format("  not fused  {}: {}\n", kernel.expression, kernel.reason);
  return text;
}

std::string compilation_json(const Compilation& compilation) {
  JsonArray kernels;
  for (const auto& kernel : compilation.kernels)
    kernels.add_json(JsonObject().add("expression", kernel.expression).add("reason", kernel.reason).str());
  JsonObject object;
  object.add("interpreted", jit::engine() == jit::Engine::kInterpreter).add("loops", compilation.loops);
  return object.add("seconds", compilation.seconds).add_json("not_fused", kernels.str()).str();
}

std::string bounds_json(const expr::Bounds& bounds, const arrow::DataType& type) {
  JsonObject object;
  if (bounds.none) object.add("only_null", true).add("origin", expr::bound_origin_name(*bounds.none));
  const auto limits = [&](const auto& range, const auto& text) {
    if (range.low)
      object.add("low", text(range.low->value)).add("low_origin", expr::bound_origin_name(range.low->origin));
    if (range.high)
      object.add("high", text(range.high->value))
          .add("high_origin", expr::bound_origin_name(range.high->origin));
  };
  if (!bounds.none && expr::has_whole_bounds(type)) {
    limits(bounds.whole, [&](__int128 value) { return expr::limit_text(value, type); });
  } else if (!bounds.none && expr::has_real_bounds(type)) {
    limits(bounds.real, [](double value) { return expr::limit_text(value); });
  }
  if (!bounds.none && bounds.values) {
    JsonArray values;
    for (int64_t row = 0; row < bounds.values->length(); ++row) {
      std::string text;
      exec::append_value_text(text, *bounds.values, row);
      values.add_json(json_string(text));
    }
    object.add_json("values", values.str())
        .add("values_origin", expr::bound_origin_name(bounds.values_origin));
  }
  return object.str();
}

std::string report_json(const Explained& query, const plan::PipelineReport& report, const Measured* measured,
                        const Compilation& compilation) {
  JsonObject object;
  object.add("name", query.name);
  JsonArray above, outputs, columns, pruned;
  for (const auto& text : query.above) above.add_json(json_string(text));
  for (const auto& output : report.outputs) {
    JsonObject one;
    one.add("name", output.name)
        .add("type", expr::sql_type_name(*output.type))
        .add("nullable", output.nullable);
    if (!output.expression.empty()) one.add("expression", output.expression);
    outputs.add_json(one.add_json("bounds", bounds_json(output.bounds, *output.type)).str());
  }
  for (const auto& column : report.columns) {
    JsonObject one;
    one.add("name", column.name).add("type", expr::sql_type_name(*column.type));
    one.add("nullable", column.nullable).add("nullable_filtered", column.nullable_filtered);
    one.add_json("bounds", bounds_json(column.bounds, *column.type));
    JsonArray types;
    for (const auto& type : column.file_types) {
      JsonObject in_files;
      if (type.type.empty()) {
        in_files.add("missing", true);
      } else {
        in_files.add("type", type.type);
      }
      types.add_json(in_files.add("files", type.files).add("first_file", type.first_file).str());
    }
    columns.add_json(one.add_json("file_types", types.str()).str());
  }
  for (const auto& name : report.columns_pruned) pruned.add_json(json_string(name));
  object.add_json("above", above.str()).add_json("outputs", outputs.str()).add("filter", report.filter);
  object.add("filter_can_fail", report.filter_can_fail).add("filter_impossible", report.filter_impossible);
  object.add_json("columns", columns.str()).add_json("columns_pruned", pruned.str());
  object.add("files", report.files).add("row_groups", report.row_groups);
  object.add("row_groups_pruned", report.row_groups_pruned).add("rows", report.rows);
  object.add("rows_pruned", report.rows_pruned)
      .add("bytes", report.bytes)
      .add("bytes_pruned", report.bytes_pruned);
  object.add_json("compiled", compilation_json(compilation));
  if (measured) {
    JsonObject run;
    const exec::ScanCounts& scan = measured->scan;
    run.add("rows_read", measured->rows_read()).add("rows", scan.rows_passed);
    run.add("row_groups_pruned", scan.row_groups_pruned);
    run.add("row_groups_pruned_by_bloom_filters", scan.row_groups_pruned_by_bloom);
    run.add("row_groups_pruned_by_page_index", scan.row_groups_pruned_by_pages);
    run.add("rows_pruned", scan.rows_pruned).add("rows_skipped", scan.rows_skipped);
    run.add("rows_filtered", scan.rows_filtered);
    run.add("pages_read", scan.pages_read).add("pages_skipped", scan.pages_skipped);
    run.add("bytes_read", scan.bytes_read).add("seconds", measured->seconds);
    object.add_json("measured", run.str());
  }
  return object.str();
}

std::string measured_text(const Measured& measured) {
  const exec::ScanCounts& scan = measured.scan;
  std::string text = fmt::format("Measured {} rows read, {} passed the filter, {} read in {:.2f} s\n",
                                 format_count(measured.rows_read()), format_count(scan.rows_passed),
                                 format_bytes(scan.bytes_read), measured.seconds);
  if (scan.row_groups_pruned > 0) {
    const int64_t by_statistics =
        scan.row_groups_pruned - scan.row_groups_pruned_by_bloom - scan.row_groups_pruned_by_pages;
    text += fmt::format(
        "  {} of {} row groups not read: {} by statistics, {} by bloom filters, {} by the page index\n",
        scan.row_groups_pruned, scan.row_groups, by_statistics, scan.row_groups_pruned_by_bloom,
        scan.row_groups_pruned_by_pages);
  }
  if (scan.rows_skipped > 0)
    text += fmt::format("  {} rows not looked at by the page index\n", format_count(scan.rows_skipped));
  if (scan.pages_skipped > 0)
    text += fmt::format("  {} pages decompressed, {} passed over\n", scan.pages_read, scan.pages_skipped);
  return text;
}

Status explain(const Options& options, int threads, const std::vector<Explained>& queries) {
  std::string text, ir;
  JsonArray all;
  for (const Explained& query : queries) {
    MILLSTREAM_ASSIGN(const Compilation compilation, compile(query.pipeline, !options.ir_file.empty()));
    ir += compilation.ir;
    plan::PipelineReport report = plan::report_pipeline(query.pipeline);
    std::optional<Measured> measured;
    if (options.analyze) {
      MILLSTREAM_ASSIGN(measured, measure(query.pipeline, threads));
      report = plan::report_pipeline(query.pipeline, &measured->bounds);
    }
    if (options.json) {
      all.add_json(report_json(query, report, measured ? &*measured : nullptr, compilation));
      continue;
    }
    text += text.empty() ? "" : "\n";
    if (queries.size() > 1) text += query.name + "\n";
    for (const std::string& line : query.above) text += line + "\n";
    text += plan::report_text(report);
    text += compilation_text(compilation);
    if (measured) text += measured_text(*measured);
  }
  if (!options.ir_file.empty()) {
    std::ofstream file(options.ir_file);
    file << ir;
    file.close();
    if (!file) return file_error("{} can't be written: {}", options.ir_file, std::strerror(errno));
  }
  if (options.json) text = JsonObject().add_json("queries", all.str()).str() + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  return Status::OK();
}

}  // namespace

Status run_explain_command(const Options& options, comm::Job& job, plan::Catalog& catalog, int threads,
                           const loader::DataConfig* data) {
  set_phase("explaining");
  const auto queries = plan_all(options, catalog, data);
  MILLSTREAM_TRY(job.agree(queries.status()));
  Status status;
  if (job.rank() == 0) status = explain(options, threads, *queries);
  return job.agree(status);
}

}  // namespace millstream::cli
