// The whole of training, prediction and evaluation through the loader, on 1 to 4 ranks.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/mpi_test.h"
#include "exec/file_catalog.h"
#include "exec/parquet_writer.h"
#include "train/bundle.h"
#include "train/library_functions.h"
#include "train/predictor.h"
#include "train/run_directory.h"

namespace millstream::train {
namespace {

namespace fs = std::filesystem;
using comm::test_job;

class TrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "millstream-train-XXXXXX").string();
    if (test_job().rank() == 0) {
      ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    }
    folder_ = *test_job().world().broadcast_bytes(pattern, 0);
    setenv("MILLSTREAM_CACHE", (fs::path(folder_) / "cache").c_str(), 1);
  }
  void TearDown() override {
    (void)test_job().agree(Status::OK());
    if (test_job().rank() == 0) fs::remove_all(folder_);
  }

  /// Rows of a, b and y = 3a - 2b + 1 + noise, in row groups of 300; `null_at` rows have no b.
  void write_data(const std::string& name, int64_t rows, int64_t null_at = -1, bool with_target = true) {
    Status status;
    if (test_job().rank() == 0) status = write_data_file(name, rows, null_at, with_target);
    ASSERT_TRUE(test_job().agree(status).ok()) << status.ToString();
  }
  Status write_data_file(const std::string& name, int64_t rows, int64_t null_at, bool with_target) {
    arrow::DoubleBuilder a, b, y;
    for (int64_t i = 0; i < rows; ++i) {
      const double va = std::sin(0.1 * static_cast<double>(i)) * 5, vb = static_cast<double>(i % 17);
      MILLSTREAM_TRY(a.Append(va));
      MILLSTREAM_TRY(i == null_at ? b.AppendNull() : b.Append(vb));
      MILLSTREAM_TRY(y.Append(3 * va - 2 * vb + 1 + 0.1 * std::cos(static_cast<double>(i))));
    }
    arrow::FieldVector fields{arrow::field("a", arrow::float64()), arrow::field("b", arrow::float64())};
    arrow::ArrayVector arrays{*a.Finish(), *b.Finish()};
    if (with_target) {
      fields.push_back(arrow::field("y", arrow::float64()));
      arrays.push_back(*y.Finish());
    }
    const auto schema = arrow::schema(fields);
    MILLSTREAM_ASSIGN(auto writer, exec::ParquetFileWriter::open(path(name), schema,
                                                                 {.overwrite = true, .row_group_rows = 300}));
    MILLSTREAM_TRY(writer->write(*arrow::RecordBatch::Make(schema, rows, arrays)));
    return writer->close();
  }
  std::string path(const std::string& name) const { return (fs::path(folder_) / name).string(); }

  TrainJob job(const std::string& run) const {
    TrainJob job;
    job.data.train = "SELECT a, b, y FROM 'train.parquet' WHERE b >= 0 OR b IS NULL";
    job.data.base_directory = folder_;
    job.data.target = "y";
    job.data.valid_fraction = 0.2;
    job.data.features = {{{"a", "b"}, {{"standard_scale", {}}}, features::OnNull::kError}};
    job.loader.batch_size = 64;
    job.loader.lanes = 4;
    job.loader.window = 500;
    job.loader.cache_directory = path("cache");
    job.loader.threads = 1;
    job.model.hidden = {16};
    job.train.epochs = 3;
    job.train.learning_rate = 0.02;
    job.out_directory = path(run);
    job.recipe_text = "# a recipe\n";
    return job;
  }
  Result<TrainSummary> run_training(const TrainJob& job, const std::string& trainers = "all",
                                    const std::function<void(const TrainProgress&)>& progress = {}) {
    MILLSTREAM_ASSIGN(const auto roles, comm::assign_roles(test_job().topology(), trainers));
    return run_training(job, roles, progress);
  }
  Result<TrainSummary> run_training(const TrainJob& job, const comm::Roles& roles,
                                    const std::function<void(const TrainProgress&)>& progress) {
    const auto catalog = exec::make_file_catalog(1);
    return train(test_job(), roles, *catalog, job, progress);
  }
  Result<int64_t> run_predict(const std::string& bundle, const std::vector<std::string>& inputs,
                              const std::string& output, bool overwrite = false) {
    PredictJob job;
    job.bundle = bundle;
    job.inputs = inputs;
    job.output = output;
    job.overwrite = overwrite;
    job.loader.threads = 2;
    const auto catalog = exec::make_file_catalog(1);
    return predict(test_job(), *catalog, job);
  }
  Result<EvaluateSummary> run_evaluate(const std::string& bundle, const std::vector<std::string>& inputs) {
    PredictJob job;
    job.bundle = bundle;
    job.inputs = inputs;
    job.loader.threads = 2;
    const auto catalog = exec::make_file_catalog(1);
    return evaluate(test_job(), *catalog, job);
  }
  /// The predictions that a file holds, NaN for null.
  static std::vector<double> read_predictions(const std::string& file, int number = 0) {
    const auto catalog = exec::make_file_catalog(1);
    const auto table = *catalog->open({{file}, "", {}});
    std::vector<double> out;
    for (size_t entry = 0; entry < table->entry_points().size(); ++entry) {
      const auto reader = *table->read(static_cast<int>(entry), {number});
      for (;;) {
        const auto batch = *reader->next();
        if (!batch) break;
        const auto& column = *batch->column(0);
        for (int64_t i = 0; i < column.length(); ++i) {
          if (column.IsNull(i))
            out.push_back(NAN);
          else if (column.type_id() == arrow::Type::DOUBLE)
            out.push_back(static_cast<const arrow::DoubleArray&>(column).Value(i));
          else if (column.type_id() == arrow::Type::INT64)
            out.push_back(static_cast<double>(static_cast<const arrow::Int64Array&>(column).Value(i)));
          else
            out.push_back(static_cast<const arrow::FloatArray&>(column).Value(i));
        }
      }
    }
    return out;
  }
  /// The error is the same on every rank; the job can be used again.
  static std::string error_everywhere(const Status& status) {
    EXPECT_FALSE(status.ok());
    test_job().clear_failure();
    const auto texts = *test_job().world().allgather_bytes(status.message());
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
    return status.message();
  }
  std::string folder_;
};

