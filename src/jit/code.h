#pragma once
// Compiled loops, shared by everything in the process that has loops of the same shape, and kept on disk for the next.

#include <atomic>
#include <memory>
#include <string>

#include "base/status.h"
#include "jit/loop.h"

namespace millstream::jit {

/// kAuto interprets until compiling pays; kCompiled compiles before the first row; kInterpreter never does.
enum class Engine : uint8_t { kAuto, kCompiled, kInterpreter };

/// The process's engine. Set once, before expressions are evaluated; kAuto where nobody does, kInterpreter in builds
/// without the code generator.
void set_engine(Engine engine);
/// Whether this build has the code generator.
bool can_compile();
Engine engine();

/// Where compiled code is kept on disk; empty: nowhere. Set once; the default is the survey cache's directory.
void set_code_directory(std::string directory);

/// What happened in this process so far, for explain and tests.
struct CodeCounts {
  int64_t compiled = 0;  ///< loops that LLVM compiled
  int64_t loaded = 0;    ///< loops that came from the disk
  int64_t compile_ns = 0;
  int64_t load_ns = 0;
  int64_t batches = 0;         ///< that programs ran in compiled loops
  int64_t failed_batches = 0;  ///< begun in a loop and left to the interpreter, because a row failed
};
CodeCounts code_counts();
void count_batch(bool failed);

/// Drops loops that no program uses (they are kept for the next), so that they come from the disk again.
void forget_unused_code();

/// The code of one shape. Thread-safe.
class Code {
 public:
  /// That of the loop's shape; made at first use.
  static std::shared_ptr<Code> of(const Loop& loop);

  /// The function; null where it is not there yet and `rows` more of work do not justify compiling now, or another
  /// thread or rank is at it. With Engine::kCompiled it is never null. An error where compiling failed.
  Result<LoopFunction> function(int64_t rows);
  /// Makes it now, whatever the engine.
  Status compile();
  const Loop& loop() const { return loop_; }

  Code(Loop loop, std::string shape);
  ~Code();

 private:
  struct State;
  Status obtain(bool may_compile, bool may_wait);

  const Loop loop_;
  const std::string shape_;
  std::atomic<LoopFunction> function_{nullptr};
  std::atomic<int64_t> rows_seen_{0};
  const std::shared_ptr<State> state_;
};

}  // namespace millstream::jit
