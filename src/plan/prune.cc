#include "plan/prune.h"

#include <algorithm>
#include <set>

#include "plan/rewrite.h"

namespace millstream::plan {
namespace {

struct Pruned {
  NodePtr node;
  std::vector<int> mapping;  // of the old columns; -1: left out
};

// Has it operators of two inputs, or of all rows and all columns, below which columns go that nothing reads?
bool branches(const Node& node) {
  return node.right != nullptr || node.kind == NodeKind::kWindow ||
         (node.input != nullptr && branches(*node.input));
}

void add_reads(const expr::ExprPtr& expression, std::set<int>& columns) {
  if (expression == nullptr) return;
  for (const int column : expr::columns_read(*expression)) columns.insert(column);
}

std::set<int> all_columns(const Node& node) {
  std::set<int> columns;
  for (int i = 0; i < node.schema->num_fields(); ++i) columns.insert(i);
  return columns;
}

std::vector<int> identity(const Node& node) {
  std::vector<int> mapping;
  for (int i = 0; i < node.schema->num_fields(); ++i) mapping.push_back(i);
  return mapping;
}

// A projection to the columns that are required.
Pruned project(const NodePtr& node, const std::set<int>& required) {
  const auto count = static_cast<size_t>(node->schema->num_fields());
  if (required.size() == count) return {node, identity(*node)};
  Pruned result;
  result.mapping.assign(count, -1);
  std::vector<std::string> names;
  std::vector<expr::ExprPtr> expressions;
  for (const int column : required) {
    const auto& field = node->schema->field(column);
    result.mapping[static_cast<size_t>(column)] = static_cast<int>(names.size());
    names.push_back(field->name());
    expressions.push_back(expr::make_column(column, *field));
  }
  // A row set of no columns has no rows.
  if (names.empty()) {
    names.emplace_back("row");
    expressions.push_back(expr::make_literal(std::make_shared<arrow::BooleanScalar>(true)));
  }
  result.node = make_project(node, names, std::move(expressions));
  return result;
}

// Just the columns of `required`, in their order.
NodePtr only(const Pruned& pruned, const std::set<int>& required) {
  std::vector<std::string> names;
  std::vector<expr::ExprPtr> expressions;
  bool same = static_cast<size_t>(pruned.node->schema->num_fields()) == required.size();
  for (const int column : required) {
    const int at = pruned.mapping[static_cast<size_t>(column)];
    same = same && at == static_cast<int>(names.size());
    names.push_back(pruned.node->schema->field(at)->name());
    expressions.push_back(expr::make_column(at, *pruned.node->schema->field(at)));
  }
  return same ? pruned.node : make_project(pruned.node, names, std::move(expressions));
}

Pruned prune(const NodePtr& node, std::set<int> required) {
  if (!branches(*node)) return project(node, required);
  switch (node->kind) {
    case NodeKind::kJoin: {
      const int num_left = node->input->schema->num_fields();
      std::set<int> left, right;
      for (const int column : required)
        (column < num_left ? left : right).insert(column < num_left ? column : column - num_left);
      for (const auto& key : node->left_keys) add_reads(key, left);
      for (const auto& key : node->right_keys) add_reads(key, right);
      std::set<int> residual;
      add_reads(node->predicate, residual);
      for (const int column : residual)
        (column < num_left ? left : right).insert(column < num_left ? column : column - num_left);
      Pruned l = prune(node->input, left), r = prune(node->right, right);
      std::vector<int> mapping = l.mapping;
      for (const int column : r.mapping)
        mapping.push_back(column < 0 ? -1 : column + l.node->schema->num_fields());
      const auto remap = [](std::vector<expr::ExprPtr> keys, const std::vector<int>& to) {
        for (auto& key : keys) key = expr::remap_columns(key, to);
        return keys;
      };
      expr::ExprPtr predicate = node->predicate;
      if (predicate != nullptr) predicate = expr::remap_columns(predicate, mapping);
      Pruned result;
      result.node = make_join(node->join, l.node, r.node, remap(node->left_keys, l.mapping),
                              remap(node->right_keys, r.mapping), std::move(predicate), node->position);
      mapping.resize(static_cast<size_t>(node->schema->num_fields()));
      result.mapping = std::move(mapping);
      return result;
    }
    case NodeKind::kFilter: {
      add_reads(node->predicate, required);
      Pruned input = prune(node->input, required);
      return {make_filter(input.node, expr::remap_columns(node->predicate, input.mapping)), input.mapping};
    }
    case NodeKind::kProject: {
      std::set<int> reads;
      std::vector<std::string> names;
      std::vector<expr::ExprPtr> expressions;
      std::vector<int> mapping(node->expressions.size(), -1);
      for (const int column : required) {
        mapping[static_cast<size_t>(column)] = static_cast<int>(names.size());
        names.push_back(node->schema->field(column)->name());
        expressions.push_back(node->expressions[static_cast<size_t>(column)]);
        add_reads(expressions.back(), reads);
      }
      if (names.empty()) {
        names.emplace_back("row");
        expressions.push_back(expr::make_literal(std::make_shared<arrow::BooleanScalar>(true)));
      }
      Pruned input = prune(node->input, reads);
      for (auto& expression : expressions) expression = expr::remap_columns(expression, input.mapping);
      return {make_project(input.node, names, std::move(expressions)), std::move(mapping)};
    }
    case NodeKind::kAggregate: {
      auto copy = std::make_shared<Node>(*node);
      copy->input = prune(node->input, all_columns(*node->input)).node;
      return {copy, identity(*node)};
    }
    case NodeKind::kSort: {
      for (const SortKey& key : node->sort_keys) required.insert(key.column);
      Pruned input = prune(node->input, required);
      std::vector<SortKey> keys = node->sort_keys;
      for (SortKey& key : keys) key.column = input.mapping[static_cast<size_t>(key.column)];
      return {make_sort(input.node, std::move(keys), node->position), input.mapping};
    }
    case NodeKind::kLimit: {
      Pruned input = prune(node->input, required);
      return {make_limit(input.node, node->limit, node->offset, node->position), input.mapping};
    }
    case NodeKind::kWindow: {
      const int before = node->input->schema->num_fields();
      std::set<int> reads;
      for (const int column : required)
        if (column < before) reads.insert(column);
      for (const WindowCall& call : node->windows) {
        for (const int column : {call.argument, call.second, call.otherwise, call.filter})
          if (column >= 0) reads.insert(column);
        reads.insert(call.partition_by.begin(), call.partition_by.end());
        for (const SortKey& key : call.order_by) reads.insert(key.column);
      }
      Pruned input = prune(node->input, reads);
      const auto at = [&](int column) {
        return column < 0 ? column : input.mapping[static_cast<size_t>(column)];
      };
      std::vector<WindowCall> calls = node->windows;
      std::vector<std::string> names;
      Pruned result;
      result.mapping = input.mapping;
      for (WindowCall& call : calls) {
        call.argument = at(call.argument);
        call.second = at(call.second);
        call.otherwise = at(call.otherwise);
        call.filter = at(call.filter);
        for (int& column : call.partition_by) column = at(column);
        for (SortKey& key : call.order_by) key.column = at(key.column);
        result.mapping.push_back(input.node->schema->num_fields() + static_cast<int>(names.size()));
        names.push_back(node->schema->field(before + static_cast<int>(names.size()))->name());
      }
      result.node = make_window(input.node, std::move(calls), names, node->position);
      return result;
    }
    case NodeKind::kUnion: {
      // A row set of no columns has no rows.
      if (required.empty()) required.insert(0);
      Pruned result;
      result.node = make_union(only(prune(node->input, required), required),
                               only(prune(node->right, required), required));
      result.mapping.assign(static_cast<size_t>(node->schema->num_fields()), -1);
      int at = 0;
      for (const int column : required) result.mapping[static_cast<size_t>(column)] = at++;
      return result;
    }
    case NodeKind::kAttach: {
      const int added = node->schema->num_fields() - 1;
      const NodePtr right = prune(node->right, all_columns(*node->right)).node;
      required.erase(added);
      expr::ExprPtr key = node->left_keys.empty() ? nullptr : node->left_keys[0];
      add_reads(key, required);
      Pruned input = prune(node->input, required);
      if (key != nullptr) key = expr::remap_columns(key, input.mapping);
      Pruned result;
      result.mapping = input.mapping;
      result.mapping.push_back(input.node->schema->num_fields());
      result.node = make_attach(node->attach, input.node, right, std::move(key),
                                node->schema->field(added)->name(), node->position);
      return result;
    }
    case NodeKind::kScan:
      break;
  }
  return project(node, required);
}

}  // namespace

NodePtr prune_join_inputs(const NodePtr& plan) {
  if (!branches(*plan)) return plan;
  return prune(plan, all_columns(*plan)).node;
}

}  // namespace millstream::plan
