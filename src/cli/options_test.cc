#include "cli/options.h"

#include <gtest/gtest.h>

namespace millstream::cli {
namespace {

Result<Options> parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "millstream");
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  return parse_command_line(static_cast<int>(arguments.size()), argv.data());
}
std::string error_of(std::vector<std::string> arguments) {
  const auto result = parse(std::move(arguments));
  if (result.ok()) return "no error";
  EXPECT_EQ(exit_code(result.status()), 2);
  return result.status().message();
}

TEST(Options, ATrainingCommand) {
  const Options options =
      parse({"train",       "r.toml",      "--set",      "a.b=1",   "--set",      "c.d=x y",
             "--out",       "o",           "--ranks",    "3",       "--trainers", "0,2",
             "--threads=2", "--memory",    "1GiB",       "--json",  "--quiet",    "--deadline",
             "2.5",         "--transport", "messages",   "--cache", "k",          "--limit-rows",
             "10",          "--trace",     "--overwrite"})
          .ValueOrDie();
  EXPECT_EQ(options.command, Command::kTrain);
  EXPECT_EQ(options.recipe, "r.toml");
  EXPECT_EQ(options.settings, (std::vector<std::string>{"a.b=1", "c.d=x y"}));
  EXPECT_EQ(options.out_directory, "o");
  EXPECT_EQ(options.ranks, 3);
  EXPECT_EQ(options.trainers, "0,2");
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(options.deadline_s, 2.5);
  EXPECT_TRUE(options.transport_given);
  EXPECT_EQ(options.transport, loader::Transport::kMessages);
  EXPECT_EQ(options.cache_directory, "k");
  EXPECT_EQ(options.limit_rows, 10);
  EXPECT_TRUE(options.json && options.quiet && options.trace && options.overwrite);
}

TEST(Options, SettingsMayStandBeforeTheRecipe) {
  const Options options = parse({"batches", "--set", "a.b=1", "r.toml", "--digest"}).ValueOrDie();
  EXPECT_EQ(options.recipe, "r.toml");
  EXPECT_EQ(options.settings, std::vector<std::string>{"a.b=1"});
  EXPECT_TRUE(options.digest);
}

TEST(Options, PredictTakesSeveralInputs) {
  const Options options = parse({"predict", "b", "x.parquet", "y.parquet", "-o", "p.parquet"}).ValueOrDie();
  EXPECT_EQ(options.bundle, "b");
  EXPECT_EQ(options.inputs, (std::vector<std::string>{"x.parquet", "y.parquet"}));
  EXPECT_EQ(options.output, "p.parquet");
}

TEST(Options, Generate) {
  const Options options =
      parse({"generate", "hvfhv", "--rows", "2000000", "--files", "4", "--out", "d", "--seed", "7"})
          .ValueOrDie();
  EXPECT_EQ(options.command, Command::kGenerate);
  EXPECT_EQ(options.rows, 2000000);
  EXPECT_EQ(options.files, 4);
  EXPECT_EQ(options.seed, 7u);
}

TEST(Options, HelpAndVersionAreTexts) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {}, {"--help"}, {"train", "--help"}, {"generate", "hvfhv", "-h"}, {"--version"}}) {
    const Options options = parse(arguments).ValueOrDie();
    EXPECT_EQ(options.command, Command::kPrintText);
    EXPECT_FALSE(options.text.empty());
  }
  EXPECT_NE(parse({"train", "--help"}).ValueOrDie().text.find("learning_rate"), std::string::npos);
}

TEST(OptionsError, SlipsAreAnsweredWithTheNearestName) {
  EXPECT_EQ(error_of({"trian", "r.toml"}), "millstream has no command trian; did you mean 'train'?");
  EXPECT_EQ(error_of({"train", "r.toml", "--rank", "3"}),
            "millstream train has no option --rank; did you mean '--ranks'?");
  EXPECT_EQ(error_of({"generate", "hvfv"}), "millstream generate has no command hvfv; did you mean 'hvfhv'?");
  EXPECT_EQ(error_of({"generate"}), "which command? hvfhv; see millstream generate --help");
  EXPECT_EQ(error_of({"--jsn"}).substr(0, 41), "millstream has no option --jsn; there are");
}

TEST(OptionsError, ValuesAndMissingArguments) {
  EXPECT_EQ(error_of({"train"}), "millstream train: RECIPE is missing; see millstream train --help");
  EXPECT_EQ(error_of({"train", "a", "b"}),
            "millstream train: the argument 'b' is one too many; see millstream train --help");
  EXPECT_EQ(error_of({"predict", "b", "i.parquet"}),
            "millstream predict: --output is missing; see millstream predict --help");
  EXPECT_EQ(error_of({"predict", "b", "i.parquet", "-o", "x.txt"}),
            "-o x.txt: the output must be a file NAME.parquet");
  EXPECT_EQ(error_of({"info", "--ranks", "zero"}), "--ranks zero: it must be a whole number from 1 to 4096");
  EXPECT_EQ(error_of({"info", "--ranks", "0"}), "--ranks 0: it must be a whole number from 1 to 4096");
  EXPECT_EQ(error_of({"info", "--memory", "lots"}),
            "--memory lots: it must be a size in bytes, such as 512MiB, 4GiB or 2000000000");
  EXPECT_EQ(error_of({"info", "--deadline", "-1"}),
            "--deadline -1: it must be a number of seconds, at least 0.1");
  EXPECT_EQ(error_of({"batches", "r.toml", "--transport", "pigeon"}),
            "--transport pigeon: it must be auto, shared or messages");
  EXPECT_EQ(error_of({"batches", "r.toml", "--epochs", "0"}),
            "--epochs 0: it must be a whole number from 1 to 1000000");
}

}  // namespace
}  // namespace millstream::cli
