#include "plan/memory_table.h"

#include "base/hash.h"

namespace millstream::plan {
namespace {

class MemoryTable final : public SourceTable {
 public:
  MemoryTable(std::string name, std::shared_ptr<arrow::RecordBatch> rows) : rows_(std::move(rows)) {
    SourceFile& file = files_.emplace_back();
    file.path = file.name = std::move(name);
    file.rows = rows_->num_rows();
    Digest digest;
    digest.add(rows_->ToString());
    file.fingerprint = digest.hex();
    EntryPoint& entry = entry_points_.emplace_back();
    entry.rows = rows_->num_rows();
    entry.num_blocks = 1;
  }
  const std::shared_ptr<arrow::Schema>& schema() const override { return rows_->schema(); }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<EntryPoint>& entry_points() const override { return entry_points_; }
  int64_t column_bytes(int, const std::vector<int>&) const override { return 0; }

  Result<std::unique_ptr<Reader>> read(int, const std::vector<int>& columns) const override {
    class Once final : public Reader {
     public:
      explicit Once(std::shared_ptr<arrow::RecordBatch> rows) : rows_(std::move(rows)) {}
      Result<std::shared_ptr<arrow::RecordBatch>> next() override { return std::move(rows_); }

     private:
      std::shared_ptr<arrow::RecordBatch> rows_;
    };
    arrow::FieldVector fields;
    arrow::ArrayVector arrays;
    for (const int column : columns) {
      fields.push_back(rows_->schema()->field(column));
      arrays.push_back(rows_->column(column));
    }
    return std::make_unique<Once>(
        arrow::RecordBatch::Make(arrow::schema(std::move(fields)), rows_->num_rows(), std::move(arrays)));
  }

 private:
  std::shared_ptr<arrow::RecordBatch> rows_;
  std::vector<SourceFile> files_;
  std::vector<EntryPoint> entry_points_;
};

}  // namespace

std::shared_ptr<const SourceTable> make_memory_table(std::string name,
                                                     std::shared_ptr<arrow::RecordBatch> rows) {
  return std::make_shared<MemoryTable>(std::move(name), std::move(rows));
}

}  // namespace millstream::plan
