#pragma once
// Predictions from a bundle inside another program: rows in memory, no files, no ranks.

#include <memory>
#include <string>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"

namespace millstream::train {

/// Immutable once opened: any number of threads may predict with one at a time.
class Predictor {
 public:
  /// Reads the bundle. Errors: missing or not a bundle (file), newer, damaged (data); all name it.
  static Result<std::unique_ptr<Predictor>> open(const std::string& bundle);
  virtual ~Predictor() = default;

  /// The columns that a row has, with the types of the training files: those that the features read, raw, as they stood
  /// there. Not the target.
  virtual const std::shared_ptr<arrow::Schema>& input() const = 0;
  /// Values a row: 1, but with the loss cross_entropy one for each class.
  virtual int64_t outputs() const = 0;

  /// One prediction a row, row-major where there are several values: the number; with the loss bce the probability of 1;
  /// with cross_entropy the probabilities of the classes. `rows` has the columns of input() in that order, in these
  /// types or ones that cast to them. Where a null or a value that is not finite would have left a row out of training
  /// (on_null = "drop") its prediction is NaN. Errors (data): another such value, naming column and row; a column that
  /// can't be cast.
  virtual Result<std::vector<double>> predict(const arrow::RecordBatch& rows) const = 0;
};

}  // namespace millstream::train
