#include "exec/block_source.h"

#include <algorithm>

#include "base/check.h"
#include "base/progress.h"
#include "plan/pruning.h"

namespace millstream::exec {
namespace {

// The outputs of some rows, or the error of the lowest row.
class Evaluation {
 public:
  explicit Evaluation(const plan::Pipeline& pipeline) : pipeline_(pipeline) {}

  // Filters and projects `input`; on failure the error's position.row is the row in `input`.
  Status run(const std::shared_ptr<arrow::RecordBatch>& input, BlockRows* out) const {
    std::shared_ptr<arrow::RecordBatch> rows = input;
    if (pipeline_.predicate) {
      auto selected = expr::evaluate_filter(*pipeline_.predicate, *input);
      if (!selected.ok()) return filter_error(selected.status(), input);
      out->selection = *std::move(selected);
      if (static_cast<int64_t>(out->selection.size()) == input->num_rows()) {
        out->selection.clear();
      } else {
        MILLSTREAM_ASSIGN(rows, expr::take_rows(*input, out->selection));
      }
    }
    arrow::ArrayVector outputs;
    outputs.reserve(pipeline_.outputs.size());
    Status lowest;
    for (const expr::ExprPtr& output : pipeline_.outputs) {
      auto value = expr::evaluate(*output, *rows);
      if (value.ok()) {
        outputs.push_back(*std::move(value));
        continue;
      }
      if (lowest.ok() || row_of(value.status()) < row_of(lowest)) lowest = value.status();
    }
    if (!lowest.ok()) {
      const int64_t row = row_of(lowest);
      if (row < 0 || out->selection.empty()) return lowest;
      return with_category(lowest, error_category(lowest),
                           SourcePosition{0, out->selection[static_cast<size_t>(row)]});
    }
    out->rows = arrow::RecordBatch::Make(pipeline_.schema, rows->num_rows(), std::move(outputs));
    return Status::OK();
  }

 private:
  // An error without a row is about all of them: it comes before any.
  static int64_t row_of(const Status& status) {
    const auto position = error_position(status);
    return position ? position->row : -1;
  }

  // The filter failed at a row; an output may fail at an earlier one, which is then the error to report: errors
  // must not depend on how rows are cut into blocks.
  Status filter_error(const Status& failure, const std::shared_ptr<arrow::RecordBatch>& input) const {
    const int64_t row = row_of(failure);
    if (row <= 0) return failure;
    BlockRows ignored;
    const Status earlier = run(input->Slice(0, row), &ignored);
    return earlier.ok() ? failure : earlier;
  }

  const plan::Pipeline& pipeline_;
};

class PipelineStream final : public BlockStream {
 public:
  PipelineStream(const plan::Pipeline& pipeline, int entry_point,
                 std::unique_ptr<plan::SourceTable::Reader> reader)
      : pipeline_(pipeline),
        entry_point_(entry_point),
        entry_(pipeline.table->entry_points()[static_cast<size_t>(entry_point)]),
        reader_(std::move(reader)) {}

  Result<std::optional<BlockRows>> next() override {
    MILLSTREAM_ASSIGN(auto input, reader_->next());
    if (!input) return std::nullopt;
    BlockRows block;
    block.block = entry_.first_block + blocks_;
    block.first_row = entry_.first_row + int64_t{blocks_} * plan::kBlockRows;
    block.rows_read = input->num_rows();
    ++blocks_;
    const Status status = Evaluation(pipeline_).run(input, &block);
    if (!status.ok()) {
      const auto position = error_position(status);
      if (!position) return with_context(status, describe_place(*pipeline_.table, entry_point_, -1));
      const int64_t row = block.first_row + position->row;
      return with_context(with_category(status, error_category(status), SourcePosition{entry_.file, row}),
                          describe_place(*pipeline_.table, entry_point_, row));
    }
    beat();
    return std::optional<BlockRows>(std::move(block));
  }

 private:
  const plan::Pipeline pipeline_;  // a copy: the stream may outlive its source
  const int entry_point_;
  const plan::EntryPoint entry_;
  std::unique_ptr<plan::SourceTable::Reader> reader_;
  int blocks_ = 0;
};

// The blocks of an entry point that is not read: of the sizes that they have, without survivors.
class PrunedStream final : public BlockStream {
 public:
  PrunedStream(const plan::Pipeline& pipeline, int entry_point)
      : schema_(pipeline.schema), entry_(pipeline.table->entry_points()[static_cast<size_t>(entry_point)]) {}

  Result<std::optional<BlockRows>> next() override {
    if (blocks_ == entry_.num_blocks) return std::nullopt;
    const int64_t begin = int64_t{blocks_} * plan::kBlockRows;
    BlockRows block;
    block.block = entry_.first_block + blocks_;
    block.first_row = entry_.first_row + begin;
    block.rows_read = std::min(plan::kBlockRows, entry_.rows - begin);
    MILLSTREAM_ASSIGN(block.rows, arrow::RecordBatch::MakeEmpty(schema_));
    ++blocks_;
    beat();
    return std::optional<BlockRows>(std::move(block));
  }

 private:
  const std::shared_ptr<arrow::Schema> schema_;
  const plan::EntryPoint entry_;
  int blocks_ = 0;
};

}  // namespace

int BlockSource::entry_points_pruned() const {
  int count = 0;
  for (size_t e = 0; e < table().entry_points().size(); ++e)
    count += plan::is_pruned(pipeline_, static_cast<int>(e));
  return count;
}

Result<std::unique_ptr<BlockStream>> BlockSource::open(int entry_point) const {
  MILLSTREAM_CHECK(entry_point >= 0 && static_cast<size_t>(entry_point) < table().entry_points().size(),
                   "entry point {} of {}", entry_point, table().entry_points().size());
  if (plan::is_pruned(pipeline_, entry_point)) return std::make_unique<PrunedStream>(pipeline_, entry_point);
  MILLSTREAM_ASSIGN(auto reader, table().read(entry_point, pipeline_.columns));
  return std::make_unique<PipelineStream>(pipeline_, entry_point, std::move(reader));
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
