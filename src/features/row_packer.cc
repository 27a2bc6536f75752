#include "features/row_packer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "jit/program.h"

namespace millstream::features {
namespace {

// Rows are packed in tiles small enough for the first-level cache: each column of a tile is converted in one
// vectorised sweep, then spread into the rows.
constexpr int64_t kTileRows = 256;

template <class T>
void convert(const T* values, const int32_t* rows, int64_t count, double* out) {
  if (rows == nullptr) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<double>(values[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<double>(values[rows[i]]);
  }
}

template <class ArrayType>
void convert_array(const arrow::Array& array, int64_t first, const int32_t* rows, int64_t count,
                   double* out) {
  const auto* values = static_cast<const ArrayType&>(array).raw_values();
  convert(rows ? values : values + first, rows, count, out);
}

// Values first … first + count - 1 of `array`, or those at `rows`.
bool tile_as_double(const arrow::Array& array, int64_t first, const int32_t* rows, int64_t count,
                    double* out) {
  switch (array.type_id()) {
    case arrow::Type::BOOL: {
      const auto& values = static_cast<const arrow::BooleanArray&>(array);
      for (int64_t i = 0; i < count; ++i) out[i] = values.Value(rows ? rows[i] : first + i) ? 1.0 : 0.0;
      return true;
    }
    case arrow::Type::INT8:
      convert_array<arrow::Int8Array>(array, first, rows, count, out);
      return true;
    case arrow::Type::INT16:
      convert_array<arrow::Int16Array>(array, first, rows, count, out);
      return true;
    case arrow::Type::INT32:
      convert_array<arrow::Int32Array>(array, first, rows, count, out);
      return true;
    case arrow::Type::INT64:
      convert_array<arrow::Int64Array>(array, first, rows, count, out);
      return true;
    case arrow::Type::UINT8:
      convert_array<arrow::UInt8Array>(array, first, rows, count, out);
      return true;
    case arrow::Type::UINT16:
      convert_array<arrow::UInt16Array>(array, first, rows, count, out);
      return true;
    case arrow::Type::UINT32:
      convert_array<arrow::UInt32Array>(array, first, rows, count, out);
      return true;
    case arrow::Type::UINT64:
      convert_array<arrow::UInt64Array>(array, first, rows, count, out);
      return true;
    case arrow::Type::FLOAT:
      convert_array<arrow::FloatArray>(array, first, rows, count, out);
      return true;
    case arrow::Type::DOUBLE:
      convert_array<arrow::DoubleArray>(array, first, rows, count, out);
      return true;
    default:
      return false;
  }
}

bool is_plain_number(const arrow::DataType& type) {
  return type.id() == arrow::Type::BOOL || arrow::is_integer(type.id()) || type.id() == arrow::Type::FLOAT ||
         type.id() == arrow::Type::DOUBLE;
}

// The input column that the expression passes on as a double, -1 where it does more.
int plain_column(const expr::Expression& expression) {
  if (expression.type->id() != arrow::Type::DOUBLE) return -1;
  const expr::Expression* at = &expression;
  if (at->kind == expr::Kind::kCast && !at->try_cast) at = at->arguments[0].get();
  return at->kind == expr::Kind::kColumn && is_plain_number(*at->type) ? at->column : -1;
}

std::optional<double> double_constant(const expr::Expression& expression) {
  if (expression.kind != expr::Kind::kLiteral || expression.type->id() != arrow::Type::DOUBLE ||
      expression.literal == nullptr || !expression.literal->is_valid) {
    return std::nullopt;
  }
  return static_cast<const arrow::DoubleScalar&>(*expression.literal).value;
}

// True where one of the floats is NaN or infinite: their exponent bits are all ones.
bool any_not_finite(const float* values, int64_t count) {
  uint32_t worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu);
  }
  return worst >= 0x7F800000u;
}

void spread(const float* values, int64_t count, int stride, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i * stride] = values[i];
}

Status not_finite(const std::string& name, const char* role, bool of_bundle, double value, int64_t row) {
  const bool is_target = std::string_view(role) != "feature";
  std::string what = fmt::format("{} '{}' is ", role, name);
  if (std::isnan(value)) {
    what += "NaN";
  } else if (std::isinf(value)) {
    what += value > 0 ? "infinite" : "-infinite";
  } else {
    what += fmt::format("{}, more than a float32 holds", value);
  }
  if (!is_target) what += std::isfinite(value) ? ", after its steps" : " after its steps";
  return make_error(ErrorCategory::kData,
                    what + (of_bundle   ? "; leave such rows out of the files"
                            : is_target ? "; leave such rows out in the WHERE, or scale it in the query"
                                        : "; leave such rows out in the WHERE, or change its steps"),
                    SourcePosition{0, row});
}

}  // namespace

bool copy_as_double(const arrow::Array& array, const int32_t* rows, int64_t count, double* out) {
  return tile_as_double(array, 0, rows, count, out);
}

