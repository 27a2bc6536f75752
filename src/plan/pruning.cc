#include "plan/pruning.h"

#include <algorithm>

namespace millstream::plan {
namespace {

// A finer cut of an entry point than this costs more than reading it.
constexpr size_t kMostStretches = 16 * 1024;

// May the filter's claims leave out rows? Not where their errors would be missed.
bool can_prune(const Pipeline& pipeline, int entry_point) {
  if (pipeline.predicate == nullptr || pipeline.predicate->can_fail) return false;
  const int file = pipeline.table->entry_points()[static_cast<size_t>(entry_point)].file;
  return pipeline.table->files()[static_cast<size_t>(file)].format == FileFormat::kParquet;
}

bool is_literal(const expr::Expression& e) {
  return e.kind == expr::Kind::kLiteral;
}

// Do bloom filters say that `e` is true of no row?
bool never_true(const expr::Expression& e, const Pipeline& pipeline, int entry_point) {
  const auto lacks = [&](const expr::Expression& column, std::vector<std::shared_ptr<arrow::Scalar>> values) {
    std::erase_if(values, [](const auto& value) { return !value->is_valid; });  // NULL equals nothing
    return !values.empty() &&
           std::ranges::all_of(values, [&](const auto& v) { return v->type->Equals(*column.type); }) &&
           !pipeline.table->may_hold(entry_point, pipeline.columns[static_cast<size_t>(column.column)],
                                     values);
  };
  switch (e.kind) {
    case expr::Kind::kAnd:
      return std::ranges::any_of(e.arguments,
                                 [&](const auto& side) { return never_true(*side, pipeline, entry_point); });
    case expr::Kind::kOr:
      return std::ranges::all_of(e.arguments,
                                 [&](const auto& side) { return never_true(*side, pipeline, entry_point); });
    case expr::Kind::kCall: {
      if (e.name != "=" || e.arguments.size() != 2) return false;
      const bool swapped = is_literal(*e.arguments[0]);
      const expr::Expression& column = *e.arguments[swapped ? 1 : 0];
      const expr::Expression& value = *e.arguments[swapped ? 0 : 1];
      return column.kind == expr::Kind::kColumn && is_literal(value) && lacks(column, {value.literal});
    }
    case expr::Kind::kIn: {
      if (e.arguments[0]->kind != expr::Kind::kColumn) return false;
      std::vector<std::shared_ptr<arrow::Scalar>> values;
      for (size_t i = 1; i < e.arguments.size(); ++i) {
        if (!is_literal(*e.arguments[i])) return false;
        values.push_back(e.arguments[i]->literal);
      }
      return lacks(*e.arguments[0], std::move(values));
    }
    default:
      return false;
  }
}

}  // namespace

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
  if (!can_prune(pipeline, entry_point)) return false;
  expr::BoundInference inference(claimed_bounds(pipeline, entry_point));
  inference.assume(*pipeline.predicate);
  return inference.impossible().has_value();
}

bool is_pruned_by_bloom_filters(const Pipeline& pipeline, int entry_point) {
  return can_prune(pipeline, entry_point) && never_true(*pipeline.predicate, pipeline, entry_point);
}

std::vector<RowRange> rows_that_may_pass(const Pipeline& pipeline, int entry_point) {
  const int64_t rows = pipeline.table->entry_points()[static_cast<size_t>(entry_point)].rows;
  const std::vector<RowRange> all = {{0, rows}};
  if (!can_prune(pipeline, entry_point) || rows == 0) return all;
  // Pages of different columns need not begin at the same rows: between two begins of any, each column has one page.
  const std::vector<int> columns = expr::columns_read(*pipeline.predicate);
  std::vector<std::vector<PageClaims>> pages(columns.size());
  std::vector<int64_t> begins = {0};
  for (size_t c = 0; c < columns.size(); ++c) {
    pages[c] = pipeline.table->page_claims(entry_point, pipeline.columns[static_cast<size_t>(columns[c])]);
    for (const PageClaims& page : pages[c]) begins.push_back(page.first_row);
  }
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  if (begins.size() == 1 || begins.size() > kMostStretches || begins.back() >= rows) return all;

  const std::vector<expr::Bounds> of_all = claimed_bounds(pipeline, entry_point);
  std::vector<size_t> page(columns.size(), 0);
  std::vector<RowRange> result;
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] : rows;
    std::vector<expr::Bounds> bounds = of_all;
    for (size_t c = 0; c < columns.size(); ++c) {
      if (pages[c].empty()) continue;
      while (page[c] + 1 < pages[c].size() && pages[c][page[c] + 1].first_row <= begins[i]) ++page[c];
      expr::Bounds& known = bounds[static_cast<size_t>(columns[c])];
      known = expr::intersect_bounds(known, pages[c][page[c]].claims.bounds);
    }
    expr::BoundInference inference(std::move(bounds));
    inference.assume(*pipeline.predicate);
    if (inference.impossible()) continue;
    if (!result.empty() && result.back().end == begins[i]) {
      result.back().end = end;
    } else {
      result.push_back({begins[i], end});
    }
  }
  return result;
}

}  // namespace millstream::plan
