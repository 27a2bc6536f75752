#pragma once
// Values as unsigned integers of the same order: what sorting and cutting rows into ranges compare.

#include <cstdint>

#include <arrow/api.h>

#include "base/status.h"

namespace millstream::exec {

/// codes[i] for every row: x before y implies code(x) <= code(y); NULLs get 0. NaN is greater than every number, texts
/// go by their bytes. Returns whether codes are exact: equal only where the values are. A query error where the type
/// has no order.
Result<bool> order_codes(const arrow::Array& array, uint64_t* codes);

}  // namespace millstream::exec
