// The command line by CLI11. Values are taken as text and checked here, so that every complaint is in our words
// and says what would be right.

#include "cli/options.h"

#include <charconv>
#include <cmath>
#include <limits>

#include <CLI/CLI.hpp>

#include "base/cpu_share.h"
#include "base/nearest_name.h"
#include "cli/recipe.h"

namespace millstream::cli {
namespace {

constexpr char kFooter[] =
    "\nExit codes: 0 done; 1 the work failed; 2 command line, recipe or query; 3 data or files; 4 a lost "
    "rank or a\n"
    "deadline; 70 a bug; 130 interrupted.";

/// Option values as they were typed.
struct Raw {
  std::string ranks, trainers, threads, memory, deadline, engine, transport, limit_rows, epochs, rows, files,
      seed, max_restarts;
};

Result<int64_t> whole_number(const std::string& option, const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    if (high == std::numeric_limits<int64_t>::max())
      return usage_error("{} {}: it must be a whole number, at least {}", option, text, low);
    return usage_error("{} {}: it must be a whole number from {} to {}", option, text, low, high);
  }
  return value;
}

Status check_values(const Raw& raw, Options* options) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (!raw.ranks.empty()) {
    MILLSTREAM_ASSIGN(const int64_t ranks, whole_number("--ranks", raw.ranks, 1, 4096));
    options->ranks = static_cast<int>(ranks);
  }
  if (!raw.trainers.empty()) options->trainers = raw.trainers;
  if (!raw.threads.empty()) {
    MILLSTREAM_ASSIGN(const int64_t threads, whole_number("--threads", raw.threads, 1, 4096));
    options->threads = static_cast<int>(threads);
  }
  if (!raw.memory.empty()) {
    options->memory_bytes = parse_bytes(raw.memory);
    if (options->memory_bytes <= 0)
      return usage_error("--memory {}: it must be a size in bytes, such as 512MiB, 4GiB or 2000000000",
                         raw.memory);
  }
  if (!raw.deadline.empty()) {
    char* end = nullptr;
    options->deadline_s = std::strtod(raw.deadline.c_str(), &end);
    if (*end || !std::isfinite(options->deadline_s) || options->deadline_s < 0.1)
      return usage_error("--deadline {}: it must be a number of seconds, at least 0.1", raw.deadline);
  }
  if (!raw.transport.empty()) {
    options->transport_given = true;
    if (raw.transport == "auto")
      options->transport = loader::Transport::kAuto;
    else if (raw.transport == "shared")
      options->transport = loader::Transport::kShared;
    else if (raw.transport == "messages")
      options->transport = loader::Transport::kMessages;
    else
      return usage_error("--transport {}: it must be auto, shared or messages", raw.transport);
  }
  if (!raw.engine.empty()) {
    if (raw.engine == "auto")
      options->engine = jit::Engine::kAuto;
    else if (raw.engine == "compiled")
      options->engine = jit::Engine::kCompiled;
    else if (raw.engine == "interpreter")
      options->engine = jit::Engine::kInterpreter;
    else
      return usage_error("--engine {}: it must be auto, compiled or interpreter", raw.engine);
    if (options->engine == jit::Engine::kCompiled && !jit::can_compile())
      return usage_error("--engine compiled: this build has no code generator (MILLSTREAM_JIT=OFF)");
  }
  if (!raw.limit_rows.empty()) {
    MILLSTREAM_ASSIGN(options->limit_rows, whole_number("--limit-rows", raw.limit_rows, 1, kMost));
  }
  if (!raw.epochs.empty()) {
    MILLSTREAM_ASSIGN(options->epochs, whole_number("--epochs", raw.epochs, 1, 1000000));
  }
  if (!raw.rows.empty()) {
    MILLSTREAM_ASSIGN(options->rows, whole_number("--rows", raw.rows, 1, kMost));
  }
  if (!raw.files.empty()) {
    MILLSTREAM_ASSIGN(const int64_t files, whole_number("--files", raw.files, 1, 100000));
    options->files = static_cast<int>(files);
  }
  if (!raw.seed.empty()) {
    MILLSTREAM_ASSIGN(const int64_t seed, whole_number("--seed", raw.seed, 0, kMost));
    options->seed = static_cast<uint64_t>(seed);
  }
  if (!raw.max_restarts.empty()) {
    MILLSTREAM_ASSIGN(const int64_t restarts, whole_number("--max-restarts", raw.max_restarts, 0, 1000000));
    options->max_restarts = static_cast<int>(restarts);
  }
  if (options->max_restarts > 0 && options->out_directory.empty() && options->resume.empty())
    return usage_error("--max-restarts needs --out DIR: the run directory to go on in");
  if (options->max_restarts > 0 && options->overwrite)
    return usage_error(
        "--max-restarts goes on with what is in the run directory, --overwrite replaces it: remove {} first, "
        "or leave "
        "--overwrite out",
        options->out_directory);
  if (options->resume_anyway && options->resume.empty())
    return usage_error("--resume-anyway says how --resume DIR goes on: give that too");
  if (options->resume == "auto" && options->out_directory.empty())
    return usage_error("--resume auto needs --out DIR: the run directory to look in");
  if (!options->resume.empty() && options->overwrite)
    return usage_error("--resume goes on with a run, --overwrite replaces it: give one of them");
  if (!options->resume.empty() && options->resume != "auto" && !options->out_directory.empty())
    return usage_error("--resume {} names the run directory already: leave --out out", options->resume);
  if (options->command == Command::kExport && options->export_format != "torchscript" &&
      options->export_format != "state_dict")
    return usage_error("--to {}: a bundle can be exported to torchscript or state_dict",
                       options->export_format);
  if (options->command == Command::kPredict) {
    const std::string& out = options->output;
    if (out.size() < 9 || out.substr(out.size() - 8) != ".parquet")
      return usage_error("-o {}: the output must be a file NAME.parquet", out);
  }
  if (options->command == Command::kInit && !options->output.empty() && !options->output.ends_with(".toml"))
    return usage_error("-o {}: the output must be a file NAME.toml", options->output);
  if (options->command == Command::kExplain && options->recipe.empty() == options->query.empty()) {
    if (options->recipe.empty())
      return usage_error("millstream explain: of what? Give a recipe, or --query SQL");
    return usage_error("millstream explain: a recipe and --query exclude each other");
  }
  if (options->command == Command::kQuery) {
    if (options->query.empty() && options->query_file.empty())
      return usage_error("millstream query: which query? Give its text, or -f FILE");
    if (!options->query.empty() && !options->query_file.empty())
      return usage_error("millstream query: the text of a query and -f FILE exclude each other");
    const std::string& out = options->output;
    if (!out.empty() && !out.ends_with(".parquet") && !out.ends_with(".csv"))
      return usage_error("-o {}: the output must be a file NAME.parquet or NAME.csv", out);
  }
  return Status::OK();
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

/// The deepest command that was named.
const CLI::App* named_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return command;
}

