// What bench/expressions.py runs: evaluates expressions over the columns of an Arrow IPC file, single-threaded, by
// compiled loops and by the interpreter, and prints the processor's seconds a pass. The columns are in memory before; batches are of
// 64 Ki rows, as everywhere in Millstream.
//
//     expressions FILE.arrow EXPRESSIONS.txt PASSES
//
// A line of EXPRESSIONS.txt is an expression; a line of the output: compiled and interpreted seconds of each pass.

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>

#include "expr/expression.h"
#include "jit/program.h"
#include "plan/logical_plan.h"
#include "sql/binder.h"

namespace {

using namespace millstream;

/// Of the processor: other work on the machine does not count.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

template <class T>
T value_or_die(arrow::Result<T> result) {
  if (result.ok()) return std::move(result).ValueUnsafe();
  std::cerr << result.status().ToString() << "\n";
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: expressions FILE.arrow EXPRESSIONS.txt PASSES\n";
    return 2;
  }
  jit::set_engine(jit::Engine::kCompiled);
  auto file = value_or_die(arrow::io::ReadableFile::Open(argv[1]));
  auto reader = value_or_die(arrow::ipc::RecordBatchFileReader::Open(file));
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  for (int i = 0; i < reader->num_record_batches(); ++i) {
    auto batch = value_or_die(reader->ReadRecordBatch(i));
    for (int64_t begin = 0; begin < batch->num_rows(); begin += plan::kBlockRows)
      batches.push_back(batch->Slice(begin, plan::kBlockRows));
  }
  std::ifstream lines(argv[2]);
  for (std::string line; std::getline(lines, line);) {
    const auto expression = value_or_die(sql::bind_text(line, reader->schema(), "expression"));
    const auto program = jit::Program::columns(reader->schema(), {expression});
    value_or_die(program.evaluate(*batches[0]));
    for (int pass = 0; pass < std::atoi(argv[3]); ++pass) {
      double begin = seconds();
      for (const auto& batch : batches) value_or_die(program.evaluate(*batch));
      const double compiled = seconds() - begin;
      begin = seconds();
      for (const auto& batch : batches) value_or_die(expr::evaluate(*expression, *batch));
      std::printf("%s%.6f %.6f", pass ? " " : "", compiled, seconds() - begin);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
