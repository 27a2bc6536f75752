#pragma once
// Quantiles of a column, block by block: exact while few values are seen, else from a mergeable summary.
//
// 1. Levels of values, of which those of level h stand for 2^h values each. A level that holds more than
// `capacity`
//    is sorted, and every second value goes one level up (Munro and Paterson 1980, Manku et al. 1998). Which of
//    the two goes alternates, so nothing is random.
// 2. Each such step moves the rank of any number by at most 2^h; rank_error() adds them up, so the bound is one of
//    this data and not of the worst case. The worst case is log2(n / capacity) / capacity of the n values.
// 3. The result is a function of the values, and of how they are cut up and put together; the survey does that by
//    blocks in their order, so it is the same on any number of ranks.
// 4. Quantiles are those of numpy's and scikit-learn's default, linear between two values.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace millstream::features {

/// Up to so many rows of a table quantiles are exact.
inline constexpr int64_t kExactQuantileRows = int64_t{1} << 20;
/// Values of a level beyond that.
inline constexpr int64_t kSketchCapacity = int64_t{1} << 13;

class QuantileSketch {
 public:
  explicit QuantileSketch(int64_t capacity = kExactQuantileRows) : capacity_(capacity) {}

  /// Values must be finite.
  void add(const double* values, int64_t count);
  /// The values of `next` come after those here.
  void merge(const QuantileSketch& next);
  /// Leaves not much more than two levels' worth of values, for the way to other ranks. Exact ones stay exact.
  void shrink();

  int64_t count() const { return count_; }
  /// The rank of what quantiles() gives is off by at most so many of count() values; 0: exact.
  int64_t rank_error() const;
  /// For each of `fractions` (0 to 1) the quantile; zeros where there are no values.
  std::vector<double> quantiles(const std::vector<double>& fractions) const;
  /// The values that are held, ascending, with how many each stands for.
  std::vector<std::pair<double, int64_t>> weighted() const;

  std::string encode() const;
  static Result<QuantileSketch> decode(std::string_view bytes);

 private:
  void compact(size_t level);
  void compact_full();

  int64_t capacity_ = 0;
  int64_t count_ = 0;
  int64_t error_ = 0;
  std::vector<std::vector<double>> levels_;
  std::vector<uint8_t> take_second_;  ///< by level: which of two values goes up next time
};

/// Quantiles of values (ascending) that are there so many times each; zeros where there are none.
std::vector<double> weighted_quantiles(const std::vector<std::pair<double, int64_t>>& weighted,
                                       const std::vector<double>& fractions);

}  // namespace millstream::features