TEST_F(TrainingTest, TrainsPredictsAndEvaluates) {
  write_data("train.parquet", 2000);
  write_data("test.parquet", 700);
  int64_t calls = 0;
  TrainJob work = job("run");
  auto summary = run_training(work, "all", [&](const TrainProgress& progress) {
    ++calls;
    EXPECT_EQ(progress.epochs, 3);
    EXPECT_LE(progress.step, progress.steps);
  });
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(calls > 0, test_job().rank() == 0);
  EXPECT_EQ(summary->epochs, 3);
  EXPECT_EQ(summary->ranks, test_job().size());
  EXPECT_EQ(summary->trainers, test_job().size());
  EXPECT_EQ(summary->parameters, 2 * 16 + 16 + 16 + 1);
  EXPECT_EQ(summary->steps, summary->epochs * ((summary->rows / 3 + 63) / 64));
  EXPECT_LT(summary->loss_last, summary->loss_first);
  EXPECT_GT(summary->valid.at("r2"), 0.5);
  EXPECT_GT(summary->peak_rss_bytes, 0);
  EXPECT_FALSE(summary->bottleneck.empty());
  EXPECT_EQ(summary->bundle, path("run") + "/bundle");

  // What is left behind.
  EXPECT_EQ(*read_whole_file(path("run/recipe.toml"), 1000), "# a recipe\n");
  std::ifstream metrics(path("run/metrics.jsonl"));
  int epochs = 0, steps = 0;
  for (std::string line; std::getline(metrics, line);) {
    epochs += line.find("\"kind\":\"epoch\"") != std::string::npos;
    steps += line.find("\"kind\":\"step\"") != std::string::npos;
  }
  EXPECT_EQ(epochs, 3);
  EXPECT_GE(steps, 3);
  auto bundle = read_bundle(summary->bundle);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  EXPECT_EQ(bundle->metrics, summary->valid);
  EXPECT_EQ(bundle->rows_train, summary->rows / 3);
  EXPECT_EQ(bundle->rows_train + bundle->rows_valid, 2000);

  // One prediction a row, in row order, near the truth; the same over two files as over each.
  auto rows = run_predict(summary->bundle, {path("test.parquet")}, path("out.parquet"));
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  EXPECT_EQ(*rows, 700);
  const auto predictions = read_predictions(path("out.parquet"));
  ASSERT_EQ(predictions.size(), 700u);
  double squared_error = 0;
  for (int i = 0; i < 700; ++i) {
    const double truth = 3 * std::sin(0.1 * i) * 5 - 2 * (i % 17) + 1 + 0.1 * std::cos(i);
    squared_error += (predictions[i] - truth) * (predictions[i] - truth);
  }
  auto evaluated = run_evaluate(summary->bundle, {path("test.parquet")});
  ASSERT_TRUE(evaluated.ok()) << evaluated.status().ToString();
  EXPECT_EQ(evaluated->rows, 700);
  EXPECT_NEAR(evaluated->metrics.at("rmse"), std::sqrt(squared_error / 700),
              1e-6 * evaluated->metrics.at("rmse"));
  EXPECT_EQ(exit_code(run_predict(summary->bundle, {path("test.parquet")}, path("out.parquet")).status()), 3);
  test_job().clear_failure();
  rows =
      run_predict(summary->bundle, {path("test.parquet"), path("train.parquet")}, path("out.parquet"), true);
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  EXPECT_EQ(*rows, 2700);
  const auto both = read_predictions(path("out.parquet"));
  ASSERT_EQ(both.size(), 2700u);
  for (int i = 0; i < 700; ++i) EXPECT_FLOAT_EQ(both[i], predictions[i]);
}

