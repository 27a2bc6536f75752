#pragma once
// Bound rules that functions share: Function::bound is one of these, or made of their parts.

#include <functional>

#include "expr/bounds.h"
#include "expr/function.h"

namespace millstream::expr {

/// For functions that rise with argument `kArgument` (or stay) while the others are constant: the function at the
/// argument's limits. A limit where it fails or gives NULL says nothing.
Bounds bounds_at_limits(const Expression& call, std::span<const Bounds> arguments, size_t argument);
template <size_t kArgument>
Bounds rising_bounds(const Expression& call, std::span<const Bounds> arguments) {
  return bounds_at_limits(call, arguments, kArgument);
}

/// Whole numbers from `low` to `high`, whatever the arguments are.
Bounds whole_bounds(__int128 low, __int128 high);
template <int64_t kLow, int64_t kHigh>
Bounds always_between(const Expression&, std::span<const Bounds>) {
  return whole_bounds(kLow, kHigh);
}

Bounds sum_bounds(const Expression& call, std::span<const Bounds> arguments);
Bounds difference_bounds(const Expression& call, std::span<const Bounds> arguments);  ///< negation too
Bounds product_bounds(const Expression& call, std::span<const Bounds> arguments);
Bounds quotient_bounds(const Expression& call,
                       std::span<const Bounds> arguments);  ///< of floating point numbers
Bounds whole_quotient_bounds(const Expression& call, std::span<const Bounds> arguments);
Bounds remainder_bounds(const Expression& call, std::span<const Bounds> arguments);
Bounds absolute_bounds(const Expression& call, std::span<const Bounds> arguments);
Bounds least_bounds(const Expression& call, std::span<const Bounds> arguments);
Bounds greatest_bounds(const Expression& call, std::span<const Bounds> arguments);

/// Of a comparison by name ("<", "="): always true or never, where the limits say so.
Bounds comparison_bounds(const Expression& call, std::span<const Bounds> arguments);

}  // namespace millstream::expr
