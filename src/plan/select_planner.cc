#include "plan/select_planner.h"

#include <algorithm>

#include "base/nearest_name.h"
#include "expr/aggregate.h"
#include "expr/type.h"
#include "plan/rewrite.h"
#include "sql/lexer.h"

namespace millstream::plan {
namespace {

namespace ast = sql::ast;
using expr::ExprPtr;

std::string output_name(const ast::SelectItem& item, const expr::Expression& bound) {
  if (!item.alias.empty()) return item.alias;
  if (item.expression->kind != ast::ExprKind::kColumn) return ast::to_text(*item.expression);
  // A column is called as its table spells it, whatever the case in the query.
  const std::string& written = item.expression->parts.back();
  return bound.kind == expr::Kind::kColumn && sql::equals_ignoring_case(bound.name, written) ? bound.name
                                                                                             : written;
}

// Aggregates are bound as columns from here on, behind those of the tables and subqueries.
constexpr int kFirstAggregate = 1 << 20;
// And window functions behind those.
constexpr int kFirstWindow = 1 << 24;

bool has_window(const expr::Expression& expression) {
  const auto columns = expr::columns_read(expression);
  return !columns.empty() && columns.back() >= kFirstWindow;
}

// A whole number that stands alone: the position of an output.
bool is_position(const ast::Expr& e) {
  return e.kind == ast::ExprKind::kNumber && !e.text.empty() && e.text.size() < 9 &&
         e.text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

SelectPlanner::SelectPlanner(const sql::SourceText& source, const ast::Query& query, NodePtr input,
                             std::vector<Table> tables, Subqueries::Planner subqueries,
                             const sql::Scope* outer)
    : source_(source),
      query_(query),
      node_(std::move(input)),
      tables_(std::move(tables)),
      subqueries_(source, std::move(subqueries), node_->schema->num_fields()) {
  for (const Table& table : tables_) scope_.add_table(table.name, table.schema);
  scope_.set_aliases(&query_.items);
  collector_.first_column = kFirstAggregate;
  scope_.set_aggregates(&collector_);
  scope_.set_subqueries(&subqueries_);
  windows_.first_column = kFirstWindow;
  windows_.named = &query_.windows;
  scope_.set_windows(&windows_);
  scope_.set_outer(outer);
}

Result<NodePtr> SelectPlanner::plan() {
  MILLSTREAM_TRY(bind_items());
  num_outputs_ = expressions_.size();
  MILLSTREAM_TRY(bind_keys());
  if (query_.having != nullptr) {
    sql::Scope scope = scope_;
    scope.set_visible_aliases(SIZE_MAX);
    scope.set_clause("HAVING");
    scope.set_windows(nullptr);
    MILLSTREAM_ASSIGN(having_, sql::bind_predicate(*query_.having, scope, source_, "HAVING"));
    if (has_window(*having_))
      return source_.error(query_.having->offset, "HAVING cannot contain window functions");
  }
  if (query_.qualify != nullptr) {
    scope_.set_visible_aliases(SIZE_MAX);
    MILLSTREAM_ASSIGN(qualify_, sql::bind_predicate(*query_.qualify, scope_, source_, "QUALIFY"));
    if (windows_.calls.empty()) {
      return source_.error(query_.qualify->offset,
                           "QUALIFY needs a window function, in it or in the SELECT list; there is WHERE");
    }
  }
  MILLSTREAM_TRY(bind_order());
  MILLSTREAM_TRY(source_.place(check_expanded_size(expressions_), query_.offset));

  const bool grouped =
      !query_.group_by.empty() || query_.group_all || !collector_.calls.empty() || having_ != nullptr;
  if (grouped) {
    for (ExprPtr& expression : expressions_) {
      MILLSTREAM_ASSIGN(expression, over_groups(expression));
    }
    if (having_ != nullptr) {
      MILLSTREAM_ASSIGN(having_, over_groups(having_));
    }
    if (qualify_ != nullptr) {
      MILLSTREAM_ASSIGN(qualify_, over_groups(qualify_));
    }
    for (ExprPtr* part : window_parts()) {
      MILLSTREAM_ASSIGN(*part, over_groups(*part));
    }
    MILLSTREAM_ASSIGN(node_, aggregate());
    for (const auto& [subquery, operand] : beside_groups_)
      node_ = subqueries_.attach(std::move(node_), subquery, operand);
    if (having_ != nullptr) node_ = make_filter(std::move(node_), having_);
  } else {
    std::vector<ExprPtr*> readers = window_parts();
    for (ExprPtr& expression : expressions_) readers.push_back(&expression);
    if (qualify_ != nullptr) readers.push_back(&qualify_);
    node_ = subqueries_.attach_all(std::move(node_), readers);
  }
  if (!windows_.calls.empty()) add_windows();
  node_ = make_project(std::move(node_), names_, expressions_);
  if (query_.distinct) {
    for (size_t i = 0; i < num_outputs_; ++i)
      MILLSTREAM_TRY(check_key(*expressions_[i], offsets_[i], "DISTINCT"));
    node_ = make_aggregate(std::move(node_), static_cast<int>(num_outputs_), {}, {},
                           source_.position(query_.distinct_offset));
  }
  if (!order_.empty()) node_ = make_sort(std::move(node_), order_, source_.position(query_.order_offset));
  if (query_.limit || query_.offset_rows) {
    node_ = make_limit(std::move(node_), query_.limit.value_or(-1), query_.offset_rows.value_or(0),
                       source_.position(query_.limit_offset));
  }
  if (expressions_.size() > num_outputs_) {
    // What only ORDER BY needed goes.
    std::vector<ExprPtr> outputs;
    for (size_t i = 0; i < num_outputs_; ++i)
      outputs.push_back(expr::make_column(static_cast<int>(i), *node_->schema->field(static_cast<int>(i))));
    names_.resize(num_outputs_);
    node_ = make_project(std::move(node_), names_, std::move(outputs));
  }
  return node_;
}

Status SelectPlanner::add_output(std::string name, ExprPtr expression, size_t offset) {
  if (!seen_.insert(name).second) {
    return source_.error(
        offset,
        fmt::format("two columns of the result are called '{}'; give one another name with AS", name));
  }
  names_.push_back(std::move(name));
  expressions_.push_back(std::move(expression));
  offsets_.push_back(offset);
  return Status::OK();
}

Status SelectPlanner::bind_star(const ast::SelectItem& item) {
  const auto named = [&](const Table& table) {
    return item.star_table.empty() || sql::equals_ignoring_case(item.star_table, table.name);
  };
  std::vector<std::string> names, known;
  for (const Table& table : tables_) {
    if (!table.name.empty()) names.push_back(table.name);
    if (!named(table)) continue;
    for (const auto& field : table.schema->fields()) known.push_back(field->name());
  }
  if (std::ranges::none_of(tables_, named)) {
    return source_.error(item.offset, fmt::format("there is no table '{}'{}", item.star_table,
                                                  names.empty() ? "" : name_hint(item.star_table, names)));
  }
  for (const auto& [excluded, offset] : item.exclude) {
    const auto same = [&, &excluded = excluded](const std::string& field) {
      return sql::equals_ignoring_case(field, excluded);
    };
    if (std::ranges::none_of(known, same)) {
      return source_.error(offset, fmt::format("there is no column '{}' to leave out{}", excluded,
                                               name_hint(excluded, known)));
    }
  }
  int first = 0;
  for (const Table& table : tables_) {
    for (int i = 0; named(table) && i < table.schema->num_fields(); ++i) {
      const auto& field = node_->schema->field(first + i);
      const bool excluded = std::ranges::any_of(
          item.exclude, [&](const auto& e) { return sql::equals_ignoring_case(e.first, field->name()); });
      if (excluded) continue;
      MILLSTREAM_TRY(add_output(
          field->name(), expr::make_column(first + i, *field, source_.position(item.offset)), item.offset));
    }
    first += table.schema->num_fields();
  }
  return Status::OK();
}

Status SelectPlanner::bind_items() {
  for (size_t i = 0; i < query_.items.size(); ++i) {
    const ast::SelectItem& item = query_.items[i];
    scope_.set_visible_aliases(i);
    if (item.expression == nullptr) {
      MILLSTREAM_TRY(bind_star(item));
      continue;
    }
    MILLSTREAM_ASSIGN(auto bound, sql::bind_expression(*item.expression, scope_, source_));
    if (expr::is_null_type(*bound->type)) {
      // A bare NULL is an INTEGER where a column needs a type.
      MILLSTREAM_ASSIGN(
          bound, expr::make_cast(std::move(bound), arrow::int32(), false, source_.position(item.offset)));
    }
    MILLSTREAM_TRY(source_.place(check_expanded_size({bound}), item.offset));
    std::string output = output_name(item, *bound);
    MILLSTREAM_TRY(add_output(std::move(output), std::move(bound), item.offset));
  }
  if (names_.empty()) return source_.error(query_.offset, "EXCLUDE leaves no column");
  return Status::OK();
}

bool SelectPlanner::has_aggregate(const expr::Expression& expression) const {
  if (expression.kind == expr::Kind::kColumn) return expression.column >= collector_.first_column;
  return std::ranges::any_of(expression.arguments, [&](const ExprPtr& e) { return has_aggregate(*e); });
}

Status SelectPlanner::check_key(const expr::Expression& key, size_t offset, const char* clause) const {
  if (expr::is_orderable_type(*key.type)) return Status::OK();
  return source_.error(offset,
                       fmt::format("{} takes no values of type {}", clause, expr::sql_type_name(*key.type)));
}

Status SelectPlanner::bind_keys() {
  if (query_.group_all) {
    for (size_t i = 0; i < num_outputs_; ++i) {
      if (has_aggregate(*expressions_[i])) continue;
      MILLSTREAM_TRY(check_key(*expressions_[i], offsets_[i], "GROUP BY"));
      keys_.push_back(expressions_[i]);
    }
  }
  sql::Scope scope = scope_;
  scope.set_visible_aliases(SIZE_MAX);
  scope.set_clause("GROUP BY");
  scope.set_windows(nullptr);
  for (const ast::ExprPtr& item : query_.group_by) {
    ExprPtr key;
    if (is_position(*item)) {
      const size_t position = std::stoul(item->text);
      if (position < 1 || position > num_outputs_) {
        return source_.error(item->offset, fmt::format("GROUP BY {}: the SELECT list has columns 1 to {}",
                                                       item->text, num_outputs_));
      }
      key = expressions_[position - 1];
    } else {
      MILLSTREAM_ASSIGN(key, sql::bind_expression(*item, scope, source_));
    }
    if (has_window(*key)) return source_.error(item->offset, "GROUP BY cannot contain window functions");
    if (has_aggregate(*key)) return source_.error(item->offset, "GROUP BY cannot contain aggregates");
    if (expr::is_null_type(*key->type)) {
      MILLSTREAM_ASSIGN(
          key, expr::make_cast(std::move(key), arrow::int32(), false, source_.position(item->offset)));
    }
    MILLSTREAM_TRY(check_key(*key, item->offset, "GROUP BY"));
    const bool known =
        std::ranges::any_of(keys_, [&](const ExprPtr& e) { return sql::same_expression(*e, *key); });
    if (!known) keys_.push_back(std::move(key));
  }
  return Status::OK();
}

// The column to sort by: an output by position, name or expression, or one added for it.
Result<int> SelectPlanner::order_column(const ast::OrderItem& item) {
  const ast::Expr& e = *item.expression;
  if (is_position(e)) {
    const size_t position = std::stoul(e.text);
    if (position < 1 || position > num_outputs_) {
      return source_.error(
          e.offset, fmt::format("ORDER BY {}: the SELECT list has columns 1 to {}", e.text, num_outputs_));
    }
    return static_cast<int>(position - 1);
  }
  if (e.kind == ast::ExprKind::kColumn && e.parts.size() == 1) {
    for (size_t i = 0; i < num_outputs_; ++i)
      if (names_[i] == e.parts[0]) return static_cast<int>(i);
    for (size_t i = 0; i < num_outputs_; ++i)
      if (sql::equals_ignoring_case(names_[i], e.parts[0])) return static_cast<int>(i);
  }
  scope_.set_visible_aliases(SIZE_MAX);
  scope_.set_clause("ORDER BY");
  MILLSTREAM_ASSIGN(auto bound, sql::bind_expression(e, scope_, source_));
  for (size_t i = 0; i < expressions_.size(); ++i)
    if (sql::same_expression(*expressions_[i], *bound)) return static_cast<int>(i);
  if (query_.distinct) {
    return source_.error(e.offset, "with SELECT DISTINCT, ORDER BY takes what stands in the SELECT list");
  }
  if (expr::is_null_type(*bound->type)) {
    MILLSTREAM_ASSIGN(bound,
                      expr::make_cast(std::move(bound), arrow::int32(), false, source_.position(e.offset)));
  }
  std::string name = fmt::format("order by {}", ast::to_text(e));
  while (!seen_.insert(name).second) name += '_';
  names_.push_back(std::move(name));
  expressions_.push_back(std::move(bound));
  offsets_.push_back(e.offset);
  return static_cast<int>(expressions_.size() - 1);
}

Status SelectPlanner::bind_order() {
  for (const ast::OrderItem& item : query_.order_by) {
    if (item.expression == nullptr) {
      for (size_t i = 0; i < num_outputs_; ++i) {
        MILLSTREAM_TRY(check_key(*expressions_[i], offsets_[i], "ORDER BY"));
        order_.push_back({static_cast<int>(i), item.descending, item.nulls_first});
      }
      continue;
    }
    MILLSTREAM_ASSIGN(const int column, order_column(item));
    MILLSTREAM_TRY(
        check_key(*expressions_[static_cast<size_t>(column)], item.expression->offset, "ORDER BY"));
    order_.push_back({column, item.descending, item.nulls_first});
  }
  return Status::OK();
}

// The value of a subquery, which is the same for all groups.
Result<ExprPtr> SelectPlanner::subquery_over_groups(const expr::Expression& column) {
  const int subquery = column.column - subqueries_.first_column();
  size_t at = 0;
  while (at < beside_groups_.size() && beside_groups_[at].first != subquery) ++at;
  if (at == beside_groups_.size()) {
    ExprPtr operand = subqueries_.operand(subquery);
    if (operand != nullptr) {
      MILLSTREAM_ASSIGN(operand, over_groups(operand));
    }
    at = beside_groups_.size();
    beside_groups_.emplace_back(subquery, std::move(operand));
  }
  return expr::make_column(static_cast<int>(keys_.size() + collector_.calls.size() + at),
                           *arrow::field(column.name, column.type, column.nullable), column.position);
}

Result<ExprPtr> SelectPlanner::over_groups(const ExprPtr& expression) {
  for (size_t k = 0; k < keys_.size(); ++k) {
    if (!sql::same_expression(*keys_[k], *expression)) continue;
    return expr::make_column(
        static_cast<int>(k),
        *arrow::field(expression->name.empty() ? fmt::format("key {}", k) : expression->name,
                      expression->type, keys_[k]->nullable),
        expression->position);
  }
  if (expression->kind == expr::Kind::kColumn) {
    if (expression->column >= kFirstWindow) return expression;
    if (expression->column >= collector_.first_column) {
      const int index = expression->column - collector_.first_column;
      return expr::make_column(static_cast<int>(keys_.size()) + index,
                               *arrow::field(expression->name, expression->type, expression->nullable),
                               expression->position);
    }
    if (expression->column >= subqueries_.first_column()) return subquery_over_groups(*expression);
    return source_.error(
        source_.offset(expression->position),
        fmt::format(
            "column '{}' must appear in the GROUP BY clause or must be part of an aggregate function; "
            "any_value({}) takes any value of the group",
            expression->name, expression->name));
  }
  if (expression->arguments.empty()) return expression;
  auto copy = std::make_shared<expr::Expression>(*expression);
  for (ExprPtr& argument : copy->arguments) {
    MILLSTREAM_ASSIGN(argument, over_groups(argument));
  }
  return copy;
}

std::vector<ExprPtr*> SelectPlanner::window_parts() {
  std::vector<ExprPtr*> parts;
  for (sql::WindowExpression& call : windows_.calls) {
    for (ExprPtr* part : {&call.argument, &call.second, &call.otherwise, &call.filter})
      if (*part != nullptr) parts.push_back(part);
    for (ExprPtr& key : call.partition_by) parts.push_back(&key);
    for (auto& key : call.order_by) parts.push_back(&key.expression);
  }
  return parts;
}

// The columns that are read above, and what the window functions read; then the functions; then QUALIFY.
void SelectPlanner::add_windows() {
  std::set<int> used;
  const auto add = [&](const ExprPtr& expression) {
    for (const int column : expr::columns_read(*expression))
      if (column < kFirstWindow) used.insert(column);
  };
  for (const ExprPtr& expression : expressions_) add(expression);
  if (qualify_ != nullptr) add(qualify_);
  std::vector<int> place(static_cast<size_t>(node_->schema->num_fields()), -1);
  std::vector<std::string> names;
  std::vector<ExprPtr> columns;
  for (const int column : used) {
    place[static_cast<size_t>(column)] = static_cast<int>(columns.size());
    names.push_back(node_->schema->field(column)->name());
    columns.push_back(expr::make_column(column, *node_->schema->field(column)));
  }
  const auto column_of = [&](const ExprPtr& expression) {
    if (expression == nullptr) return -1;
    for (size_t i = 0; i < columns.size(); ++i)
      if (sql::same_expression(*columns[i], *expression)) return static_cast<int>(i);
    names.push_back(fmt::format("window {}", columns.size()));
    columns.push_back(expression);
    return static_cast<int>(columns.size() - 1);
  };
  std::vector<WindowCall> calls;
  std::vector<std::string> call_names;
  for (const sql::WindowExpression& written : windows_.calls) {
    WindowCall call;
    call.function = written.function;
    call.aggregate = written.aggregate;
    call.argument = column_of(written.argument);
    call.second = column_of(written.second);
    call.fraction = written.fraction;
    call.otherwise = column_of(written.otherwise);
    call.filter = column_of(written.filter);
    call.number = written.number;
    for (const ExprPtr& key : written.partition_by) call.partition_by.push_back(column_of(key));
    for (const auto& key : written.order_by)
      call.order_by.push_back({column_of(key.expression), key.descending, key.nulls_first});
    call.frame = written.frame;
    call.result = written.result;
    call_names.push_back(fmt::format("window function {}", calls.size()));
    calls.push_back(std::move(call));
  }
  // Of no columns a row set has no rows.
  if (columns.empty()) {
    names.emplace_back("row");
    columns.push_back(expr::make_literal(std::make_shared<arrow::BooleanScalar>(true)));
  }
  const int before = static_cast<int>(columns.size());
  node_ = make_project(std::move(node_), names, std::move(columns));
  node_ = make_window(std::move(node_), std::move(calls), call_names, source_.position(query_.offset));
  const auto renumber = [&](int column) {
    return column >= kFirstWindow ? before + column - kFirstWindow : place[static_cast<size_t>(column)];
  };
  for (ExprPtr& expression : expressions_) expression = renumber_columns(expression, renumber);
  if (qualify_ != nullptr) node_ = make_filter(std::move(node_), renumber_columns(qualify_, renumber));
}

Result<NodePtr> SelectPlanner::aggregate() {
  std::vector<ExprPtr*> readers;
  for (ExprPtr& key : keys_) readers.push_back(&key);
  for (sql::AggregateExpression& call : collector_.calls) {
    if (call.argument != nullptr) readers.push_back(&call.argument);
    if (call.second != nullptr) readers.push_back(&call.second);
    if (call.filter != nullptr) readers.push_back(&call.filter);
  }
  node_ = subqueries_.attach_all(std::move(node_), readers);
  std::vector<std::string> names;
  std::vector<ExprPtr> columns;
  for (size_t k = 0; k < keys_.size(); ++k) {
    names.push_back(fmt::format("key {}", k));
    columns.push_back(keys_[k]);
  }
  const auto column_of = [&](const ExprPtr& expression) {
    if (expression == nullptr) return -1;
    for (size_t i = keys_.size(); i < columns.size(); ++i)
      if (sql::same_expression(*columns[i], *expression)) return static_cast<int>(i);
    names.push_back(fmt::format("argument {}", columns.size()));
    columns.push_back(expression);
    return static_cast<int>(columns.size() - 1);
  };
  std::vector<AggregateCall> calls;
  std::vector<std::string> call_names;
  for (const sql::AggregateExpression& call : collector_.calls) {
    calls.push_back({call.kind, column_of(call.argument), column_of(call.filter), call.distinct, call.result,
                     column_of(call.second), call.fraction});
    call_names.push_back(fmt::format("aggregate {}", calls.size() - 1));
  }
  MILLSTREAM_TRY(source_.place(check_expanded_size(columns), query_.offset));
  // Of no columns a row set has no rows: count(*) alone reads a constant.
  if (columns.empty()) {
    names.push_back("row");
    columns.push_back(expr::make_literal(std::make_shared<arrow::BooleanScalar>(true)));
  }
  NodePtr input = make_project(node_, names, std::move(columns));
  const size_t offset = query_.group_offset != 0 ? query_.group_offset : query_.offset;
  return make_aggregate(std::move(input), static_cast<int>(keys_.size()), std::move(calls), call_names,
                        source_.position(offset));
}

}  // namespace millstream::plan
