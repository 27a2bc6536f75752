#include "features/moments.h"

#include <cmath>
#include <limits>

namespace millstream::features {
namespace {

constexpr int kAccumulators = 8;

double fold(const double (&a)[kAccumulators]) {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

}  // namespace

Moments moments_of(const double* values, int64_t count) {
  if (count == 0) return {};
  const int64_t whole = count / kAccumulators * kAccumulators;
  double sums[kAccumulators] = {};
  for (int64_t i = 0; i < whole; i += kAccumulators) {
    for (int k = 0; k < kAccumulators; ++k) sums[k] += values[i + k];
  }
  for (int64_t i = whole; i < count; ++i) sums[i - whole] += values[i];
  const double mean = fold(sums) / static_cast<double>(count);

  // The second sweep runs over values that are still in the cache. The sum of deviations, zero but for
  // rounding, corrects the mean and the squares (the corrected two-pass algorithm of the same paper).
  double deviations[kAccumulators] = {};
  double squares[kAccumulators] = {};
  for (int64_t i = 0; i < whole; i += kAccumulators) {
    for (int k = 0; k < kAccumulators; ++k) {
      const double d = values[i + k] - mean;
      deviations[k] += d;
      squares[k] += d * d;
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    const double d = values[i] - mean;
    deviations[i - whole] += d;
    squares[i - whole] += d * d;
  }
  const double deviation = fold(deviations);
  const double n = static_cast<double>(count);
  return {count, mean + deviation / n, std::max(0.0, fold(squares) - deviation * deviation / n)};
}

void merge_moments(Moments& into, const Moments& next) {
  if (next.count == 0) return;
  if (into.count == 0) {
    into = next;
    return;
  }
  const double a = static_cast<double>(into.count);
  const double b = static_cast<double>(next.count);
  const double n = a + b;
  const double delta = next.mean - into.mean;
  into.mean += delta * (b / n);
  into.m2 += next.m2 + delta * delta * (a * b / n);
  into.count += next.count;
}

double standard_scale_divisor(const Moments& moments) {
  if (moments.count == 0) return 1;
  const double n = static_cast<double>(moments.count);
  const double variance = moments.m2 / n;
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  const double noise = n * moments.mean * kEpsilon;
  if (!(variance > n * kEpsilon * variance + noise * noise)) return 1;
  return std::sqrt(variance);
}

}  // namespace millstream::features
