#pragma once
// What files claim of the columns that a pipeline reads, and which entry points its filter lets no row of pass.

#include <vector>

#include "expr/bounds.h"
#include "plan/logical_plan.h"

namespace millstream::plan {

/// What is claimed of each of the pipeline's columns in an entry point.
std::vector<expr::Bounds> claimed_bounds(const Pipeline& pipeline, int entry_point);
/// The same of the whole table.
std::vector<expr::Bounds> claimed_bounds(const Pipeline& pipeline);

/// The filter is true of no row of the entry point, if its file's claims hold: it need not be read. Never for a
/// filter that can fail, whose errors a reader would meet. A file that claims what is not so loses rows, as in every
/// engine that prunes; nothing else rests on claims.
bool is_pruned(const Pipeline& pipeline, int entry_point);

}  // namespace millstream::plan
