#pragma once
// A fused loop as data: a graph of operations over columns and parameters, and where its results go. What the code
// generator is given (compiler.h), and, as text, the name that compiled code is shared and cached under.
//
// Columns come as plain arrays: a byte for a boolean, offsets and bytes for texts, a byte of 0 or 1 for validity.
// program.cc makes them from Arrow arrays, where Arrow has bits a chunk of rows at a time, and puts results back.

#include <cstdint>
#include <string>
#include <vector>

namespace millstream::jit {

/// How a value lies in memory.
enum class Machine : uint8_t {
  kBool,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF32,
  kF64,
  k128,   ///< decimals and intervals: 16 bytes, aligned to 8
  kText,  ///< std::string_view; in columns offsets, one more than rows, into bytes
};
constexpr int width_of(Machine machine) {
  constexpr int kWidths[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 16, 16};
  return kWidths[static_cast<int>(machine)];
}

enum class Op : uint8_t {
  kColumn,     ///< input `index`
  kParameter,  ///< parameter `index`
  kNull,
  kBody,  ///< `body` of the arguments, given parameter `index` as its state where that is not negative
  kNot,
  kIsNull,
  kIsNotNull,
  kAnd,
  kOr,
  kFilterAnd,  ///< as kAnd, but an argument is asked only where all before it are true
  kCase,       ///< when, then, …, else
  kCoalesce,
  kIn,           ///< value, items
  kPick,         ///< least, greatest
  kDistinct,     ///< of two
  kNotDistinct,  ///< of two
};

struct Node {
  Op op = Op::kNull;
  Machine type = Machine::kBool;
  bool nullable = false;    ///< set for the graph's input nullability
  bool can_fail = false;    ///< itself or an argument
  bool checked = false;     ///< kBody: its flag says why it failed
  bool gives_null = false;  ///< kBody: its flag says whether there is a value
  int index = -1;
  std::string body;  ///< its name in the bitcode
  std::vector<int> arguments;
};

enum class Destination : uint8_t {
  kColumn,   ///< values, and bytes of validity where the node is nullable
  kFloat32,  ///< (float)(double)value; NULL and what is not finite is a failure
  kFilter,   ///< a byte: 1 where it is true
};

struct LoopOutput {
  int node = 0;
  Destination destination = Destination::kColumn;
};

struct LoopInput {
  Machine type = Machine::kBool;
  bool nullable = false;  ///< has bytes of validity
};

/// Arguments are before the nodes that use them.
struct Loop {
  std::vector<Node> nodes;
  std::vector<LoopInput> inputs;
  std::vector<Machine> parameters;     ///< k128 with `parameter_bytes` > 16: a body's state
  std::vector<int> parameter_offsets;  ///< into the block of parameters
  std::vector<LoopOutput> outputs;

  /// Sets Node::nullable from the inputs' nullability.
  void infer_nullable();
  /// Equal for loops with the same code.
  std::string shape() const;
};

/// The compiled form. `in`: values (of texts: offsets) of input i at 3 i, validity bytes at 3 i + 1, bytes of texts at
/// 3 i + 2. `out`: values of output i at 2 i, validity at 2 i + 1. `rows` > 0. Not 0: some row failed; results are then of no use.
using LoopFunction = uint32_t (*)(const void* const* in, void* const* out, const uint8_t* parameters,
                                  int64_t rows);

}  // namespace millstream::jit
