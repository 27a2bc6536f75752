#include "exec/units.h"

#include <algorithm>

#include "exec/sort.h"
#include "jit/program.h"

namespace millstream::exec {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;

// The morsels of a batch after one another.
class Slicer {
 public:
  explicit Slicer(int64_t rows) : rows_(rows) {}
  void put(Batch batch) {
    batch_ = std::move(batch);
    at_ = 0;
  }
  Batch take() {
    if (batch_ == nullptr || at_ >= batch_->num_rows()) return nullptr;
    if (batch_->num_rows() <= rows_) return std::move(batch_);
    Batch slice = batch_->Slice(at_, rows_);
    at_ += rows_;
    return slice;
  }

 private:
  int64_t rows_;
  Batch batch_;
  int64_t at_ = 0;
};

class PipelineUnits final : public Units {
 public:
  PipelineUnits(plan::Pipeline pipeline, int64_t morsel_rows)
      : source_(std::move(pipeline)), morsel_rows_(morsel_rows) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return source_.schema(); }
  int count() const override { return static_cast<int>(source_.table().entry_points().size()); }

  Result<std::unique_ptr<UnitStream>> open(int unit) const override {
    class Stream final : public UnitStream {
     public:
      Stream(std::unique_ptr<BlockStream> blocks, int64_t rows) : blocks_(std::move(blocks)), slicer_(rows) {}
      Result<Batch> next() override {
        while (true) {
          if (Batch slice = slicer_.take()) return slice;
          MILLSTREAM_ASSIGN(auto block, blocks_->next());
          if (!block) return nullptr;
          slicer_.put(std::move(block->rows));
        }
      }

     private:
      std::unique_ptr<BlockStream> blocks_;
      Slicer slicer_;
    };
    MILLSTREAM_ASSIGN(auto blocks, source_.open(unit));
    return std::make_unique<Stream>(std::move(blocks), morsel_rows_);
  }

 private:
  BlockSource source_;
  int64_t morsel_rows_;
};

class BatchUnits final : public Units {
 public:
  BatchUnits(std::shared_ptr<arrow::Schema> schema, std::vector<Batch> batches, int64_t morsel_rows)
      : schema_(std::move(schema)), batches_(std::move(batches)), morsel_rows_(morsel_rows) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  int count() const override { return static_cast<int>(batches_.size()); }

  Result<std::unique_ptr<UnitStream>> open(int unit) const override {
    class Stream final : public UnitStream {
     public:
      Stream(Batch batch, int64_t rows) : slicer_(rows) { slicer_.put(std::move(batch)); }
      Result<Batch> next() override { return slicer_.take(); }

     private:
      Slicer slicer_;
    };
    return std::make_unique<Stream>(batches_[static_cast<size_t>(unit)], morsel_rows_);
  }

 private:
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<Batch> batches_;
  int64_t morsel_rows_;
};

class BothUnits final : public Units {
 public:
  BothUnits(std::unique_ptr<Units> first, std::unique_ptr<Units> second,
            std::shared_ptr<arrow::Schema> schema)
      : first_(std::move(first)), second_(std::move(second)), schema_(std::move(schema)) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  int count() const override { return first_->count() + second_->count(); }
  int owner(int unit, int ranks) const override {
    const int behind = unit - first_->count();
    return behind < 0 ? first_->owner(unit, ranks) : second_->owner(behind, ranks);
  }

  Result<std::unique_ptr<UnitStream>> open(int unit) const override {
    class Stream final : public UnitStream {
     public:
      Stream(std::shared_ptr<arrow::Schema> schema, std::unique_ptr<UnitStream> input)
          : schema_(std::move(schema)), input_(std::move(input)) {}
      Result<Batch> next() override {
        MILLSTREAM_ASSIGN(auto batch, input_->next());
        if (batch == nullptr) return nullptr;
        return arrow::RecordBatch::Make(schema_, batch->num_rows(), batch->columns());
      }

     private:
      std::shared_ptr<arrow::Schema> schema_;
      std::unique_ptr<UnitStream> input_;
    };
    const int behind = unit - first_->count();
    MILLSTREAM_ASSIGN(auto stream, behind < 0 ? first_->open(unit) : second_->open(behind));
    return std::make_unique<Stream>(schema_, std::move(stream));
  }

 private:
  std::unique_ptr<Units> first_, second_;
  std::shared_ptr<arrow::Schema> schema_;
};

// Applies a function to every batch.
class MappedUnits : public Units {
 public:
  explicit MappedUnits(std::unique_ptr<Units> input) : input_(std::move(input)) {}
  int count() const override { return input_->count(); }
  int owner(int unit, int ranks) const override { return input_->owner(unit, ranks); }
  virtual Result<Batch> map(const Batch& batch) const = 0;

  Result<std::unique_ptr<UnitStream>> open(int unit) const override {
    class Stream final : public UnitStream {
     public:
      Stream(const MappedUnits& units, std::unique_ptr<UnitStream> input)
          : units_(units), input_(std::move(input)) {}
      Result<Batch> next() override {
        MILLSTREAM_ASSIGN(auto batch, input_->next());
        if (batch == nullptr) return nullptr;
        return units_.map(batch);
      }

     private:
      const MappedUnits& units_;
      std::unique_ptr<UnitStream> input_;
    };
    MILLSTREAM_ASSIGN(auto stream, input_->open(unit));
    return std::make_unique<Stream>(*this, std::move(stream));
  }

 protected:
  std::unique_ptr<Units> input_;
};

