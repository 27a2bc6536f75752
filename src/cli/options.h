#pragma once
// The command line: what was asked, checked and typed, before anything is started.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "jit/code.h"
#include "loader/loader_config.h"

namespace millstream::cli {

enum class Command : uint8_t {
  kTrain,
  kBatches,
  kPredict,
  kEvaluate,
  kQuery,
  kExplain,
  kProfile,
  kInit,
  kExport,
  kGenerate,
  kInfo,
  kPrintText
};

struct Options {
  Command command = Command::kPrintText;
  std::string text;  ///< kPrintText: help or version, for standard output

  // Every command.
  int ranks = 0;  ///< --ranks; 0: not given
  std::string trainers = "auto";
  int threads = 0;           ///< 0: the share of the cores
  int64_t memory_bytes = 0;  ///< 0: 70 % of the share
  bool json = false;
  bool quiet = false;
  double deadline_s = 300;
  jit::Engine engine = jit::Engine::kAuto;

  // train, batches, predict, evaluate.
  loader::Transport transport = loader::Transport::kAuto;
  bool transport_given = false;  ///< --transport was given: it overrides the recipe
  std::string cache_directory;

  // train, batches, explain.
  std::string recipe;
  std::vector<std::string> settings;
  int64_t limit_rows = 0;

  // train.
  std::string out_directory;  ///< also generate's
  std::string resume;         ///< a directory, or "auto"
  bool resume_anyway = false;
  int max_restarts = 0;          ///< after a lost rank
  bool overwrite = false;        ///< also predict's, query's and generate's
  bool missing_as_null = false;  ///< predict
  bool trace = false;

  // batches.
  int64_t epochs = 1;
  bool digest = false;

  // predict, evaluate.
  std::string bundle;
  std::vector<std::string> inputs;
  std::string output;         ///< also query's and init's
  std::string export_format;  ///< export's --to

  // profile, init; their files, or profile's query, are `inputs`.
  std::string target;

  // explain.
  bool analyze = false;
  std::string ir_file;

  // query.
  std::string query;       ///< also explain's --query
  std::string query_file;  ///< -f; "-": standard input; empty: `query` is the text

  // generate hvfhv.
  int64_t rows = 0;
  int files = 0;
  uint64_t seed = 0;
};

/// Errors are usage errors; a misspelt option or command is answered with the nearest one.
Result<Options> parse_command_line(int argc, char** argv);

/// "millstream 0.1.0"
std::string version_text();

}  // namespace millstream::cli
