#pragma once
// Bodo's rebalance as a call of its own.

#include <memory>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"
#include "comm/job.h"

namespace millstream::comm {

/// Moves the rows of all ranks' tables to the ranks of `destinations` (all ranks when empty): the order of
/// rows (by rank, then row) is kept, sizes differ by at most one, the first destinations have the extra rows;
/// other ranks get zero rows of the same schema. Collective over the world; schemas must be equal (an error
/// that names the first difference and the rank, on every rank). Any Arrow type.
Result<std::shared_ptr<arrow::Table>> rebalance(Job& job, const std::shared_ptr<arrow::Table>& table,
                                                const std::vector<int>& destinations = {});

}  // namespace millstream::comm
