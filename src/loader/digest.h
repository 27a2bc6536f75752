#pragma once
// Digests of the global batches of a loader: what `millstream batches --digest` prints, and what tests
// compare over shapes of the job.

#include <functional>
#include <string>

#include "loader/data_loader.h"

namespace millstream::loader {

struct DigestLine {
  Pass pass;
  int64_t step = 0;
  int64_t rows = 0;
  std::string digest;  ///< xxh3-128: all rows' features row-major in batch order, then all targets
};

/// Draws every batch of the loader, in all trainers, and calls `on_line` in the first trainer's rank for each
/// in order. Collective over the world; ranks that do not train return at once. Returns this rank's status,
/// not agreed: finish() the loader and agree afterwards.
Status digest_batches(comm::Job& job, const comm::Roles& roles, DataLoader& loader,
                      const std::function<void(const DigestLine&)>& on_line);

}  // namespace millstream::loader
