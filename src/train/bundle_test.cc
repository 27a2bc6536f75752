#include "train/bundle.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "train/run_directory.h"

namespace millstream::train {
namespace {

namespace fs = std::filesystem;

class BundleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "millstream-bundle-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static Bundle example() {
    Bundle bundle;
    bundle.millstream_version = "0.1.0";
    bundle.query = "SELECT a, b FROM 'x.parquet' WHERE a > 0 -- größer";
    bundle.prediction_query = "SELECT \"a\" AS \"a\" FROM 'input'";
    bundle.target = "b";
    bundle.on_null_target = features::OnNull::kDrop;
    bundle.inputs = {{"a", "DOUBLE", true}, {"b", "BIGINT", false}};
    bundle.features = {{{"a"}, {{"fill_null", {"mean"}}, {"standard_scale", {}}}, features::OnNull::kError}};
    bundle.fitted_json = R"({"columns":[{"name":"a"}]})";
    bundle.model = {"mlp", {4}};
    bundle.model_inputs = 1;
    bundle.precision = "float32";
    bundle.loss = "mae";
    bundle.seed = UINT64_MAX;
    bundle.rows_train = 100;
    bundle.rows_valid = 10;
    bundle.epochs = 2;
    bundle.steps = 20;
    bundle.batch_size = 10;
    bundle.metrics = {{"rmse", 0.1}, {"r2", -0.3333333333333333}};
    bundle.weights.tensors.push_back({"layers.0.weight", TensorType::kFloat32, {1, 2}, std::string(8, 'w')});
    return bundle;
  }
  static void expect_equal(const Bundle& a, const Bundle& b) {
    EXPECT_EQ(a.query, b.query);
    EXPECT_EQ(a.prediction_query, b.prediction_query);
    EXPECT_EQ(a.target, b.target);
    EXPECT_EQ(a.on_null_target, b.on_null_target);
    ASSERT_EQ(a.inputs.size(), b.inputs.size());
    for (size_t i = 0; i < a.inputs.size(); ++i) {
      EXPECT_EQ(a.inputs[i].name, b.inputs[i].name);
      EXPECT_EQ(a.inputs[i].type, b.inputs[i].type);
      EXPECT_EQ(a.inputs[i].for_features, b.inputs[i].for_features);
    }
    ASSERT_EQ(a.features.size(), b.features.size());
    for (size_t i = 0; i < a.features.size(); ++i) {
      EXPECT_EQ(a.features[i].columns, b.features[i].columns);
      ASSERT_EQ(a.features[i].steps.size(), b.features[i].steps.size());
      for (size_t s = 0; s < a.features[i].steps.size(); ++s)
        EXPECT_EQ(features::step_text(a.features[i].steps[s]), features::step_text(b.features[i].steps[s]));
      EXPECT_EQ(a.features[i].on_null, b.features[i].on_null);
    }
    EXPECT_EQ(a.fitted_json, b.fitted_json);
    EXPECT_EQ(a.model.hidden, b.model.hidden);
    EXPECT_EQ(a.model_inputs, b.model_inputs);
    EXPECT_EQ(a.precision, b.precision);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.seed, b.seed);
    EXPECT_EQ(a.rows_train, b.rows_train);
    EXPECT_EQ(a.steps, b.steps);
    EXPECT_EQ(a.metrics, b.metrics);
    ASSERT_EQ(a.weights.tensors.size(), b.weights.tensors.size());
    EXPECT_EQ(a.weights.tensors[0].bytes, b.weights.tensors[0].bytes);
  }
  std::string path() const { return (folder_ / "bundle").string(); }
  std::string read_error() const {
    const auto bundle = read_bundle(path());
    return bundle.ok() ? "OK" : bundle.status().message();
  }
  void replace_in_json(const std::string& from, const std::string& to) const {
    std::string text = *read_whole_file(path() + "/bundle.json", 1 << 20);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << text;
    text.replace(at, from.size(), to);
    std::ofstream(path() + "/bundle.json") << text;
  }
  fs::path folder_;
};

