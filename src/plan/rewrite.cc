#include "plan/rewrite.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/nearest_name.h"
#include "expr/function.h"
#include "plan/planner.h"
#include "sql/lexer.h"

namespace millstream::plan {
namespace {

using expr::Expression;
using expr::ExprPtr;
using expr::Kind;

// Adds the columns that cannot be NULL where `e` is not NULL.
void add_columns_not_null_if_not_null(const Expression& e, std::set<int>& columns) {
  switch (e.kind) {
    case Kind::kColumn:
      columns.insert(e.column);
      break;
    case Kind::kCast:
      add_columns_not_null_if_not_null(*e.arguments[0], columns);
      break;
    case Kind::kIn:
      add_columns_not_null_if_not_null(*e.arguments[0], columns);
      break;
    case Kind::kCall:
      if (e.binding == nullptr || e.binding->nulls != expr::NullPolicy::kPropagate) break;
      for (const ExprPtr& argument : e.arguments) add_columns_not_null_if_not_null(*argument, columns);
      break;
    default:
      break;
  }
}

bool is_call(const Expression& e, std::string_view name) {
  return e.kind == Kind::kCall && e.name == name;
}

void add_columns_not_null_if_true(const Expression& e, std::set<int>& columns) {
  if (e.kind == Kind::kAnd) {
    for (const ExprPtr& argument : e.arguments) add_columns_not_null_if_true(*argument, columns);
  } else if (e.kind == Kind::kOr) {
    // Whichever side holds: what all of them say.
    std::set<int> all = columns_not_null_where(*e.arguments[0]);
    for (size_t i = 1; i < e.arguments.size() && !all.empty(); ++i) {
      const std::set<int> side = columns_not_null_where(*e.arguments[i]);
      std::erase_if(all, [&](int column) { return !side.contains(column); });
    }
    columns.merge(all);
  } else if (is_call(e, "is_not_null")) {
    add_columns_not_null_if_not_null(*e.arguments[0], columns);
  } else if (is_call(e, "not") && is_call(*e.arguments[0], "is_null")) {
    add_columns_not_null_if_not_null(*e.arguments[0]->arguments[0], columns);
  } else {
    add_columns_not_null_if_not_null(e, columns);
  }
}

constexpr int64_t kMaxOperations = 200'000;

// A plan without breakers, folded onto its scan: every column as an expression over the table's columns.
struct Folded {
  std::shared_ptr<const SourceTable> table;
  std::vector<ExprPtr> columns;
  ExprPtr predicate;
};

// How many operations an expression has when what it shares is written out.
double expanded_size(const Expression& e, std::unordered_map<const Expression*, double>& known) {
  if (e.arguments.empty()) return 1;
  if (const auto found = known.find(&e); found != known.end()) return found->second;
  double size = 1;
  for (const ExprPtr& argument : e.arguments) size += expanded_size(*argument, known);
  known.emplace(&e, size);
  return size;
}

// What reads block by block, such as training, takes no clause that needs all rows or their number.
Status breaker_error(const Node& node, std::string_view clause, std::string_view hint) {
  return query_error(
      "line {}, column {}: {} needs all of its rows, and only queries whose rows stream can be explained; "
      "`millstream query` runs it and training trains on it{}",
      node.position.line, node.position.column, clause, hint);
}

Result<Folded> fold(const Node& node) {
  switch (node.kind) {
    case NodeKind::kScan: {
      Folded result;
      result.table = node.table;
      for (int column : node.columns) {
        result.columns.push_back(expr::make_column(column, *node.table->schema()->field(column)));
      }
      return result;
    }
    case NodeKind::kFilter: {
      MILLSTREAM_ASSIGN(auto result, fold(*node.input));
      MILLSTREAM_TRY(check_expanded_size({node.predicate}));
      ExprPtr predicate = expr::substitute_columns(node.predicate, result.columns);
      if (result.predicate != nullptr) {
        // The inner filter first: what it lets through may be all that the outer one can be computed for.
        MILLSTREAM_ASSIGN(predicate,
                          expr::make_and({result.predicate, std::move(predicate)}, node.predicate->position));
      }
      MILLSTREAM_TRY(check_expanded_size({predicate}));
      result.predicate = std::move(predicate);
      return result;
    }
    case NodeKind::kProject: {
      MILLSTREAM_ASSIGN(auto result, fold(*node.input));
      MILLSTREAM_TRY(check_expanded_size(node.expressions));
      std::vector<ExprPtr> columns;
      columns.reserve(node.expressions.size());
      for (const ExprPtr& expression : node.expressions) {
        columns.push_back(expr::substitute_columns(expression, result.columns));
      }
      MILLSTREAM_TRY(check_expanded_size(columns));
      result.columns = std::move(columns);
      return result;
    }
    case NodeKind::kAggregate:
      return breaker_error(node, node.aggregates.empty() ? "DISTINCT" : "an aggregate", "");
    case NodeKind::kJoin:
      return breaker_error(node, "JOIN", "");
    case NodeKind::kWindow:
      return breaker_error(node, "a window function", "");
    case NodeKind::kUnion:
      return breaker_error(node, "UNION", "");
    case NodeKind::kAttach:
      return breaker_error(node, "a query inside an expression", "");
    case NodeKind::kSort:
      return breaker_error(node, "ORDER BY", "");
    case NodeKind::kLimit:
      return breaker_error(node, node.limit >= 0 ? "LIMIT" : "OFFSET",
                           "; the option --limit-rows N reads only the first N rows");
  }
  return bug_error("a plan node of kind {} does not stream", static_cast<int>(node.kind));
}

// Only the columns that something reads, and what the filter says of NULLs known to the outputs. Expressions
// are over `columns` as it is.
void prune(Pipeline& pipeline) {
  std::set<int> read;
  const auto add = [&](const ExprPtr& expression) {
    for (int column : expr::columns_read(*expression)) read.insert(column);
  };
  if (pipeline.predicate != nullptr) add(pipeline.predicate);
  for (const ExprPtr& output : pipeline.outputs) add(output);

  std::vector<int> mapping(pipeline.columns.size(), -1);
  std::vector<int> columns;
  for (int column : read) {
    mapping[column] = static_cast<int>(columns.size());
    columns.push_back(pipeline.columns[column]);
  }
  pipeline.columns = std::move(columns);
  if (pipeline.predicate != nullptr) pipeline.predicate = expr::remap_columns(pipeline.predicate, mapping);
  for (ExprPtr& output : pipeline.outputs) output = expr::remap_columns(output, mapping);
}

// Columns of the outputs get the table's nullability, or not nullable where the filter says so.
void refine_outputs(Pipeline& pipeline) {
  std::set<int> not_null;
  if (pipeline.predicate != nullptr) not_null = columns_not_null_where(*pipeline.predicate);
  std::vector<ExprPtr> replacements;
  for (size_t i = 0; i < pipeline.columns.size(); ++i) {
    auto field = pipeline.table->schema()->field(pipeline.columns[i]);
    if (not_null.contains(static_cast<int>(i))) field = field->WithNullable(false);
    replacements.push_back(expr::make_column(static_cast<int>(i), *field));
  }
  for (ExprPtr& output : pipeline.outputs) output = expr::substitute_columns(output, replacements);
}

std::shared_ptr<arrow::Schema> schema_of(const std::vector<std::string>& names,
                                         const std::vector<ExprPtr>& expressions) {
  arrow::FieldVector fields;
  for (size_t i = 0; i < names.size(); ++i) {
    fields.push_back(arrow::field(names[i], expressions[i]->type, expressions[i]->nullable));
  }
  return arrow::schema(std::move(fields));
}

}  // namespace

Status check_expanded_size(const std::vector<ExprPtr>& expressions) {
  std::unordered_map<const Expression*, double> known;
  double size = 0;
  for (const ExprPtr& expression : expressions) size += expanded_size(*expression, known);
  if (size <= kMaxOperations) return Status::OK();
  return query_error(
      "the query has more than {} operations when its subqueries and aliases are written out where they are "
      "used",
      kMaxOperations);
}

namespace {

ExprPtr renumbered(const ExprPtr& e, const std::function<int(int)>& column,
                   std::unordered_map<const Expression*, ExprPtr>& known) {
  if (e->kind != Kind::kColumn && e->arguments.empty()) return e;
  if (const auto found = known.find(e.get()); found != known.end()) return found->second;
  auto copy = std::make_shared<Expression>(*e);
  if (e->kind == Kind::kColumn) copy->column = column(e->column);
  for (ExprPtr& argument : copy->arguments) argument = renumbered(argument, column, known);
  known.emplace(e.get(), copy);
  return copy;
}

}  // namespace

ExprPtr renumber_columns(const ExprPtr& expression, const std::function<int(int)>& column) {
  std::unordered_map<const Expression*, ExprPtr> known;
  return renumbered(expression, column, known);
}

std::set<int> columns_not_null_where(const Expression& predicate) {
  std::set<int> columns;
  add_columns_not_null_if_true(predicate, columns);
  return columns;
}

std::shared_ptr<arrow::Schema> with_not_null(const std::shared_ptr<arrow::Schema>& schema,
                                             const std::set<int>& columns) {
  arrow::FieldVector fields = schema->fields();
  for (int column : columns) fields[column] = fields[column]->WithNullable(false);
  return arrow::schema(std::move(fields));
}

NodePtr make_scan(std::shared_ptr<const SourceTable> table) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kScan;
  node->schema = table->schema();
  node->columns.resize(node->schema->num_fields());
  std::iota(node->columns.begin(), node->columns.end(), 0);
  node->table = std::move(table);
  return node;
}

