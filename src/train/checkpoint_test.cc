#include "train/checkpoint.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace millstream::train {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "millstream-checkpoint-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    run_ = pattern;
  }
  void TearDown() override { fs::remove_all(run_); }

  static Checkpoint some(int64_t batches) {
    Checkpoint c;
    c.epoch = 3;
    c.step = 7;
    c.batches = batches;
    c.updates = 40;
    c.rows = 12345;
    c.epochs_done = 3;
    c.survey_key = "00ff";
    c.recipe = {{"train.seed", "1"}, {"model.hidden", "[8]"}};
    c.window_loss = 0.1;
    c.epoch_loss = 1e-300;
    c.last_loss = 1.0 / 3;
    c.loss_first = 2;
    c.window_rows = 5;
    c.epoch_rows = 6;
    c.metrics_bytes = 99;
    c.has_best = true;
    c.best = 0.7;
    c.epochs_since_best = 2;
    c.rows_valid = 77;
    c.valid = {{"rmse", 0.7}};
    c.state = {{"model.w", TensorType::kFloat32, {2}, std::string(8, 'x')},
               {"optimizer.step.w", TensorType::kFloat64, {}, std::string(8, 'y')}};
    return c;
  }
  std::string run_;
};

void expect_equal(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(encode_checkpoint(a), encode_checkpoint(b));
  EXPECT_EQ(a.last_loss, b.last_loss);
  EXPECT_EQ(a.epoch_loss, b.epoch_loss);
  EXPECT_EQ(a.recipe, b.recipe);
  ASSERT_EQ(a.state.size(), b.state.size());
  EXPECT_EQ(a.state[0].bytes, b.state[0].bytes);
}

TEST_F(CheckpointTest, ComesBackAsItWasAndTheNewestAreKept) {
  EXPECT_TRUE(list_checkpoints(run_).empty());
  for (const int64_t step : {9, 10, 100}) ASSERT_TRUE(write_checkpoint(run_, some(step), 2).ok());
  ASSERT_TRUE(write_checkpoint(run_, some(100), 2).ok()) << "in the place of the same one";
  const auto there = list_checkpoints(run_);
  ASSERT_EQ(there.size(), 2u);
  EXPECT_EQ(there[0], run_ + "/checkpoints/step-100");
  EXPECT_EQ(there[1], run_ + "/checkpoints/step-10");
  EXPECT_EQ(std::distance(fs::directory_iterator(run_ + "/checkpoints"), fs::directory_iterator()), 2);
  const auto read = read_checkpoint(there[0]);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  expect_equal(*read, some(100));
  expect_equal(*decode_checkpoint(encode_checkpoint(some(4))), some(4));
  EXPECT_FALSE(decode_checkpoint("short").ok());
}

TEST_F(CheckpointTest, DamageIsFound) {
  ASSERT_TRUE(write_checkpoint(run_, some(1), 2).ok());
  const std::string path = list_checkpoints(run_).at(0);
  for (const char* name : {"checkpoint.json", "state.safetensors", "checksums"}) {
    std::fstream file(path + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    char byte = 0;
    file.seekg(5).get(byte);
    file.seekp(5).put(static_cast<char>(byte ^ 1)).flush();
    const Status status = read_checkpoint(path).status();
    EXPECT_EQ(status.message(), "the checkpoint " + path + " is damaged: its checksums don't match") << name;
    EXPECT_EQ(exit_code(status), 3);
    file.seekp(5).put(byte).flush();
    EXPECT_TRUE(read_checkpoint(path).ok());
  }
  fs::remove(path + "/checksums");
  EXPECT_EQ(exit_code(read_checkpoint(path).status()), 3);
}

TEST_F(CheckpointTest, DifferencesAreNamed) {
  EXPECT_TRUE(compare_runs(some(1), some(1).recipe).ok());
  const Status status = compare_runs(some(1), {{"train.seed", "2"}, {"model.kind", "mlp"}});
  EXPECT_EQ(status.message(),
            "this is not the run that was interrupted: model.kind is mlp and was not there, train.seed was 1 "
            "and is 2, "
            "model.hidden was [8] and is not there; undo that, start a new run with another --out, or go on "
            "all the "
            "same with --resume-anyway");
  EXPECT_EQ(exit_code(status), 2);
}

}  // namespace
}  // namespace millstream::train