TEST_F(TrainingTest, PredictorGivesWhatPredictWrites) {
  write_data("train.parquet", 2000);
  write_data("new.parquet", 500, /*null_at=*/77, /*with_target=*/false);
  for (const bool embedded : {false, true}) {
    const std::string run = embedded ? "embedded" : "plain";
    TrainJob work = job(run);
    work.data.features = {{{"a"}, {{"standard_scale", {}}}, features::OnNull::kError},
                          {{"b"}, {{"max_abs_scale", {}}}, features::OnNull::kDrop}};
    work.data.train = "SELECT a * 2 AS a, b, y FROM 'train.parquet'";
    if (embedded) {
      work.data.features[1].steps = {{"hash_bucket", {"30"}}, {"embedding", {"3"}}};
      work.model.kind = "wide_deep";
      work.model.batch_norm = true;
    }
    const auto summary = run_training(work);
    ASSERT_TRUE(summary.ok()) << summary.status().ToString();
    ASSERT_TRUE(run_predict(summary->bundle, {path("new.parquet")}, path(run + ".parquet")).ok());
    if (test_job().rank() != 0) continue;
    const std::vector<double> written = read_predictions(path(run + ".parquet"));
    const auto predictor = *Predictor::open(summary->bundle);
    EXPECT_EQ(predictor->input()->field_names(), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(predictor->outputs(), 1);
    const auto catalog = exec::make_file_catalog(1);
    const auto table = *catalog->open({{path("new.parquet")}, "", {}});
    const auto reader = *table->read(0, {0, 1});
    const auto rows = *reader->next();
    // All at once, and row by row from two threads.
    const std::vector<double> all = *predictor->predict(*rows);
    std::vector<double> single(all.size());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 2; ++thread)
      threads.emplace_back([&, thread] {
        for (int64_t row = thread; row < rows->num_rows(); row += 2)
          single[static_cast<size_t>(row)] = (*predictor->predict(*rows->Slice(row, 1)))[0];
      });
    for (std::thread& thread : threads) thread.join();
    for (size_t row = 0; row < all.size(); ++row) {
      EXPECT_EQ(std::isnan(all[row]), std::isnan(written[row])) << row;
      EXPECT_EQ(std::isnan(all[row]), !embedded && row == 77) << row;
      if (std::isnan(all[row])) continue;
      EXPECT_NEAR(all[row], written[row], 1e-5 * std::abs(written[row]) + 1e-5) << row;
      EXPECT_NEAR(single[row], written[row], 1e-5 * std::abs(written[row]) + 1e-5) << row;
    }
    const auto wrong = arrow::RecordBatch::Make(arrow::schema({rows->schema()->field(0)}), 1,
                                                {rows->column(0)->Slice(0, 1)});
    EXPECT_EQ(predictor->predict(*wrong).status().message(),
              "the rows have 1 columns where the bundle needs 2: a, b");
    // Integers cast to the columns' type; text does not.
    arrow::Int64Builder whole;
    ASSERT_TRUE(whole.Append(3).ok());
    arrow::StringBuilder word;
    ASSERT_TRUE(word.Append("x").ok());
    const auto three = *whole.Finish(), text = *word.Finish();
    const auto batch_of = [&](const std::shared_ptr<arrow::Array>& a) {
      return arrow::RecordBatch::Make(
          arrow::schema({arrow::field("a", a->type()), arrow::field("b", arrow::int64())}), 1, {a, three});
    };
    EXPECT_TRUE(predictor->predict(*batch_of(three)).ok());
    EXPECT_EQ(exit_code(predictor->predict(*batch_of(text)).status()), 3);
    EXPECT_EQ(Predictor::open(path("nothing")).status().message(), "there is no bundle " + path("nothing"));
  }
}

