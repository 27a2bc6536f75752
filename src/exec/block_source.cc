#include "exec/block_source.h"

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/hash.h"
#include "base/progress.h"
#include "exec/entry_expressions.h"
#include "jit/program.h"
#include "plan/pruning.h"

namespace millstream::exec {

// A pipeline taken apart: which columns the filter reads, and which the outputs do.
struct BlockSource::Shared {
  explicit Shared(plan::Pipeline given) : pipeline(std::move(given)) {
    std::vector<bool> in_filter(pipeline.columns.size()), in_outputs(pipeline.columns.size());
    if (pipeline.predicate)
      for (const int c : expr::columns_read(*pipeline.predicate)) in_filter[static_cast<size_t>(c)] = true;
    for (const auto& output : pipeline.outputs)
      for (const int c : expr::columns_read(*output)) in_outputs[static_cast<size_t>(c)] = true;
    std::vector<int> filter_place(in_filter.size(), -1), output_place(in_filter.size(), -1);
    for (size_t c = 0; c < in_filter.size(); ++c) {
      if (in_filter[c]) {
        filter_place[c] = static_cast<int>(filter_columns.size());
        filter_columns.push_back(static_cast<int>(c));
      }
      if (!in_outputs[c]) continue;
      output_place[c] = static_cast<int>(output_columns.size());
      output_columns.push_back(static_cast<int>(c));
      if (!in_filter[c]) late_columns.push_back(static_cast<int>(c));
    }
    const auto schema_of = [&](const std::vector<int>& columns) {
      arrow::FieldVector fields;
      for (const int c : columns)
        fields.push_back(pipeline.table->schema()->field(pipeline.columns[static_cast<size_t>(c)]));
      return arrow::schema(std::move(fields));
    };
    output_schema = schema_of(output_columns);
    if (pipeline.predicate) {
      filter = EntryExpressions({expr::remap_columns(pipeline.predicate, filter_place)},
                                schema_of(filter_columns));
      for (size_t i = 0; i < filter_columns.size(); ++i)
        if (filter.wants_dictionary(static_cast<int>(i))) dictionaries.push_back(filter_columns[i]);
      filter_program = jit::Program::filter(filter.schema(), filter.expressions()[0]);
    }
    std::vector<expr::ExprPtr> over_columns;
    for (const auto& output : pipeline.outputs)
      over_columns.push_back(expr::remap_columns(output, output_place));
    outputs = EntryExpressions(over_columns, output_schema);
    output_program = jit::Program::columns(outputs.schema(), outputs.expressions());
    for (const int c : late_columns)
      if (outputs.wants_dictionary(output_place[static_cast<size_t>(c)])) dictionaries.push_back(c);
  }

  void add(const ScanCounts& more) {
    std::lock_guard lock(mutex);
    counts.row_groups += more.row_groups;
    counts.row_groups_pruned += more.row_groups_pruned;
    counts.row_groups_pruned_by_bloom += more.row_groups_pruned_by_bloom;
    counts.row_groups_pruned_by_pages += more.row_groups_pruned_by_pages;
    counts.rows += more.rows;
    counts.rows_pruned += more.rows_pruned;
    counts.rows_skipped += more.rows_skipped;
    counts.rows_filtered += more.rows_filtered;
    counts.rows_passed += more.rows_passed;
    counts.pages_read += more.pages_read;
    counts.pages_skipped += more.pages_skipped;
    counts.bytes_read += more.bytes_read;
  }

  const plan::Pipeline pipeline;
  std::vector<int> filter_columns;  // positions in pipeline.columns
  std::vector<int> output_columns;
  std::vector<int> late_columns;  // of output_columns those that the filter does not read
  EntryExpressions filter;        // over filter_columns; one expression, or none
  EntryExpressions outputs;       // over output_columns
  std::optional<jit::Program> filter_program, output_program;  // of them
  std::vector<int> dictionaries;                 // columns of text that are welcome as dictionaries
  std::shared_ptr<arrow::Schema> output_schema;  // of output_columns
  std::mutex mutex;
  ScanCounts counts;
};

namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;

class PipelineStream final : public BlockStream {
 public:
  PipelineStream(std::shared_ptr<BlockSource::Shared> shared, int entry_point,
                 std::vector<plan::RowRange> ranges, std::unique_ptr<plan::SourceTable::Reader> reader)
      : shared_(std::move(shared)),
        pipeline_(shared_->pipeline),
        entry_point_(entry_point),
        entry_(pipeline_.table->entry_points()[static_cast<size_t>(entry_point)]),
        ranges_(std::move(ranges)),
        reader_(std::move(reader)) {
    counts_.row_groups = 1;
    reader_->keep_dictionaries(shared_->dictionaries);
  }
  ~PipelineStream() override {
    const plan::ReadCounts read = reader_->counts();
    counts_.pages_read = read.pages_read;
    counts_.pages_skipped = read.pages_skipped;
    counts_.bytes_read = read.bytes_read;
    shared_->add(counts_);
  }