TEST_F(BundleTest, RoundTripOnDiskAndAsBytes) {
  const Bundle bundle = example();
  ASSERT_TRUE(write_bundle(path(), bundle).ok());
  auto read = read_bundle(path());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  expect_equal(*read, bundle);
  auto decoded = decode_bundle(encode_bundle(bundle));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  expect_equal(*decoded, bundle);
  std::vector<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"bundle", "bundle.json", "weights.safetensors"}));
}

TEST_F(BundleTest, MissingOrSomethingElse) {
  EXPECT_EQ(read_error(), "there is no bundle " + path());
  EXPECT_EQ(exit_code(read_bundle(path()).status()), 3);
  fs::create_directories(path());
  EXPECT_EQ(read_error(), path() + " is not a bundle: there is no " + path() + "/bundle.json");
  ASSERT_TRUE(write_bundle(path() + "/bundle", example()).ok());
  EXPECT_EQ(read_error(), path() + " is a run directory; its bundle is " + path() + "/bundle");
}

TEST_F(BundleTest, ListsOfCategoriesHaveAFileOfTheirOwn) {
  Bundle bundle = example();
  std::string key;
  {
    auto list = std::make_shared<expr::TextList>();
    list->bytes = "redgreen";
    list->ends = {3, 8, 8};
    bundle.tables = {expr::TextTable::make(list).ValueOrDie()};
    key = bundle.tables[0]->key();
  }
  ASSERT_TRUE(write_bundle(path(), bundle).ok());
  replace_in_json("\"format_version\": 4", "\"format_version\": 4");
  const std::string sent = encode_bundle(bundle);
  bundle = Bundle();
  EXPECT_EQ(expr::TextTable::of_key(key), nullptr);
  for (const Bundle& back : {read_bundle(path()).ValueOrDie(), decode_bundle(sent).ValueOrDie()}) {
    ASSERT_EQ(back.tables.size(), 1u);
    EXPECT_EQ(back.tables[0]->key(), key);
    EXPECT_EQ(expr::TextTable::of_key(key), back.tables[0]);
    EXPECT_EQ(back.tables[0]->list()[1], "green");
    EXPECT_EQ(back.tables[0]->list()[2], "");
  }
  // Another list under that name, and ends that lie.
  const std::string file = path() + "/categories.safetensors";
  const std::string good = read_whole_file(file, 1 << 20).ValueOrDie();
  const auto read_damaged = [&](size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    std::ofstream(file, std::ios::binary) << bytes;
    return read_error();
  };
  EXPECT_EQ(read_damaged(good.size() - 1, 'N'),
            file + ": the list of categories '" + key + "' is not the one of that key");
  EXPECT_EQ(read_damaged(good.size() - 8 - 12, 100),
            file + ": a list of categories is damaged: its texts overlap");
}

TEST_F(BundleTest, NewerAndDamaged) {
  ASSERT_TRUE(write_bundle(path(), example()).ok());
  replace_in_json("\"format_version\": 1", "\"format_version\": 5");
  EXPECT_EQ(
      read_error(),
      path() +
          "/bundle.json: it was written by Millstream 0.1.0 in format 5; this program reads formats up to "
          "4: use that version or a newer one");
  replace_in_json("\"format_version\": 5", "\"format_version\": 1");
  replace_in_json("\"target\"", "\"tarjet\"");
  EXPECT_EQ(read_error(), path() + "/bundle.json: it is damaged: 'target' is missing");
  replace_in_json("\"tarjet\"", "\"target\"");
  replace_in_json("\"standard_scale\"", "\"standard_scales\"");
  EXPECT_NE(read_error().find("standard_scale"), std::string::npos);
  EXPECT_EQ(exit_code(read_bundle(path()).status()), 3);
  std::ofstream(path() + "/bundle.json") << "{";
  EXPECT_EQ(read_error(), path() + "/bundle.json: it is not valid JSON");
  std::ofstream(path() + "/bundle.json") << "{\"format\": \"" << std::string(100, '[');
  EXPECT_EQ(read_error(), path() + "/bundle.json: it is not valid JSON");
  std::ofstream(path() + "/bundle.json") << std::string(1000000, '[');
  EXPECT_EQ(read_error(), path() + "/bundle.json: it is not valid JSON");
  std::ofstream(path() + "/bundle.json") << "{}";
  EXPECT_EQ(read_error(), path() + "/bundle.json: it is not a Millstream bundle");
}

