#include "train/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace millstream::train {
namespace {

/// The chance that a positive's logit is above a negative's, ties counting half: Mann and Whitney's U over the number
/// of pairs, counted in whole numbers.
double area_under_roc(std::vector<double> positives, std::vector<double> negatives) {
  std::sort(positives.begin(), positives.end());
  std::sort(negatives.begin(), negatives.end());
  unsigned __int128 twice = 0;
  size_t below = 0, not_above = 0;
  for (const double logit : positives) {
    while (below < negatives.size() && negatives[below] < logit) ++below;
    not_above = std::max(not_above, below);
    while (not_above < negatives.size() && negatives[not_above] <= logit) ++not_above;
    twice += below + not_above;
  }
  return static_cast<double>(twice) / 2 / static_cast<double>(positives.size()) /
         static_cast<double>(negatives.size());
}

template <class T>
void append(std::string& out, const T* values, size_t count) {
  out.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

template <class T>
bool take(std::string_view& bytes, T* values, size_t count) {
  if (count > bytes.size() / sizeof(T)) return false;
  if (count > 0) std::memcpy(values, bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return true;
}

}  // namespace

Task task_of(const std::string& loss) {
  return loss == "bce" ? Task::kBinary : loss == "cross_entropy" ? Task::kClasses : Task::kRegression;
}

const char* deciding_metric(const std::string& loss) {
  if (task_of(loss) != Task::kRegression) return "log_loss";
  return loss == "mse" ? "rmse" : "mae";
}

void RegressionSums::merge(const RegressionSums& other) {
  if (other.rows == 0) return;
  if (rows == 0) {
    *this = other;
    return;
  }
  const double n = static_cast<double>(rows), m = static_cast<double>(other.rows), total = n + m;
  const double difference = other.mean - mean;
  squared_error += other.squared_error;
  absolute_error += other.absolute_error;
  relative_error += other.relative_error;
  zeros += other.zeros;
  mean += difference * m / total;
  squares += other.squares + difference * difference * n * m / total;
  rows += other.rows;
}

std::map<std::string, double> RegressionSums::metrics() const {
  if (rows == 0) return {};
  const double n = static_cast<double>(rows);
  double r2 = squared_error == 0 ? 1 : 0;
  if (squares > 0) r2 = 1 - squared_error / squares;
  std::map<std::string, double> out{
      {"rmse", std::sqrt(squared_error / n)}, {"mae", absolute_error / n}, {"r2", r2}};
  if (zeros == 0) out["mape"] = relative_error / n;
  return out;
}

void ClassificationSums::add_logit(double logit, bool positive) {
  ++rows;
  right += (logit > 0) == positive;
  // −log of the probability of the target, without overflow.
  log_loss += std::max(logit, 0.0) - (positive ? logit : 0) + std::log1p(std::exp(-std::abs(logit)));
  (positive ? positives : negatives).push_back(logit);
}

void ClassificationSums::add_row(const double* logits, int64_t classes, int64_t actual) {
  const double* best = std::max_element(logits, logits + classes);
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - *best);
  ++rows;
  right += best - logits == actual;
  log_loss += *best + std::log(sum) - logits[actual];
}

void ClassificationSums::merge(const ClassificationSums& other) {
  rows += other.rows;
  right += other.right;
  log_loss += other.log_loss;
  positives.insert(positives.end(), other.positives.begin(), other.positives.end());
  negatives.insert(negatives.end(), other.negatives.begin(), other.negatives.end());
}

std::map<std::string, double> ClassificationSums::metrics() const {
  if (rows == 0) return {};
  const double n = static_cast<double>(rows);
  std::map<std::string, double> out{{"accuracy", static_cast<double>(right) / n}, {"log_loss", log_loss / n}};
  // NaN has no place in an order.
  if (!positives.empty() && !negatives.empty() && !std::isnan(log_loss))
    out["auc"] = area_under_roc(positives, negatives);
  if (positives.empty()) return out;
  // Of the rows that are taken for 1, and of those that are 1.
  const auto above = [](const std::vector<double>& logits) {
    return static_cast<double>(std::count_if(logits.begin(), logits.end(), [](double x) { return x > 0; }));
  };
  const double found = above(positives), taken = found + above(negatives);
  const double all = static_cast<double>(positives.size());
  out["precision"] = taken > 0 ? found / taken : 0;
  out["recall"] = found / all;
  out["f1"] = 2 * found / (taken + all);
  return out;
}

void EvaluationSums::merge(const EvaluationSums& other) {
  regression_.merge(other.regression_);
  classification_.merge(other.classification_);
}

std::string EvaluationSums::encode() const {
  std::string out;
  append(out, &regression_, 1);
  const int64_t counts[4] = {classification_.rows, classification_.right,
                             static_cast<int64_t>(classification_.positives.size()),
                             static_cast<int64_t>(classification_.negatives.size())};
  append(out, counts, 4);
  append(out, &classification_.log_loss, 1);
  append(out, classification_.positives.data(), classification_.positives.size());
  append(out, classification_.negatives.data(), classification_.negatives.size());
  return out;
}

Status EvaluationSums::merge_encoded(std::string_view bytes) {
  EvaluationSums other(task_, outputs_);
  int64_t counts[4];
  bool whole = take(bytes, &other.regression_, 1) && take(bytes, counts, 4) &&
               take(bytes, &other.classification_.log_loss, 1);
  if (whole && counts[2] >= 0 && counts[3] >= 0 &&
      static_cast<uint64_t>(counts[2]) + static_cast<uint64_t>(counts[3]) == bytes.size() / sizeof(double)) {
    other.classification_.rows = counts[0];
    other.classification_.right = counts[1];
    other.classification_.positives.resize(static_cast<size_t>(counts[2]));
    other.classification_.negatives.resize(static_cast<size_t>(counts[3]));
    whole = take(bytes, other.classification_.positives.data(), other.classification_.positives.size()) &&
            take(bytes, other.classification_.negatives.data(), other.classification_.negatives.size());
  } else {
    whole = false;
  }
  if (!whole) return bug_error("metrics came damaged from another rank");
  merge(other);
  return Status::OK();
}

std::map<std::string, double> EvaluationSums::metrics() const {
  return task_ == Task::kRegression ? regression_.metrics() : classification_.metrics();
}

}  // namespace millstream::train