  Result<std::optional<BlockRows>> next() override {
    const auto next_block = reader_->next_block();
    read_failed_ = !next_block.ok();
    MILLSTREAM_ASSIGN(const int64_t rows, next_block);
    if (rows < 0) return std::nullopt;
    BlockRows block;
    block.block = entry_.first_block + blocks_;
    block.first_row = entry_.first_row + int64_t{blocks_} * plan::kBlockRows;
    block.rows_read = rows;
    ++blocks_;
    // Reading has its own errors, with their places; what fails on rows tells the row in the block.
    Status reading;
    const Status status = run(&block, &reading);
    read_failed_ = !reading.ok();
    MILLSTREAM_TRY(reading);
    if (!status.ok()) {
      const auto position = error_position(status);
      if (!position) return with_context(status, describe_place(*pipeline_.table, entry_point_, -1));
      const int64_t row = block.first_row + position->row;
      return with_context(with_category(status, error_category(status), SourcePosition{entry_.file, row}),
                          describe_place(*pipeline_.table, entry_point_, row));
    }
    counts_.rows += rows;
    counts_.rows_passed += block.rows->num_rows();
    beat();
    return std::optional<BlockRows>(std::move(block));
  }
  bool read_failed() const override { return read_failed_; }

 private:
  // An error without a row is about all of them: it comes before any.
  static int64_t row_of(const Status& status) {
    const auto position = error_position(status);
    return position ? position->row : -1;
  }

  // The rows of the block that are to be looked at; all of them: nothing.
  std::optional<std::vector<int32_t>> candidates(int64_t begin, int64_t rows) {
    while (range_ < ranges_.size() && ranges_[range_].end <= begin) ++range_;
    const auto covers = [&](const plan::RowRange& range) {
      return range.begin <= begin && begin + rows <= range.end;
    };
    if (range_ < ranges_.size() && covers(ranges_[range_])) return std::nullopt;
    std::vector<int32_t> result;
    for (size_t r = range_; r < ranges_.size() && ranges_[r].begin < begin + rows; ++r) {
      const int64_t end = std::min(ranges_[r].end, begin + rows) - begin;
      for (int64_t row = std::max(ranges_[r].begin, begin) - begin; row < end; ++row)
        result.push_back(static_cast<int32_t>(row));
    }
    return result;
  }

  Status run(BlockRows* block, Status* reading) {
    const auto empty = [&]() -> Status {
      MILLSTREAM_ASSIGN(block->rows, arrow::RecordBatch::MakeEmpty(pipeline_.schema));
      return Status::OK();
    };
    Batch filter_input;
    const std::vector<int32_t>* selection = nullptr;
    const std::vector<int32_t>* selection_of_input = nullptr;  // the same rows in filter_input
    std::vector<int32_t> selected;
    if (pipeline_.predicate) {
      const auto looked_at = candidates(block->first_row - entry_.first_row, block->rows_read);
      const int64_t count = looked_at ? static_cast<int64_t>(looked_at->size()) : block->rows_read;
      counts_.rows_skipped += block->rows_read - count;
      if (count == 0) return empty();
      auto read = reader_->read_columns(shared_->filter_columns, looked_at ? &*looked_at : nullptr);
      if (!read.ok()) return *reading = read.status();
      filter_input = *std::move(read);
      MILLSTREAM_ASSIGN(const Batch over, filter_values_.extend(shared_->filter, filter_input));
      auto evaluated = shared_->filter_program->select(*over);
      if (!evaluated.ok()) return filter_error(evaluated.status(), filter_input, over, reading);
      selected = *std::move(evaluated);
      counts_.rows_filtered += count - static_cast<int64_t>(selected.size());
      if (selected.empty()) return empty();
      if (static_cast<int64_t>(selected.size()) < count) selection_of_input = &selected;
      if (looked_at) {
        block->selection.reserve(selected.size());
        for (const int32_t row : selected) block->selection.push_back((*looked_at)[static_cast<size_t>(row)]);
      } else if (selection_of_input) {
        block->selection = selected;
      }
      if (!block->selection.empty()) selection = &block->selection;
    }
    Batch input;
    MILLSTREAM_TRY(
        output_input(filter_input, selection_of_input, block->rows_read, selection, &input, reading));
    return project(input, selection, &block->rows);
  }

