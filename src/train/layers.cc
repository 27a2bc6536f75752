#include "train/layers.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/philox.h"

namespace millstream::train {
namespace {

constexpr double kEpsilon = 1e-5, kMomentum = 0.1;
constexpr uint32_t kDropoutStream = 0x64726f70;  // apart from the other streams of the seed

/// Sums over the trainers, in place.
void sum_over(c10d::ProcessGroup* group, at::Tensor tensor) {
  if (group == nullptr) return;
  std::vector<at::Tensor> tensors{std::move(tensor)};
  group->allreduce(tensors)->wait();
}

class BatchNorm : public torch::autograd::Function<BatchNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias, at::Tensor running_mean,
                            at::Tensor running_variance, c10d::ProcessGroup* group) {
    const int64_t width = x.size(1);
    // The mean of all rows first, then their squared distances from it: exact also far from zero.
    at::Tensor sums = at::zeros({width + 1}, x.options().dtype(at::kDouble));
    sums.narrow(0, 0, width).copy_(x.sum(0, false, at::kDouble));
    sums[width].fill_(static_cast<double>(x.size(0)));
    sum_over(group, sums);
    const double rows = sums[width].item<double>(), divisor = std::max(rows, 1.0);
    const at::Tensor mean = (sums.narrow(0, 0, width) / divisor).to(x.scalar_type());
    const at::Tensor centred = x - mean;
    at::Tensor squares = (centred * centred).sum(0, false, at::kDouble);
    sum_over(group, squares);
    const at::Tensor variance = (squares / divisor).to(x.scalar_type());
    if (rows > 0) {
      running_mean.mul_(1 - kMomentum).add_(mean, kMomentum);
      running_variance.mul_(1 - kMomentum)
          .add_((squares / std::max(rows - 1, 1.0)).to(x.scalar_type()), kMomentum);
    }
    const at::Tensor scale = (variance + kEpsilon).rsqrt();
    const at::Tensor normal = centred * scale;
    context->save_for_backward({normal, weight, scale});
    context->saved_data["rows"] = divisor;
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    return normal * weight + bias;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &normal = saved[0], &weight = saved[1], &scale = saved[2], &dy = gradients[0];
    const double rows = context->saved_data["rows"].toDouble();
    auto* group = reinterpret_cast<c10d::ProcessGroup*>(context->saved_data["group"].toInt());
    const at::Tensor dbias = dy.sum(0), dweight = (dy * normal).sum(0);
    // Every row moves the mean and variance of all, on whatever trainer.
    at::Tensor sums = at::stack({dbias, dweight});
    sum_over(group, sums);
    const at::Tensor dx = (dy - sums[0] / rows - normal * (sums[1] / rows)) * (scale * weight);
    return {dx, dweight, dbias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor batch_norm_of_batch(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               at::Tensor running_mean, at::Tensor running_variance,
                               c10d::ProcessGroup* group) {
  return BatchNorm::apply(x, weight, bias, std::move(running_mean), std::move(running_variance), group);
}

at::Tensor batch_norm_by_running(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 const at::Tensor& running_mean, const at::Tensor& running_variance) {
  return (x - running_mean) * (running_variance + kEpsilon).rsqrt() * weight + bias;
}

at::Tensor dropout(const at::Tensor& x, double rate, uint64_t seed, uint64_t step, uint32_t layer,
                   int64_t first_row) {
  if (rate <= 0) return x;
  const int64_t rows = x.size(0), width = x.size(1);
  at::Tensor mask = at::empty({rows, width}, at::TensorOptions(at::kFloat));
  float* values = mask.data_ptr<float>();
  const auto limit = static_cast<uint64_t>(rate * 4294967296.0);  // of 32 random bits
  const auto kept = static_cast<float>(1 / (1 - rate));
  const std::array<uint32_t, 2> key{static_cast<uint32_t>(seed) ^ kDropoutStream,
                                    static_cast<uint32_t>(seed >> 32) ^ static_cast<uint32_t>(step >> 32)};
  for (int64_t r = 0; r < rows; ++r, values += width) {
    const auto row = static_cast<uint32_t>(first_row + r);
    for (int64_t c = 0; c < width; c += 4) {
      const Philox4x32 draw =
          philox({static_cast<uint32_t>(c / 4), row, static_cast<uint32_t>(step), layer}, key);
      for (int64_t i = 0; i < std::min<int64_t>(4, width - c); ++i)
        values[c + i] = draw[static_cast<size_t>(i)] < limit ? 0.0F : kept;
    }
  }
  return x * (x.scalar_type() == at::kFloat ? mask : mask.to(x.scalar_type()));
}

}  // namespace millstream::train