int64_t first_not_finite(const double* values, int64_t count) {
  uint64_t worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::bit_cast<uint64_t>(values[i]) & 0x7FFFFFFFFFFFFFFFu);
  }
  if (worst < 0x7FF0000000000000u) return -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return -1;
}

/// A program for every schema that batches came with: columns may be narrower than declared.
struct RowPacker::Compiled {
  Result<std::shared_ptr<const jit::Program>> of(const arrow::RecordBatch& batch) {
    const std::lock_guard lock(mutex);
    for (const auto& [schema, program] : programs) {
      bool same = true;
      for (int i = 0; i < batch.num_columns() && same; ++i)
        same = batch.column_data(i)->type->Equals(*schema->field(i)->type());
      if (same) return program;
    }
    arrow::FieldVector fields;
    std::vector<expr::ExprPtr> as_declared;
    for (int i = 0; i < batch.num_columns(); ++i) {
      const auto& declared = input->field(i);
      fields.push_back(declared->WithType(batch.column_data(i)->type));
      MILLSTREAM_ASSIGN(auto column, expr::make_cast(expr::make_column(i, *fields.back()), declared->type()));
      as_declared.push_back(std::move(column));
    }
    std::vector<expr::ExprPtr> over_batch;
    for (const expr::ExprPtr& expression : expressions)
      over_batch.push_back(expr::substitute_columns(expression, as_declared));
    auto schema = arrow::schema(std::move(fields));
    programs.emplace_back(
        schema, std::make_shared<const jit::Program>(jit::Program::rows(schema, std::move(over_batch))));
    return programs.back().second;
  }

  std::shared_ptr<arrow::Schema> input;
  std::vector<expr::ExprPtr> expressions;
  std::mutex mutex;
  std::vector<std::pair<std::shared_ptr<arrow::Schema>, std::shared_ptr<const jit::Program>>> programs;
};

Result<RowPacker> RowPacker::make(const Fitted& fitted, const std::string& target, bool of_bundle,
                                  const std::string& weight, bool training) {
  RowPacker packer;
  packer.of_bundle_ = of_bundle;
  packer.input_ = fitted.input;
  packer.has_target_ = !target.empty();
  packer.has_weight_ = !weight.empty();
  const auto add = [&](const std::string& name, const expr::ExprPtr& expression, Column::Role role,
                       int64_t categories = 0) {
    Column column{.name = name, .expression = expression, .role = role, .categories = categories};
    column.source = plain_column(*expression);
    // ((column - shift) / scale), as standard_scale writes it.
    if (column.source < 0 && expression->kind == expr::Kind::kCall && expression->name == "/" &&
        expression->arguments.size() == 2) {
      const expr::Expression& left = *expression->arguments[0];
      const auto scale = double_constant(*expression->arguments[1]);
      if (scale && left.kind == expr::Kind::kCall && left.name == "-" && left.arguments.size() == 2) {
        const auto shift = double_constant(*left.arguments[1]);
        const int source = plain_column(*left.arguments[0]);
        if (shift && source >= 0) {
          column.source = source;
          column.scaled = true;
          column.shift = *shift;
          column.scale = *scale;
        }
      }
    }
    packer.columns_.push_back(std::move(column));
  };
  const auto add_raw = [&](const std::string& name, Column::Role role) -> Status {
    const int index = fitted.input->GetFieldIndex(name);
    if (index < 0) return bug_error("the column '{}' is not among the fitted features' inputs", name);
    MILLSTREAM_ASSIGN(
        auto value, expr::make_cast(expr::make_column(index, *fitted.input->field(index)), arrow::float64()));
    add(name, value, role);
    return Status::OK();
  };
  for (const FeatureColumn& feature : fitted.columns) {
    if (feature.embedding_width > 0)
      packer.embedded_.push_back(feature);
    else
      add(feature.name, training && feature.training != nullptr ? feature.training : feature.expression,
          Column::Role::kFeature);
  }
  packer.num_features_ = static_cast<int>(packer.columns_.size());
  if (!target.empty()) MILLSTREAM_TRY(add_raw(target, Column::Role::kTarget));
  for (const FeatureColumn& feature : packer.embedded_)
    add(feature.name, feature.expression, Column::Role::kId, feature.categories);
  if (!weight.empty()) MILLSTREAM_TRY(add_raw(weight, Column::Role::kWeight));
  if (!packer.embedded_.empty() || !weight.empty()) return packer;  // those are checked value by value
  packer.compiled_ = std::make_shared<Compiled>();
  packer.compiled_->input = packer.input_;
  for (const Column& column : packer.columns_) packer.compiled_->expressions.push_back(column.expression);
  return packer;
}

std::vector<std::string> RowPacker::feature_names() const {
  std::vector<std::string> names;
  for (int i = 0; i < num_features_; ++i) names.push_back(columns_[i].name);
  return names;
}

