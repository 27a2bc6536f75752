#pragma once
// Plans what stands after FROM and WHERE: the SELECT list, GROUP BY, HAVING, window functions, QUALIFY, DISTINCT,
// ORDER BY, LIMIT.
//
// A query with aggregates becomes: a projection of keys, arguments and filters; the aggregation; HAVING; the SELECT
// list over keys and aggregates. ORDER BY may use what the SELECT list does not have: it is computed beside it and
// left out at the end.

#include <set>
#include <string>
#include <vector>

#include "plan/logical_plan.h"
#include "plan/subqueries.h"
#include "sql/ast.h"
#include "sql/binder.h"

namespace millstream::plan {

class SelectPlanner {
 public:
  /// A table of FROM: what qualifies its columns, and they.
  struct Table {
    std::string name;
    std::shared_ptr<arrow::Schema> schema;
  };
  /// `input` has the rows of FROM that WHERE lets through: the columns of `tables` one after another.
  /// `subqueries` plans queries in expressions; names of `outer` are those of the query around this one (null: none).
  SelectPlanner(const sql::SourceText& source, const sql::ast::Query& query, NodePtr input,
                std::vector<Table> tables, Subqueries::Planner subqueries, const sql::Scope* outer);
  Result<NodePtr> plan();

 private:
  Status bind_items();
  Status bind_star(const sql::ast::SelectItem& item);
  Status add_output(std::string name, expr::ExprPtr expression, size_t offset);
  Status bind_keys();
  Status bind_order();
  Result<int> order_column(const sql::ast::OrderItem& item);
  /// `expression` over keys and aggregates instead of the grouped rows.
  Result<expr::ExprPtr> over_groups(const expr::ExprPtr& expression);
  Result<expr::ExprPtr> subquery_over_groups(const expr::Expression& column);
  Result<NodePtr> aggregate();
  /// All expressions of the window functions.
  std::vector<expr::ExprPtr*> window_parts();
  void add_windows();
  bool has_aggregate(const expr::Expression& expression) const;
  Status check_key(const expr::Expression& key, size_t offset, const char* clause) const;

  const sql::SourceText& source_;
  const sql::ast::Query& query_;
  NodePtr node_;
  std::vector<Table> tables_;
  sql::Scope scope_;
  sql::AggregateCollector collector_;
  sql::WindowCollector windows_;
  Subqueries subqueries_;
  /// Subqueries whose values stand beside the groups, with what stands before IN over the groups.
  std::vector<std::pair<int, expr::ExprPtr>> beside_groups_;

  // Outputs, then what only ORDER BY needs.
  std::vector<std::string> names_;
  std::vector<expr::ExprPtr> expressions_;
  std::vector<size_t> offsets_;
  std::set<std::string> seen_;
  size_t num_outputs_ = 0;
  std::vector<expr::ExprPtr> keys_;
  expr::ExprPtr having_;
  expr::ExprPtr qualify_;
  std::vector<SortKey> order_;
};

}  // namespace millstream::plan
