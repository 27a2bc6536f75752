#include "cli/query_command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cpu_share.h"
#include "base/progress.h"
#include "base/trace.h"
#include "cli/json_output.h"
#include "cli/progress_display.h"
#include "cli/result_table.h"
#include "exec/csv_writer.h"
#include "exec/parquet_writer.h"
#include "exec/query.h"
#include "exec/value_text.h"
#include "expr/type.h"
#include "loader/survey_cache.h"
#include "plan/planner.h"

namespace millstream::cli {
namespace {

// The query's text, which rank 0 reads: ranks of other hosts need not see the file.
Result<std::string> query_text(const Options& options) {
  if (options.query_file.empty()) return options.query;
  const bool input = options.query_file == "-";
  std::ostringstream text;
  if (input) {
    char buffer[65536];
    ssize_t got = 0;
    while ((got = ::read(STDIN_FILENO, buffer, sizeof buffer)) > 0) text.write(buffer, got);
    if (got < 0) return file_error("standard input cannot be read: {}", std::strerror(errno));
    return text.str();
  }
  std::error_code error;
  if (std::filesystem::is_directory(options.query_file, error))
    return file_error("-f {}: this is a folder; the file of a query is needed", options.query_file);
  std::ifstream file(options.query_file, std::ios::binary);
  if (!file) return file_error("-f {}: {}", options.query_file, std::strerror(errno));
  text << file.rdbuf();
  return text.str();
}

// A value in JSON: numbers as numbers, decimals as strings, NaN and infinities by their names, times as ISO 8601.
void append_json(std::string& out, const arrow::Array& array, int64_t row) {
  if (array.IsNull(row)) {
    out += "null";
    return;
  }
  std::string text;
  switch (array.type_id()) {
    case arrow::Type::FLOAT: {
      const float value = static_cast<const arrow::FloatArray&>(array).Value(row);
      if (value != value || value - value != 0) {
        out += json_number(value);
        return;
      }
      exec::append_value_text(out, array, row);
      return;
    }
    case arrow::Type::DOUBLE:
      out += json_number(static_cast<const arrow::DoubleArray&>(array).Value(row));
      return;
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
      exec::append_value_text(out, array, row);
      return;
    case arrow::Type::TIMESTAMP: {
      exec::append_value_text(text, array, row);
      // 2024-01-31 10:00:00+00 is 2024-01-31T10:00:00Z there.
      if (text.size() > 10 && text[10] == ' ') text[10] = 'T';
      if (text.ends_with("+00")) text.replace(text.size() - 3, 3, "Z");
      out += json_string(text);
      return;
    }
    case arrow::Type::LIST: {
      const auto& list = static_cast<const arrow::ListArray&>(array);
      out += '[';
      for (int64_t i = list.value_offset(row); i < list.value_offset(row + 1); ++i) {
        if (i > list.value_offset(row)) out += ", ";
        append_json(out, *list.values(), i);
      }
      out += ']';
      return;
    }
    case arrow::Type::STRUCT: {
      const auto& fields = static_cast<const arrow::StructArray&>(array);
      out += '{';
      for (int i = 0; i < fields.num_fields(); ++i) {
        if (i > 0) out += ", ";
        out += json_string(fields.type()->field(i)->name()) + ": ";
        append_json(out, *fields.field(i), row);
      }
      out += '}';
      return;
    }
    default:
      exec::append_value_text(text, array, row);
      out += json_string(text);
  }
}

void append_json_rows(std::string& out, const arrow::RecordBatch& batch) {
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    if (!out.empty()) out += ", ";
    out += '[';
    for (int column = 0; column < batch.num_columns(); ++column) {
      if (column > 0) out += ", ";
      append_json(out, *batch.column(column), row);
    }
    out += ']';
  }
}

// The terminal's width; 0 where standard output is none.
int terminal_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

// Where the rows go.
class Output {
 public:
  virtual ~Output() = default;
  virtual Status add(const std::shared_ptr<arrow::RecordBatch>& batch) = 0;
  virtual Status finish() { return Status::OK(); }
};

class ParquetOutput final : public Output {
 public:
  explicit ParquetOutput(std::unique_ptr<exec::ParquetFileWriter> writer) : writer_(std::move(writer)) {}
  Status add(const std::shared_ptr<arrow::RecordBatch>& batch) override { return writer_->write(*batch); }
  Status finish() override { return writer_->close(); }

 private:
  std::unique_ptr<exec::ParquetFileWriter> writer_;
};

class CsvOutput final : public Output {
 public:
  explicit CsvOutput(std::unique_ptr<exec::CsvFileWriter> writer) : writer_(std::move(writer)) {}
  Status add(const std::shared_ptr<arrow::RecordBatch>& batch) override { return writer_->write(*batch); }
  Status finish() override { return writer_->close(); }

 private:
  std::unique_ptr<exec::CsvFileWriter> writer_;
};

class TableOutput final : public Output {
 public:
  explicit TableOutput(const std::shared_ptr<arrow::Schema>& schema) : table_(schema) {}
  Status add(const std::shared_ptr<arrow::RecordBatch>& batch) override {
    table_.add(*batch);
    return Status::OK();
  }
  const ResultTable& table() const { return table_; }

 private:
  ResultTable table_;
};

class JsonOutput final : public Output {
 public:
  explicit JsonOutput(int64_t memory_bytes) : memory_bytes_(memory_bytes) {}
  Status add(const std::shared_ptr<arrow::RecordBatch>& batch) override {
    append_json_rows(data_, *batch);
    // It is one object, which is whole or not at all.
    if (memory_bytes_ > 0 && static_cast<int64_t>(data_.size()) > memory_bytes_)
      return failed_error(
          "the rows as JSON need more than the {} of memory that a rank may use; write them to a "
          "file with -o, or give more with --memory",
          format_bytes(memory_bytes_));
    return Status::OK();
  }
  std::string data() const { return "[" + data_ + "]"; }

