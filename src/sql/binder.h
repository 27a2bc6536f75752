#pragma once
// Gives the names in an expression their meaning: columns of a scope, functions of the library, types. What
// is bound is an expr::Expression; errors point into the query's text.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "expr/aggregate.h"
#include "expr/window.h"
#include "sql/ast.h"
#include "sql/source_text.h"

namespace millstream::sql {

/// An aggregate of a query, over the rows that are grouped.
struct AggregateExpression {
  expr::AggregateKind kind = expr::AggregateKind::kCountStar;
  expr::ExprPtr argument;  ///< null: count(*)
  expr::ExprPtr second;    ///< of an aggregate of two; null: none
  expr::ExprPtr filter;    ///< null: none
  bool distinct = false;
  double fraction = 0;  ///< of quantiles
  expr::TypePtr result;
};

/// Collects the aggregates of clauses that may have some (SELECT, HAVING, ORDER BY). Aggregate i is bound as the
/// column first_column + i: a column behind those of the tables.
struct AggregateCollector {
  int first_column = 0;
  std::vector<AggregateExpression> calls;
  bool inside = false;  ///< an aggregate's arguments are being bound
};

/// A window function of a query, over the rows that it looks at.
struct WindowExpression {
  struct Order {
    expr::ExprPtr expression;
    bool descending = false;
    bool nulls_first = false;
  };
  expr::WindowFunction function = expr::WindowFunction::kRowNumber;
  expr::AggregateKind aggregate = expr::AggregateKind::kCountStar;
  expr::ExprPtr argument;   ///< null: none
  expr::ExprPtr second;     ///< of an aggregate of two; null: none
  expr::ExprPtr otherwise;  ///< of lag and lead: the value beyond the partition; null: NULL
  expr::ExprPtr filter;     ///< null: none
  double fraction = 0;      ///< of quantiles
  int64_t number = 1;       ///< rows of lag and lead, parts of ntile, the row of nth_value
  std::vector<expr::ExprPtr> partition_by;
  std::vector<Order> order_by;
  expr::WindowFrame frame;
  expr::TypePtr result;
};

/// Collects the window functions of clauses that may have some (SELECT, QUALIFY, ORDER BY), as AggregateCollector does.
/// Their arguments may be aggregates.
struct WindowCollector {
  int first_column = 0;
  std::vector<WindowExpression> calls;
  bool inside = false;
  const std::vector<ast::NamedWindow>* named = nullptr;  ///< of the WINDOW clause
};

class Scope;

/// Plans the queries that stand in the expressions of a clause. The value of one becomes a column behind those of
/// the tables.
class SubqueryBinder {
 public:
  virtual ~SubqueryBinder() = default;
  /// `subquery` is a kSubquery, kExists or kInQuery; `operand` is what stands before IN, else null. `scope` is the
  /// clause's: its names are not seen inside.
  virtual Result<expr::ExprPtr> bind(const ast::Expr& subquery, expr::ExprPtr operand,
                                     const Scope& scope) = 0;
};

/// The same value for the same rows, whatever the places in the text.
bool same_expression(const expr::Expression& a, const expr::Expression& b);

/// What names mean in a clause: the columns of FROM, and aliases of the SELECT list. Column indices are those
/// of the concatenated schemas. A column of FROM hides an alias of the same name, as in DuckDB.
class Scope {
 public:
  /// `name` is what qualifies the columns (t.col); empty: nothing does.
  void add_table(std::string name, std::shared_ptr<arrow::Schema> schema);
  /// Outputs of the SELECT list that may be used by their names; an alias sees those before it. `items`
  /// outlives the scope.
  void set_aliases(const std::vector<ast::SelectItem>* items) { items_ = items; }
  /// Only the first `count` items of the SELECT list are visible (all by default).
  void set_visible_aliases(size_t count) { visible_items_ = count; }

  /// Aggregates are allowed and collected. Without, they are errors that name `clause`.
  void set_aggregates(AggregateCollector* aggregates) { aggregates_ = aggregates; }
  AggregateCollector* aggregates() const { return aggregates_; }
  void set_clause(const char* clause) { clause_ = clause; }
  /// Queries may stand in expressions. Without, they are errors that name `clause`.
  void set_subqueries(SubqueryBinder* subqueries) { subqueries_ = subqueries; }
  SubqueryBinder* subqueries() const { return subqueries_; }
  /// Window functions are allowed and collected. Without, they are errors that name `clause`.
  void set_windows(WindowCollector* windows) { windows_ = windows; }
  WindowCollector* windows() const { return windows_; }
  /// The scope of the expression that this query stands in; null: none. Its names are unknown here, and errors say so.
  void set_outer(const Scope* outer) { outer_ = outer; }
  /// Whether a table has the column, perhaps one of several.
  bool knows(const ast::Expr& reference) const;
  const char* clause() const { return clause_; }

  struct Table {
    std::string name;
    std::shared_ptr<arrow::Schema> schema;
    int first_column = 0;
  };
  const std::vector<Table>& tables() const { return tables_; }

  /// Binds a column reference; null where there is no such column.
  Result<expr::ExprPtr> column(const ast::Expr& reference, const SourceText& source) const;

 private:
  std::vector<std::string> known_names(const std::string& table) const;
  Status correlated(const ast::Expr& reference, const SourceText& source) const;
  Result<expr::ExprPtr> find_in(const Table& table, const std::string& name, const ast::Expr& reference,
                                const SourceText& source) const;
  Result<expr::ExprPtr> alias(size_t item, const SourceText& source) const;

  std::vector<Table> tables_;
  const std::vector<ast::SelectItem>* items_ = nullptr;
  size_t visible_items_ = SIZE_MAX;
  AggregateCollector* aggregates_ = nullptr;
  WindowCollector* windows_ = nullptr;
  SubqueryBinder* subqueries_ = nullptr;
  const Scope* outer_ = nullptr;
  const char* clause_ = "WHERE";
  mutable std::map<size_t, expr::ExprPtr> bound_aliases_;
};

Result<expr::ExprPtr> bind_expression(const ast::Expr& expression, const Scope& scope,
                                      const SourceText& source);
/// For WHERE and its like: a boolean; numbers are true where they are not zero.
Result<expr::ExprPtr> bind_predicate(const ast::Expr& expression, const Scope& scope,
                                     const SourceText& source, const char* clause = "WHERE");

/// Parses and binds an expression over the columns of `schema`. `name` is what messages call the text.
Result<expr::ExprPtr> bind_text(const std::string& text, const std::shared_ptr<arrow::Schema>& schema,
                                const std::string& name);

}  // namespace millstream::sql
