#include "plan/planner.h"

#include "base/nearest_name.h"
#include "plan/rewrite.h"
#include "plan/select_planner.h"
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

  Result<NodePtr> query(const ast::Query& query, const Visible* visible) {
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
    std::string name;
    MILLSTREAM_ASSIGN(NodePtr node, table_source(*query.from, visible, name));
    if (query.where != nullptr) {
      sql::Scope scope;
      scope.add_table(name, node->schema);
      scope.set_aliases(&query.items);
      MILLSTREAM_ASSIGN(auto predicate, sql::bind_predicate(*query.where, scope, source_));
      MILLSTREAM_TRY(source_.place(check_expanded_size({predicate}), query.where->offset));
      node = make_filter(std::move(node), std::move(predicate));
    }
    return SelectPlanner(source_, query, std::move(node), name).plan();
  }

 private:
  Result<NodePtr> table_source(const ast::TableSource& from, const Visible* visible, std::string& name) {
    name = from.alias;
    switch (from.kind) {
      case ast::TableSource::Kind::kSubquery:
        return query(*from.subquery, visible);
      case ast::TableSource::Kind::kFiles:
        return scan(from.files, from.offset, name);
      case ast::TableSource::Kind::kName:
        break;
    }
    std::vector<std::string> known;
    for (const Visible* candidate = visible; candidate != nullptr; candidate = candidate->outer) {
      if (sql::equals_ignoring_case(candidate->table->name, from.name)) {
        if (name.empty()) name = candidate->table->name;
        return query(*candidate->table->query, candidate->outer);
      }
      known.push_back(candidate->table->name);
    }
    // As in DuckDB a file may stand in double quotes too.
    if (from.name.find_first_of("./*") != std::string::npos)
      return scan({{from.name, from.offset}}, from.offset, name);
    const std::string hint = known.empty() ? "" : name_hint(from.name, known);
    return source_.error(from.offset,
                         fmt::format("there is no table '{}'{}; a file is named in quotes: FROM '{}.parquet'",
                                     from.name, hint, from.name));
  }

  Result<NodePtr> scan(const std::vector<ast::FileName>& files, size_t offset, std::string& name) {
    if (++scans_ > 1 && !options_.replace_inputs.empty()) {
      return source_.error(
          offset, "the query reads more than one table, so its input cannot be replaced by other files");
    }
    TableReference reference;
    reference.base_directory = options_.base_directory;
    reference.position = source_.position(offset);
    if (name.empty() && files.size() == 1) name = file_stem(files[0].text);
    if (options_.replace_inputs.empty()) {
      for (const ast::FileName& file : files) reference.globs.push_back(file.text);
    } else {
      reference.globs = options_.replace_inputs;
    }
    auto table = catalog_.open(reference);
    if (!table.ok()) return source_.place(table.status(), offset);
    return make_scan(std::move(table).ValueUnsafe());
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
  int scans_ = 0;
};

}  // namespace

Result<NodePtr> plan_query(const std::string& text, Catalog& catalog, const QueryOptions& options) {
  const sql::SourceText source(options.name.empty() ? "query" : options.name, text);
  MILLSTREAM_ASSIGN(auto parsed, sql::parse_query(source));
  return Planner(source, catalog, options).query(*parsed, nullptr);
}

}  // namespace millstream::plan