NodePtr make_filter(NodePtr input, ExprPtr predicate) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kFilter;
  node->schema = with_not_null(input->schema, columns_not_null_where(*predicate));
  node->input = std::move(input);
  node->predicate = std::move(predicate);
  return node;
}

NodePtr make_project(NodePtr input, const std::vector<std::string>& names, std::vector<ExprPtr> expressions) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kProject;
  node->schema = schema_of(names, expressions);
  node->input = std::move(input);
  node->expressions = std::move(expressions);
  return node;
}

NodePtr make_aggregate(NodePtr input, int num_keys, std::vector<AggregateCall> aggregates,
                       const std::vector<std::string>& names, expr::QueryPosition position) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kAggregate;
  arrow::FieldVector fields(input->schema->fields().begin(), input->schema->fields().begin() + num_keys);
  for (size_t i = 0; i < aggregates.size(); ++i) {
    const AggregateKind kind = aggregates[i].kind;
    const bool count = kind == AggregateKind::kCount || kind == AggregateKind::kCountStar;
    fields.push_back(arrow::field(names[i], aggregates[i].result, !count));
  }
  node->schema = arrow::schema(std::move(fields));
  node->input = std::move(input);
  node->num_keys = num_keys;
  node->aggregates = std::move(aggregates);
  node->position = position;
  return node;
}

