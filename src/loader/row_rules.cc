#include "loader/row_rules.h"

#include <cmath>

#include "base/hash.h"

namespace millstream::loader {
namespace {

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

Fault fault_at(const arrow::Array& array, int64_t row, bool nulls_allowed) {
  if (array.IsNull(row)) return nulls_allowed ? Fault::kNone : Fault::kNull;
  double value = 0;
  if (array.type_id() == arrow::Type::DOUBLE) {
    value = static_cast<const arrow::DoubleArray&>(array).Value(row);
  } else if (array.type_id() == arrow::Type::FLOAT) {
    value = static_cast<const arrow::FloatArray&>(array).Value(row);
  }
  return std::isnan(value) ? Fault::kNan : std::isinf(value) ? Fault::kInfinite : Fault::kNone;
}

}  // namespace

RowRules::RowRules(const plan::SourceTable& table, std::vector<features::RawColumnRule> rules,
                   double fraction, bool of_bundle)
    : table_(table), rules_(std::move(rules)), fraction_(fraction), of_bundle_(of_bundle) {
  if (fraction > 0) threshold_ = static_cast<uint64_t>(std::ldexp(fraction, 64));
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

  bool any_bad = false;
  int64_t error_row = rows;
  int error_column = -1;
  Fault error = Fault::kNone;
  for (const features::RawColumnRule& rule : rules_) {
    const arrow::Array& array = *batch.column(rule.column);
    const bool nulls_matter = !rule.nulls_allowed && array.null_count() > 0;
    bool clean = !nulls_matter;
    if (array.type_id() == arrow::Type::DOUBLE) clean = clean && all_finite<arrow::DoubleArray>(array, rows);
    if (array.type_id() == arrow::Type::FLOAT) clean = clean && all_finite<arrow::FloatArray>(array, rows);
    if (clean) continue;
    for (int64_t row = 0; row < rows; ++row) {
      const Fault fault = fault_at(array, row, rule.nulls_allowed);
      if (fault == Fault::kNone) continue;
      if (rule.on_null == features::OnNull::kError) {
        if (row < error_row) {
          error_row = row;
          error_column = rule.column;
          error = fault;
        }
        break;
      }
      if (!any_bad) selected->bad.assign(rows, 0);
      any_bad = true;
      selected->bad[row] = 1;
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

  if (threshold_ == 0 && !any_bad && rows == batch.num_rows()) {
    selected->all_train = true;
    selected->train_rows = rows;
    selected->valid_rows = 0;
    return Status::OK();
  }
  const uint64_t file_hash = file_hashes_[file];
  selected->train.resize(rows);
  selected->valid.resize(threshold_ == 0 ? 0 : rows);
  int32_t* const train = selected->train.data();
  int32_t* const valid = selected->valid.data();
  int64_t num_train = 0;
  int64_t num_valid = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (any_bad && selected->bad[row]) {
      ++selected->dropped;
      continue;
    }
    if (threshold_ != 0) {
      // Both ends are written, one advances: the branch would be mispredicted as often as the fraction says.
      const uint64_t hash = mix64(file_hash ^ mix64(static_cast<uint64_t>(block.row_in_file(row))));
      const bool is_valid = hash < threshold_;
      train[num_train] = static_cast<int32_t>(row);
      valid[num_valid] = static_cast<int32_t>(row);
      num_train += !is_valid;
      num_valid += is_valid;
    } else {
      train[num_train++] = static_cast<int32_t>(row);
    }
  }
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
