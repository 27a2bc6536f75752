#pragma once
// The values that all ranks counted (features/value_counter.h), put together: parts are dealt to ranks, each of which
// puts its parts together by all its threads; rank 0 merges the parts, which are ordered, to one list, and all have it.
// Of what was counted no rank has more than a few parts in memory at a time; the list is what it is.

#include <cstdint>

#include "comm/job.h"
#include "features/feature_plan.h"
#include "features/value_counter.h"
#include "loader/survey.h"

namespace millstream::loader {

/// Collective, main threads. Errors are agreed. `spilled_bytes` is what all ranks wrote to disk.
Result<features::CountedValues> count_together(comm::Job& job, PhaseAgreement& phase,
                                               features::ValueCounter& counter,
                                               const features::FitRequest& fit, int threads,
                                               int64_t* spilled_bytes);

/// Rank 0's, on all ranks. Collective.
Status broadcast_values(comm::Job& job, features::CountedValues* values);

}  // namespace millstream::loader
