#pragma once
// Bytes from every rank to every other.

#include <memory>
#include <vector>

#include <arrow/buffer.h>

#include "base/status.h"
#include "comm/job.h"

namespace millstream::comm {

/// outgoing[r] goes to rank r (null: nothing; that for this rank itself is not looked at); returns what came, by rank,
/// null where nothing did. Collective over the world, main thread; an error is the same on every rank. On one host
/// bytes go through shared memory of bounded size, between hosts by messages.
Result<std::vector<std::shared_ptr<arrow::Buffer>>> all_to_all(
    Job& job, const std::vector<std::shared_ptr<arrow::Buffer>>& outgoing);

}  // namespace millstream::comm