class FilterUnits final : public MappedUnits {
 public:
  FilterUnits(std::unique_ptr<Units> input, expr::ExprPtr predicate)
      : MappedUnits(std::move(input)),
        filter_(jit::Program::filter(input_->schema(), std::move(predicate))) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return input_->schema(); }
  Result<Batch> map(const Batch& batch) const override {
    MILLSTREAM_ASSIGN(auto rows, filter_.select(*batch));
    if (static_cast<int64_t>(rows.size()) == batch->num_rows()) return batch;
    return expr::take_rows(*batch, rows);
  }

 private:
  const jit::Program filter_;
};

class ProjectionUnits final : public MappedUnits {
 public:
  ProjectionUnits(std::unique_ptr<Units> input, std::vector<expr::ExprPtr> expressions,
                  std::shared_ptr<arrow::Schema> schema)
      : MappedUnits(std::move(input)),
        program_(jit::Program::columns(input_->schema(), std::move(expressions))),
        schema_(std::move(schema)) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  Result<Batch> map(const Batch& batch) const override {
    MILLSTREAM_ASSIGN(auto columns, program_.evaluate(*batch));
    return arrow::RecordBatch::Make(schema_, batch->num_rows(), std::move(columns));
  }

 private:
  const jit::Program program_;
  std::shared_ptr<arrow::Schema> schema_;
};

class MembershipUnits final : public MappedUnits {
 public:
  MembershipUnits(std::unique_ptr<Units> input, expr::ExprPtr key, std::shared_ptr<const GroupTable> values,
                  bool has_null, std::shared_ptr<arrow::Schema> schema)
      : MappedUnits(std::move(input)),
        key_(std::move(key)),
        values_(std::move(values)),
        has_null_(has_null),
        schema_(std::move(schema)) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  Result<Batch> map(const Batch& batch) const override {
    MILLSTREAM_ASSIGN(const auto keys, expr::evaluate(*key_, *batch));
    std::vector<uint32_t> found;
    MILLSTREAM_TRY(values_->find({keys}, batch->num_rows(), found));
    arrow::BooleanBuilder marks;
    MILLSTREAM_TRY(marks.Reserve(batch->num_rows()));
    for (int64_t i = 0; i < batch->num_rows(); ++i) {
      const bool known = keys->IsValid(i) && found[static_cast<size_t>(i)] != GroupTable::kNone;
      if (!known && (has_null_ || keys->IsNull(i))) {
        marks.UnsafeAppendNull();
      } else {
        marks.UnsafeAppend(known);
      }
    }
    MILLSTREAM_ASSIGN(auto column, marks.Finish());
    arrow::ArrayVector columns = batch->columns();
    columns.push_back(std::move(column));
    return arrow::RecordBatch::Make(schema_, batch->num_rows(), std::move(columns));
  }

 private:
  expr::ExprPtr key_;
  std::shared_ptr<const GroupTable> values_;
  bool has_null_;
  std::shared_ptr<arrow::Schema> schema_;
};

class FirstUnits final : public MappedUnits {
 public:
  FirstUnits(std::unique_ptr<Units> input, std::vector<plan::SortKey> keys, int64_t rows)
      : MappedUnits(std::move(input)), keys_(std::move(keys)), rows_(rows) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return input_->schema(); }
  Result<Batch> map(const Batch& batch) const override {
    if (batch->num_rows() <= rows_) return batch;
    return sort_rows(batch, keys_, rows_);
  }

 private:
  std::vector<plan::SortKey> keys_;
  int64_t rows_;
};

}  // namespace

std::unique_ptr<Units> units_of_both(std::unique_ptr<Units> first, std::unique_ptr<Units> second,
                                     std::shared_ptr<arrow::Schema> schema) {
  return std::make_unique<BothUnits>(std::move(first), std::move(second), std::move(schema));
}

std::unique_ptr<Units> units_with_membership(std::unique_ptr<Units> units, expr::ExprPtr key,
                                             std::shared_ptr<const GroupTable> values, bool has_null,
                                             std::shared_ptr<arrow::Schema> schema) {
  return std::make_unique<MembershipUnits>(std::move(units), std::move(key), std::move(values), has_null,
                                           std::move(schema));
}

std::unique_ptr<Units> units_with_first(std::unique_ptr<Units> units, std::vector<plan::SortKey> keys,
                                        int64_t rows) {
  return std::make_unique<FirstUnits>(std::move(units), std::move(keys), rows);
}

std::unique_ptr<Units> units_of_pipeline(plan::Pipeline pipeline, int64_t morsel_rows) {
  return std::make_unique<PipelineUnits>(std::move(pipeline), morsel_rows);
}

std::unique_ptr<Units> units_of_batches(std::shared_ptr<arrow::Schema> schema, std::vector<Batch> batches,
                                        int64_t morsel_rows) {
  // Batches of many rows are cut, so that every thread and rank gets some.
  std::vector<Batch> cut;
  for (const Batch& batch : batches) {
    for (int64_t begin = 0; begin < batch->num_rows(); begin += plan::kBlockRows) {
      cut.push_back(batch->Slice(begin, plan::kBlockRows));
    }
  }
  return std::make_unique<BatchUnits>(std::move(schema), std::move(cut), morsel_rows);
}

std::unique_ptr<Units> units_with_filter(std::unique_ptr<Units> units, expr::ExprPtr predicate) {
  return std::make_unique<FilterUnits>(std::move(units), std::move(predicate));
}

std::unique_ptr<Units> units_with_projection(std::unique_ptr<Units> units,
                                             std::vector<expr::ExprPtr> expressions,
                                             std::shared_ptr<arrow::Schema> schema) {
  return std::make_unique<ProjectionUnits>(std::move(units), std::move(expressions), std::move(schema));
}

}  // namespace millstream::exec
