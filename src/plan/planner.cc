#include "plan/planner.h"

#include <algorithm>

#include "base/nearest_name.h"
#include "expr/type.h"
#include "plan/memory_table.h"
#include "plan/prune.h"
#include "plan/rewrite.h"
#include "plan/select_planner.h"
#include "plan/subqueries.h"
#include "sql/binder.h"
#include "sql/lexer.h"
#include "sql/parser.h"

namespace millstream::plan {
namespace {

namespace ast = sql::ast;

// The WITH queries that a query sees, innermost first. Each was defined where the ones before it were
// visible.
struct Visible {
  const ast::CommonTable* table = nullptr;
  const Visible* outer = nullptr;
};

class Planner {
 public:
  Planner(const sql::SourceText& source, Catalog& catalog, const QueryOptions& options)
      : source_(source), catalog_(catalog), options_(options) {}

  // `outer`: what is visible around the expression that the query stands in; null: it stands in none.
  Result<NodePtr> query(const ast::Query& query, const Visible* visible, const sql::Scope* outer) {
    if (query.described != nullptr) {
      MILLSTREAM_ASSIGN(const NodePtr described, this->query(*query.described, visible, outer));
      return description(*described->schema);
    }
    std::vector<std::unique_ptr<Visible>> defined;
    for (const ast::CommonTable& table : query.with) {
      for (const auto& earlier : defined) {
        if (sql::equals_ignoring_case(earlier->table->name, table.name)) {
          return source_.error(table.offset, fmt::format("there are two WITH queries '{}'", table.name));
        }
      }
      defined.push_back(std::make_unique<Visible>(Visible{&table, visible}));
      visible = defined.back().get();
    }
    if (!query.from) {
      return source_.error(query.offset,
                           "a query reads from somewhere: FROM 'name.parquet', FROM 'folder/*.csv'");
    }
    Tables tables(1);
    const Subqueries::Planner subquery = [&, visible](const ast::Query& inner, const sql::Scope& around) {
      return this->query(inner, visible, &around);
    };
    MILLSTREAM_ASSIGN(NodePtr node, table_source(*query.from, visible, tables[0].name));
    tables[0].schema = node->schema;
    for (const ast::Join& join : query.joins) {
      MILLSTREAM_ASSIGN(node, join_table(std::move(node), join, visible, tables));
    }
    if (query.where != nullptr) {
      sql::Scope scope;
      for (const auto& table : tables) scope.add_table(table.name, table.schema);
      scope.set_aliases(&query.items);
      scope.set_outer(outer);
      Subqueries subqueries(source_, subquery, node->schema->num_fields());
      scope.set_subqueries(&subqueries);
      MILLSTREAM_ASSIGN(auto predicate, sql::bind_predicate(*query.where, scope, source_));
      MILLSTREAM_TRY(source_.place(check_expanded_size({predicate}), query.where->offset));
      MILLSTREAM_ASSIGN(node, filtered(std::move(node), std::move(predicate), subqueries));
      describe(*node, tables);
    }
    return SelectPlanner(source_, query, std::move(node), tables, subquery, outer).plan();
  }

 private:
  using Tables = std::vector<SelectPlanner::Table>;

  // What DESCRIBE gives, in DuckDB's columns. As a file's, a column's NULL is YES where it may have some.
  static Result<NodePtr> description(const arrow::Schema& schema) {
    arrow::StringBuilder names, types, nulls, keys, defaults, extras;
    for (const auto& field : schema.fields()) {
      MILLSTREAM_TRY(names.Append(field->name()));
      MILLSTREAM_TRY(types.Append(expr::sql_type_name(*field->type())));
      MILLSTREAM_TRY(nulls.Append(field->nullable() ? "YES" : "NO"));
      for (arrow::StringBuilder* unknown : {&keys, &defaults, &extras}) MILLSTREAM_TRY(unknown->AppendNull());
    }
    arrow::ArrayVector columns;
    for (arrow::StringBuilder* builder : {&names, &types, &nulls, &keys, &defaults, &extras}) {
      MILLSTREAM_ASSIGN(auto column, builder->Finish());
      columns.push_back(std::move(column));
    }
    const auto text = [](const char* name, bool nullable) {
      return arrow::field(name, arrow::utf8(), nullable);
    };
    const auto of_rows =
        arrow::schema({text("column_name", false), text("column_type", false), text("null", false),
                       text("key", true), text("default", true), text("extra", true)});
    return make_scan(make_memory_table(
        "DESCRIBE", arrow::RecordBatch::Make(of_rows, schema.num_fields(), std::move(columns))));
  }