Status RowPacker::pack(const arrow::RecordBatch& batch, const int32_t* rows, int64_t count,
                       float* out) const {
  MILLSTREAM_CHECK(batch.num_columns() == input_->num_fields());
  if (count == 0) return Status::OK();
  const int stride = row_floats();
  if (compiled_ && jit::engine() != jit::Engine::kInterpreter) {
    MILLSTREAM_ASSIGN(const auto program, compiled_->of(batch));
    MILLSTREAM_ASSIGN(const bool packed, program->pack(batch, rows, count, stride, out));
    if (packed) return Status::OK();
  }

  // What goes through the interpreter is evaluated over the wanted rows alone, in the declared types.
  std::shared_ptr<arrow::RecordBatch> taken;
  std::vector<std::shared_ptr<arrow::Array>> evaluated(columns_.size());
  const auto source_row = [&](int64_t i) { return rows ? rows[i] : static_cast<int32_t>(i); };
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c];
    if (column.source >= 0) {
      const arrow::Array& array = *batch.column(column.source);
      if (is_plain_number(*array.type()) && array.null_count() == 0) continue;
    }
    if (taken == nullptr) {
      std::vector<std::shared_ptr<arrow::Array>> arrays = batch.columns();
      for (int i = 0; i < input_->num_fields(); ++i) {
        if (arrays[i]->type()->Equals(*input_->field(i)->type())) continue;
        expr::ExprPtr as_found = expr::make_column(i, *batch.schema()->field(i));
        MILLSTREAM_ASSIGN(auto as_declared, expr::make_cast(as_found, input_->field(i)->type()));
        MILLSTREAM_ASSIGN(arrays[i], expr::evaluate(*as_declared, batch));
      }
      taken = arrow::RecordBatch::Make(input_, batch.num_rows(), std::move(arrays));
      if (rows != nullptr) {
        MILLSTREAM_ASSIGN(taken, expr::take_rows(*taken, std::vector<int32_t>(rows, rows + count)));
      }
    }
    auto values = expr::evaluate(*column.expression, *taken);
    if (!values.ok()) {
      const auto position = error_position(values.status());
      Status status = with_context(values.status(), fmt::format("{} '{}'", column.role_name(), column.name));
      if (position)
        status = with_category(status, error_category(status), SourcePosition{0, source_row(position->row)});
      return status;
    }
    evaluated[c] = std::move(*values);
    if (evaluated[c]->null_count() > 0) {
      for (int64_t i = 0; i < count; ++i) {
        if (!evaluated[c]->IsNull(i)) continue;
        return make_error(
            ErrorCategory::kData,
            fmt::format("{} '{}' is null{}", column.role_name(), column.name,
                        column.role == Column::Role::kTarget || column.role == Column::Role::kWeight
                            ? ""
                            : " after its steps"),
            SourcePosition{0, source_row(i)});
      }
    }
  }

  alignas(64) double wide[kTileRows];
  alignas(64) float narrow[kTileRows];
  for (int64_t first = 0; first < count; first += kTileRows) {
    const int64_t n = std::min(kTileRows, count - first);
    for (size_t c = 0; c < columns_.size(); ++c) {
      const Column& column = columns_[c];
      if (evaluated[c] != nullptr) {
        tile_as_double(*evaluated[c], first, nullptr, n, wide);
        for (int64_t i = 0; i < n; ++i) narrow[i] = static_cast<float>(wide[i]);
      } else {
        tile_as_double(*batch.column(column.source), first, rows ? rows + first : nullptr, n, wide);
        if (column.scaled) {
          const double shift = column.shift;
          const double scale = column.scale;
          for (int64_t i = 0; i < n; ++i) narrow[i] = static_cast<float>((wide[i] - shift) / scale);
        } else {
          for (int64_t i = 0; i < n; ++i) narrow[i] = static_cast<float>(wide[i]);
        }
      }
      if (any_not_finite(narrow, n)) [[unlikely]] {
        for (int64_t i = 0; i < n; ++i) {
          if (std::isfinite(narrow[i])) continue;
          double value = wide[i];
          if (evaluated[c] == nullptr && column.scaled) value = (wide[i] - column.shift) / column.scale;
          return not_finite(column.name, column.role_name(), of_bundle_, value, source_row(first + i));
        }
      }
      if (column.role == Column::Role::kId) {
        const double end = static_cast<double>(column.categories);
        for (int64_t i = 0; i < n; ++i) {
          if (!(wide[i] >= 0 && wide[i] < end))
            return bug_error("the embedded feature '{}' is {}, which is none of its {} categories",
                             column.name, wide[i], column.categories);
          narrow[i] = std::bit_cast<float>(static_cast<int32_t>(wide[i]));
        }
      } else if (column.role == Column::Role::kWeight) {
        for (int64_t i = 0; i < n; ++i) {
          if (narrow[i] >= 0) continue;
          return make_error(
              ErrorCategory::kData,
              fmt::format("weight '{}' is {}; it says how much a row counts and can't be negative",
                          column.name, narrow[i]),
              SourcePosition{0, source_row(first + i)});
        }
      }
      spread(narrow, n, stride, out + first * stride + static_cast<int64_t>(c));
    }
  }
  return Status::OK();
}

}  // namespace millstream::features
