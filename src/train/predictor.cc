#include "train/predictor.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "expr/type.h"
#include "features/feature_plan.h"
#include "features/fitted_json.h"
#include "features/row_packer.h"
#include "plan/planner.h"
#include "train/export.h"
#include "train/metrics.h"
#include "train/torch_error.h"

namespace millstream::train {
namespace {

/// A table that has columns and no rows: what the bundle's query binds to.
class InputTable final : public plan::SourceTable {
 public:
  explicit InputTable(std::shared_ptr<arrow::Schema> schema) : schema_(std::move(schema)) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<plan::SourceFile>& files() const override { return files_; }
  const std::vector<plan::EntryPoint>& entry_points() const override { return entry_points_; }
  int64_t column_bytes(int, const std::vector<int>&) const override { return 0; }
  Result<std::unique_ptr<Reader>> read(int, const std::vector<int>&) const override {
    return bug_error("a table without rows was read");
  }

 private:
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<plan::SourceFile> files_;
  std::vector<plan::EntryPoint> entry_points_;
};

class InputCatalog final : public plan::Catalog {
 public:
  explicit InputCatalog(std::shared_ptr<arrow::Schema> schema)
      : table_(std::make_shared<InputTable>(std::move(schema))) {}
  Result<std::shared_ptr<const plan::SourceTable>> open(const plan::TableReference&) override {
    return table_;
  }

 private:
  std::shared_ptr<const plan::SourceTable> table_;
};

class BundlePredictor final : public Predictor {
 public:
  static Result<std::unique_ptr<Predictor>> make(const std::string& path) {
    auto predictor = std::make_unique<BundlePredictor>();
    MILLSTREAM_ASSIGN(Bundle bundle, read_bundle(path));
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const BundleInput& input : bundle.inputs) {
      if (!input.for_features) continue;
      expr::TypePtr type = arrow::null();  // "NULL", which no cast can name: a column that held no value
      if (input.type != expr::sql_type_name(*type)) {
        MILLSTREAM_ASSIGN(type, expr::parse_type(input.type));
      }
      fields.push_back(arrow::field(input.name, type));
    }
    InputCatalog catalog(arrow::schema(fields));
    MILLSTREAM_ASSIGN(const plan::NodePtr plan,
                      plan::plan_query(bundle.prediction_query, catalog,
                                       {fmt::format("the query of bundle {}", path), "", {"the input"}}));
    MILLSTREAM_ASSIGN(plan::Pipeline pipeline, plan::to_pipeline(plan));
    MILLSTREAM_ASSIGN(pipeline, plan::select_outputs(pipeline, features::feature_inputs(bundle.features)));
    std::vector<std::shared_ptr<arrow::Field>> read;
    for (const int column : pipeline.columns) read.push_back(pipeline.table->schema()->field(column));
    predictor->input_ = arrow::schema(read);
    predictor->outputs_of_query_ = pipeline.outputs;
    predictor->query_schema_ = pipeline.schema;
    MILLSTREAM_ASSIGN(const features::Fitted fitted,
                      features::fitted_from_json(bundle.fitted_json, pipeline.schema));
    MILLSTREAM_ASSIGN(auto packer, features::RowPacker::make(fitted, "", /*of_bundle=*/true));
    predictor->packer_.emplace(std::move(packer));
    int column = 0;
    for (const features::FeatureSpec& spec : bundle.features) {
      const bool filled = features::steps_take_nulls(spec.steps);
      for (size_t i = 0; i < spec.columns.size(); ++i)
        predictor->rules_.push_back(
            {.column = column++, .nulls_allowed = filled, .on_null = spec.on_null, .on_nan = spec.on_nan});
    }
    MILLSTREAM_ASSIGN(predictor->model_, model_of_bundle(bundle, path));
    predictor->task_ = task_of(bundle.loss);
    return predictor;
  }

  const std::shared_ptr<arrow::Schema>& input() const override { return input_; }
  int64_t outputs() const override { return model_->outputs(); }

  Result<std::vector<double>> predict(const arrow::RecordBatch& rows) const override {
    return catch_torch("predicting", [&]() -> Result<std::vector<double>> {
      const at::NoGradGuard no_grad;
      MILLSTREAM_ASSIGN(const auto query, run_query(rows));
      MILLSTREAM_ASSIGN(const std::vector<int32_t> kept, rows_to_keep(*query));
      const bool all = static_cast<int64_t>(kept.size()) == rows.num_rows();
      const auto count = static_cast<int64_t>(kept.size());
      const int64_t stride = packer_->row_floats();
      std::vector<float> packed(static_cast<size_t>(count * stride));
      MILLSTREAM_TRY(packer_->pack(*query, all ? nullptr : kept.data(), count, packed.data()));
      at::Tensor features = at::from_blob(packed.data(), {count, packer_->num_features()}, {stride, 1},
                                          at::TensorOptions(at::kFloat));
      if (model_->type() != at::kFloat) features = features.to(model_->type());
      ModelBatch batch(features);
      if (packer_->num_ids() > 0)
        batch.ids = ids_in(packed.data() + packer_->first_id(), count, packer_->num_ids(), stride);
      at::Tensor values = model_->forward(batch);
      if (task_ == Task::kBinary) values = at::sigmoid(values);
      if (task_ == Task::kClasses) values = at::softmax(values, 1);
      values = values.to(at::kDouble).contiguous();
      const double* from = values.const_data_ptr<double>();
      const auto width = static_cast<size_t>(outputs());
      if (all) return std::vector<double>(from, from + values.numel());
      std::vector<double> out(static_cast<size_t>(rows.num_rows()) * width,
                              std::numeric_limits<double>::quiet_NaN());
      for (size_t i = 0; i < kept.size(); ++i)
        std::copy_n(from + i * width, width,
                    out.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(kept[i]) * width));
      return out;
    });
  }

