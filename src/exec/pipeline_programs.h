#pragma once
// The expressions of a pipeline as programs: compiled where it pays.

#include <optional>

#include "jit/program.h"
#include "plan/logical_plan.h"

namespace millstream::exec {

struct PipelinePrograms {
  explicit PipelinePrograms(const plan::Pipeline& pipeline);
  std::optional<jit::Program> filter;  ///< over the pipeline's columns; none: all rows
  jit::Program outputs;                ///< over the pipeline's columns, for the rows that pass
};

}  // namespace millstream::exec
