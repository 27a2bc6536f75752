#pragma once
// Count, mean and sum of squared deviations of a column, block by block.
//
// 1. A block's moments use eight accumulators in a fixed order, so they do not depend on the machine's
// vectors.
// 2. Blocks are merged in block order by the pairwise update of Chan, Golub and LeVeque, "Updating formulae
// and a
//    pairwise algorithm for computing sample variances" (1979). So the bits are the same on any number of
//    ranks.

#include <cstdint>

namespace millstream::features {

struct Moments {
  int64_t count = 0;
  double mean = 0;
  double m2 = 0;  ///< sum of (x - mean)^2
};

Moments moments_of(const double* values, int64_t count);
/// `into` becomes the moments of its values followed by those of `next`.
void merge_moments(Moments& into, const Moments& next);

/// The divisor of standard_scale: the population's standard deviation (ddof = 0), and 1 where the column is
/// constant up to rounding, by scikit-learn's rule (_is_constant_feature: var <= n eps var + (n mean eps)^2).
double standard_scale_divisor(const Moments& moments);

}  // namespace millstream::features
