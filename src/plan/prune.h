#pragma once
// Leaves out columns below joins that nothing above reads, so that they are never decoded. Plans without joins are
// pruned when they become pipelines.

#include "plan/logical_plan.h"

namespace millstream::plan {

/// The same rows and columns.
NodePtr prune_join_inputs(const NodePtr& plan);

}  // namespace millstream::plan
