#include "plan/subqueries.h"

#include <numeric>
#include <set>

#include "expr/aggregate.h"
#include "expr/type.h"
#include "plan/rewrite.h"

namespace millstream::plan {

namespace ast = sql::ast;
using expr::ExprPtr;

Result<ExprPtr> Subqueries::bind(const ast::Expr& subquery, ExprPtr operand, const sql::Scope& scope) {
  const auto column_of = [&](size_t i) {
    const Item& item = items_[i];
    return expr::make_column(first_column_ + static_cast<int>(i),
                             *attached_field(item.kind, *item.plan, item.operand, item.name), item.position);
  };
  // An alias that is used twice is bound twice.
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& known = items_[i];
    if (known.written != &subquery) continue;
    if (operand == nullptr || sql::same_expression(*known.bound, *operand)) return column_of(i);
  }
  Item item;
  item.written = &subquery;
  item.bound = operand;
  item.position = source_.position(subquery.offset);
  item.name = ast::to_text(subquery);
  MILLSTREAM_ASSIGN(NodePtr plan, planner_(*subquery.subquery, scope));
  if (subquery.kind == ast::ExprKind::kExists) {
    item.kind = AttachKind::kExists;
    plan = make_project(std::move(plan), {"row"},
                        {expr::make_literal(std::make_shared<arrow::BooleanScalar>(true))});
    item.plan = make_limit(std::move(plan), 1, 0, item.position);
    items_.push_back(std::move(item));
    return column_of(items_.size() - 1);
  }
  if (plan->schema->num_fields() != 1) {
    return source_.error(subquery.subquery->offset,
                         fmt::format("a query inside an expression gives one column; this one gives {}",
                                     plan->schema->num_fields()));
  }
  const auto& field = plan->schema->field(0);
  if (!expr::is_orderable_type(*field->type())) {
    return source_.error(subquery.subquery->offset,
                         fmt::format("a query inside an expression gives no values of type {}",
                                     expr::sql_type_name(*field->type())));
  }
  if (subquery.kind == ast::ExprKind::kSubquery) {
    // A second row is an error.
    item.plan = make_limit(std::move(plan), 2, 0, item.position);
    items_.push_back(std::move(item));
    return column_of(items_.size() - 1);
  }
  item.kind = AttachKind::kIn;
  // As x = y would compare them.
  auto equal = expr::make_call("=", {operand, expr::make_column(0, *field, item.position)}, item.position);
  if (!equal.ok()) return source_.place(equal.status(), subquery.offset);
  item.operand = (*equal)->arguments[0];
  if (!expr::is_orderable_type(*item.operand->type)) {
    return source_.error(subquery.offset, fmt::format("IN takes no values of type {}",
                                                      expr::sql_type_name(*item.operand->type)));
  }
  plan = make_project(std::move(plan), {field->name()}, {(*equal)->arguments[1]});
  item.plan = make_aggregate(std::move(plan), 1, {}, {}, item.position);
  items_.push_back(std::move(item));
  return column_of(items_.size() - 1);
}

NodePtr Subqueries::attach(NodePtr input, int subquery, ExprPtr operand) const {
  const Item& item = items_[static_cast<size_t>(subquery)];
  return make_attach(item.kind, std::move(input), item.plan, std::move(operand), item.name, item.position);
}

NodePtr Subqueries::attach_all(NodePtr input, const std::vector<ExprPtr*>& expressions) const {
  std::set<int> used;
  const auto add = [&](const ExprPtr& expression) {
    for (const int column : expr::columns_read(*expression))
      if (column >= first_column_ && column < first_column_ + count()) used.insert(column - first_column_);
  };
  for (const ExprPtr* expression : expressions) add(*expression);
  // What stands before IN reads earlier ones.
  for (int i = count() - 1; i >= 0; --i)
    if (used.contains(i) && operand(i) != nullptr) add(operand(i));
  if (used.empty()) return input;
  std::vector<int> mapping(static_cast<size_t>(first_column_ + count()), -1);
  std::iota(mapping.begin(), mapping.begin() + first_column_, 0);
  for (const int i : used) {
    ExprPtr key = operand(i);
    if (key != nullptr) key = expr::remap_columns(key, mapping);
    mapping[static_cast<size_t>(first_column_ + i)] = input->schema->num_fields();
    input = attach(std::move(input), i, std::move(key));
  }
  // Columns beyond are somebody else's.
  const auto renumber = [&](int column) {
    return static_cast<size_t>(column) < mapping.size() ? mapping[static_cast<size_t>(column)] : column;
  };
  for (ExprPtr* expression : expressions) *expression = renumber_columns(*expression, renumber);
  return input;
}

}  // namespace millstream::plan
