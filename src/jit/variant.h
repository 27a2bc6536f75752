#pragma once
// The forms of a loop for batches with NULLs and without: code is generated for each when it is first needed.
//
// A NULL that only makes the result NULL need not be seen by the loop: bitmaps are ANDed 64 rows at a time. Where
// what happens depends on it (CASE, COALESCE, OR, IS NULL, …) the loop is given a byte for each row. What turns out
// to be a column of the batch is handed on.

#include <vector>

#include "jit/lowering.h"

namespace millstream::jit {

enum class NullForm : uint8_t {
  kNone,     ///< no input has any
  kByWords,  ///< those that only make results NULL stay outside of the loop
  kByRows,   ///< the loop sees all
};

struct Variant {
  struct Handed {
    int expression;
    int input;  ///< of Lowered::inputs
  };
  Loop loop;                 ///< without outputs: nothing is left to do
  std::vector<int> inputs;   ///< of the loop: indices into Lowered::inputs
  std::vector<int> outputs;  ///< of the loop: indices of the expressions
  /// Of each output: inputs of the loop whose NULLs are NULLs of the result (a filter's: not selected), beside those
  /// that the loop tells.
  std::vector<std::vector<int>> null_inputs;
  std::vector<Handed> handed;
  /// Values under NULLs may fail: then only kByRows says whether a row did.
  bool may_fail_under_nulls = false;
};

Variant make_variant(const LoweredLoop& lowered, NullForm form);

}  // namespace millstream::jit