 private:
  /// The columns that the features are of.
  Result<std::shared_ptr<arrow::RecordBatch>> run_query(const arrow::RecordBatch& rows) const {
    if (rows.num_columns() != input_->num_fields())
      return data_error("the rows have {} columns where the bundle needs {}: {}", rows.num_columns(),
                        input_->num_fields(), fmt::join(input_->field_names(), ", "));
    std::vector<std::shared_ptr<arrow::Array>> columns;
    for (int i = 0; i < rows.num_columns(); ++i) {
      const auto& field = input_->field(i);
      if (rows.schema()->field(i)->name() != field->name())
        return data_error("column {} of the rows is '{}' where the bundle needs '{}'", i + 1,
                          rows.schema()->field(i)->name(), field->name());
      std::shared_ptr<arrow::Array> column = rows.column(i);
      if (!column->type()->Equals(*field->type())) {
        auto cast = expr::make_cast(expr::make_column(i, *rows.schema()->field(i)), field->type());
        auto as_needed = cast.ok() ? expr::evaluate(**cast, rows) : cast.status();
        if (!as_needed.ok())
          return data_error("column '{}' of the rows is a {} where the bundle needs a {}: {}", field->name(),
                            column->type()->ToString(), field->type()->ToString(),
                            as_needed.status().message());
        column = *as_needed;
      }
      columns.push_back(std::move(column));
    }
    const auto batch = arrow::RecordBatch::Make(input_, rows.num_rows(), std::move(columns));
    std::vector<std::shared_ptr<arrow::Array>> outputs;
    for (const expr::ExprPtr& output : outputs_of_query_) {
      MILLSTREAM_ASSIGN(auto values, expr::evaluate(*output, *batch));
      outputs.push_back(std::move(values));
    }
    return arrow::RecordBatch::Make(query_schema_, rows.num_rows(), std::move(outputs));
  }

  /// Those that the rules of training keep.
  Result<std::vector<int32_t>> rows_to_keep(const arrow::RecordBatch& query) const {
    std::vector<uint8_t> left_out;
    for (const features::RawColumnRule& rule : rules_) {
      const arrow::Array& column = *query.column(rule.column);
      const bool floats = column.type_id() == arrow::Type::DOUBLE || column.type_id() == arrow::Type::FLOAT;
      if (column.null_count() == 0 && !floats) continue;
      for (int64_t row = 0; row < column.length(); ++row) {
        const bool null = column.IsNull(row);
        if (null && rule.nulls_allowed) continue;
        if (!null && (!floats || is_finite(column, row))) continue;
        if (!null && rule.nulls_allowed && rule.on_nan == features::OnNan::kNull) continue;
        const bool as_null =
            null || rule.on_nan == features::OnNan::kSame || rule.on_nan == features::OnNan::kNull;
        if (as_null ? rule.on_null == features::OnNull::kError : rule.on_nan == features::OnNan::kError)
          return make_error(
              ErrorCategory::kData,
              fmt::format("feature column '{}' is {} in row {}", query.schema()->field(rule.column)->name(),
                          null ? "null" : "not finite", row),
              SourcePosition{0, row});
        left_out.resize(static_cast<size_t>(query.num_rows()), 0);
        left_out[static_cast<size_t>(row)] = 1;
      }
    }
    std::vector<int32_t> kept;
    kept.reserve(static_cast<size_t>(query.num_rows()));
    for (int32_t row = 0; row < query.num_rows(); ++row)
      if (left_out.empty() || left_out[static_cast<size_t>(row)] == 0) kept.push_back(row);
    return kept;
  }

  static bool is_finite(const arrow::Array& column, int64_t row) {
    if (column.type_id() == arrow::Type::FLOAT)
      return std::isfinite(static_cast<const arrow::FloatArray&>(column).Value(row));
    return std::isfinite(static_cast<const arrow::DoubleArray&>(column).Value(row));
  }

  std::shared_ptr<arrow::Schema> input_, query_schema_;
  std::vector<expr::ExprPtr> outputs_of_query_;
  std::optional<features::RowPacker> packer_;
  std::vector<features::RawColumnRule> rules_;
  std::unique_ptr<Model> model_;
  Task task_ = Task::kRegression;
};

}  // namespace

Result<std::unique_ptr<Predictor>> Predictor::open(const std::string& bundle) {
  return catch_torch("opening the bundle", [&] { return BundlePredictor::make(bundle); });
}

}  // namespace millstream::train
