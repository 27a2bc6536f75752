#pragma once
// What is known of rows that passed a filter, and the rewriting of expressions by it.

#include <functional>
#include <set>
#include <vector>

#include "expr/expression.h"
#include "plan/logical_plan.h"

namespace millstream::plan {

/// The columns that cannot be NULL where `predicate` is true: x > 0 is true of no NULL.
std::set<int> columns_not_null_where(const expr::Expression& predicate);

/// The schema with these fields not nullable.
std::shared_ptr<arrow::Schema> with_not_null(const std::shared_ptr<arrow::Schema>& schema,
                                             const std::set<int>& columns);

/// A query error where the expressions, with what they share written out as whoever walks them does, have too many
/// operations: a column or alias that is used twice at every step of a chain doubles with each.
Status check_expanded_size(const std::vector<expr::ExprPtr>& expressions);

/// The same expression where column i is column(i).
expr::ExprPtr renumber_columns(const expr::ExprPtr& expression, const std::function<int(int)>& column);

NodePtr make_scan(std::shared_ptr<const SourceTable> table);
/// The rows of `input` for which `predicate` is true; its schema is refined by what that says of NULLs.
NodePtr make_filter(NodePtr input, expr::ExprPtr predicate);
/// Names and expressions, one each.
NodePtr make_project(NodePtr input, const std::vector<std::string>& names,
                     std::vector<expr::ExprPtr> expressions);

/// Groups by the first `num_keys` columns of `input`; `names` are those of the aggregates.
NodePtr make_aggregate(NodePtr input, int num_keys, std::vector<AggregateCall> aggregates,
                       const std::vector<std::string>& names, expr::QueryPosition position);
/// left_keys[i] equals right_keys[i]; each is over its side. `predicate` (null: none) is over both sides' columns.
NodePtr make_join(JoinKind kind, NodePtr left, NodePtr right, std::vector<expr::ExprPtr> left_keys,
                  std::vector<expr::ExprPtr> right_keys, expr::ExprPtr predicate,
                  expr::QueryPosition position);
/// Both have as many columns, of the same types; names are the left ones.
NodePtr make_union(NodePtr left, NodePtr right);
/// The column that kAttach adds; `key` (kIn) is over the input.
std::shared_ptr<arrow::Field> attached_field(AttachKind kind, const Node& right, const expr::ExprPtr& key,
                                             const std::string& name);
NodePtr make_attach(AttachKind kind, NodePtr input, NodePtr right, expr::ExprPtr key, const std::string& name,
                    expr::QueryPosition position);
/// `names` are those of the calls.
NodePtr make_window(NodePtr input, std::vector<WindowCall> calls, const std::vector<std::string>& names,
                    expr::QueryPosition position);
/// `input` itself where its rows are known to be in that order.
NodePtr make_sort(NodePtr input, std::vector<SortKey> keys, expr::QueryPosition position);
/// At most `limit` rows (-1: all) after the first `offset`.
NodePtr make_limit(NodePtr input, int64_t limit, int64_t offset, expr::QueryPosition position);

}  // namespace millstream::plan
