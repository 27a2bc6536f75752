#pragma once
// From the text of a query to its syntax tree: recursive descent for clauses, precedence climbing for
// expressions. The grammar is DuckDB's; what it has and we do not run yet is an error of its own at its
// place.

#include <memory>
#include <string_view>

#include "sql/ast.h"
#include "sql/source_text.h"

namespace millstream::sql {

Result<std::unique_ptr<ast::Query>> parse_query(const SourceText& source);
/// A single expression, all of the text.
Result<ast::ExprPtr> parse_expression(const SourceText& source);

}  // namespace millstream::sql
