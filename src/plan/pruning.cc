#include "plan/pruning.h"

namespace millstream::plan {

std::vector<expr::Bounds> claimed_bounds(const Pipeline& pipeline, int entry_point) {
  std::vector<expr::Bounds> result;
  result.reserve(pipeline.columns.size());
  for (const int column : pipeline.columns)
    result.push_back(pipeline.table->claims(entry_point, column).bounds);
  return result;
}

std::vector<expr::Bounds> claimed_bounds(const Pipeline& pipeline) {
  const auto& entry_points = pipeline.table->entry_points();
  std::vector<expr::Bounds> result;
  for (size_t e = 0; e < entry_points.size(); ++e) {
    if (entry_points[e].rows == 0) continue;
    std::vector<expr::Bounds> claimed = claimed_bounds(pipeline, static_cast<int>(e));
    if (result.empty()) {
      result = std::move(claimed);
      continue;
    }
    for (size_t c = 0; c < claimed.size(); ++c) result[c] = expr::unite_bounds(result[c], claimed[c]);
  }
  result.resize(pipeline.columns.size());
  return result;
}

bool is_pruned(const Pipeline& pipeline, int entry_point) {
  if (pipeline.predicate == nullptr || pipeline.predicate->can_fail) return false;
  if (pipeline.table
          ->files()[static_cast<size_t>(
              pipeline.table->entry_points()[static_cast<size_t>(entry_point)].file)]
          .format != FileFormat::kParquet)
    return false;
  expr::BoundInference inference(claimed_bounds(pipeline, entry_point));
  inference.assume(*pipeline.predicate);
  return inference.impossible().has_value();
}

}  // namespace millstream::plan
