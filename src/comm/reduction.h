#pragma once
// The arithmetic of reductions.

#include <cstdint>

#include "base/status.h"
#include "comm/communicator.h"

namespace millstream::comm {

/// An error where `op` means nothing for `type` (bits of floating point numbers).
Status check_reduction(DataType type, ReduceOp op);

/// out = sources[0] op sources[1] op …, element by element and in this order. half and bfloat16 are reduced
/// in float and rounded once; integers wrap; a NaN stays one in min and max; of bools, sum and max are "or",
/// product and min "and". `out` may be one of the sources. Needs check_reduction().
void reduce_arrays(void* out, const void* const* sources, int num_sources, int64_t count, DataType type,
                   ReduceOp op);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);  ///< rounds to nearest, ties to even
float bfloat16_to_float(uint16_t bits);
uint16_t float_to_bfloat16(float value);

}  // namespace millstream::comm
