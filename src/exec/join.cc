#include "exec/join.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "exec/sort.h"
#include "expr/type.h"

namespace millstream::exec {

using Batch = std::shared_ptr<arrow::RecordBatch>;
using plan::JoinKind;

namespace {

// The keys of a batch's rows; keyed[i] is 0 where one is NULL.
Result<std::vector<std::shared_ptr<arrow::Array>>> keys_of(const std::vector<expr::ExprPtr>& keys,
                                                           const arrow::RecordBatch& batch,
                                                           std::vector<uint8_t>& keyed) {
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  keyed.assign(static_cast<size_t>(batch.num_rows()), 1);
  for (const expr::ExprPtr& key : keys) {
    MILLSTREAM_ASSIGN(auto array, expr::evaluate(*key, batch));
    if (array->null_count() > 0) {
      for (int64_t i = 0; i < array->length(); ++i)
        if (array->IsNull(i)) keyed[static_cast<size_t>(i)] = 0;
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

Batch beside(const std::shared_ptr<arrow::Schema>& schema, const Batch& left, const Batch& right) {
  arrow::ArrayVector columns = left->columns();
  for (const auto& column : right->columns()) columns.push_back(column);
  return arrow::RecordBatch::Make(schema, left->num_rows(), std::move(columns));
}

}  // namespace

Result<std::unique_ptr<JoinTable>> JoinTable::make(const plan::Node& node, Batch rows) {
  std::unique_ptr<JoinTable> table(new JoinTable(node));
  table->num_rows_ = rows->num_rows();
  if (table->num_rows_ >= std::numeric_limits<int32_t>::max())
    return failed_error("the right side of a join has more than 2^31 rows");
  std::vector<uint8_t> keyed;
  MILLSTREAM_ASSIGN(auto keys, keys_of(node.right_keys, *rows, keyed));
  std::vector<std::shared_ptr<arrow::DataType>> types;
  for (const auto& key : keys) types.push_back(key->type());
  table->groups_ = std::make_unique<GroupTable>(std::move(types));
  std::vector<uint32_t> groups;
  MILLSTREAM_TRY(table->groups_->find_or_add(keys, table->num_rows_, groups));
  // Rows by group, in their order; rows with a NULL key are in none.
  table->begin_.assign(size_t{table->groups_->size()} + 1, 0);
  for (size_t i = 0; i < groups.size(); ++i)
    if (keyed[i]) ++table->begin_[groups[i] + 1];
  for (size_t g = 1; g < table->begin_.size(); ++g) table->begin_[g] += table->begin_[g - 1];
  table->order_.resize(static_cast<size_t>(table->begin_.back()));
  std::vector<int32_t> at(table->begin_.begin(), table->begin_.end() - 1);
  for (size_t i = 0; i < groups.size(); ++i)
    if (keyed[i]) table->order_[static_cast<size_t>(at[groups[i]]++)] = static_cast<int32_t>(i);
  if (node.join == JoinKind::kRight || node.join == JoinKind::kFull)
    table->partner_.assign(static_cast<size_t>(table->num_rows_), 0);
  // A row of NULLs at the end stands for no partner.
  arrow::ArrayVector nulls;
  for (const auto& column : rows->columns()) {
    MILLSTREAM_ASSIGN(auto null, arrow::MakeArrayOfNull(column->type(), 1));
    nulls.push_back(std::move(null));
  }
  const auto null_row = arrow::RecordBatch::Make(rows->schema(), 1, std::move(nulls));
  MILLSTREAM_ASSIGN(table->rows_, concatenate(rows->schema(), {rows, null_row}));
  return table;
}

// Joins one unit of the left side.
class JoinStream final : public UnitStream {
 public:
  JoinStream(const JoinTable& table, std::unique_ptr<UnitStream> left, int64_t morsel_rows)
      : table_(table), left_(std::move(left)), morsel_rows_(std::max<int64_t>(morsel_rows, 1)) {}

  Result<Batch> next() override {
    while (true) {
      if (batch_ == nullptr || at_ >= batch_->num_rows()) {
        MILLSTREAM_ASSIGN(batch_, left_->next());
        if (batch_ == nullptr) return nullptr;
        std::vector<uint8_t> keyed;
        MILLSTREAM_ASSIGN(auto keys, keys_of(table_.node_.left_keys, *batch_, keyed));
        MILLSTREAM_TRY(table_.groups_->find(keys, batch_->num_rows(), groups_));
        for (size_t i = 0; i < keyed.size(); ++i)
          if (!keyed[i]) groups_[i] = GroupTable::kNone;
        at_ = 0;
      }
      MILLSTREAM_ASSIGN(auto joined, piece());
      if (joined->num_rows() > 0) return joined;
    }
  }

 private:
  // Left rows from at_ on until there are enough pairs.
  Result<Batch> piece() {
    const plan::Node& node = table_.node_;
    const bool rows_of_left_alone = node.join == JoinKind::kSemi || node.join == JoinKind::kAnti;
    const bool keeps_left = node.join == JoinKind::kLeft || node.join == JoinKind::kFull;
    const bool pairs_needed = !rows_of_left_alone || node.predicate != nullptr;
    std::vector<int32_t> left, right;
    const int64_t begin = at_;
    for (; at_ < batch_->num_rows() && static_cast<int64_t>(left.size()) < morsel_rows_; ++at_) {
      const uint32_t group = groups_[static_cast<size_t>(at_)];
      if (group == GroupTable::kNone) continue;
      for (int32_t i = table_.begin_[group]; i < table_.begin_[group + 1]; ++i) {
        left.push_back(static_cast<int32_t>(at_));
        right.push_back(table_.order_[static_cast<size_t>(i)]);
        if (!pairs_needed) break;
      }
    }
    if (node.predicate != nullptr && !left.empty()) {
      MILLSTREAM_ASSIGN(const Batch pairs, pair_rows(left, right));
      MILLSTREAM_ASSIGN(const auto kept, expr::evaluate_filter(*node.predicate, *pairs));
      for (size_t k = 0; k < kept.size(); ++k) {
        left[k] = left[static_cast<size_t>(kept[k])];
        right[k] = right[static_cast<size_t>(kept[k])];
      }
      left.resize(kept.size());
      right.resize(kept.size());
    }
    if (rows_of_left_alone) {
      std::vector<uint8_t> partner(static_cast<size_t>(at_ - begin), 0);
      for (const int32_t row : left) partner[static_cast<size_t>(row - begin)] = 1;
      std::vector<int32_t> rows;
      const uint8_t wanted = node.join == JoinKind::kSemi;
      for (size_t i = 0; i < partner.size(); ++i)
        if (partner[i] == wanted) rows.push_back(static_cast<int32_t>(begin + static_cast<int64_t>(i)));
      MILLSTREAM_ASSIGN(auto taken, expr::take_rows(*batch_, rows));
      return arrow::RecordBatch::Make(node.schema, taken->num_rows(), taken->columns());
    }
    if (!table_.partner_.empty()) {
      for (const int32_t row : right)
        std::atomic_ref<uint8_t>(table_.partner_[static_cast<size_t>(row)])
            .store(1, std::memory_order_relaxed);
    }
    if (keeps_left) {
      std::vector<int32_t> all_left, all_right;
      size_t k = 0;
      for (int64_t row = begin; row < at_; ++row) {
        const size_t first = k;
        for (; k < left.size() && left[k] == row; ++k) {
          all_left.push_back(left[k]);
          all_right.push_back(right[k]);
        }
        if (k > first) continue;
        all_left.push_back(static_cast<int32_t>(row));
        all_right.push_back(static_cast<int32_t>(table_.num_rows_));
      }
      left.swap(all_left);
      right.swap(all_right);
    }
    return pair_rows(left, right);
  }

  Result<Batch> pair_rows(const std::vector<int32_t>& left, const std::vector<int32_t>& right) const {
    MILLSTREAM_ASSIGN(auto l, expr::take_rows(*batch_, left));
    MILLSTREAM_ASSIGN(auto r, expr::take_rows(*table_.rows_, right));
    return beside(table_.node_.pair_schema, l, r);
  }

  const JoinTable& table_;
  std::unique_ptr<UnitStream> left_;
  int64_t morsel_rows_;
  Batch batch_;
  std::vector<uint32_t> groups_;
  int64_t at_ = 0;
};

namespace {

class JoinUnits final : public Units {
 public:
  JoinUnits(const JoinTable& table, const std::shared_ptr<arrow::Schema>& schema, std::unique_ptr<Units> left,
            int64_t morsel_rows)
      : table_(table), schema_(schema), left_(std::move(left)), morsel_rows_(morsel_rows) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  int count() const override { return left_->count(); }
  int owner(int unit, int ranks) const override { return left_->owner(unit, ranks); }
  Result<std::unique_ptr<UnitStream>> open(int unit) const override {
    MILLSTREAM_ASSIGN(auto left, left_->open(unit));
    return std::make_unique<JoinStream>(table_, std::move(left), morsel_rows_);
  }

 private:
  const JoinTable& table_;
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<Units> left_;
  int64_t morsel_rows_;
};

}  // namespace

std::unique_ptr<Units> JoinTable::probe(std::unique_ptr<Units> left, int64_t morsel_rows) const {
  return std::make_unique<JoinUnits>(*this, node_.schema, std::move(left), morsel_rows);
}

std::string JoinTable::partners() const {
  return std::string(reinterpret_cast<const char*>(partner_.data()), partner_.size());
}

Result<Batch> JoinTable::without_partner(const std::vector<std::string>& partners) const {
  std::vector<int32_t> rows;
  for (int64_t row = 0; row < num_rows_; ++row) {
    const bool found =
        std::ranges::any_of(partners, [&](const std::string& p) { return p[static_cast<size_t>(row)] != 0; });
    if (!found) rows.push_back(static_cast<int32_t>(row));
  }
  MILLSTREAM_ASSIGN(auto right, expr::take_rows(*rows_, rows));
  arrow::ArrayVector columns;
  const int num_left = node_.input->schema->num_fields();
  for (int i = 0; i < num_left; ++i) {
    MILLSTREAM_ASSIGN(auto nulls,
                      arrow::MakeArrayOfNull(node_.input->schema->field(i)->type(), right->num_rows()));
    columns.push_back(std::move(nulls));
  }
  for (const auto& column : right->columns()) columns.push_back(column);
  return arrow::RecordBatch::Make(node_.schema, right->num_rows(), std::move(columns));
}

int64_t JoinTable::memory() const {
  return groups_->memory() +
         static_cast<int64_t>((begin_.capacity() + order_.capacity()) * 4 + partner_.capacity());
}

}  // namespace millstream::exec
