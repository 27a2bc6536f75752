#include "exec/pipeline_programs.h"

namespace millstream::exec {
namespace {

std::shared_ptr<arrow::Schema> input_of(const plan::Pipeline& pipeline) {
  arrow::FieldVector fields;
  for (const int column : pipeline.columns) fields.push_back(pipeline.table->schema()->field(column));
  return arrow::schema(std::move(fields));
}

}  // namespace

PipelinePrograms::PipelinePrograms(const plan::Pipeline& pipeline)
    : outputs(jit::Program::columns(input_of(pipeline), pipeline.outputs)) {
  if (pipeline.predicate) filter = jit::Program::filter(input_of(pipeline), pipeline.predicate);
}

}  // namespace millstream::exec