TEST_F(BundleTest, DamagedWeightsAreNamed) {
  ASSERT_TRUE(write_bundle(path(), example()).ok());
  fs::resize_file(path() + "/weights.safetensors", fs::file_size(path() + "/weights.safetensors") - 1);
  EXPECT_NE(read_error().find(path() + "/weights.safetensors: tensor 'layers.0.weight'"), std::string::npos)
      << read_error();
  fs::remove(path() + "/weights.safetensors");
  EXPECT_EQ(read_error(), "opening " + path() + "/weights.safetensors: No such file or directory");
}

TEST_F(BundleTest, EveryValueOfTheJsonMayBeWrong) {
  // Whatever stands in place of a value, reading ends in a bundle or an error, never in a crash.
  ASSERT_TRUE(write_bundle(path(), example()).ok());
  const std::string text = *read_whole_file(path() + "/bundle.json", 1 << 20);
  for (size_t at = text.find(": "); at != std::string::npos; at = text.find(": ", at + 1)) {
    for (const char* value : {"null", "-1", "1e300", "[]", "{}", "\"\"", "[[[]]]", "true"}) {
      const size_t end = text.find('\n', at);
      const bool comma = text[end - 1] == ',';
      std::ofstream(path() + "/bundle.json")
          << text.substr(0, at + 2) << value << (comma ? "," : "") << text.substr(end);
      (void)read_bundle(path());
    }
  }
}

TEST_F(BundleTest, RunDirectory) {
  const std::string run = (folder_ / "a" / "run").string();
  ASSERT_TRUE(prepare_run_directory(run, false).ok());
  ASSERT_TRUE(prepare_run_directory(run, false).ok()) << "an empty folder is as good as none";
  LineFile lines;
  ASSERT_TRUE(lines.open(run + "/metrics.jsonl").ok());
  ASSERT_TRUE(lines.write("{}").ok());
  EXPECT_EQ(*read_whole_file(run + "/metrics.jsonl", 100), "{}\n");
  EXPECT_EQ(prepare_run_directory(run, false).message(),
            "the run directory " + run +
                " is not empty; name another with --out, or add --overwrite to replace the run in it");
  EXPECT_EQ(exit_code(prepare_run_directory(run, false)), 2);
  std::ofstream(run + "/notes.txt") << "mine";
  ASSERT_TRUE(prepare_run_directory(run, true).ok());
  EXPECT_FALSE(fs::exists(run + "/metrics.jsonl"));
  EXPECT_TRUE(fs::exists(run + "/notes.txt")) << "--overwrite removes what a run left, nothing else";
  EXPECT_EQ(exit_code(prepare_run_directory(run + "/notes.txt", false)), 2);
  EXPECT_EQ(exit_code(prepare_run_directory("/proc/nowhere/run", false)), 3);
}

TEST_F(BundleTest, FilesAreWholeOrAbsent) {
  const std::string file = (folder_ / "file").string();
  ASSERT_TRUE(write_file_durably(file, "first").ok());
  ASSERT_TRUE(write_file_durably(file, "second").ok());
  EXPECT_EQ(*read_whole_file(file, 100), "second");
  EXPECT_FALSE(fs::exists(file + ".part"));
  EXPECT_NE(read_whole_file(file, 3).status().message().find("at most 3 are expected"), std::string::npos);
  const Status missing = write_file_durably((folder_ / "no" / "file").string(), "x");
  EXPECT_EQ(missing.message(),
            "writing " + (folder_ / "no" / "file").string() + ": No such file or directory");
  EXPECT_EQ(exit_code(missing), 3);
}

}  // namespace
}  // namespace millstream::train