std::string command_title(const CLI::App& command) {
  std::string title = command.get_name();
  for (const CLI::App* up = command.get_parent(); up; up = up->get_parent())
    title = up->get_name() + " " + title;
  return title;
}

/// CLI11's complaint in our words.
Status usage_status(const CLI::App& app, std::string what, const std::vector<std::string>& left_over) {
  const CLI::App& command = *named_command(app);
  const std::string title = command_title(command);
  const auto commands = command_names(command);
  if (!left_over.empty()) {
    const std::string& argument = left_over.front();
    if (argument.size() > 1 && argument[0] == '-') {
      const std::string name = argument.substr(0, argument.find('='));
      return usage_error("{} has no option {}{}", title, name, name_hint(name, option_names(command), 40));
    }
    if (!commands.empty())
      return usage_error("{} has no command {}{}", title, argument, name_hint(argument, commands));
    return usage_error("{}: the argument '{}' is one too many; see {} --help", title, argument, title);
  }
  if (!commands.empty())
    return usage_error("which command? {}; see {} --help", fmt::join(commands, ", "), title);
  // What remains speaks of one option: a missing one, a missing value. CLI11 puts its name first.
  const std::string missing = " is required";
  if (what.size() > missing.size() &&
      what.compare(what.size() - missing.size(), missing.size(), missing) == 0) {
    what.resize(what.size() - missing.size());
    return usage_error("{}: {} is missing; see {} --help", title, what, title);
  }
  return usage_error("{}: {}; see {} --help", title, what, title);
}

}  // namespace

std::string version_text() {
  return "millstream " MILLSTREAM_VERSION;
}

