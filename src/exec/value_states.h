#pragma once
// States of aggregates that need their values, or a sketch of them: quantiles, the mode, approximate counts, and those of
// pairs of numbers. What they give does not depend on the order in which rows and parts come.

#include "exec/aggregate.h"

namespace millstream::exec {

Result<std::unique_ptr<AggregateState>> make_value_state(const plan::AggregateCall& call,
                                                         const std::shared_ptr<arrow::DataType>& argument);

}  // namespace millstream::exec