  // The columns that the outputs read, of the selected rows.
  Status output_input(const Batch& filter_input, const std::vector<int32_t>* selection_of_input, int64_t rows,
                      const std::vector<int32_t>* selection, Batch* out, Status* reading) {
    auto read = reader_->read_columns(shared_->late_columns, selection);
    if (!read.ok()) return *reading = read.status();
    const Batch late = *std::move(read);
    // Of the filter's columns those that outputs read too.
    arrow::ArrayVector early;
    for (size_t i = 0; i < shared_->filter_columns.size(); ++i) {
      if (!std::ranges::binary_search(shared_->output_columns, shared_->filter_columns[i])) continue;
      early.push_back(filter_input->column(static_cast<int>(i)));
      if (selection_of_input) {
        MILLSTREAM_ASSIGN(early.back(), take_array(early.back(), *selection_of_input));
      }
    }
    arrow::ArrayVector columns;
    int from_late = 0;
    size_t from_early = 0;
    for (const int c : shared_->output_columns) {
      const bool is_late = std::ranges::binary_search(shared_->late_columns, c);
      columns.push_back(is_late ? late->column(from_late++) : early[from_early++]);
    }
    const int64_t count = selection ? static_cast<int64_t>(selection->size()) : rows;
    *out = arrow::RecordBatch::Make(shared_->output_schema, count, std::move(columns));
    return Status::OK();
  }

  // The outputs, or the error of the lowest row; its position.row is the row in the block.
  Status project(const Batch& columns, const std::vector<int32_t>* selection, Batch* out) {
    MILLSTREAM_ASSIGN(const Batch input, output_values_.extend(shared_->outputs, columns));
    auto outputs = shared_->output_program->evaluate(*input);
    if (!outputs.ok()) {
      const int64_t row = row_of(outputs.status());
      if (row < 0 || selection == nullptr) return outputs.status();
      return with_category(outputs.status(), error_category(outputs.status()),
                           SourcePosition{0, (*selection)[static_cast<size_t>(row)]});
    }
    *out = arrow::RecordBatch::Make(pipeline_.schema, input->num_rows(), *std::move(outputs));
    return Status::OK();
  }

  // The filter failed at a row; an output may fail at an earlier one, which is then the error to report: errors
  // must not depend on how rows are cut into blocks.
  Status filter_error(const Status& failure, const Batch& filter_input, const Batch& over, Status* reading) {
    const int64_t row = row_of(failure);
    if (row <= 0) return failure;
    auto selected = expr::evaluate_filter(*shared_->filter.expressions()[0], *over->Slice(0, row));
    if (!selected.ok()) return selected.status();
    if (selected->empty()) return failure;
    Batch input, ignored;
    MILLSTREAM_TRY(
        output_input(filter_input, &*selected, filter_input->num_rows(), &*selected, &input, reading));
    const Status earlier = project(input, &*selected, &ignored);
    return earlier.ok() ? failure : earlier;
  }

  const std::shared_ptr<BlockSource::Shared> shared_;
  const plan::Pipeline& pipeline_;
  bool read_failed_ = false;
  const int entry_point_;
  const plan::EntryPoint entry_;
  const std::vector<plan::RowRange> ranges_;  // rows outside of them do not pass
  size_t range_ = 0;
  std::unique_ptr<plan::SourceTable::Reader> reader_;
  EntryExpressions::Values filter_values_, output_values_;
  ScanCounts counts_;
  int blocks_ = 0;
};

// The blocks of an entry point that is not read: of the sizes that they have, without survivors.
class PrunedStream final : public BlockStream {
 public:
  // `counts`: why it is not read.
  PrunedStream(std::shared_ptr<BlockSource::Shared> shared, int entry_point, ScanCounts counts)
      : shared_(std::move(shared)),
        entry_(shared_->pipeline.table->entry_points()[static_cast<size_t>(entry_point)]),
        counts_(counts) {
    counts_.row_groups = counts_.row_groups_pruned = 1;
  }
  ~PrunedStream() override { shared_->add(counts_); }

  Result<std::optional<BlockRows>> next() override {
    if (blocks_ == entry_.num_blocks) return std::nullopt;
    const int64_t begin = int64_t{blocks_} * plan::kBlockRows;
    BlockRows block;
    block.block = entry_.first_block + blocks_;
    block.first_row = entry_.first_row + begin;
    block.rows_read = std::min(plan::kBlockRows, entry_.rows - begin);
    MILLSTREAM_ASSIGN(block.rows, arrow::RecordBatch::MakeEmpty(shared_->pipeline.schema));
    ++blocks_;
    counts_.rows += block.rows_read;
    counts_.rows_pruned += block.rows_read;
    beat();
    return std::optional<BlockRows>(std::move(block));
  }