TEST_F(TrainingTest, BundlesAreExported) {
  write_data("train.parquet", 800);
  TrainJob work = job("run");
  work.data.features[0].columns = {"a"};
  work.data.features.push_back({{"b"}, {{"categorify", {}}, {"embedding", {"4"}}}, features::OnNull::kError});
  const auto summary = run_training(work);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  if (test_job().rank() != 0) return;
  ASSERT_TRUE(export_bundle({summary->bundle, "torchscript", path("model.pt"), false}).ok());
  EXPECT_EQ(export_bundle({summary->bundle, "torchscript", path("model.pt"), false}).ok(), false);
  ASSERT_TRUE(export_bundle({summary->bundle, "state_dict", path("model.pt"), true}).ok());
  EXPECT_EQ(export_bundle({summary->bundle, "onnx", path("m"), true}).message(),
            "a bundle can be exported to torchscript or state_dict, not to 'onnx'");
}

TEST_F(TrainingTest, EvaluateRepeatsWhatValidationPrinted) {
  write_data("train.parquet", 1000);
  write_data("valid.parquet", 500);
  TrainJob work = job("run");
  work.data.valid_fraction = 0;
  work.data.valid = "SELECT a, b, y FROM 'valid.parquet' WHERE b > 2";
  work.data.valid_base_directory = folder_;
  work.data.train = "SELECT a, b, y FROM 'train.parquet' WHERE b > 2";
  auto summary = run_training(work);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  auto evaluated = run_evaluate(summary->bundle, {path("valid.parquet")});
  ASSERT_TRUE(evaluated.ok()) << evaluated.status().ToString();
  EXPECT_LT(evaluated->rows, 500);
  for (const auto& [name, value] : summary->valid)
    EXPECT_NEAR(evaluated->metrics.at(name), value, 1e-6 * std::abs(value)) << name;
}

TEST_F(TrainingTest, DoublePrecisionWeightsDoNotDependOnTheNumberOfTrainers) {
  write_data("train.parquet", 2100);
  std::vector<Bundle> bundles;
  std::vector<TrainSummary> summaries;
  for (int trainers = 1; trainers <= test_job().size(); ++trainers) {
    TrainJob work = job("run" + std::to_string(trainers));
    work.train.precision = "float64";
    work.train.epochs = 4;  // more than 100 steps, the last of an epoch small
    work.data.valid_fraction = 0;
    auto summary = run_training(work, std::to_string(trainers));
    ASSERT_TRUE(summary.ok()) << summary.status().ToString();
    EXPECT_EQ(summary->trainers, trainers);
    EXPECT_GT(summary->steps, 100);
    EXPECT_TRUE(summary->valid.empty());
    summaries.push_back(*summary);
    bundles.push_back(*read_bundle(summary->bundle));
  }
  for (size_t i = 1; i < bundles.size(); ++i) {
    EXPECT_EQ(summaries[i].rows, summaries[0].rows);
    EXPECT_EQ(summaries[i].steps, summaries[0].steps);
    EXPECT_NEAR(summaries[i].loss_first, summaries[0].loss_first, 1e-9 * summaries[0].loss_first);
    for (size_t t = 0; t < bundles[0].weights.tensors.size(); ++t) {
      const auto &mine = bundles[i].weights.tensors[t], &first = bundles[0].weights.tensors[t];
      ASSERT_EQ(mine.bytes.size(), first.bytes.size());
      const auto* a = reinterpret_cast<const double*>(mine.bytes.data());
      const auto* b = reinterpret_cast<const double*>(first.bytes.data());
      double scale = 0;
      for (size_t v = 0; v < mine.bytes.size() / 8; ++v) scale = std::max(scale, std::abs(b[v]));
      for (size_t v = 0; v < mine.bytes.size() / 8; ++v)
        EXPECT_NEAR(a[v], b[v], 1e-9 * scale) << mine.name << " " << v;
    }
  }
}

