#pragma once
// Evaluates fitted features over record batches into packed rows of 4-byte words: features in order (float32), then the
// target, the ids of embedded columns (int32), the weight.
//
// Where there is compiled code for them (jit/program.h), all features of a few rows come from it at once. Else plain
// scaling, (column - a) / b or the column alone, is written straight from the typed column, and everything else goes
// through expr::evaluate. All compute in double and round once to float32, so the bits are equal.

#include <memory>
#include <string>
#include <vector>

#include "features/fitted.h"

namespace millstream::features {

class RowPacker {
 public:
  /// `target` is a column of fitted.input, or empty: rows are features and ids alone (predict); `weight` likewise.
  /// `of_bundle`: errors give advice for who has a bundle and no recipe.
  /// `training`: the rows are those that the features were fitted on.
  static Result<RowPacker> make(const Fitted& fitted, const std::string& target, bool of_bundle = false,
                                const std::string& weight = "", bool training = false);

  int num_features() const { return num_features_; }  ///< those that are numbers
  int num_ids() const { return static_cast<int>(embedded_.size()); }
  bool has_weight() const { return has_weight_; }
  /// Name, categories and embedding_width of the embedded columns, in the order of their ids.
  const std::vector<FeatureColumn>& embedded() const { return embedded_; }
  /// Where the ids begin in a packed row.
  int first_id() const { return num_features_ + (has_target_ ? 1 : 0); }
  /// Words of a packed row.
  int row_floats() const { return static_cast<int>(columns_.size()); }
  int64_t row_bytes() const { return int64_t{4} * row_floats(); }
  std::vector<std::string> feature_names() const;

  /// Rows `rows` of `batch` (all `count` of them where `rows` is null) become packed rows at `out`. The batch
  /// has the columns of fitted.input in that order; a numeric column may have another numeric type, for
  /// example one narrowed in a cache. A value that is null or not finite after its steps is a data error that
  /// names the column; its position's row is the row's index in `batch`. Thread-safe.
  Status pack(const arrow::RecordBatch& batch, const int32_t* rows, int64_t count, float* out) const;

 private:
  struct Column {
    std::string name;
    expr::ExprPtr expression;
    int source = -1;  ///< >= 0: (input column `source` - shift) / scale
    bool scaled = false;
    double shift = 0;
    double scale = 1;
    enum class Role : uint8_t { kFeature, kTarget, kId, kWeight } role = Role::kFeature;
    bool is_target() const { return role == Role::kTarget; }
    const char* role_name() const {
      return is_target() ? "target" : role == Role::kWeight ? "weight" : "feature";
    }
    int64_t categories = 0;  ///< kId
  };
  struct Compiled;

  std::shared_ptr<arrow::Schema> input_;
  std::vector<Column> columns_;
  std::vector<FeatureColumn> embedded_;
  std::shared_ptr<Compiled> compiled_;  ///< null where there are ids or a weight
  int num_features_ = 0;
  bool has_target_ = false, has_weight_ = false;
  bool of_bundle_ = false;
};

/// The value of a numeric or boolean array as doubles; null where the type is neither (a decimal, text).
/// `out` has room for `count`; values under nulls are unspecified but finite or not as stored.
bool copy_as_double(const arrow::Array& array, const int32_t* rows, int64_t count, double* out);

/// The first of `count` values that is NaN or infinite, -1: none.
int64_t first_not_finite(const double* values, int64_t count);

}  // namespace millstream::features
