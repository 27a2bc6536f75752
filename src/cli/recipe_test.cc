#include "cli/recipe.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

namespace millstream::cli {
namespace {

constexpr char kMinimal[] = R"toml([define]
trips = "trips"
files = "*.parquet"

[data]
train = "SELECT * FROM '${trips}/${files}'"
target = "trip_miles"

[[feature]]
columns = ["tips", "tolls"]
steps = ["fill_null( mean )", "standard_scale"]
)toml";

Result<Recipe> parse(const std::string& text, const std::vector<std::string>& settings = {}) {
  return parse_recipe(text, "/recipes/taxi.toml", settings, "/home/me");
}
std::string error_of(const std::string& text, const std::vector<std::string>& settings = {}) {
  const auto result = parse(text, settings);
  if (result.ok()) return "no error";
  EXPECT_EQ(error_category(result.status()), ErrorCategory::kUsage);
  return result.status().message();
}
/// kMinimal with lines appended.
std::string with(const std::string& more) {
  return std::string(kMinimal) + more;
}

TEST(Recipe, DefaultsAreThoseOfTheStructs) {
  const Recipe recipe = parse(kMinimal).ValueOrDie();
  const loader::LoaderConfig loader;
  const train::TrainConfig train;
  EXPECT_EQ(recipe.name, "taxi");
  EXPECT_EQ(recipe.data.base_directory, "/recipes");
  EXPECT_EQ(recipe.data.train, "SELECT * FROM 'trips/*.parquet'");
  EXPECT_EQ(recipe.data.valid_fraction, 0);
  EXPECT_FALSE(recipe.data.valid);
  ASSERT_EQ(recipe.data.features.size(), 1u);
  const auto& feature = recipe.data.features[0];
  EXPECT_EQ(feature.columns, (std::vector<std::string>{"tips", "tolls"}));
  ASSERT_EQ(feature.steps.size(), 2u);
  EXPECT_EQ(feature.steps[0].name, "fill_null");
  EXPECT_EQ(feature.steps[0].arguments, std::vector<std::string>{"mean"});
  EXPECT_TRUE(feature.steps[1].arguments.empty());
  EXPECT_EQ(recipe.loader.batch_size, loader.batch_size);
  EXPECT_EQ(recipe.loader.window, loader.window);
  EXPECT_EQ(recipe.train.epochs, train.epochs);
  EXPECT_EQ(recipe.train.learning_rate, train.learning_rate);
}

TEST(Recipe, EveryKeyArrives) {
  const Recipe recipe = parse(with(R"(
on_null = "drop"
[[feature]]
columns = ["fare"]
[loader]
batch_size = 7
shuffle = "none"
window = 8
lanes = 9
prefetch = 10
transport = "messages"
[model]
kind = "mlp"
hidden = [3]
[train]
epochs = 11
optimizer = "sgd"
learning_rate = 1
weight_decay = 0.5
momentum = 0.25
loss = "mae"
seed = 12
precision = "float64"
)"),
                              {"data.valid=0.2", "data.on_null_target=drop"})
                            .ValueOrDie();
  EXPECT_EQ(recipe.data.features.size(), 2u);
  EXPECT_EQ(recipe.data.features[0].on_null, features::OnNull::kDrop);
  EXPECT_EQ(recipe.data.features[1].on_null, features::OnNull::kError);
  EXPECT_EQ(recipe.data.on_null_target, features::OnNull::kDrop);
  EXPECT_EQ(recipe.data.valid_fraction, 0.2);
  EXPECT_EQ(recipe.loader.batch_size, 7);
  EXPECT_EQ(recipe.loader.shuffle, loader::Shuffle::kNone);
  EXPECT_EQ(recipe.loader.window, 8);
  EXPECT_EQ(recipe.loader.lanes, 9);
  EXPECT_EQ(recipe.loader.prefetch, 10);
  EXPECT_EQ(recipe.loader.transport, loader::Transport::kMessages);
  EXPECT_EQ(recipe.loader.seed, 12u);
  EXPECT_EQ(recipe.model.hidden, std::vector<int64_t>{3});
  EXPECT_EQ(recipe.train.epochs, 11);
  EXPECT_EQ(recipe.train.optimizer, "sgd");
  EXPECT_EQ(recipe.train.learning_rate, 1);
  EXPECT_EQ(recipe.train.weight_decay, 0.5);
  EXPECT_EQ(recipe.train.momentum, 0.25);
  EXPECT_EQ(recipe.train.loss, "mae");
  EXPECT_EQ(recipe.train.seed, 12u);
  EXPECT_EQ(recipe.train.precision, "float64");
}

TEST(Recipe, SettingsWinAndTheLastOfThemMost) {
  const Recipe recipe = parse(with("[train]\nepochs = 3\nloss = \"mse\"\n"),
                              {"train.epochs=4", "train.epochs=5", "train.loss=mae", "model.hidden=[8, 4]",
                               "data.target=\"fare\"", "data.valid=SELECT 1 FROM 'v.parquet'"})
                            .ValueOrDie();
  EXPECT_EQ(recipe.train.epochs, 5);
  EXPECT_EQ(recipe.train.loss, "mae");
  EXPECT_EQ(recipe.model.hidden, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(recipe.data.target, "fare");
  EXPECT_EQ(recipe.data.valid, "SELECT 1 FROM 'v.parquet'");
  EXPECT_EQ(recipe.text.substr(0, 21), "# --set train.epochs=");
}

TEST(Recipe, DefinedPathsOfTheCommandLineAreRelativeToTheWorkingDirectory) {
  const auto train_query = [](const std::string& setting) {
    return parse(kMinimal, {setting}).ValueOrDie().data.train;
  };
  EXPECT_EQ(train_query("define.trips=../data/x"), "SELECT * FROM '/home/data/x/*.parquet'");
  EXPECT_EQ(train_query("define.trips=/data/x"), "SELECT * FROM '/data/x/*.parquet'");
  EXPECT_EQ(train_query("define.trips=s3://bucket/x"), "SELECT * FROM 's3://bucket/x/*.parquet'");
  EXPECT_EQ(train_query("define.files=*.csv"), "SELECT * FROM 'trips/*.csv'");
  EXPECT_EQ(train_query("define.files=2024"), "SELECT * FROM 'trips/2024'");
  // A name without a slash is a path where there is such a thing.
  const auto directory = std::filesystem::temp_directory_path() / "millstream_recipe_test";
  std::filesystem::create_directories(directory / "here");
  const auto recipe = parse_recipe(kMinimal, "/recipes/taxi.toml", {"define.trips=here"}, directory.string());
  EXPECT_EQ(recipe.ValueOrDie().data.train,
            "SELECT * FROM '" + (directory / "here").string() + "/*.parquet'");
  std::filesystem::remove_all(directory);
}

TEST(Recipe, QueriesOfTheCommandLineAreRelativeToTheWorkingDirectory) {
  const auto folders = [](const std::vector<std::string>& settings) {
    const Recipe recipe = parse(kMinimal, settings).ValueOrDie();
    return std::pair(recipe.data.base_directory, recipe.data.valid_base_directory);
  };
  using Folders = std::pair<std::string, std::string>;
  const std::string train = "data.train=SELECT * FROM 'x.csv'", valid = "data.valid=SELECT * FROM 'y.csv'";
  EXPECT_EQ(folders({}), Folders("/recipes", ""));
  EXPECT_EQ(folders({valid}), Folders("/recipes", "/home/me"));
  EXPECT_EQ(folders({train}), Folders("/home/me", "/recipes"));
  EXPECT_EQ(folders({train, valid}), Folders("/home/me", "/home/me"));
  EXPECT_EQ(folders({"data.valid=0.1"}), Folders("/recipes", ""));
}

TEST(Recipe, DefinitionsMayReferToOthersButNotToThemselves) {
  const std::string text = R"([define]
root = "/d"
trips = "${root}/trips"
low = 2
[data]
train = "SELECT * FROM '${trips}' WHERE x > ${low}"
target = "x"
[[feature]]
columns = ["y"]
)";
  EXPECT_EQ(parse(text).ValueOrDie().data.train, "SELECT * FROM '/d/trips' WHERE x > 2");
  EXPECT_EQ(error_of(text, {"define.root=${trips}"}),
            "recipe taxi.toml, line 6, column 9: data.train: the definition of ${trips} uses itself");
}

TEST(RecipeError, NamesFileLineColumnKeyAndTheNearestKnown) {
  EXPECT_EQ(error_of(with("[train]\nepoch = 3\n")),
            "recipe taxi.toml, line 13, column 1: unknown key train.epoch; did you mean 'train.epochs'?");
  EXPECT_EQ(
      error_of(with("[train]\nbatch_size = 3\n")),
      "recipe taxi.toml, line 13, column 1: unknown key train.batch_size; did you mean 'loader.batch_size'?");
  EXPECT_EQ(error_of(with("[trian]\nepochs = 3\n")),
            "recipe taxi.toml, line 12, column 2: unknown table [trian]; did you mean 'train'?");
  EXPECT_EQ(error_of("epochs = 3\n" + with("")),
            "recipe taxi.toml, line 1, column 1: the key epochs stands outside every table; did you mean "
            "'train.epochs'?");
  EXPECT_EQ(error_of(with("[feature.x]\n")).substr(0, 34), "recipe taxi.toml, line 12, column ");
  EXPECT_EQ(error_of(kMinimal, {"train.epoch=3"}),
            "--set train.epoch=3: there is no key train.epoch; did you mean 'train.epochs'?");
  EXPECT_EQ(error_of(kMinimal, {"epochs=3"}),
            "--set epochs=3: there is no key epochs; did you mean 'train.epochs'?");
  EXPECT_EQ(error_of(kMinimal, {"define.trip=/x"}),
            "--set define.trip: the recipe has no such definition; did you mean 'trips'?");
  EXPECT_EQ(error_of(kMinimal, {"train.epochs"}),
            "--set train.epochs: it is written --set KEY=VALUE, such as --set train.epochs=2");
}

TEST(RecipeError, WrongValuesSayWhatIsRight) {
  EXPECT_EQ(error_of(with("[train]\nepochs = \"five\"\n")),
            "recipe taxi.toml, line 13, column 10: train.epochs is the string \"five\"; it must be a whole "
            "number from "
            "1 to 1000000");
  EXPECT_EQ(
      error_of(with("[train]\nepochs = 0\n")),
      "recipe taxi.toml, line 13, column 10: train.epochs is 0; it must be a whole number from 1 to 1000000");
  EXPECT_EQ(error_of(with("[train]\nepochs = 2.5\n")),
            "recipe taxi.toml, line 13, column 10: train.epochs is 2.5; it must be a whole number from 1 to "
            "1000000");
  EXPECT_EQ(error_of(with("[train]\nlearning_rate = nan\n")),
            "recipe taxi.toml, line 13, column 17: train.learning_rate is nan; it must be a number above 0");
  EXPECT_EQ(
      error_of(with("[train]\noptimizer = \"adma\"\n")),
      "recipe taxi.toml, line 13, column 13: train.optimizer is \"adma\"; it must be \"adam\", \"adamw\" or "
      "\"sgd\"; did you mean \"adam\"?");
  EXPECT_EQ(error_of(kMinimal, {"data.valid=1.5"}),
            "--set data.valid=1.5: data.valid is 1.5; it must be a fraction, at least 0 and below 1, the "
            "text of a query, or a condition");
  EXPECT_EQ(error_of(kMinimal, {"model.hidden=[8, 0]"}),
            "--set model.hidden=[8, 0]: model.hidden[1] is 0; it must be a whole number from 1 to 1000000");
  EXPECT_EQ(error_of(kMinimal, {"train.momentum=0.9"}),
            "recipe taxi.toml: train.momentum is 0.9, which only optimizer = \"sgd\" has; the optimizer is "
            "\"adam\"");
  EXPECT_EQ(
      error_of(with("[[feature]]\ncolumns = [\"a\"]\nsteps = [\"fill_null(\"]\n")),
      "recipe taxi.toml, line 14, column 9: feature 2.steps[0]: feature step 'fill_null(' has no closing "
      "parenthesis");
  EXPECT_EQ(error_of(with("[[feature]]\ncolumns = [\"a\"]\nsteps = [\"standard_scal\"]\n")),
            "recipe taxi.toml, line 14, column 9: feature 2.steps[0]: unknown feature step 'standard_scal'; "
            "did you "
            "mean 'standard_scale'?");
  EXPECT_EQ(
      error_of(with("[loader]\nwindow = [1]\n")),
      "recipe taxi.toml, line 13, column 10: loader.window is a list; it must be a whole number from 1 to "
      "1099511627776");
}

TEST(RecipeError, MissingThings) {
  EXPECT_EQ(error_of(""), "recipe taxi.toml: data.train is missing; it is the text of a query");
  EXPECT_EQ(error_of("[data]\ntrain = \"SELECT\"\ntarget = \"y\"\n"),
            "recipe taxi.toml: there is no [[feature]]; at least one with columns = [...] is needed");
  EXPECT_EQ(
      error_of("[data]\ntrain = \"SELECT\"\ntarget = \"y\"\n[feature]\ncolumns = [\"a\"]\n"),
      "recipe taxi.toml, line 4, column 2: feature must be written as [[feature]], once or several times");
  EXPECT_EQ(error_of(with("[[feature]]\nsteps = []\n")),
            "recipe taxi.toml: feature 2.columns is missing; it is a list of column names, at least one");
  EXPECT_EQ(error_of("[data]\ntrain = \"FROM '${trip}'\"\ntarget = \"y\"\n[[feature]]\ncolumns = [\"a\"]\n"),
            "recipe taxi.toml, line 2, column 9: data.train uses ${trip}, which [define] does not give; "
            "write [define] "
            "trip = ... or --set define.trip=...");
}

TEST(RecipeError, BrokenTomlIsShownWithACaret) {
  const std::string message = error_of("[data]\ntrain = \"SELECT\ntarget = 3\n");
  EXPECT_EQ(message.substr(0, 50), "recipe taxi.toml, line 2, column 16: not valid TOM") << message;
  EXPECT_NE(message.find("\n  train = \"SELECT\n"), std::string::npos) << message;
  EXPECT_EQ(message.back(), '^') << message;
}

// docs/recipe.md holds the reference between two markers. MILLSTREAM_BLESS=1 writes it anew.
TEST(RecipeReference, DocumentIsUpToDate) {
  const std::string path = MILLSTREAM_SOURCE_DIR "/docs/recipe.md";
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const std::string begin = "<!-- keys: generated by cli_test with MILLSTREAM_BLESS=1 -->\n\n",
                    end = "<!-- end of keys -->";
  const size_t from = text.find(begin), to = text.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const std::string expected =
      text.substr(0, from + begin.size()) + recipe_reference_markdown() + text.substr(to);
  if (std::getenv("MILLSTREAM_BLESS") && text != expected)
    std::ofstream(path) << expected;
  else
    EXPECT_EQ(text, expected) << "run MILLSTREAM_BLESS=1 build/test/cli_test";
}

TEST(RecipeReference, NamesEveryKeyOnce) {
  const std::string text = recipe_reference_text();
  for (const char* key : {"batch_size", "learning_rate", "on_null_target", "transport", "precision"}) {
    const size_t at = text.find(fmt::format("  {} ", key));
    ASSERT_NE(at, std::string::npos) << key;
    EXPECT_EQ(text.find(fmt::format("\n  {} ", key), at + 1), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace millstream::cli
