#include "loader/streaming_query.h"

#include <filesystem>

#include "base/hash.h"
#include "base/log.h"
#include "base/progress.h"
#include "exec/file_catalog.h"
#include "exec/parquet_writer.h"
#include "exec/query.h"
#include "loader/survey_cache.h"
#include "plan/rewrite.h"

namespace millstream::loader {
namespace {

constexpr std::string_view kKeptQuery = "kept query 1";

// The kept rows of a query. What names them for surveys and splits is the query, not the file of this run.
class KeptTable final : public plan::SourceTable {
 public:
  KeptTable(std::shared_ptr<const plan::SourceTable> rows, const std::string& key)
      : rows_(std::move(rows)), files_(rows_->files()) {
    for (plan::SourceFile& file : files_) {
      file.name = "query";
      file.fingerprint = key;
    }
  }
  const std::shared_ptr<arrow::Schema>& schema() const override { return rows_->schema(); }
  const std::vector<plan::SourceFile>& files() const override { return files_; }
  const std::vector<plan::EntryPoint>& entry_points() const override { return rows_->entry_points(); }
  int64_t column_bytes(int entry_point, const std::vector<int>& columns) const override {
    return rows_->column_bytes(entry_point, columns);
  }
  plan::ColumnClaims claims(int entry_point, int column) const override {
    return rows_->claims(entry_point, column);
  }
  Result<std::unique_ptr<Reader>> read(int entry_point, const std::vector<int>& columns) const override {
    return rows_->read(entry_point, columns);
  }

 private:
  std::shared_ptr<const plan::SourceTable> rows_;
  std::vector<plan::SourceFile> files_;
};

void add_tables(const plan::Node& node, Digest& digest) {
  if (node.table != nullptr) digest.add(exec::table_fingerprint(*node.table));
  if (node.input != nullptr) add_tables(*node.input, digest);
  if (node.right != nullptr) add_tables(*node.right, digest);
}

std::string key_of(const StreamingQueryRequest& request, const plan::Node& plan) {
  Digest digest;
  digest.add(kKeptQuery);
  digest.add(request.sql);
  add_tables(plan, digest);
  return "query-" + digest.hex();
}

// Runs the query; on a rank that keeps the rows they go to `writer`.
Status run(const StreamingQueryRequest& request, const plan::NodePtr& plan, bool everywhere,
           exec::ParquetFileWriter* writer) {
  set_phase("running the query");
  exec::QueryRunOptions options;
  options.threads = request.threads;
  options.memory_bytes = request.memory_bytes;
  options.everywhere = everywhere;
  options.spill_directory = cache_directory(request.cache_directory);
  const auto sink = [&](const std::shared_ptr<arrow::RecordBatch>& batch) {
    return writer == nullptr ? Status::OK() : writer->write(*batch);
  };
  return exec::run_query(request.job, plan, options, sink).status();
}

}  // namespace

Result<plan::Pipeline> make_streaming_query(const StreamingQueryRequest& request) {
  MILLSTREAM_ASSIGN(const auto plan, plan::plan_query(request.sql, *request.catalog, request.options));
  if (plan::streams(*plan)) return plan::to_pipeline(plan);
  // Nobody runs the query while another rank could not plan it.
  MILLSTREAM_TRY(request.phase->agree(Status::OK()));

  comm::Job& job = *request.job;
  const comm::Topology& topology = job.topology();
  const bool keeps = topology.host_ranks[topology.host_of_rank[job.rank()]].front() == job.rank();
  const SurveyCache cache(request.cache_directory);
  const std::string key = key_of(request, *plan);
  const auto path_in = [](const std::string& folder) { return folder + "/rows.parquet"; };
  const std::string path = path_in(cache.entry_path(key));
  int64_t known = 1;
  if (keeps) {
    std::error_code ignored;
    known = cache.load(key) == kKeptQuery && std::filesystem::exists(path, ignored);
  }
  MILLSTREAM_TRY(job.world().all_reduce(&known, 1, comm::DataType::kInt64, comm::ReduceOp::kMin));
  if (known == 0) {
    std::string folder;
    std::unique_ptr<exec::ParquetFileWriter> writer;
    const auto begin = [&]() -> Status {
      if (!keeps) return Status::OK();
      MILLSTREAM_ASSIGN(folder, cache.begin(key));
      MILLSTREAM_ASSIGN(writer, exec::ParquetFileWriter::open(path_in(folder), plan->schema,
                                                              {.row_group_rows = plan::kBlockRows}));
      return Status::OK();
    };
    const auto end = [&]() -> Status {
      if (!keeps) return Status::OK();
      MILLSTREAM_TRY(writer->close());
      MILLSTREAM_TRY(cache.commit(key, folder, std::string(kKeptQuery)));
      cache.trim(key);
      return Status::OK();
    };
    Status status = request.phase->agree(begin());
    if (status.ok())
      status = request.phase->agree(run(request, plan, topology.host_ranks.size() > 1, writer.get()));
    if (status.ok()) status = request.phase->agree(end());
    if (!status.ok()) {
      writer.reset();
      if (!folder.empty()) cache.abandon(folder);
      return status;
    }
  }
  plan::TableReference reference;
  reference.globs = {path};
  MILLSTREAM_ASSIGN(auto rows, request.catalog->open(reference));
  // Types only: a column that no row left NULL is known to be so by the file, and not by the plan.
  for (int i = 0; i < plan->schema->num_fields(); ++i)
    if (!rows->schema()->field(i)->type()->Equals(*plan->schema->field(i)->type()))
      return bug_error("the kept rows of the query have {} where it gives {}",
                       rows->schema()->field(i)->ToString(), plan->schema->field(i)->ToString());
  return plan::to_pipeline(plan::make_scan(std::make_shared<KeptTable>(std::move(rows), key)));
}

}  // namespace millstream::loader
