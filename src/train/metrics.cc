#include "train/metrics.h"

#include <cmath>

namespace millstream::train {

void RegressionSums::merge(const RegressionSums& other) {
  if (other.rows == 0) return;
  if (rows == 0) {
    *this = other;
    return;
  }
  const double n = static_cast<double>(rows), m = static_cast<double>(other.rows), total = n + m;
  const double difference = other.mean - mean;
  squared_error += other.squared_error;
  absolute_error += other.absolute_error;
  mean += difference * m / total;
  squares += other.squares + difference * difference * n * m / total;
  rows += other.rows;
}

std::map<std::string, double> RegressionSums::metrics() const {
  if (rows == 0) return {};
  const double n = static_cast<double>(rows);
  double r2 = squared_error == 0 ? 1 : 0;
  if (squares > 0) r2 = 1 - squared_error / squares;
  return {{"rmse", std::sqrt(squared_error / n)}, {"mae", absolute_error / n}, {"r2", r2}};
}

}  // namespace millstream::train