 private:
  const std::shared_ptr<BlockSource::Shared> shared_;
  const plan::EntryPoint entry_;
  ScanCounts counts_;
  int blocks_ = 0;
};

// Another's blocks with a column of places.
class PlacedStream final : public BlockStream {
 public:
  PlacedStream(std::shared_ptr<arrow::Schema> schema, uint64_t file_hash, std::unique_ptr<BlockStream> stream)
      : schema_(std::move(schema)), file_hash_(file_hash), stream_(std::move(stream)) {}

  Result<std::optional<BlockRows>> next() override {
    MILLSTREAM_ASSIGN(auto block, stream_->next());
    if (!block) return std::nullopt;
    const int64_t rows = block->rows->num_rows();
    MILLSTREAM_ASSIGN(std::shared_ptr<arrow::Buffer> buffer, arrow::AllocateBuffer(rows * 8));
    auto* const places = reinterpret_cast<int64_t*>(buffer->mutable_data());
    for (int64_t row = 0; row < rows; ++row) {
      const uint64_t hash = mix64(file_hash_ + mix64(static_cast<uint64_t>(block->row_in_file(row))));
      places[row] = static_cast<int64_t>(hash >> 1);
    }
    auto columns = block->rows->columns();
    columns.push_back(std::make_shared<arrow::Int64Array>(rows, std::move(buffer)));
    block->rows = arrow::RecordBatch::Make(schema_, rows, std::move(columns));
    return block;
  }
  bool read_failed() const override { return stream_->read_failed(); }

 private:
  const std::shared_ptr<arrow::Schema> schema_;
  const uint64_t file_hash_;
  const std::unique_ptr<BlockStream> stream_;
};

}  // namespace

BlockSource::BlockSource(plan::Pipeline pipeline)
    : pipeline_(std::move(pipeline)),
      schema_(pipeline_.schema),
      shared_(std::make_shared<Shared>(pipeline_)) {}

ScanCounts BlockSource::counts() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->counts;
}

int BlockSource::entry_points_pruned() const {
  int count = 0;
  for (size_t e = 0; e < table().entry_points().size(); ++e)
    count += plan::is_pruned(pipeline_, static_cast<int>(e));
  return count;
}

Status BlockSource::add_places(const std::string& name) {
  places_ = true;
  MILLSTREAM_ASSIGN(schema_,
                    schema_->AddField(schema_->num_fields(), arrow::field(name, arrow::int64(), false)));
  return Status::OK();
}

Result<std::unique_ptr<BlockStream>> BlockSource::open(int entry_point) const {
  MILLSTREAM_ASSIGN(auto stream, open_query(entry_point));
  if (!places_) return stream;
  const plan::EntryPoint& entry = table().entry_points()[static_cast<size_t>(entry_point)];
  return std::make_unique<PlacedStream>(
      schema_, hash64(table().files()[static_cast<size_t>(entry.file)].name), std::move(stream));
}

Result<std::unique_ptr<BlockStream>> BlockSource::open_query(int entry_point) const {
  MILLSTREAM_CHECK(entry_point >= 0 && static_cast<size_t>(entry_point) < table().entry_points().size(),
                   "entry point {} of {}", entry_point, table().entry_points().size());
  ScanCounts why;
  const auto pruned = [&] { return std::make_unique<PrunedStream>(shared_, entry_point, why); };
  if (plan::is_pruned(pipeline_, entry_point)) return pruned();
  if (plan::is_pruned_by_bloom_filters(pipeline_, entry_point)) {
    why.row_groups_pruned_by_bloom = 1;
    return pruned();
  }
  std::vector<plan::RowRange> ranges = plan::rows_that_may_pass(pipeline_, entry_point);
  if (ranges.empty()) {
    why.row_groups_pruned_by_pages = 1;
    return pruned();
  }
  MILLSTREAM_ASSIGN(auto reader, table().read(entry_point, pipeline_.columns));
  return std::make_unique<PipelineStream>(shared_, entry_point, std::move(ranges), std::move(reader));
}

std::string describe_place(const plan::SourceTable& table, int entry_point, int64_t row) {
  const plan::EntryPoint& entry = table.entry_points()[static_cast<size_t>(entry_point)];
  const plan::SourceFile& file = table.files()[static_cast<size_t>(entry.file)];
  std::string place = file.path;
  if (file.format == plan::FileFormat::kParquet) place += fmt::format(", row group {}", entry.row_group);
  if (row >= 0) place += fmt::format(", row {}", row);
  return place;
}

}  // namespace millstream::exec
