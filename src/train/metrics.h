#pragma once
// Regression metrics over any number of batches, threads and ranks: sums in double that merge.

#include <cstdint>
#include <map>
#include <string>

namespace millstream::train {

struct RegressionSums {
  int64_t rows = 0;
  double squared_error = 0;
  double absolute_error = 0;
  double mean = 0;     ///< of the true values
  double squares = 0;  ///< sum of their squared differences from `mean`

  template <class P, class A>
  void add(const P* predicted, const A* actual, int64_t count, int64_t actual_stride = 1);
  /// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
  /// (1979).
  void merge(const RegressionSums& other);

  /// rmse, mae, and r2 = 1 − SSE/SST. Where the true values are all equal r2 is 1 for exact predictions, else
  /// 0 (as in scikit-learn). Empty without rows.
  std::map<std::string, double> metrics() const;
};

template <class P, class A>
void RegressionSums::add(const P* predicted, const A* actual, int64_t count, int64_t actual_stride) {
  if (count == 0) return;
  RegressionSums part;
  part.rows = count;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double y = actual[i * actual_stride], error = static_cast<double>(predicted[i]) - y;
    part.squared_error += error * error;
    part.absolute_error += error < 0 ? -error : error;
    sum += y;
  }
  part.mean = sum / static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) {
    const double difference = actual[i * actual_stride] - part.mean;
    part.squares += difference * difference;
  }
  merge(part);
}

}  // namespace millstream::train