TEST_F(TrainingTest, ClassificationTrainsPredictsAndEvaluates) {
  write_data("train.parquet", 2000);
  for (const char* loss : {"bce", "cross_entropy"}) {
    TrainJob work = job(loss);
    work.data.train = "SELECT a, b, CASE WHEN y > -10 THEN 1 ELSE 0 END AS y FROM 'train.parquet'";
    work.train.loss = loss;
    work.train.schedule = "cosine";
    work.train.warmup_steps = 5;
    work.train.clip_norm = 1;
    work.train.accumulate = 3;
    work.train.epochs = 6;
    if (work.train.loss == "cross_entropy") work.model.classes = 2;
    auto summary = run_training(work);
    ASSERT_TRUE(summary.ok()) << summary.status().ToString();
    EXPECT_GT(summary->valid.at("accuracy"), 0.8);
    EXPECT_LT(summary->valid.at("log_loss"), 0.6);
    EXPECT_EQ(summary->valid.contains("auc"), work.train.loss == "bce");

    auto evaluated = run_evaluate(summary->bundle, {path("train.parquet")});
    ASSERT_TRUE(evaluated.ok()) << evaluated.status().ToString();
    EXPECT_EQ(evaluated->rows, 2000);
    auto rows = run_predict(summary->bundle, {path("train.parquet")}, path("out.parquet"), true);
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    const auto predictions = read_predictions(path("out.parquet"));
    ASSERT_EQ(predictions.size(), 2000u);
    int64_t right = 0;
    double log_loss = 0;
    const auto probabilities =
        work.model.classes > 0 ? read_predictions(path("out.parquet"), 1) : predictions;
    for (int i = 0; i < 2000; ++i) {
      const double y = 3 * std::sin(0.1 * i) * 5 - 2 * (i % 17) + 1 + 0.1 * std::cos(static_cast<double>(i));
      const bool positive = y > -10, said = predictions[i] > 0.5;
      right += positive == said;
      double p = probabilities[i];  // of the class that is predicted; with bce of 1
      if (work.model.classes > 0 ? positive != said : !positive) p = 1 - p;
      log_loss -= std::log(p);
    }
    EXPECT_DOUBLE_EQ(evaluated->metrics.at("accuracy"), right / 2000.0);
    EXPECT_NEAR(evaluated->metrics.at("log_loss"), log_loss / 2000, 1e-4);
  }
  TrainJob work = job("bad");
  work.train.loss = "bce";
  const Status status = run_training(work).status();
  EXPECT_EQ(exit_code(status), 3);
  EXPECT_NE(error_everywhere(status).find("with the loss bce it must be 0 or 1"), std::string::npos);
}

TEST_F(TrainingTest, PatienceEndsTraining) {
  write_data("train.parquet", 3000);
  TrainJob work = job("run");
  work.train.optimizer = "sgd";
  work.train.learning_rate = 0;  // nothing ever gets better
  work.train.epochs = 1000;
  work.train.patience = 2;
  auto summary = run_training(work);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->epochs, 3);  // the first is the best, two more are not better
  EXPECT_EQ(summary->steps, summary->epochs * ((summary->rows / 3 + 63) / 64));
  EXPECT_EQ(read_bundle(summary->bundle)->epochs, 3);
  ASSERT_TRUE(test_job().world().barrier().ok());  // all have read it: the next run replaces it
  // The job goes on: another training, and one without validation rows.
  work.train.epochs = 2;
  work.overwrite = true;
  summary = run_training(work);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->epochs, 2);
  work.data.valid_fraction = 0;
  EXPECT_EQ(error_everywhere(run_training(work).status()),
            "train.patience is 2, but there are no validation rows to be patient with: set data.valid");
}

TEST_F(TrainingTest, BestWeightsAreKept) {
  write_data("train.parquet", 600);
  TrainJob work = job("run");
  work.train.optimizer = "sgd";
  work.train.learning_rate = 0.03;  // bounces about
  work.train.epochs = 6;
  auto summary = run_training(work);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  double best = INFINITY;
  std::ifstream metrics(path("run/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    const size_t at = line.find("\"rmse\":");
    if (at != std::string::npos) best = std::min(best, std::stod(line.substr(at + 7)));
  }
  EXPECT_EQ(summary->valid.at("rmse"), best);
}