NodePtr make_join(JoinKind kind, NodePtr left, NodePtr right, std::vector<ExprPtr> left_keys,
                  std::vector<ExprPtr> right_keys, ExprPtr predicate, expr::QueryPosition position) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kJoin;
  node->join = kind;
  const bool left_null = kind == JoinKind::kRight || kind == JoinKind::kFull;
  const bool right_null = kind == JoinKind::kLeft || kind == JoinKind::kFull;
  arrow::FieldVector fields;
  for (const auto& field : left->schema->fields())
    fields.push_back(left_null ? field->WithNullable(true) : field);
  for (const auto& field : right->schema->fields())
    fields.push_back(right_null ? field->WithNullable(true) : field);
  node->pair_schema = arrow::schema(std::move(fields));
  node->schema = kind == JoinKind::kSemi || kind == JoinKind::kAnti ? left->schema : node->pair_schema;
  node->input = std::move(left);
  node->right = std::move(right);
  node->left_keys = std::move(left_keys);
  node->right_keys = std::move(right_keys);
  node->predicate = std::move(predicate);
  node->position = position;
  return node;
}

NodePtr make_union(NodePtr left, NodePtr right) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kUnion;
  arrow::FieldVector fields;
  for (int i = 0; i < left->schema->num_fields(); ++i) {
    const auto& field = left->schema->field(i);
    fields.push_back(field->WithNullable(field->nullable() || right->schema->field(i)->nullable()));
  }
  node->schema = arrow::schema(std::move(fields));
  node->input = std::move(left);
  node->right = std::move(right);
  return node;
}

std::shared_ptr<arrow::Field> attached_field(AttachKind kind, const Node& right, const ExprPtr& key,
                                             const std::string& name) {
  const auto& field = right.schema->field(0);
  switch (kind) {
    case AttachKind::kValue:
      return arrow::field(name, field->type());
    case AttachKind::kExists:
      return arrow::field(name, arrow::boolean(), false);
    case AttachKind::kIn:
      break;
  }
  return arrow::field(name, arrow::boolean(), key->nullable || field->nullable());
}

