#pragma once
// Queries that stand in the expressions of a clause: (SELECT …), EXISTS (SELECT …), x IN (SELECT …). They read nothing of
// the rows around them, so each is run once. A clause binds its expressions to columns behind those of its input; the
// columns are then attached to the input (NodeKind::kAttach).

#include <functional>
#include <vector>

#include "plan/logical_plan.h"
#include "sql/ast.h"
#include "sql/binder.h"

namespace millstream::plan {

class Subqueries final : public sql::SubqueryBinder {
 public:
  /// Plans a query; names of `outer` that are used in it are an error that says so.
  using Planner = std::function<Result<NodePtr>(const sql::ast::Query& query, const sql::Scope& outer)>;

  /// The value of subquery i is bound as column first_column + i.
  Subqueries(const sql::SourceText& source, Planner planner, int first_column)
      : source_(source), planner_(std::move(planner)), first_column_(first_column) {}

  Result<expr::ExprPtr> bind(const sql::ast::Expr& subquery, expr::ExprPtr operand,
                             const sql::Scope& scope) override;

  int first_column() const { return first_column_; }
  int count() const { return static_cast<int>(items_.size()); }
  /// What stands before IN, in the columns that it was bound to; null: no IN.
  const expr::ExprPtr& operand(int subquery) const { return items_[static_cast<size_t>(subquery)].operand; }
  /// `input` with the value of a subquery as its last column. `operand` is over the input.
  NodePtr attach(NodePtr input, int subquery, expr::ExprPtr operand) const;

  /// `input` with the values of all subqueries that `expressions` read, which are made to read them there. Columns below
  /// first_column() are the input's.
  NodePtr attach_all(NodePtr input, const std::vector<expr::ExprPtr*>& expressions) const;

 private:
  struct Item {
    const sql::ast::Expr* written = nullptr;
    expr::ExprPtr bound;  // the operand before it was made comparable
    AttachKind kind = AttachKind::kValue;
    NodePtr plan;
    expr::ExprPtr operand;
    std::string name;
    expr::QueryPosition position;
  };

  const sql::SourceText& source_;
  Planner planner_;
  int first_column_;
  std::vector<Item> items_;
};

}  // namespace millstream::plan