TEST_F(TrainingTest, DivergenceNamesEpochAndStep) {
  write_data("train.parquet", 600);
  TrainJob work = job("run");
  work.train.optimizer = "sgd";
  work.train.learning_rate = 1e30;
  const std::string text = error_everywhere(run_training(work).status());
  EXPECT_NE(text.find("training diverged: the loss is "), std::string::npos) << text;
  EXPECT_NE(text.find("in epoch 1, step "), std::string::npos) << text;
  EXPECT_EQ(text.find("checkpoint"), std::string::npos) << text;
  // After an epoch that was well there is a checkpoint to go on from.
  work = job("later");
  work.train.epochs = 2;
  ASSERT_TRUE(run_training(work).ok());
  work.train.learning_rate = 1e30;
  work.train.epochs = 4;
  work.resume = work.out_directory;
  work.resume_anyway = true;
  const std::string later = error_everywhere(run_training(work).status());
  EXPECT_NE(later.find("the last checkpoint before it is that of step "), std::string::npos) << later;
  EXPECT_NE(later.find("--resume " + work.out_directory + " --resume-anyway"), std::string::npos) << later;
}

TEST_F(TrainingTest, BadConfigurationsAndRunDirectories) {
  write_data("train.parquet", 100);
  TrainJob work = job("run");
  work.train.loss = "msee";
  EXPECT_EQ(error_everywhere(run_training(work).status()), "train.loss is 'msee'; did you mean 'mse'?");
  work = job("run");
  work.out_directory = path("train.parquet");
  EXPECT_EQ(error_everywhere(run_training(work).status()),
            "the run directory " + path("train.parquet") + " is a file; name another with --out");
}

TEST_F(TrainingTest, MissingTargetNullsAndColumnsAtPrediction) {
  write_data("train.parquet", 600);
  write_data("new.parquet", 650, /*null_at=*/640, /*with_target=*/false);
  auto summary = run_training(job("run"));
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  // The target is not needed; a null feature is an error that names its place.
  std::string text =
      error_everywhere(run_predict(summary->bundle, {path("new.parquet")}, path("out.parquet")).status());
  EXPECT_NE(text.find("column 'b'"), std::string::npos) << text;
  EXPECT_NE(text.find("new.parquet"), std::string::npos) << text;
  EXPECT_NE(text.find("640"), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(path("out.parquet")));
  text = error_everywhere(run_evaluate(summary->bundle, {path("new.parquet")}).status());
  EXPECT_EQ(text, path("new.parquet") +
                      " has no column 'y': the bundle's filter or target need it, with type DOUBLE");
  text = error_everywhere(run_evaluate(path("nothing"), {path("new.parquet")}).status());
  EXPECT_EQ(text, "there is no bundle " + path("nothing"));

  // With on_null = "drop" such a row has no prediction.
  TrainJob work = job("run2");
  work.data.features[0].on_null = features::OnNull::kDrop;
  summary = run_training(work);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  auto rows = run_predict(summary->bundle, {path("new.parquet")}, path("out.parquet"));
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  EXPECT_EQ(*rows, 650);
  const auto predictions = read_predictions(path("out.parquet"));
  ASSERT_EQ(predictions.size(), 650u);
  for (int i = 0; i < 650; ++i) EXPECT_EQ(std::isnan(predictions[i]), i == 640) << i;
}

TEST_F(TrainingTest, TrainersThatAreNotRankZero) {
  if (test_job().size() < 2) GTEST_SKIP() << "needs two ranks";
  write_data("train.parquet", 600);
  int64_t calls = 0;
  comm::Roles roles;
  roles.trainers.push_back({.rank = 1});
  for (int rank = 0; rank < test_job().size(); ++rank)
    if (rank != 1) roles.feeders.push_back(rank);
  auto summary = run_training(job("run"), roles, [&](const TrainProgress&) { ++calls; });
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(calls > 0, test_job().rank() == 1);
  EXPECT_EQ(summary->trainers, 1);
  EXPECT_TRUE(read_bundle(summary->bundle).ok());
}

}  // namespace
}  // namespace millstream::train
