#pragma once
// The syntax tree of a query, as written: names are not resolved, types are not known. Nodes keep the byte
// offset of the place that an error about them should point at.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expr/expression.h"
#include "expr/window.h"

namespace millstream::sql::ast {

enum class ExprKind : uint8_t {
  kNull,
  kBoolean,   ///< text "true" or "false"
  kNumber,    ///< text without underscores, as written: 1, 0.10, 1e3
  kString,    ///< text: the value
  kBlob,      ///< text: the bytes
  kInterval,  ///< arguments[0] (a string when unit is empty); unit "day", …
  kColumn,    ///< parts: column, or table and column
  kUnary,     ///< text "-", "+", "not"
  kBinary,  ///< text: the operator as functions are called: "+", "=", "<>", "||", "like", …; LIKE … ESCAPE has a third argument
  kAnd,     ///< n-ary
  kOr,
  kCall,      ///< text: the name in lower case; unit "*" for count(*)
  kCast,      ///< arguments[0], type
  kCase,      ///< when, then, …; see has_operand, has_else
  kIn,        ///< arguments[0] [NOT] IN (arguments[1..])
  kBetween,   ///< arguments[0] [NOT] BETWEEN arguments[1] AND arguments[2]
  kIsNull,    ///< arguments[0] IS [NOT] NULL
  kIsTrue,    ///< arguments[0] IS [NOT] TRUE | FALSE | UNKNOWN (text)
  kSubquery,  ///< (SELECT …): its one value; text as written
  kExists,    ///< EXISTS (SELECT …)
  kInQuery,   ///< arguments[0] [NOT] IN (SELECT …)
};

struct Expr;
struct Query;
struct Window;
using ExprPtr = std::unique_ptr<Expr>;

/// A type as written, resolved: types have names of their own and no scope.
struct TypeName {
  std::string text;  ///< as it stands in the name of an unnamed output: "INTEGER", "DECIMAL(5, 2)"
  expr::TypePtr type;
};

struct Expr {
  ExprKind kind = ExprKind::kNull;
  size_t offset = 0;  ///< an operator's own place for operators, else where it begins
  std::string text;
  std::string unit;                ///< kInterval
  std::vector<std::string> parts;  ///< kColumn
  std::vector<ExprPtr> arguments;
  TypeName type;                    ///< kCast
  std::shared_ptr<Window> over;     ///< kCall: OVER …; null: none
  std::shared_ptr<Query> subquery;  ///< kSubquery, kExists, kInQuery
  ExprPtr filter;                   ///< kCall: FILTER (WHERE …)
  bool distinct = false;            ///< kCall: f(DISTINCT …)
  bool negated = false;             ///< NOT IN, NOT BETWEEN, IS NOT
  bool try_cast = false;            ///< kCast
  bool has_operand = false;         ///< kCase: CASE x WHEN …; the operand is arguments[0]
  bool has_else = false;            ///< kCase: the last argument is ELSE's
  int depth = 1;                    ///< levels of the tree below and with this node
};

/// The expression's text in a normal form, which is what an output without an alias is called; it is
/// DuckDB's:
/// "(a + 1)", "CAST(a AS INTEGER)".
std::string to_text(const Expr& expression);

/// A file name or glob as written.
struct FileName {
  std::string text;
  size_t offset = 0;
};

struct SelectItem {
  size_t offset = 0;
  ExprPtr expression;                                   ///< null for a star
  std::string alias;                                    ///< empty: none
  std::string star_table;                               ///< t.*: "t"
  std::vector<std::pair<std::string, size_t>> exclude;  ///< * EXCLUDE (…), with offsets
};

/// What read_csv() was told of its files.
struct CsvOptions {
  char delimiter = 0;          ///< 0: found out
  int quote = '"';             ///< -1: none
  std::optional<bool> header;  ///< none: there is one
  std::vector<std::string> names;
  std::vector<std::string> null_texts = {""};
  bool all_text = false;
  /// Columns and their types, with the place of the name.
  struct Column {
    std::string name;
    size_t offset = 0;
    TypeName type;
  };
  std::vector<Column> types;
  std::string date_format, timestamp_format;  ///< of columns of `types`; empty: 2024-01-31
};

struct TableSource {
  enum class Kind : uint8_t { kFiles, kName, kSubquery, kUnion };
  Kind kind = Kind::kFiles;
  size_t offset = 0;
  std::vector<FileName> files;                   ///< kFiles
  std::optional<CsvOptions> csv;                 ///< kFiles: read_csv()
  std::string name;                              ///< kName: of a WITH query
  std::unique_ptr<Query> subquery;               ///< kSubquery
  std::vector<std::unique_ptr<Query>> branches;  ///< kUnion: UNION ALL stands between them
  std::string alias;                             ///< empty: none was given
};

struct CommonTable {
  std::string name;
  size_t offset = 0;
  std::unique_ptr<Query> query;
};

struct Join {
  enum class Kind : uint8_t { kInner, kLeft, kRight, kFull, kSemi, kAnti };
  Kind kind = Kind::kInner;
  size_t offset = 0;
  TableSource table;
  ExprPtr on;                                                 ///< null: USING
  std::vector<std::pair<std::string, size_t>> using_columns;  ///< with offsets
};

struct OrderItem {
  ExprPtr expression;  ///< null: ORDER BY ALL
  bool descending = false;
  bool nulls_first = false;
};

/// What stands after OVER, and in a WINDOW clause.
struct Window {
  size_t offset = 0;
  std::string
      base;  ///< the name of a window of the WINDOW clause that this one is, or begins with; empty: none
  std::vector<ExprPtr> partition_by;
  std::vector<OrderItem> order_by;
  std::optional<expr::WindowFrame> frame;
};

struct NamedWindow {
  std::string name;
  size_t offset = 0;
  Window window;
};

/// A UNION is SELECT [DISTINCT] * FROM a table source of that kind, so that ORDER BY and LIMIT are of the whole.
struct Query {
  size_t offset = 0;
  std::unique_ptr<Query> described;  ///< DESCRIBE this query; all else is empty
  std::vector<CommonTable> with;
  std::vector<SelectItem> items;
  std::optional<TableSource> from;
  std::vector<Join> joins;  ///< from left to right
  ExprPtr where;
  bool distinct = false;
  size_t distinct_offset = 0;
  std::vector<ExprPtr> group_by;
  bool group_all = false;   ///< GROUP BY ALL
  size_t group_offset = 0;  ///< of GROUP
  ExprPtr having;
  std::vector<NamedWindow> windows;  ///< WINDOW name AS (…), …
  ExprPtr qualify;
  std::vector<OrderItem> order_by;
  size_t order_offset = 0;       ///< of ORDER
  std::optional<int64_t> limit;  ///< LIMIT ALL: none
  std::optional<int64_t> offset_rows;
  size_t limit_offset = 0;  ///< of LIMIT or OFFSET, whichever comes first
};

}  // namespace millstream::sql::ast