  // The rows for which the predicate is true, which may read values of subqueries. What reads none and cannot fail is
  // asked before.
  static Result<NodePtr> filtered(NodePtr node, expr::ExprPtr predicate, const Subqueries& subqueries) {
    if (subqueries.count() == 0) return make_filter(std::move(node), std::move(predicate));
    std::vector<expr::ExprPtr> before, after;
    const std::vector<expr::ExprPtr> parts =
        predicate->kind == expr::Kind::kAnd ? predicate->arguments : std::vector<expr::ExprPtr>{predicate};
    for (const auto& part : parts) {
      const auto columns = expr::columns_read(*part);
      const bool reads = !columns.empty() && columns.back() >= subqueries.first_column();
      (reads || part->can_fail ? after : before).push_back(part);
    }
    const auto all_of = [](const std::vector<expr::ExprPtr>& conditions) -> Result<expr::ExprPtr> {
      if (conditions.size() == 1) return conditions[0];
      return expr::make_and(conditions, conditions[0]->position);
    };
    const int columns = node->schema->num_fields();
    if (!before.empty()) {
      MILLSTREAM_ASSIGN(auto condition, all_of(before));
      node = make_filter(std::move(node), std::move(condition));
    }
    if (after.empty()) return node;
    MILLSTREAM_ASSIGN(auto condition, all_of(after));
    node = subqueries.attach_all(std::move(node), {&condition});
    node = make_filter(std::move(node), std::move(condition));
    std::vector<std::string> names;
    std::vector<expr::ExprPtr> outputs;
    for (int i = 0; i < columns; ++i) {
      names.push_back(node->schema->field(i)->name());
      outputs.push_back(expr::make_column(i, *node->schema->field(i)));
    }
    return make_project(std::move(node), names, std::move(outputs));
  }

  // UNION ALL: column by column of a type that all have room for.
  Result<NodePtr> united(const ast::TableSource& source, const Visible* visible) {
    std::vector<NodePtr> nodes;
    for (const auto& branch : source.branches) {
      MILLSTREAM_ASSIGN(auto node, query(*branch, visible, nullptr));
      const int first = nodes.empty() ? node->schema->num_fields() : nodes[0]->schema->num_fields();
      if (node->schema->num_fields() != first) {
        return source_.error(
            branch->offset,
            fmt::format("the queries of a UNION have as many columns; the first has {}, this one {}", first,
                        node->schema->num_fields()));
      }
      nodes.push_back(std::move(node));
    }
    const int columns = nodes[0]->schema->num_fields();
    std::vector<expr::TypePtr> types;
    for (int c = 0; c < columns; ++c) {
      expr::TypePtr type = nodes[0]->schema->field(c)->type();
      for (size_t i = 1; i < nodes.size(); ++i) {
        const expr::TypePtr& other = nodes[i]->schema->field(c)->type();
        const expr::TypePtr common = expr::common_type(type, other);
        if (common == nullptr) {
          return source_.error(
              source.branches[i]->offset,
              fmt::format("column {} of a UNION is {} and here {}, which have no common type; cast them",
                          c + 1, expr::sql_type_name(*type), expr::sql_type_name(*other)));
        }
        type = common;
      }
      types.push_back(std::move(type));
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      bool same = true;
      std::vector<expr::ExprPtr> outputs;
      for (int c = 0; c < columns; ++c) {
        const auto& field = nodes[i]->schema->field(c);
        auto output = expr::make_column(c, *field);
        if (!field->type()->Equals(*types[static_cast<size_t>(c)])) {
          same = false;
          auto cast = expr::make_cast(std::move(output), types[static_cast<size_t>(c)], false,
                                      source_.position(source.branches[i]->offset));
          if (!cast.ok()) return source_.place(cast.status(), source.branches[i]->offset);
          output = std::move(cast).ValueUnsafe();
        }
        outputs.push_back(std::move(output));
      }
      if (!same) nodes[i] = make_project(nodes[i], nodes[i]->schema->field_names(), std::move(outputs));
    }
    // A tree of little depth.
    while (nodes.size() > 1) {
      std::vector<NodePtr> pairs;
      for (size_t i = 0; i + 1 < nodes.size(); i += 2) pairs.push_back(make_union(nodes[i], nodes[i + 1]));
      if (nodes.size() % 2 != 0) pairs.push_back(nodes.back());
      nodes = std::move(pairs);
    }
    return nodes[0];
  }