NodePtr make_attach(AttachKind kind, NodePtr input, NodePtr right, ExprPtr key, const std::string& name,
                    expr::QueryPosition position) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kAttach;
  node->attach = kind;
  arrow::FieldVector fields = input->schema->fields();
  fields.push_back(attached_field(kind, *right, key, name));
  node->schema = arrow::schema(std::move(fields));
  node->input = std::move(input);
  node->right = std::move(right);
  if (key != nullptr) node->left_keys.push_back(std::move(key));
  node->position = position;
  return node;
}

NodePtr make_window(NodePtr input, std::vector<WindowCall> calls, const std::vector<std::string>& names,
                    expr::QueryPosition position) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kWindow;
  arrow::FieldVector fields = input->schema->fields();
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool count = calls[i].aggregate == AggregateKind::kCount || calls[i].argument < 0;
    fields.push_back(arrow::field(names[i], calls[i].result, !count));
  }
  node->schema = arrow::schema(std::move(fields));
  node->input = std::move(input);
  node->windows = std::move(calls);
  node->position = position;
  return node;
}

NodePtr make_sort(NodePtr input, std::vector<SortKey> keys, expr::QueryPosition position) {
  if (is_ordered(order_of(*input), keys, *input->schema)) return input;
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kSort;
  node->schema = input->schema;
  node->input = std::move(input);
  node->sort_keys = std::move(keys);
  node->position = position;
  return node;
}

NodePtr make_limit(NodePtr input, int64_t limit, int64_t offset, expr::QueryPosition position) {
  auto node = std::make_shared<Node>();
  node->kind = NodeKind::kLimit;
  node->schema = input->schema;
  node->input = std::move(input);
  node->limit = limit;
  node->offset = offset;
  node->position = position;
  return node;
}

bool streams(const Node& plan) {
  switch (plan.kind) {
    case NodeKind::kScan:
      return true;
    case NodeKind::kFilter:
    case NodeKind::kProject:
      return streams(*plan.input);
    default:
      return false;
  }
}

Result<Pipeline> to_pipeline(const NodePtr& plan) {
  MILLSTREAM_ASSIGN(auto folded, fold(*plan));
  Pipeline result;
  result.table = std::move(folded.table);
  result.columns.resize(result.table->schema()->num_fields());
  std::iota(result.columns.begin(), result.columns.end(), 0);
  result.predicate = std::move(folded.predicate);
  result.outputs = std::move(folded.columns);
  prune(result);
  refine_outputs(result);
  // The plan may know more of NULLs than the folded expressions say (a filter over a CASE).
  arrow::FieldVector fields;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const auto& field = plan->schema->field(static_cast<int>(i));
    fields.push_back(arrow::field(field->name(), result.outputs[i]->type,
                                  field->nullable() && result.outputs[i]->nullable));
  }
  result.schema = arrow::schema(std::move(fields));
  return result;
}

int find_output(const arrow::Schema& schema, const std::string& name) {
  if (const int exact = schema.GetFieldIndex(name); exact >= 0) return exact;
  int found = -1;
  for (int i = 0; i < schema.num_fields(); ++i) {
    if (sql::to_lower(schema.field(i)->name()) != sql::to_lower(name)) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

Result<Pipeline> select_outputs(const Pipeline& pipeline, const std::vector<std::string>& names) {
  Pipeline result = pipeline;
  result.outputs.clear();
  arrow::FieldVector fields;
  for (const std::string& name : names) {
    const int output = find_output(*pipeline.schema, name);
    if (output < 0) {
      return query_error("the query has no column '{}'{}", name,
                         name_hint(name, pipeline.schema->field_names()));
    }
    result.outputs.push_back(pipeline.outputs[output]);
    fields.push_back(pipeline.schema->field(output)->WithName(name));
  }
  result.schema = arrow::schema(std::move(fields));
  prune(result);
  return result;
}

Pipeline without_filter(const Pipeline& pipeline) {
  Pipeline result = pipeline;
  result.predicate = nullptr;
  prune(result);
  refine_outputs(result);
  result.schema = schema_of(pipeline.schema->field_names(), result.outputs);
  return result;
}

}  // namespace millstream::plan
