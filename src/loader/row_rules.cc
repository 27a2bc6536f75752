#include "loader/row_rules.h"

#include <cmath>

#include "base/hash.h"

namespace millstream::loader {
namespace {

// One more than DropReason's, whose order it has.
enum class Fault : uint8_t { kNone, kNull, kNan, kInfinite };

template <class ArrayType>
bool all_finite(const arrow::Array& array, int64_t rows) {
  const auto* values = static_cast<const ArrayType&>(array).raw_values();
  // A finite value times zero is zero; NaN and infinities give NaN, which stays in the sum.
  using T = typename ArrayType::value_type;
  T lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= rows; i += 8) {
    for (int k = 0; k < 8; ++k) lanes[k] += values[i + k] * T{0};
  }
  for (; i < rows; ++i) lanes[0] += values[i] * T{0};
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum == T{0};
}

Fault fault_at(const arrow::Array& array, int64_t row, const features::RawColumnRule& rule) {
  const Fault of_null = rule.nulls_allowed ? Fault::kNone : Fault::kNull;
  if (array.IsNull(row)) return of_null;
  double value = 0;
  if (array.type_id() == arrow::Type::DOUBLE) {
    value = static_cast<const arrow::DoubleArray&>(array).Value(row);
  } else if (array.type_id() == arrow::Type::FLOAT) {
    value = static_cast<const arrow::FloatArray&>(array).Value(row);
  }
  if (std::isfinite(value)) return Fault::kNone;
  if (rule.on_nan == features::OnNan::kNull) return of_null;
  return std::isnan(value) ? Fault::kNan : Fault::kInfinite;
}

// Whether such a row is an error or left out.
features::OnNull action(const features::RawColumnRule& rule, Fault fault) {
  if (fault == Fault::kNull || rule.on_nan == features::OnNan::kSame || rule.on_nan == features::OnNan::kNull)
    return rule.on_null;
  return rule.on_nan == features::OnNan::kDrop ? features::OnNull::kDrop : features::OnNull::kError;
}

}  // namespace

const char* drop_reason_name(DropReason reason) {
  switch (reason) {
    case DropReason::kNull:
      return "null";
    case DropReason::kNan:
      return "NaN";
    case DropReason::kInfinite:
      return "infinite";
    case DropReason::kCorrupt:
      return "corrupt";
  }
  return "";
}

RowRules::RowRules(const plan::SourceTable& table, std::vector<features::RawColumnRule> rules, Split split,
                   bool of_bundle)
    : table_(table), rules_(std::move(rules)), split_(std::move(split)), of_bundle_(of_bundle) {
  for (const plan::SourceFile& file : table.files()) file_hashes_.push_back(hash64(file.name));
}

