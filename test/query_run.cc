#include "query_run.h"

#include <arrow/util/decimal.h>

#include "exec/block_source.h"
#include "exec/pipeline_programs.h"
#include "exec/query.h"
#include "expr/text.h"
#include "expr/type.h"

namespace millstream::test {
namespace {

using Batches = std::vector<std::shared_ptr<arrow::RecordBatch>>;

Result<std::shared_ptr<arrow::RecordBatch>> run_morsel(const exec::PipelinePrograms& programs,
                                                       const std::shared_ptr<arrow::Schema>& schema,
                                                       std::shared_ptr<arrow::RecordBatch> morsel) {
  if (programs.filter) {
    MILLSTREAM_ASSIGN(auto selected, programs.filter->select(*morsel));
    MILLSTREAM_ASSIGN(morsel, expr::take_rows(*morsel, selected));
  }
  MILLSTREAM_ASSIGN(auto columns, programs.outputs.evaluate(*morsel));
  return arrow::RecordBatch::Make(schema, morsel->num_rows(), std::move(columns));
}

Status run_entry_point(const plan::Pipeline& pipeline, int entry_point, int64_t morsel_rows, Batches& out) {
  if (morsel_rows == plan::kBlockRows) {
    const exec::BlockSource source(pipeline);
    MILLSTREAM_ASSIGN(auto stream, source.open(entry_point));
    while (true) {
      MILLSTREAM_ASSIGN(auto block, stream->next());
      if (!block) return Status::OK();
      out.push_back(block->rows);
    }
  }
  const plan::EntryPoint& entry = pipeline.table->entry_points()[entry_point];
  MILLSTREAM_ASSIGN(auto reader, pipeline.table->read(entry_point, pipeline.columns));
  const exec::PipelinePrograms programs(pipeline);
  int64_t first_row = entry.first_row;
  while (true) {
    MILLSTREAM_ASSIGN(auto block, reader->next());
    if (block == nullptr) return Status::OK();
    for (int64_t begin = 0; begin < block->num_rows(); begin += morsel_rows) {
      auto rows = run_morsel(programs, pipeline.schema, block->Slice(begin, morsel_rows));
      if (!rows.ok()) {
        // The morsel's place is near enough to tell which morsel of the job failed first.
        return with_category(rows.status(), error_category(rows.status()),
                             SourcePosition{entry.file, first_row + begin});
      }
      out.push_back(std::move(rows).ValueUnsafe());
    }
    first_row += block->num_rows();
  }
}

// An output whose type or nullability is not what was inferred is a bug, whatever the rows say.
Status check_batch(const arrow::Schema& schema, const arrow::RecordBatch& batch) {
  if (batch.num_columns() != schema.num_fields()) return bug_error("the batch lacks columns");
  for (int i = 0; i < batch.num_columns(); ++i) {
    const auto& field = *schema.field(i);
    const arrow::Array& column = *batch.column(i);
    if (!column.type()->Equals(field.type())) {
      return bug_error("column {} is {} and was inferred as {}", field.name(), column.type()->ToString(),
                       field.type()->ToString());
    }
    if (!field.nullable() && column.null_count() > 0)
      return bug_error("column {} was inferred as not null", field.name());
    MILLSTREAM_TRY(column.ValidateFull());
  }
  return Status::OK();
}

std::string row_text(const arrow::RecordBatch& batch, int64_t row) {
  std::string result;
  for (int column = 0; column < batch.num_columns(); ++column) {
    if (column > 0) result += '|';
    result += value_text(*batch.column(column), row, true);
  }
  return result;
}

Result<std::vector<std::string>> rows_of(const arrow::Schema& schema, const Batches& batches) {
  std::vector<std::string> rows;
  for (const auto& batch : batches) {
    MILLSTREAM_TRY(check_batch(schema, *batch));
    for (int64_t row = 0; row < batch->num_rows(); ++row) rows.push_back(row_text(*batch, row));
  }
  return rows;
}

// Entry point after entry point: number of rows, then each row's length and text.
void pack(std::string& out, const std::vector<std::string>& rows) {
  const auto number = [&](uint64_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  number(rows.size());
  for (const std::string& row : rows) {
    number(row.size());
    out += row;
  }
}

std::vector<std::string> unpack(const std::string& bytes, size_t& at) {
  const auto number = [&] {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    at += sizeof(value);
    return value;
  };
  std::vector<std::string> rows(number());
  for (std::string& row : rows) {
    const uint64_t size = number();
    row = bytes.substr(at, size);
    at += size;
  }
  return rows;
}

}  // namespace

Result<Batches> run_batches(const plan::Pipeline& pipeline, int64_t morsel_rows) {
  Batches batches;
  for (size_t i = 0; i < pipeline.table->entry_points().size(); ++i) {
    MILLSTREAM_TRY(run_entry_point(pipeline, static_cast<int>(i), morsel_rows, batches));
  }
  for (const auto& batch : batches) MILLSTREAM_TRY(check_batch(*pipeline.schema, *batch));
  return batches;
}

Result<std::vector<std::string>> run_query(const plan::Pipeline& pipeline, int64_t morsel_rows,
                                           comm::Job* job) {
  const int rank = job == nullptr ? 0 : job->rank();
  const int size = job == nullptr ? 1 : job->size();
  const int entry_points = static_cast<int>(pipeline.table->entry_points().size());
  std::string packed;
  const auto run_mine = [&]() -> Status {
    for (int i = rank; i < entry_points; i += size) {
      Batches batches;
      MILLSTREAM_TRY(run_entry_point(pipeline, i, morsel_rows, batches));
      MILLSTREAM_ASSIGN(auto rows, rows_of(*pipeline.schema, batches));
      pack(packed, rows);
    }
    return Status::OK();
  };
  const Status status = run_mine();
  std::vector<std::string> parts = {packed};
  std::vector<std::string> statuses = {encode_status(status)};
  if (size > 1) {
    // Not Job::agree(), which ends the job: a query that fails is often what is expected.
    MILLSTREAM_ASSIGN(parts, job->world().allgather_bytes(packed));
    MILLSTREAM_ASSIGN(statuses, job->world().allgather_bytes(encode_status(status)));
  }
  Status first;
  int first_rank = 0;
  for (int i = 0; i < static_cast<int>(statuses.size()); ++i) {
    const Status reported = decode_status(statuses[i]);
    if (reported.ok() || (!first.ok() && !reported_before(reported, i, first, first_rank))) continue;
    first = reported;
    first_rank = i;
  }
  MILLSTREAM_TRY(first);
  std::vector<size_t> at(parts.size(), 0);
  std::vector<std::string> rows;
  for (int i = 0; i < entry_points; ++i) {
    for (std::string& row : unpack(parts[i % size], at[i % size])) rows.push_back(std::move(row));
  }
  return rows;
}

Result<Batches> plan_batches(const plan::NodePtr& plan, int64_t morsel_rows, int threads, comm::Job* job) {
  exec::QueryRunOptions options;
  options.threads = threads;
  options.morsel_rows = morsel_rows;
  options.everywhere = true;
  // Few rows take the ways of many: dealt to partitions at once, and through the disk.
  if (morsel_rows < plan::kBlockRows) options.groups_of_a_thread = 1;
  if (morsel_rows == 1) options.waiting_bytes = 0;
  Batches batches;
  MILLSTREAM_ASSIGN(
      const int64_t rows,
      exec::run_query(job, plan, options, [&](const std::shared_ptr<arrow::RecordBatch>& batch) {
        batches.push_back(batch);
        return Status::OK();
      }));
  int64_t got = 0;
  for (const auto& batch : batches) {
    MILLSTREAM_TRY(check_batch(*plan->schema, *batch));
    got += batch->num_rows();
  }
  if (got != rows) return bug_error("{} rows were said, {} came", rows, got);
  return batches;
}

Result<std::vector<std::string>> run_plan(const plan::NodePtr& plan, int64_t morsel_rows, int threads,
                                          comm::Job* job) {
  MILLSTREAM_ASSIGN(const Batches batches, plan_batches(plan, morsel_rows, threads, job));
  return rows_of(*plan->schema, batches);
}

std::string value_text(const arrow::Array& array, int64_t row, bool quote) {
  if (array.IsNull(row)) return "NULL";
  std::string out;
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return static_cast<const arrow::BooleanArray&>(array).Value(row) ? "true" : "false";
    case arrow::Type::FLOAT:
      expr::append_float(out, static_cast<const arrow::FloatArray&>(array).Value(row));
      return out;
    case arrow::Type::DOUBLE:
      expr::append_double(out, static_cast<const arrow::DoubleArray&>(array).Value(row));
      return out;
    case arrow::Type::DATE32:
      expr::append_date(out, static_cast<const arrow::Date32Array&>(array).Value(row));
      return out;
    case arrow::Type::TIME64:
      expr::append_time(out, static_cast<const arrow::Time64Array&>(array).Value(row));
      return out;
    case arrow::Type::TIMESTAMP: {
      const auto& type = static_cast<const arrow::TimestampType&>(*array.type());
      expr::append_timestamp(out, static_cast<const arrow::TimestampArray&>(array).Value(row),
                             expr::ticks_per_second(type.unit()), !type.timezone().empty());
      return out;
    }
    case arrow::Type::INTERVAL_MONTH_DAY_NANO: {
      const auto parts = static_cast<const arrow::MonthDayNanoIntervalArray&>(array).GetValue(row);
      expr::append_interval(out, {parts.months, parts.days, parts.nanoseconds});
      return out;
    }
    case arrow::Type::STRING: {
      const std::string_view text = static_cast<const arrow::StringArray&>(array).GetView(row);
      if (!quote) return std::string(text);
      expr::append_quoted(out, text, '\'');
      return out;
    }
    case arrow::Type::BINARY: {
      for (unsigned char c : static_cast<const arrow::BinaryArray&>(array).GetView(row))
        out += fmt::format("\\x{:02X}", c);
      return out;
    }
    default: {
      const auto scalar = array.GetScalar(row);
      return scalar.ok() ? (*scalar)->ToString() : scalar.status().message();
    }
  }
}

}  // namespace millstream::test