 private:
  int64_t memory_bytes_;
  std::string data_;
};

Result<std::unique_ptr<Output>> open_output(const Options& options,
                                            const std::shared_ptr<arrow::Schema>& schema,
                                            int64_t memory_bytes) {
  const std::string& path = options.output;
  if (path.empty()) {
    if (options.json) return std::make_unique<JsonOutput>(memory_bytes);
    return std::make_unique<TableOutput>(schema);
  }
  if (path.ends_with(".csv")) {
    MILLSTREAM_ASSIGN(auto writer, exec::CsvFileWriter::open(path, schema, options.overwrite));
    return std::make_unique<CsvOutput>(std::move(writer));
  }
  exec::ParquetWriteOptions write;
  write.overwrite = options.overwrite;
  MILLSTREAM_ASSIGN(auto writer, exec::ParquetFileWriter::open(path, schema, write));
  return std::make_unique<ParquetOutput>(std::move(writer));
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// The output is none of the files that the query reads.
Status check_output(const std::string& output, const plan::Node& node) {
  if (node.table != nullptr) MILLSTREAM_TRY(exec::check_output_is_no_input(output, *node.table));
  if (node.input != nullptr) MILLSTREAM_TRY(check_output(output, *node.input));
  return node.right != nullptr ? check_output(output, *node.right) : Status::OK();
}

Status run(const Options& options, comm::Job& job, const std::string& text, plan::Catalog& catalog,
           int threads, int64_t memory_bytes) {
  const int64_t begin = monotonic_ns();
  plan::QueryOptions query;
  query.name = options.query_file.empty() || options.query_file == "-" ? "query" : options.query_file;
  std::error_code error;
  query.base_directory = std::filesystem::current_path(error).string();
  auto planned = plan::plan_query(text, catalog, query);
  MILLSTREAM_TRY(job.agree(planned.status()));
  const plan::NodePtr plan = std::move(planned).ValueUnsafe();
  const double seconds_compile = static_cast<double>(monotonic_ns() - begin) / 1e9;

  std::unique_ptr<Output> output;
  Status opened;
  if (job.rank() == 0) {
    if (!options.output.empty()) opened = check_output(options.output, *plan);
    if (opened.ok()) {
      auto made = open_output(options, plan->schema, memory_bytes);
      opened = made.status();
      if (made.ok()) output = std::move(made).ValueUnsafe();
    }
  }
  MILLSTREAM_TRY(job.agree(opened));

  set_phase("query");
  exec::QueryRunOptions run_options;
  run_options.threads = threads;
  run_options.memory_bytes = memory_bytes;
  run_options.spill_directory = loader::cache_directory(options.cache_directory);
  exec::QueryRunStatistics statistics;
  run_options.statistics = &statistics;
  const auto rows =
      exec::run_query(&job, plan, run_options,
                      [&](const std::shared_ptr<arrow::RecordBatch>& batch) { return output->add(batch); });
  Status status = rows.status();
  if (!status.ok()) job.fail(status);
  MILLSTREAM_TRY(job.agree(status));
  if (output != nullptr) status = output->finish();
  MILLSTREAM_TRY(job.agree(status));

  double memory = static_cast<double>(peak_rss_bytes());
  int64_t spilled_bytes = statistics.spilled_bytes;
  if (job.size() > 1) {
    status = job.world().all_reduce(&memory, 1, comm::DataType::kDouble, comm::ReduceOp::kMax);
    if (status.ok())
      status = job.world().all_reduce(&spilled_bytes, 1, comm::DataType::kInt64, comm::ReduceOp::kSum);
  }
  MILLSTREAM_TRY(job.agree(status));
  if (job.rank() != 0) return Status::OK();
  const double seconds = static_cast<double>(monotonic_ns() - begin) / 1e9;
  if (options.json) {
    JsonObject object;
    object.add("rows", *rows).add("seconds", seconds).add("seconds_compile", seconds_compile);
    object.add("peak_rss_bytes", static_cast<int64_t>(memory));
    object.add("spilled_bytes", spilled_bytes);
    if (const auto* json = dynamic_cast<const JsonOutput*>(output.get())) {
      object.add_json("data", json->data());
    } else {
      object.add("output", options.output);
    }
    print(object.str() + "\n");
  } else if (const auto* table = dynamic_cast<const TableOutput*>(output.get())) {
    print(table->table().text(terminal_width()));
  } else if (!options.quiet) {
    const std::string spilled =
        spilled_bytes > 0
            ? fmt::format("; {} did not fit into memory and went through files", format_bytes(spilled_bytes))
            : std::string();
    print(fmt::format("{} row{} written to {} in {:.2f} s{}\n", format_count(*rows), *rows == 1 ? "" : "s",
                      options.output, seconds, spilled));
  }
  return Status::OK();
}

}  // namespace

Status run_query_command(const Options& options, comm::Job& job, plan::Catalog& catalog, int threads,
                         int64_t memory_bytes) {
  Result<std::string> text = std::string();
  if (job.rank() == 0) text = query_text(options);
  MILLSTREAM_TRY(job.agree(text.status()));
  MILLSTREAM_ASSIGN(const std::string shared, job.world().broadcast_bytes(*text, 0));
  return run(options, job, shared, catalog, threads, memory_bytes);
}

}  // namespace millstream::cli
