#pragma once
// torch's generator of random numbers, for modules that draw from it.

#include <ATen/ATen.h>

#include "base/hash.h"
#include "train/model.h"

namespace millstream::train {

/// Seeds it for a training batch, so that what is drawn is the same whenever the batch comes.
inline void seed_random_numbers(uint64_t seed, const ModelBatch& batch) {
  at::manual_seed(mix64(seed ^ mix64(batch.step ^ mix64(static_cast<uint64_t>(batch.first_row)))));
}

}  // namespace millstream::train
