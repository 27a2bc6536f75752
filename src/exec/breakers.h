#pragma once
// Operators that need all rows before they give the first: grouping and sorting.
//
// Rows are cut into ranges of their keys; each rank gets some ranges, and its threads work on them apart. What does
// not fit into half of the memory waits on disk. The results of ranges put one behind the other are in order, so no
// rank ever holds the whole.

#include <memory>

#include "base/spill_file.h"
#include "exec/query.h"
#include "exec/query_memory.h"
#include "exec/units.h"

namespace millstream::exec {

/// What the operators of a query on one rank share.
struct QueryContext {
  QueryContext(comm::Job* job_of_query, const QueryRunOptions& run_options)
      : job(job_of_query),
        options(run_options),
        memory(run_options.memory_bytes, run_options.waiting_bytes),
        spill(run_options.spill_directory) {}

  int rank() const { return job == nullptr ? 0 : job->rank(); }
  int size() const { return job == nullptr ? 1 : job->size(); }
  /// One status for all ranks.
  Status agree(const Status& mine) const { return size() == 1 ? mine : job->agree(mine); }

  comm::Job* const job;
  const QueryRunOptions& options;
  QueryMemory memory;
  SpillFile spill;
};

/// The groups of a node of kind kAggregate over `input`'s rows, in the order of their keys. Every rank calls it; the
/// result refers to the context and the node.
Result<std::unique_ptr<Units>> grouped_units(QueryContext& context, const plan::Node& node,
                                             std::unique_ptr<Units> input);

/// `input`'s rows by `keys`; equal rows stay in their order. Every rank calls it.
Result<std::unique_ptr<Units>> sorted_units(QueryContext& context, const std::vector<plan::SortKey>& keys,
                                            std::unique_ptr<Units> input);

}  // namespace millstream::exec
