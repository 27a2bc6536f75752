#include "train/metrics.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace millstream::train {
namespace {

TEST(RegressionSums, AsByHand) {
  const std::vector<float> predicted{1, 2, 4}, actual{1, 3, 2};
  RegressionSums sums;
  sums.add(predicted.data(), actual.data(), 3);
  const auto metrics = sums.metrics();
  EXPECT_DOUBLE_EQ(metrics.at("rmse"), std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(metrics.at("mae"), 1.0);
  EXPECT_DOUBLE_EQ(metrics.at("r2"), 1 - 5.0 / 2);
}

TEST(RegressionSums, MergedPartsEqualTheWhole) {
  std::vector<double> predicted, actual;
  for (int i = 0; i < 1000; ++i) {
    predicted.push_back(std::sin(i));
    actual.push_back(1e4 + std::cos(i) * 3);
  }
  RegressionSums whole, merged;
  whole.add(predicted.data(), actual.data(), 1000);
  for (const auto& [begin, end] : {std::pair{0, 0}, {0, 1}, {1, 300}, {300, 300}, {300, 1000}}) {
    RegressionSums part;
    part.add(predicted.data() + begin, actual.data() + begin, end - begin);
    merged.merge(part);
  }
  for (const auto& [name, value] : whole.metrics())
    EXPECT_NEAR(merged.metrics().at(name), value, 1e-9 * std::abs(value)) << name;
}

TEST(RegressionSums, ConstantTargetsAndNoRows) {
  RegressionSums sums;
  EXPECT_TRUE(sums.metrics().empty());
  const std::vector<double> same{2, 2}, other{2, 3};
  sums.add(same.data(), same.data(), 2);
  EXPECT_EQ(sums.metrics().at("r2"), 1);
  sums.add(other.data(), same.data(), 2);
  EXPECT_EQ(sums.metrics().at("r2"), 0);
}

TEST(RegressionSums, MeanAbsolutePercentageError) {
  const std::vector<double> predicted{1, 3}, actual{2, -4};
  RegressionSums sums;
  sums.add(predicted.data(), actual.data(), 2);
  EXPECT_DOUBLE_EQ(sums.metrics().at("mape"), (0.5 + 7.0 / 4) / 2);
  const double zero = 0;
  sums.add(&zero, &zero, 1);
  EXPECT_FALSE(sums.metrics().contains("mape"));
}

TEST(ClassificationSums, BinaryAsByHand) {
  const std::vector<float> logits{-2, -1, -1, 0, 0.5f, 0.5f, 1, 3};
  const std::vector<float> actual{0, 0, 1, 1, 0, 1, 0, 1};
  ClassificationSums sums;
  sums.add_binary(logits.data(), actual.data(), 8);
  double log_loss = 0, pairs = 0;
  for (size_t i = 0; i < 8; ++i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(logits[i])));
    log_loss -= std::log(actual[i] != 0 ? p : 1 - p);
    for (size_t j = 0; j < 8; ++j)
      if (actual[i] != 0 && actual[j] == 0)
        pairs += logits[i] > logits[j] ? 1 : logits[i] == logits[j] ? 0.5 : 0;
  }
  const auto metrics = sums.metrics();
  EXPECT_EQ(metrics.at("auc"), pairs / 16);
  EXPECT_EQ(metrics.at("auc"), 0.625);
  EXPECT_EQ(metrics.at("accuracy"), 0.5);
  EXPECT_NEAR(metrics.at("log_loss"), log_loss / 8, 1e-12);
  double taken = 0, found = 0;
  for (size_t i = 0; i < 8; ++i) {
    taken += logits[i] > 0;
    found += logits[i] > 0 && actual[i] != 0;
  }
  EXPECT_EQ(metrics.at("precision"), found / taken);
  EXPECT_EQ(metrics.at("recall"), found / 4);
  EXPECT_DOUBLE_EQ(metrics.at("f1"), 2 / (taken / found + 4 / found));
}

TEST(ClassificationSums, OneClassAloneHasNoArea) {
  ClassificationSums sums;
  EXPECT_TRUE(sums.metrics().empty());
  const double logit = 800, one = 1;
  sums.add_binary(&logit, &one, 1);
  EXPECT_EQ(sums.metrics().at("log_loss"), 0);
  EXPECT_FALSE(sums.metrics().contains("auc"));
  EXPECT_EQ(sums.metrics().at("f1"), 1);
  ClassificationSums none;  // nothing is taken for 1
  const double low = -1;
  none.add_binary(&low, &one, 1);
  EXPECT_EQ(none.metrics().at("precision"), 0);
  EXPECT_EQ(none.metrics().at("f1"), 0);
}

TEST(ClassificationSums, ClassesAsByHand) {
  const std::vector<double> logits{1, 2, 3, 900, -900, 0};
  const std::vector<float> actual{1, 0};
  ClassificationSums sums;
  sums.add_classes(logits.data(), 3, actual.data(), 2);
  EXPECT_EQ(sums.metrics().at("accuracy"), 0.5);
  EXPECT_NEAR(sums.metrics().at("log_loss"), (std::log(std::exp(1) + std::exp(2) + std::exp(3)) - 2) / 2,
              1e-12);
  EXPECT_FALSE(sums.metrics().contains("auc"));
}

TEST(EvaluationSums, TravelAsBytesAndMergeToTheWhole) {
  for (const Task task : {Task::kRegression, Task::kBinary, Task::kClasses}) {
    const int64_t outputs = task == Task::kClasses ? 3 : 1;
    std::vector<double> values, actual;
    for (int i = 0; i < 300; ++i) {
      for (int64_t c = 0; c < outputs; ++c) values.push_back(std::round(20 * std::sin(i * 3 + c)) / 10);
      actual.push_back(task == Task::kRegression ? 2 + std::cos(i) : i % (outputs == 1 ? 2 : 3));
    }
    EvaluationSums whole(task, outputs), merged(task, outputs);
    whole.add(values.data(), actual.data(), 300);
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 1}, {1, 128}, {128, 300}}) {
      EvaluationSums part(task, outputs);
      part.add(values.data() + begin * outputs, actual.data() + begin, end - begin);
      ASSERT_TRUE(merged.merge_encoded(part.encode()).ok());
    }
    EXPECT_EQ(merged.rows(), 300);
    EXPECT_EQ(whole.metrics().size(), task == Task::kRegression ? 4u : task == Task::kBinary ? 6u : 2u);
    for (const auto& [name, value] : whole.metrics())
      EXPECT_NEAR(merged.metrics().at(name), value, 1e-12 * std::abs(value)) << name;
    if (task == Task::kBinary) {
      EXPECT_EQ(merged.metrics().at("auc"), whole.metrics().at("auc"));
    }
    EXPECT_FALSE(merged.merge_encoded("short").ok());
  }
}

}  // namespace
}  // namespace millstream::train