  // The tables so far joined with one more, which is added to them with the columns that it contributes.
  Result<NodePtr> join_table(NodePtr left, const ast::Join& join, const Visible* visible, Tables& tables) {
    SelectPlanner::Table added;
    MILLSTREAM_ASSIGN(NodePtr right, table_source(join.table, visible, added.name));
    added.schema = right->schema;
    const auto kind = static_cast<JoinKind>(join.kind);
    const int num_left = left->schema->num_fields();
    const auto position = source_.position(join.offset);
    std::vector<expr::ExprPtr> left_keys, right_keys, others;
    std::vector<int> used;  // right columns that USING merges
    std::vector<int> merged;
    if (join.on != nullptr) {
      sql::Scope scope;
      for (const auto& table : tables) scope.add_table(table.name, table.schema);
      scope.add_table(added.name, added.schema);
      scope.set_clause("ON");
      MILLSTREAM_ASSIGN(const auto condition, sql::bind_predicate(*join.on, scope, source_, "ON"));
      MILLSTREAM_TRY(source_.place(check_expanded_size({condition}), join.on->offset));
      split_condition(condition, num_left, left_keys, right_keys, others);
    } else {
      for (const auto& [name, offset] : join.using_columns) {
        const auto find = [&, &name = name, offset = offset](const arrow::Schema& schema,
                                                             const char* side) -> Result<int> {
          int found = -1;
          for (int i = 0; i < schema.num_fields(); ++i) {
            if (!sql::equals_ignoring_case(schema.field(i)->name(), name)) continue;
            if (found >= 0)
              return source_.error(
                  offset, fmt::format("the {} side has several columns '{}'; join them with ON", side, name));
            found = i;
          }
          if (found < 0)
            return source_.error(offset, fmt::format("the {} side of the join has no column '{}'{}", side,
                                                     name, name_hint(name, schema.field_names())));
          return found;
        };
        MILLSTREAM_ASSIGN(const int l, find(*left->schema, "left"));
        MILLSTREAM_ASSIGN(const int r, find(*right->schema, "right"));
        auto equal = expr::make_call(
            "=",
            {expr::make_column(l, *left->schema->field(l), source_.position(offset)),
             expr::make_column(num_left + r, *right->schema->field(r), source_.position(offset))},
            source_.position(offset));
        if (!equal.ok()) return source_.place(equal.status(), offset);
        split_condition(*equal, num_left, left_keys, right_keys, others);
        used.push_back(r);
        merged.push_back(l);
      }
    }
    if (left_keys.empty()) {
      return source_.error(
          join.on == nullptr ? join.offset : join.on->offset,
          "a join needs an equality of both sides, such as a.id = b.id; others can stand beside it with AND");
    }
    for (const auto& key : left_keys) {
      if (!expr::is_orderable_type(*key->type)) {
        return source_.error(join.offset, fmt::format("values of type {} cannot be joined by",
                                                      expr::sql_type_name(*key->type)));
      }
    }
    expr::ExprPtr predicate;
    if (others.size() == 1) predicate = others[0];
    if (others.size() > 1) {
      MILLSTREAM_ASSIGN(predicate, expr::make_and(others, position));
    }
    NodePtr node = make_join(kind, std::move(left), std::move(right), std::move(left_keys),
                             std::move(right_keys), std::move(predicate), position);
    if (kind == JoinKind::kSemi || kind == JoinKind::kAnti) return node;
    if (!used.empty()) {
      MILLSTREAM_ASSIGN(node, merge_columns(std::move(node), num_left, used, merged));
      arrow::FieldVector fields;
      for (int i = num_left; i < node->schema->num_fields(); ++i) fields.push_back(node->schema->field(i));
      added.schema = arrow::schema(std::move(fields));
    }
    tables.push_back(std::move(added));
    describe(*node, tables);
    return node;
  }

