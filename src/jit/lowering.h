#pragma once
// From bound expressions to loops: which operations are fused, which subtrees stay kernels of the interpreter whose
// columns the loops read, and how many loops there are.

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "expr/expression.h"
#include "jit/loop.h"

namespace millstream::jit {

/// How values of a type lie in memory; nothing: loops can't have such values.
std::optional<Machine> machine_of(const arrow::DataType& type);

/// A subtree that the interpreter evaluates, and why.
struct KernelUse {
  expr::ExprPtr expression;
  std::string reason;  ///< empty: it is a column handed on, which costs nothing
};

struct LoweredLoop {
  Loop loop;                 ///< inputs nullable as inferred
  std::vector<int> inputs;   ///< of the loop: indices into Lowered::inputs
  std::vector<int> outputs;  ///< of the loop: indices of the expressions
  std::vector<uint8_t> parameters;
};

struct LoweredInput {
  int column = -1;  ///< of the batch
  int kernel = -1;  ///< or index into kernels
  Machine type = Machine::kBool;
};

struct Lowered {
  std::vector<LoweredInput> inputs;
  std::vector<KernelUse> kernels;
  std::vector<LoweredLoop> loops;
  /// Of each expression: the kernel (of `kernels`) that it is as a whole, -1: a loop makes it or it is a column
  /// handed on.
  std::vector<int> whole_kernel;
  std::deque<std::string> texts;  ///< what text parameters point into
};

/// Loops for `outputs` over batches of one schema. With Destination::kColumn, columns and constants alone are left
/// to the interpreter, which copies nothing.
Lowered lower(const std::vector<expr::ExprPtr>& outputs, Destination destination);

}  // namespace millstream::jit
