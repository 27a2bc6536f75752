// Steps of TaxiDemandNN on tensors in memory, one thread: for bench/train_steps.py, which runs it beside PyTorch.
// Usage: train_steps BATCH SECONDS. Prints steps a second.
#include <cstdio>
#include <cstdlib>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include "base/trace.h"
#include "train/fused_mlp.h"
#include "train/optimizer.h"

int main(int argc, char** argv) {
  using namespace millstream;
  using namespace millstream::train;
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_steps BATCH SECONDS\n");
    return 2;
  }
  const int64_t batch = std::atoll(argv[1]);
  const double seconds = std::atof(argv[2]);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as training sets them
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
  at::set_num_threads(1);
  const ModelConfig kind;
  const TrainConfig config;
  auto model = make_model(kind, 8, at::kFloat, 0).ValueOrDie();
  auto fused = FusedMlp::make(*model, kind, config, nullptr).ValueOrDie();
  auto optimizer = make_optimizer(config, model->parameters()).ValueOrDie();
  // Some batches in turn, so that they don't all stay in the cache.
  const int64_t batches = std::max<int64_t>(1, (int64_t{1} << 18) / batch);
  const at::Tensor features = at::randn({batches * batch, 8}), target = features.sum(1);
  int64_t steps = 0, begin = 0;
  const auto step = [&] {
    const int64_t at = steps % batches * batch;
    fused->gradients(features.narrow(0, at, batch), target.narrow(0, at, batch), {},
                     1.0 / static_cast<double>(batch), false, false);
    optimizer->step();
    ++steps;
  };
  while (steps < 20) step();
  steps = 0;
  begin = monotonic_ns();
  while (static_cast<double>(monotonic_ns() - begin) < seconds * 1e9) step();
  std::printf("%.1f\n", static_cast<double>(steps) / (static_cast<double>(monotonic_ns() - begin) * 1e-9));
}
