#pragma once
// Expressions over batches of one schema, evaluated together: fused into loops of machine code where that pays,
// otherwise by the interpreter. Values, errors and their rows are those of expr::evaluate, bit for bit, whichever it
// is: where a row fails in a loop, the batch is evaluated again by the interpreter.
//
// 1. A program is immutable and may be run by many threads.
// 2. Rows go through a loop a chunk at a time. What a loop can't do is a column by then (Report::kernels).
// 3. A batch may have other types than the schema; then it is interpreted.

#include <memory>
#include <string>
#include <vector>

#include "expr/expression.h"
#include "jit/code.h"

namespace millstream::jit {

/// What became of the expressions, for `explain`.
struct Report {
  struct Kernel {
    std::string expression;
    std::string reason;
  };
  int loops = 0;
  std::vector<Kernel> kernels;  ///< subtrees that the interpreter evaluates
};

class Program {
 public:
  /// The values of `outputs`.
  static Program columns(std::shared_ptr<arrow::Schema> schema, std::vector<expr::ExprPtr> outputs);
  /// The rows where `predicate` is true.
  static Program filter(std::shared_ptr<arrow::Schema> schema, expr::ExprPtr predicate);
  /// The values as float32: (float)(double)value.
  static Program rows(std::shared_ptr<arrow::Schema> schema, std::vector<expr::ExprPtr> outputs);

  /// columns(): one array an output. The error is that of the lowest row of all outputs.
  Result<arrow::ArrayVector> evaluate(const arrow::RecordBatch& batch) const;
  /// filter(): ascending.
  Result<std::vector<int32_t>> select(const arrow::RecordBatch& batch) const;
  /// rows(): output o of row i goes to out[i * stride + o], for rows `rows` of the batch (all `count` where it is
  /// null). False: nothing was done, because there is no code (yet), or a value is NULL, not finite or an error.
  Result<bool> pack(const arrow::RecordBatch& batch, const int32_t* rows, int64_t count, int stride,
                    float* out) const;

  /// Compiles all loops now, or loads them, whatever the engine: in the form for batches with NULLs where they may be.
  Status compile() const;
  Report report() const;
  /// LLVM IR of the loops, as generated and as optimised. Compiles for it.
  Result<std::string> ir() const;

 private:
  struct Parts;
  explicit Program(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace millstream::jit
