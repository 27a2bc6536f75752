#pragma once
// Metrics over any number of batches, threads and ranks: sums in double that merge. They travel as bytes.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millstream::train {

/// What a model predicts: a number, one of two things, one of several.
enum class Task : uint8_t { kRegression, kBinary, kClasses };
Task task_of(const std::string& loss);

struct RegressionSums {
  int64_t rows = 0;
  double squared_error = 0;
  double absolute_error = 0;
  double relative_error = 0;  ///< sum of |error / true value|
  int64_t zeros = 0;          ///< true values of 0, which have no relative error
  double mean = 0;            ///< of the true values
  double squares = 0;         ///< sum of their squared differences from `mean`

  template <class P, class A>
  void add(const P* predicted, const A* actual, int64_t count, int64_t actual_stride = 1);
  /// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
  /// (1979).
  void merge(const RegressionSums& other);

  /// rmse, mae, r2 = 1 − SSE/SST, and mape, a fraction, where no true value is 0. Where the true values are all equal
  /// r2 is 1 for exact predictions, else 0 (as in scikit-learn). Empty without rows.
  std::map<std::string, double> metrics() const;
};

/// Of logits: accuracy and log_loss; for two classes also auc, the exact area under the ROC curve (ties count half),
/// for which all logits are kept: 8 bytes a row.
struct ClassificationSums {
  int64_t rows = 0;
  int64_t right = 0;
  double log_loss = 0;
  std::vector<double> positives, negatives;  ///< logits of the rows whose target is 1, 0

  template <class P, class A>
  void add_binary(const P* logits, const A* actual, int64_t count, int64_t actual_stride = 1);
  /// `logits` is [count, classes], row-major.
  template <class P, class A>
  void add_classes(const P* logits, int64_t classes, const A* actual, int64_t count,
                   int64_t actual_stride = 1);
  void merge(const ClassificationSums& other);
  /// Without rows empty; auc only where both targets occur. Of binary targets precision (0 where no row is taken for
  /// 1), recall and f1 where a target is 1, as in scikit-learn.
  std::map<std::string, double> metrics() const;

  void add_logit(double logit, bool positive);
  void add_row(const double* logits, int64_t classes, int64_t actual);
};

/// The sums of one task.
class EvaluationSums {
 public:
  explicit EvaluationSums(Task task = Task::kRegression, int64_t outputs = 1)
      : task_(task), outputs_(outputs) {}
  /// `outputs` of `count` rows as the model gives them.
  template <class P, class A>
  void add(const P* outputs, const A* actual, int64_t count, int64_t actual_stride = 1);
  void merge(const EvaluationSums& other);
  std::string encode() const;
  /// Merges what encode() gave on another rank.
  Status merge_encoded(std::string_view bytes);
  int64_t rows() const { return task_ == Task::kRegression ? regression_.rows : classification_.rows; }
  std::map<std::string, double> metrics() const;

 private:
  Task task_;
  int64_t outputs_;
  RegressionSums regression_;
  ClassificationSums classification_;
};

/// The metric by which epochs are compared, lower being better: rmse of mse, mae of mae and huber, log_loss of bce and
/// cross_entropy.
const char* deciding_metric(const std::string& loss);

template <class P, class A>
void RegressionSums::add(const P* predicted, const A* actual, int64_t count, int64_t actual_stride) {
  if (count == 0) return;
  RegressionSums part;
  part.rows = count;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double y = actual[i * actual_stride], error = static_cast<double>(predicted[i]) - y;
    const double size = error < 0 ? -error : error;
    part.squared_error += error * error;
    part.absolute_error += size;
    if (y == 0)
      ++part.zeros;
    else
      part.relative_error += size / (y < 0 ? -y : y);
    sum += y;
  }
  part.mean = sum / static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) {
    const double difference = actual[i * actual_stride] - part.mean;
    part.squares += difference * difference;
  }
  merge(part);
}

template <class P, class A>
void ClassificationSums::add_binary(const P* logits, const A* actual, int64_t count, int64_t actual_stride) {
  for (int64_t i = 0; i < count; ++i)
    add_logit(static_cast<double>(logits[i]), actual[i * actual_stride] != 0);
}

template <class P, class A>
void ClassificationSums::add_classes(const P* logits, int64_t classes, const A* actual, int64_t count,
                                     int64_t actual_stride) {
  std::vector<double> row(static_cast<size_t>(classes));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < classes; ++c)
      row[static_cast<size_t>(c)] = static_cast<double>(logits[i * classes + c]);
    add_row(row.data(), classes, static_cast<int64_t>(actual[i * actual_stride]));
  }
}

template <class P, class A>
void EvaluationSums::add(const P* outputs, const A* actual, int64_t count, int64_t actual_stride) {
  switch (task_) {
    case Task::kRegression:
      return regression_.add(outputs, actual, count, actual_stride);
    case Task::kBinary:
      return classification_.add_binary(outputs, actual, count, actual_stride);
    case Task::kClasses:
      return classification_.add_classes(outputs, outputs_, actual, count, actual_stride);
  }
}

}  // namespace millstream::train