Result<Options> parse_command_line(int argc, char** argv) {
  Options options;
  Raw raw;
  CLI::App app("Trains PyTorch models on tables that are too big for one machine.", "millstream");
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "This text");
  bool version = false;
  app.add_flag("--version", version, "The program's version");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);

  const auto add_common = [&](CLI::App* command) {
    command
        ->add_option("--ranks", raw.ranks,
                     "Start so many ranks on this machine; default: join the launcher's "
                     "(mpirun, srun), or one")
        ->type_name("N");
    command
        ->add_option("--trainers", raw.trainers,
                     "Ranks that hold a model and get batches: auto, all, a number, or "
                     "a list such as 0,2")
        ->type_name("T");
    command->add_option("--threads", raw.threads, "Threads of each rank; default: its share of the cores")
        ->type_name("N");
    command
        ->add_option("--memory", raw.memory, "Memory of each rank, such as 4GiB; default: 70 % of its share")
        ->type_name("SIZE");
    command
        ->add_option("--deadline", raw.deadline,
                     "End the job when nothing moves for so many seconds; default 300")
        ->type_name("S");
    command
        ->add_option("--engine", raw.engine,
                     "How expressions are evaluated: auto (compiled where it pays), compiled, interpreter")
        ->type_name("E");
    command->add_flag("--json", options.json, "One JSON object on standard output");
    command->add_flag("--quiet", options.quiet, "No progress and no notices");
  };
  const auto add_cache = [&](CLI::App* command) {
    command
        ->add_option(
            "--cache", options.cache_directory,
            "Folder that keeps what was found out about data, compiled code, and rows for which there is no "
            "memory; default: $MILLSTREAM_CACHE or ~/.cache/millstream")
        ->type_name("DIR");
  };
  const auto add_loading = [&](CLI::App* command) {
    command
        ->add_option("--transport", raw.transport,
                     "How rows come to trainers on a host: auto, shared, messages")
        ->type_name("T");
    add_cache(command);
  };
  const auto add_recipe = [&](CLI::App* command) {
    command->add_option("RECIPE", options.recipe, "The recipe, a TOML file")->type_name("")->required();
    command
        ->add_option("--set", options.settings,
                     "Set a key of the recipe, such as train.epochs=2; may be repeated")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command->add_option("--limit-rows", raw.limit_rows, "Only the first N rows of each query")
        ->type_name("N");
  };
  const auto add_inputs = [&](CLI::App* command) {
    command->add_option("BUNDLE", options.bundle, "The bundle folder that training left")
        ->type_name("")
        ->required();
    command->add_option("INPUT", options.inputs, "Files or globs, as the training query's FROM")
        ->type_name("")
        ->required();
  };
  const auto add_command = [](CLI::App* parent, const char* name, const char* text) {
    CLI::App* command = parent->add_subcommand(name, text);
    command->set_help_flag("-h,--help", "This text");
    command->get_formatter()->column_width(34);
    return command;
  };

  CLI::App* train = add_command(&app, "train", "Train a model from a recipe");
  add_recipe(train);
  train->add_option("--out", options.out_directory, "The run directory; default: runs/<recipe>-<time>")
      ->type_name("DIR");
  train
      ->add_option(
          "--resume", options.resume,
          "Go on with an interrupted run: its directory, or auto: --out's if it has a checkpoint, else a new "
          "run")
      ->type_name("DIR|auto");
  train
      ->add_option(
          "--max-restarts", raw.max_restarts,
          "When a rank is lost, start all again from the newest checkpoint, so many times; default 0")
      ->type_name("N");
  train->add_flag("--resume-anyway", options.resume_anyway, "Go on although recipe or data have changed");
  train->add_flag("--overwrite", options.overwrite, "Replace an existing run directory");
  train->add_flag("--trace", options.trace, "Write trace.json (Chrome's trace format) to the run directory");
  add_common(train);
  add_loading(train);

  CLI::App* batches = add_command(&app, "batches", "Run the loader alone and count batches");
  add_recipe(batches);
  batches->add_option("--epochs", raw.epochs, "Epochs; default 1")->type_name("N");
  batches->add_flag("--digest", options.digest,
                    "Print a line a batch: epoch, step, rows and the digest of its bytes");
  add_common(batches);
  add_loading(batches);

  CLI::App* predict =
      add_command(&app, "predict", "Apply a trained model: one prediction a row of the input");
  add_inputs(predict);
  predict->add_option("-o,--output", options.output, "Where the predictions go, a .parquet file")
      ->type_name("OUT.parquet")
      ->required();
  predict->add_flag("--overwrite", options.overwrite, "Replace an existing file");
  predict->add_flag(
      "--missing-as-null", options.missing_as_null,
      "A column that the files lack is taken for nulls, as the features' steps take them; default: an error");
  add_common(predict);
  add_loading(predict);

  CLI::App* evaluate = add_command(&app, "evaluate", "Score a trained model on rows with a target");
  add_inputs(evaluate);
  add_common(evaluate);
  add_loading(evaluate);

  CLI::App* export_model = add_command(&app, "export", "Write a trained model for PyTorch");
  export_model->add_option("BUNDLE", options.bundle, "The bundle folder that training left")
      ->type_name("")
      ->required();
  export_model
      ->add_option("--to", options.export_format,
                   "torchscript: a module for torch.jit.load; state_dict: its tensors for torch.load")
      ->type_name("FORMAT")
      ->required();
  export_model->add_option("-o,--output", options.output, "Where the model goes")
      ->type_name("FILE")
      ->required();
  export_model->add_flag("--overwrite", options.overwrite, "Replace an existing file");
  add_common(export_model);

  CLI::App* query = add_command(&app, "query", "Run a query: print its rows, or write them to a file");
  query->add_option("SQL", options.query, "The query's text, in quotes")->type_name("");
  query->add_option("-f,--file", options.query_file, "The file that has the query's text; -: standard input")
      ->type_name("FILE");
  query
      ->add_option("-o,--output", options.output,
                   "Where the rows go, a .parquet or .csv file; default: print")
      ->type_name("OUT");
  query->add_flag("--overwrite", options.overwrite, "Replace an existing file");
  add_cache(query);
  add_common(query);

  CLI::App* explain = add_command(
      &app, "explain", "What is known of queries before they run: types, NULLs, bounds, what is read");
  explain->add_option("RECIPE", options.recipe, "The recipe, a TOML file")->type_name("");
  explain->add_option("--query", options.query, "Explain this query instead")->type_name("SQL");
  explain
      ->add_option("--set", options.settings,
                   "Set a key of the recipe, such as define.data=DIR; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  explain->add_flag("--analyze", options.analyze,
                    "Read the data too: bounds that were seen, rows, bytes, seconds");
  explain->add_option("--ir", options.ir_file, "Write the LLVM IR of the compiled loops to a file")
      ->type_name("FILE");
  add_common(explain);

  CLI::App* profile =
      add_command(&app, "profile",
                  "A first look at a table: types, nulls, values, quantiles, and what would hurt training");
  profile->add_option("INPUT", options.inputs, "Files or globs, or a query in quotes")
      ->type_name("")
      ->required();
  profile
      ->add_option("--target", options.target, "The column to be learnt: columns that give it away are named")
      ->type_name("COLUMN");
  add_common(profile);

  CLI::App* init = add_command(&app, "init", "Make a recipe to begin with from files");
  init->add_option("INPUT", options.inputs, "Files or globs")->type_name("")->required();
  init->add_option("--target", options.target, "The column to be learnt")->type_name("COLUMN")->required();
  init->add_option("-o,--output", options.output, "Where the recipe goes, a .toml file; default: print")
      ->type_name("RECIPE.toml");
  init->add_flag("--overwrite", options.overwrite, "Replace an existing file");
  add_common(init);

  CLI::App* generate = add_command(&app, "generate", "Generate data");
  generate->require_subcommand(1);
  CLI::App* hvfhv = add_command(generate, "hvfhv",
                                "Synthetic New York for-hire trips, at the schema that the city "
                                "publishes");
  hvfhv->add_option("--rows", raw.rows, "Rows of all files together")->type_name("N")->required();
  hvfhv->add_option("--files", raw.files, "Files, one a month")->type_name("K")->required();
  hvfhv->add_option("--out", options.out_directory, "The folder they are written to")
      ->type_name("DIR")
      ->required();
  hvfhv->add_option("--seed", raw.seed, "Another seed gives other trips; default 0")->type_name("S");
  hvfhv->add_flag("--overwrite", options.overwrite, "Replace existing files");
  add_common(hvfhv);

  CLI::App* info = add_command(&app, "info", "Hosts, ranks, devices, roles and versions");
  add_common(info);

  // The reference of the recipe is long: it is made only when asked for.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* command = named_command(app);
    options.text = app.help();
    if (command == train || command == batches)
      options.text += "\nThe recipe's keys:\n\n" + recipe_reference_text();
    while (!options.text.empty() && options.text.front() == '\n') options.text.erase(0, 1);
    return options;
  } catch (const CLI::ParseError& error) {
    return usage_status(app, error.what(), app.remaining(true));
  }
  if (version) {
    options.text = version_text() + "\n";
    return options;
  }
  if (app.get_subcommands().empty()) {
    if (argc > 1) return usage_status(app, "", app.remaining(true));
    options.text = app.help();
    return options;
  }
  const CLI::App* command = named_command(app);
  options.command = command == train          ? Command::kTrain
                    : command == batches      ? Command::kBatches
                    : command == predict      ? Command::kPredict
                    : command == evaluate     ? Command::kEvaluate
                    : command == query        ? Command::kQuery
                    : command == export_model ? Command::kExport
                    : command == explain      ? Command::kExplain
                    : command == profile      ? Command::kProfile
                    : command == init         ? Command::kInit
                    : command == hvfhv        ? Command::kGenerate
                                              : Command::kInfo;
  MILLSTREAM_TRY(check_values(raw, &options));
  return options;
}

}  // namespace millstream::cli
