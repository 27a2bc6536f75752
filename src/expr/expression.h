#pragma once
// Bound, typed expressions over the columns of a row set, and their evaluation by the interpreter.
//
// Types are Arrow types, in the canonical form that `expr/type.h` names (string, large_string and dictionary
// are all utf8; decimals are decimal128). An Expression is immutable and shared. Factories type-check, insert
// the casts that SQL's promotions ask for and infer nullability; the dialect is DuckDB's (design, section 4).
// Errors of factories are query errors; they carry the position given with the expression.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"

namespace millstream::expr {

using TypePtr = std::shared_ptr<arrow::DataType>;

/// Where in the query's text an expression began: 1-based, 0 where it came from no text (C++ API).
struct QueryPosition {
  int line = 0;
  int column = 0;
};

class Function;
struct Binding;
class Expression;
using ExprPtr = std::shared_ptr<const Expression>;

enum class Kind : uint8_t {
  kLiteral,  ///< literal
  kColumn,   ///< column `column` of the input
  kCall,     ///< function(arguments); NULL handling is the function's
  kCast,     ///< arguments[0] to `type`; try_cast gives NULL instead of an error
  kAnd,      ///< n-ary, three-valued; later arguments are evaluated only where the earlier don't decide
  kOr,
  kCase,      ///< when, then, when, then, …, else: arms are evaluated under a selection
  kCoalesce,  ///< later arguments are evaluated only where the earlier are NULL
  kIn,        ///< arguments[0] IN (arguments[1..]), SQL's NULL rules
};

class Expression {
 public:
  Kind kind = Kind::kLiteral;
  TypePtr type;
  bool nullable = true;  ///< false: the value is never NULL
  std::vector<ExprPtr> arguments;
  std::shared_ptr<arrow::Scalar> literal;  ///< kLiteral
  int column = -1;                         ///< kColumn: index into the input's fields
  std::string name;                        ///< kColumn: its name; kCall: the function's name
  const Function* function = nullptr;      ///< kCall
  bool try_cast = false;                   ///< kCast
  std::shared_ptr<const Binding> binding;  ///< kCall, kCast: the loop chosen for the argument types
  bool implicit = false;  ///< kCast: nobody wrote it; binding the call again puts it in again
  ExprPtr written;        ///< kLiteral that was converted for a call: the literal before
  bool can_fail = false;  ///< true: some rows may be errors, so evaluation is not moved
  QueryPosition position;

  /// SQL text that binds to this expression again (columns by quoted name). Used in messages, explain,
  /// bundles.
  std::string to_sql() const;
};

ExprPtr make_literal(std::shared_ptr<arrow::Scalar> value, QueryPosition position = {});
ExprPtr make_column(int index, const arrow::Field& field, QueryPosition position = {});
/// A registered function or operator by its SQL name ("+", "=", "not", "is_null", "abs", "hour",
/// "date_diff"). Unknown name: the nearest known one is named. No overload for the types: those that exist
/// are.
Result<ExprPtr> make_call(std::string_view name, std::vector<ExprPtr> arguments, QueryPosition position = {});
Result<ExprPtr> make_cast(ExprPtr argument, TypePtr type, bool try_cast = false, QueryPosition position = {});
Result<ExprPtr> make_and(std::vector<ExprPtr> arguments, QueryPosition position = {});
Result<ExprPtr> make_or(std::vector<ExprPtr> arguments, QueryPosition position = {});
/// arms: when, then, when, then, …; `otherwise` may be null (NULL).
Result<ExprPtr> make_case(std::vector<ExprPtr> arms, ExprPtr otherwise, QueryPosition position = {});
Result<ExprPtr> make_coalesce(std::vector<ExprPtr> arguments, QueryPosition position = {});
Result<ExprPtr> make_in(ExprPtr value, std::vector<ExprPtr> list, QueryPosition position = {});

/// The indices of the input columns that `expression` reads, ascending, without repetition.
std::vector<int> columns_read(const Expression& expression);
/// The same expression over another input: column i becomes mapping[i] (must be >= 0 where it is read).
ExprPtr remap_columns(const ExprPtr& expression, const std::vector<int>& mapping);
/// Replaces column i by replacements[i] (inlines a projection below).
ExprPtr substitute_columns(const ExprPtr& expression, const std::vector<ExprPtr>& replacements);

/// The value of `expression` for each row of `input`: an array of input.num_rows() values of expression.type.
/// A failing row (overflow, bad cast, x // 0) is a data error whose position.row is the row's index in
/// `input` and whose text names the operation and the value; of several the lowest row is reported.
/// Thread-safe.
Result<std::shared_ptr<arrow::Array>> evaluate(const Expression& expression, const arrow::RecordBatch& input);

/// Rows of `input` for which the boolean `predicate` is true (not false, not NULL), ascending.
Result<std::vector<int32_t>> evaluate_filter(const Expression& predicate, const arrow::RecordBatch& input);

/// The rows `rows` of `input`, in that order.
Result<std::shared_ptr<arrow::RecordBatch>> take_rows(const arrow::RecordBatch& input,
                                                      const std::vector<int32_t>& rows);

}  // namespace millstream::expr
