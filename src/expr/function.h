#pragma once
// The function library as the rest of the engine sees it: what a function is called, what it takes and gives,
// and the loop that computes it. `src/functions` defines the functions, one file a function or tight family:
//
//     struct Abs {
//       template <class T>
//       MILLSTREAM_BODY static Checked<T> body(T x) { ... }    // the only place that says what abs is
//     };
//
//     MILLSTREAM_FUNCTION(abs) {
//       Function f;
//       f.name = "abs";
//       f.doc = "Absolute value.";
//       f.examples = {{"abs(-3)", "3"}};
//       f.overloads = same_type<Abs, 1>(SignedIntegers{});
//       return define(std::move(f));
//     }
//
// expr/kernel.h makes the vectorised loops from such bodies.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"
#include "expr/expression.h"
#include "expr/type.h"

namespace millstream::expr {

/// A column of values during evaluation. `constant`: the data has one row that stands for all of them.
struct Value {
  std::shared_ptr<arrow::ArrayData> data;
  bool constant = false;
};

/// What a kernel is given, and where it puts its result.
/// 1. `arguments` have the binding's parameter types; a constant one has one row, others have `rows`.
/// 2. `validity` (bit offset 0; null: every row) marks the rows that count under NullPolicy::kPropagate:
/// those
///    where no argument is NULL. A kernel may compute the others, and must not fail for them.
/// 3. `out` comes with type and length; the kernel sets buffers[1...], and buffers[0] with null_count only
/// where
///    its own result is NULL for arguments that are not. The evaluator adds the NULLs of the arguments.
/// 4. A row that fails is a data error with position.row; the lowest such row.
struct KernelCall {
  const Expression& expression;
  std::span<const Value> arguments;
  int64_t rows;
  const uint8_t* validity;
  arrow::ArrayData& out;
};

using Kernel = Status (*)(KernelCall& call);

enum class NullPolicy : uint8_t {
  kPropagate,  ///< NULL where an argument is NULL; the evaluator does it
  kOwn,        ///< the kernel reads and writes validity itself
};

/// How generated code (jit) computes a call.
enum class Fusion : uint8_t {
  kNone,  ///< not at all: the kernel makes a column of it
  kBody,  ///< Binding::body, NULL where an argument is
  kNot,
  kIsNull,
  kIsNotNull,
  kIn,           ///< body(value, item) says whether they are equal
  kPick,         ///< least, greatest: body(candidate, best) says whether the candidate replaces the best
  kDistinct,     ///< body(a, b) says whether two values differ
  kNotDistinct,  ///< likewise, and the answer is turned round
};

/// A function for certain argument types.
struct Binding {
  std::vector<TypePtr> parameters;  ///< arguments are cast to these
  TypePtr result;
  Kernel kernel = nullptr;
  NullPolicy nulls = NullPolicy::kPropagate;
  bool can_fail = false;    ///< some values are errors
  bool gives_null = false;  ///< NULL is possible although no argument is NULL
  bool never_null = false;  ///< kOwn: not NULL whatever the arguments are

  Fusion fusion = Fusion::kNone;
  /// What the body over one row is called in the bitcode of all bodies; expr/kernel.h makes it.
  const char* body = nullptr;
  /// The bytes that the body is given before its arguments: what it derives from the call's types and constants;
  /// null: it takes none.
  void (*state)(const Expression& call, std::string& bytes) = nullptr;
  /// The body takes this many of the arguments, from this one on.
  uint8_t first_body_argument = 0;
  uint8_t body_arguments = 255;
};

struct Example {
  std::string expression;
  std::string result;
};

/// How calls are written, in SQL and in messages.
enum class Notation : uint8_t { kCall, kInfix, kPrefix, kPostfix };

struct Bounds;

class Function {
 public:
  std::string name;
  std::vector<std::string> aliases;
  std::string doc;
  std::vector<Example> examples;
  Notation notation = Notation::kCall;
  /// kInfix, kPrefix and kPostfix: the operator as written where it is not the name ("IS NULL").
  std::string symbol;

  /// The types for which it exists; the cheapest to convert to is taken.
  std::vector<Binding> overloads;
  /// For families whose types are computed (decimals, comparisons): tried first; nothing: go on to
  /// `overloads`.
  Result<std::optional<Binding>> (*bind)(const std::vector<ExprPtr>& arguments) = nullptr;
  /// A function that is short for another expression; tried before everything else. A null result: go on.
  Result<ExprPtr> (*rewrite)(const std::vector<ExprPtr>& arguments, QueryPosition position) = nullptr;
  /// What is known of a call's values from what is known of its arguments' (expr/bounds.h); null: what the type
  /// says. The arguments have the binding's parameter types.
  Bounds (*bound)(const Expression& call, std::span<const Bounds> arguments) = nullptr;
  /// What `bind` and `rewrite` take, for the message that lists the overloads: "nullif(ANY, ANY)".
  std::vector<std::string> forms;
};

/// All functions, in name order of their files. Built once, at first use; then immutable.
class FunctionRegistry {
 public:
  static const FunctionRegistry& instance();
  /// By name or alias, in any case; null where there is none.
  const Function* find(std::string_view name) const;
  /// Every function once, for documentation and for checking the examples.
  std::vector<const Function*> all() const;
  /// Names and aliases, for "did you mean".
  std::vector<std::string> names() const;

  void add(Function function);

 private:
  std::vector<std::unique_ptr<Function>> functions_;
  std::vector<std::pair<std::string, const Function*>> by_name_;  // lower case, sorted by instance()
};

/// Defined in src/functions (generated): calls every MILLSTREAM_FUNCTION in order.
void register_all_functions(FunctionRegistry& registry);

/// The cheapest of the overloads for the arguments; a query error lists those that exist.
Result<Binding> resolve(const Function& function, const std::vector<ExprPtr>& arguments);

/// What converting this expression to `type` costs where nobody wrote a cast: as implicit_cast_cost, and for
/// literals as DuckDB does it: an integer goes into any integer type that holds it, a string into any type.
std::optional<int> implicit_cast_cost(const Expression& expression, const arrow::DataType& type);
/// common_type of expressions, literals treated likewise; null where there is none.
TypePtr common_type(std::span<const ExprPtr> expressions);

/// The loop that casts; null where SQL has no such cast.
std::shared_ptr<const Binding> find_cast(const TypePtr& from, const TypePtr& to, bool try_cast);

/// A row's value as SQL writes it in messages: 2147483647, 'abc', NULL.
std::string value_text(const Value& value, int64_t row);

}  // namespace millstream::expr

/// Opens the definition of a function file: a body that returns the functions of the file.
#define MILLSTREAM_FUNCTION(name) std::vector<::millstream::expr::Function> millstream_function_##name()
/// Marks bodies: they are compiled into the interpreter's loops.
#define MILLSTREAM_BODY [[gnu::always_inline]] inline