  // The tables' columns as the node gives them: a join makes some nullable, USING changes a type, a filter says what
  // is not NULL.
  static void describe(const Node& node, Tables& tables) {
    int first = 0;
    for (auto& table : tables) {
      const int count = table.schema->num_fields();
      arrow::FieldVector fields;
      for (int i = 0; i < count; ++i) fields.push_back(node.schema->field(first + i));
      first += count;
      table.schema = arrow::schema(std::move(fields));
    }
  }

  // Equalities of both sides become keys; whatever else ANDs hold together is for the pairs.
  static void split_condition(const expr::ExprPtr& condition, int num_left,
                              std::vector<expr::ExprPtr>& left_keys, std::vector<expr::ExprPtr>& right_keys,
                              std::vector<expr::ExprPtr>& others) {
    if (condition->kind == expr::Kind::kAnd) {
      for (const auto& part : condition->arguments)
        split_condition(part, num_left, left_keys, right_keys, others);
      return;
    }
    if (condition->kind == expr::Kind::kCall && condition->name == "=" && condition->arguments.size() == 2) {
      const auto side = [&](const expr::Expression& e) {
        bool left = false, right = false;
        for (const int column : expr::columns_read(e)) (column < num_left ? left : right) = true;
        return left == right ? 0 : left ? -1 : 1;
      };
      const auto& a = condition->arguments[0];
      const auto& b = condition->arguments[1];
      const int sides[] = {side(*a), side(*b)};
      if (sides[0] * sides[1] < 0 && a->type->Equals(*b->type)) {
        const auto to_right = [&](const expr::ExprPtr& e) {
          std::vector<int> mapping;
          for (const int column : expr::columns_read(*e)) {
            mapping.resize(static_cast<size_t>(column) + 1, -1);
            mapping[static_cast<size_t>(column)] = column - num_left;
          }
          return expr::remap_columns(e, mapping);
        };
        left_keys.push_back(sides[0] < 0 ? a : b);
        right_keys.push_back(to_right(sides[0] < 0 ? b : a));
        return;
      }
    }
    others.push_back(condition);
  }

  // USING: the columns of both sides are one, at the left one's place: of RIGHT and FULL whichever is not NULL.
  Result<NodePtr> merge_columns(NodePtr node, int num_left, const std::vector<int>& used,
                                const std::vector<int>& merged) {
    std::vector<std::string> names;
    std::vector<expr::ExprPtr> expressions;
    for (int i = 0; i < node->schema->num_fields(); ++i) {
      if (i >= num_left && std::ranges::find(used, i - num_left) != used.end()) continue;
      const auto& field = node->schema->field(i);
      expr::ExprPtr expression = expr::make_column(i, *field);
      const auto at = std::ranges::find(merged, i);
      if (i < num_left && at != merged.end() &&
          (node->join == JoinKind::kRight || node->join == JoinKind::kFull)) {
        const int other = num_left + used[static_cast<size_t>(at - merged.begin())];
        MILLSTREAM_ASSIGN(
            expression,
            expr::make_coalesce({expression, expr::make_column(other, *node->schema->field(other))}));
      }
      names.push_back(field->name());
      expressions.push_back(std::move(expression));
    }
    return make_project(std::move(node), names, std::move(expressions));
  }

  Result<NodePtr> table_source(const ast::TableSource& from, const Visible* visible, std::string& name) {
    name = from.alias;
    switch (from.kind) {
      case ast::TableSource::Kind::kSubquery:
        return query(*from.subquery, visible, nullptr);
      case ast::TableSource::Kind::kUnion:
        return united(from, visible);
      case ast::TableSource::Kind::kFiles:
        return scan(from.files, from.offset, from.csv ? &*from.csv : nullptr, name);
      case ast::TableSource::Kind::kName:
        break;
    }
    std::vector<std::string> known;
    for (const Visible* candidate = visible; candidate != nullptr; candidate = candidate->outer) {
      if (sql::equals_ignoring_case(candidate->table->name, from.name)) {
        if (name.empty()) name = candidate->table->name;
        return query(*candidate->table->query, candidate->outer, nullptr);
      }
      known.push_back(candidate->table->name);
    }
    // As in DuckDB a file may stand in double quotes too.
    if (from.name.find_first_of("./*") != std::string::npos)
      return scan({{from.name, from.offset}}, from.offset, nullptr, name);
    const std::string hint = known.empty() ? "" : name_hint(from.name, known);
    return source_.error(from.offset,
                         fmt::format("there is no table '{}'{}; a file is named in quotes: FROM '{}.parquet'",
                                     from.name, hint, from.name));
  }

