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
/// The same by the bloom filters of columns that must equal a constant, or one of a list. Reads the file.
bool is_pruned_by_bloom_filters(const Pipeline& pipeline, int entry_point);

/// Rows [begin, end) of an entry point.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};
/// The rows of the entry point that its filter may let pass, by what the page index claims of them: ascending, with
/// rows between. All in one where nothing is claimed, or the filter can fail. Reads the file.
std::vector<RowRange> rows_that_may_pass(const Pipeline& pipeline, int entry_point);

}  // namespace millstream::plan
