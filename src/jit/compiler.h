#pragma once
// From a loop to machine code. What needs LLVM is in libmillstream_jit.so, which is opened when something is
// compiled for the first time: opening LLVM costs more than most commands take.

#include <string>

#include "base/status.h"
#include "jit/loop.h"

namespace millstream::jit {

struct CompiledLoop {
  std::string object;  ///< an ELF relocatable file that defines `loop`, a LoopFunction
  std::string ir;      ///< optimised, where it was asked for
  std::string raw_ir;  ///< as generated, where it was asked for
};

/// What libmillstream_jit.so gives. Thread-safe.
struct Compiler {
  Result<CompiledLoop> (*compile)(const Loop& loop, bool with_ir);
  /// A name in the bitcode of bodies that can't be compiled to code that loads would be found by tests: the names of
  /// all bodies.
  std::vector<std::string> (*body_names)();
};

/// Opens libmillstream_jit.so, which lies beside libmillstream.so. Failure (a build without it) is remembered.
Result<const Compiler*> open_compiler();

}  // namespace millstream::jit