Status RowRules::select(int entry_point, const exec::BlockRows& block, int64_t limit,
                        SelectedRows* selected) const {
  const arrow::RecordBatch& batch = *block.rows;
  const int64_t rows = std::min(limit, batch.num_rows());
  selected->train.clear();
  selected->valid.clear();
  selected->all_train = false;
  selected->dropped = 0;
  selected->dropped_by.clear();

  bool any_bad = false;
  int64_t error_row = rows;
  int error_column = -1;
  Fault error = Fault::kNone;
  for (size_t r = 0; r < rules_.size(); ++r) {
    const features::RawColumnRule& rule = rules_[r];
    const arrow::Array& array = *batch.column(rule.column);
    const bool nulls_matter = !rule.nulls_allowed && array.null_count() > 0;
    bool clean = !nulls_matter;
    if (array.type_id() == arrow::Type::DOUBLE) clean = clean && all_finite<arrow::DoubleArray>(array, rows);
    if (array.type_id() == arrow::Type::FLOAT) clean = clean && all_finite<arrow::FloatArray>(array, rows);
    if (clean) continue;
    for (int64_t row = 0; row < rows; ++row) {
      const Fault fault = fault_at(array, row, rule);
      if (fault == Fault::kNone) continue;
      if (action(rule, fault) == features::OnNull::kError) {
        if (row < error_row) {
          error_row = row;
          error_column = rule.column;
          error = fault;
        }
        break;
      }
      if (!any_bad) {
        selected->bad.assign(rows, 0);
        selected->dropped_by.assign(rules_.size(), {});
      }
      any_bad = true;
      if (selected->bad[row] != 0) continue;
      selected->bad[row] = 1;
      ++selected->dropped_by[r][static_cast<size_t>(fault) - 1];
    }
  }
  const int file = table_.entry_points()[entry_point].file;
  if (error != Fault::kNone) {
    const int64_t row = block.row_in_file(error_row);
    bool is_target = false, is_weight = false, filled = false;
    for (const auto& rule : rules_) {
      if (rule.column != error_column) continue;
      is_target = rule.is_target;
      is_weight = rule.is_weight;
      filled = rule.nulls_allowed;
    }
    const char* const key = is_target ? "on_null_target" : "on_null";
    std::string advice;
    if (filled) advice = " (fill_null fills nulls, not NaN or infinities)";
    if (of_bundle_) {
      advice += fmt::format("; leave such rows out of the files, or train the model with {} = \"drop\"", key);
    } else {
      advice += "; leave such rows out in the WHERE";
      if (is_weight) {
        advice += ", or give them a weight in the query, with COALESCE";
      } else if (!is_target && error == Fault::kNull) {
        advice +=
            ", drop and count them (on_null = \"drop\"), or give them a value (steps = "
            "[\"fill_null(mean)\"])";
      } else {
        advice += fmt::format(", or drop and count them: {} = \"drop\"", key);
      }
    }
    return make_error(ErrorCategory::kData,
                      fmt::format("{} '{}' is {} in {}{}",
                                  is_target   ? "target"
                                  : is_weight ? "weight"
                                              : "feature column",
                                  batch.schema()->field(error_column)->name(),
                                  error == Fault::kNull  ? "null"
                                  : error == Fault::kNan ? "NaN"
                                                         : "infinite",
                                  exec::describe_place(table_, entry_point, row), advice),
                      SourcePosition{file, row});
  }

  const bool splits = split_.any() || only_;
  if (!splits && !any_bad && rows == batch.num_rows()) {
    selected->all_train = true;
    selected->train_rows = rows;
    selected->valid_rows = 0;
    return Status::OK();
  }
  if (splits) {
    const Status parted = split_.parts(file_hashes_[file], block, rows, &selected->parts);
    if (!parted.ok()) return locate_error(parted, table_, entry_point, block);
  }
  selected->train.resize(rows);
  selected->valid.resize(splits ? rows : 0);
  int32_t* const train = selected->train.data();
  int32_t* const valid = selected->valid.data();
  const Part* const parts = selected->parts.data();
  const Part training = only_.value_or(Part::kTrain);
  int64_t num_train = 0;
  int64_t num_valid = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (any_bad && selected->bad[row]) {
      ++selected->dropped;
      continue;
    }
    if (splits) {
      // Both ends are written, one advances: the branch would be mispredicted as often as the fraction says.
      train[num_train] = static_cast<int32_t>(row);
      valid[num_valid] = static_cast<int32_t>(row);
      num_train += parts[row] == training;
      num_valid += parts[row] == Part::kValid;
    } else {
      train[num_train++] = static_cast<int32_t>(row);
    }
  }
  if (only_) num_valid = 0;
  selected->train.resize(num_train);
  selected->valid.resize(num_valid);
  selected->train_rows = num_train;
  selected->valid_rows = num_valid;
  return Status::OK();
}

Status locate_error(const Status& status, const plan::SourceTable& table, int entry_point,
                    const exec::BlockRows& block) {
  const auto position = error_position(status);
  if (!position) return with_context(status, exec::describe_place(table, entry_point, -1));
  const int64_t row = block.row_in_file(position->row);
  return with_category(with_context(status, exec::describe_place(table, entry_point, row)),
                       error_category(status), SourcePosition{table.entry_points()[entry_point].file, row});
}

}  // namespace millstream::loader
