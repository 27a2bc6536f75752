// Predictions of single rows from a bundle, one thread: microseconds a row. Usage: predict_rows BUNDLE [ROWS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/trace.h"
#include "train/predictor.h"

int main(int argc, char** argv) {
  using namespace millstream;
  if (argc < 2) {
    std::fprintf(stderr, "usage: predict_rows BUNDLE [ROWS]\n");
    return 2;
  }
  const auto predictor = train::Predictor::open(argv[1]);
  if (!predictor.ok()) {
    std::fprintf(stderr, "%s\n", predictor.status().message().c_str());
    return 1;
  }
  // A row of ones; texts are empty.
  std::vector<std::shared_ptr<arrow::Array>> columns;
  for (const auto& field : (*predictor)->input()->fields()) {
    auto builder = arrow::MakeBuilder(field->type()).ValueOrDie();
    if (!builder->AppendEmptyValue().ok()) return 1;
    columns.push_back(builder->Finish().ValueOrDie());
  }
  const auto row = arrow::RecordBatch::Make((*predictor)->input(), 1, columns);
  const int rows = argc > 2 ? std::atoi(argv[2]) : 20000;
  std::vector<double> times;
  for (int i = 0; i < rows; ++i) {
    const int64_t begin = monotonic_ns();
    const auto value = (*predictor)->predict(*row);
    times.push_back(static_cast<double>(monotonic_ns() - begin) * 1e-3);
    if (!value.ok()) {
      std::fprintf(stderr, "%s\n", value.status().message().c_str());
      return 1;
    }
  }
  std::sort(times.begin(), times.end());
  std::printf("%.1f us a row (median of %d), %.1f us the 99th percentile\n", times[times.size() / 2], rows,
              times[times.size() * 99 / 100]);
}