  Result<NodePtr> scan(const std::vector<ast::FileName>& files, size_t offset, const ast::CsvOptions* csv,
                       std::string& name) {
    TableReference reference;
    reference.base_directory = options_.base_directory;
    reference.position = source_.position(offset);
    if (name.empty() && files.size() == 1) name = file_stem(files[0].text);
    for (const ast::FileName& file : files) reference.globs.push_back(file.text);
    if (first_table_.empty()) first_table_ = reference.globs;
    if (!options_.replace_inputs.empty() && reference.globs == first_table_)
      reference.globs = options_.replace_inputs;
    if (csv != nullptr) {
      CsvOptions& options = reference.csv.emplace();
      options.delimiter = csv->delimiter;
      options.quote = csv->quote;
      options.header = csv->header.value_or(true);
      options.names = csv->names;
      options.null_texts = csv->null_texts;
      options.all_text = csv->all_text;
      for (const auto& column : csv->types) options.text_columns.push_back(column.name);
    }
    auto table = catalog_.open(reference);
    if (!table.ok()) return source_.place(table.status(), offset);
    NodePtr node = make_scan(std::move(table).ValueUnsafe());
    return csv != nullptr && !csv->types.empty() ? with_types(std::move(node), *csv) : node;
  }

  // The columns that read_csv's `types` names, read as texts, as those types.
  Result<NodePtr> with_types(NodePtr node, const ast::CsvOptions& csv) {
    const std::vector<std::string> names = node->schema->field_names();
    std::vector<expr::ExprPtr> columns;
    for (int i = 0; i < node->schema->num_fields(); ++i)
      columns.push_back(expr::make_column(i, *node->schema->field(i)));
    for (const auto& typed : csv.types) {
      const auto found = std::ranges::find_if(
          names, [&](const std::string& name) { return sql::equals_ignoring_case(name, typed.name); });
      if (found == names.end()) {
        return source_.error(typed.offset, fmt::format("the files have no column '{}'{}", typed.name,
                                                       name_hint(typed.name, names)));
      }
      expr::ExprPtr& column = columns[static_cast<size_t>(found - names.begin())];
      const auto position = source_.position(typed.offset);
      const bool date = expr::is_date_type(*typed.type.type);
      const std::string& format = date ? csv.date_format : csv.timestamp_format;
      Result<expr::ExprPtr> value = column;
      if (!format.empty() && (date || expr::is_timestamp_type(*typed.type.type))) {
        value = expr::make_call(
            "strptime", {column, expr::make_literal(std::make_shared<arrow::StringScalar>(format), position)},
            position);
      }
      if (value.ok()) value = expr::make_cast(*value, typed.type.type, false, position);
      if (!value.ok()) return source_.place(value.status(), typed.offset);
      column = std::move(value).ValueUnsafe();
    }
    return make_project(std::move(node), names, std::move(columns));
  }

  // FROM 'trips/a.parquet' can be called a.
  static std::string file_stem(const std::string& path) {
    const size_t slash = path.rfind('/');
    std::string base = slash == std::string::npos ? path : path.substr(slash + 1);
    return base.substr(0, base.find('.'));
  }

  const sql::SourceText& source_;
  Catalog& catalog_;
  const QueryOptions& options_;
  std::vector<std::string> first_table_;  // as it stands in the query
};

}  // namespace

Result<NodePtr> plan_query(const std::string& text, Catalog& catalog, const QueryOptions& options) {
  const sql::SourceText source(options.name.empty() ? "query" : options.name, text);
  MILLSTREAM_ASSIGN(auto parsed, sql::parse_query(source));
  MILLSTREAM_ASSIGN(auto plan, Planner(source, catalog, options).query(*parsed, nullptr, nullptr));
  return prune_join_inputs(plan);
}

}  // namespace millstream::plan
