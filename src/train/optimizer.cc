#include "train/optimizer.h"

namespace millstream::train {
namespace {

/// The parameters' gradients, in their order. The list's room is kept between steps.
void collect_gradients(const std::vector<at::Tensor>& parameters, std::vector<at::Tensor>& gradients) {
  gradients.clear();
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    TORCH_CHECK(gradient.defined(), "a parameter has no gradient: the loss does not depend on it");
    gradients.push_back(gradient);
  }
}

std::vector<at::Tensor> zeros_like(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> zeros;
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor.detach()));
  return zeros;
}

void add_state(const char* kind, const std::vector<NamedTensor>& parameters,
               const std::vector<at::Tensor>& tensors, std::vector<NamedTensor>& out) {
  for (size_t i = 0; i < tensors.size(); ++i)
    out.push_back({std::string(kind) + "." + parameters[i].name, tensors[i]});
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

class Adam final : public Optimizer {
 public:
  Adam(const TrainConfig& config, const std::vector<NamedTensor>& parameters)
      : named_(parameters),
        parameters_(tensors_of(parameters)),
        means_(zeros_like(parameters_)),
        squares_(zeros_like(parameters_)),
        learning_rate_(config.learning_rate),
        weight_decay_(config.weight_decay),
        decoupled_(config.optimizer == "adamw") {
    for (size_t i = 0; i < parameters_.size(); ++i)
      steps_.push_back(at::zeros({}, at::TensorOptions(at::kFloat)));
  }

  void step() override {
    const at::NoGradGuard no_grad;
    collect_gradients(parameters_, gradients_);
    for (at::Tensor& step : steps_) *step.mutable_data_ptr<float>() += 1;
    if (decoupled_) {
      at::_fused_adamw_(parameters_, gradients_, means_, squares_, {}, steps_, learning_rate_, kBeta1, kBeta2,
                        weight_decay_, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
    } else {
      at::_fused_adam_(parameters_, gradients_, means_, squares_, {}, steps_, learning_rate_, kBeta1, kBeta2,
                       weight_decay_, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
    }
  }

  void set_learning_rate(double rate) override { learning_rate_ = rate; }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> out;
    add_state("exp_avg", named_, means_, out);
    add_state("exp_avg_sq", named_, squares_, out);
    add_state("step", named_, steps_, out);
    return out;
  }

 private:
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;
  std::vector<NamedTensor> named_;
  std::vector<at::Tensor> parameters_, means_, squares_, steps_, gradients_;
  double learning_rate_, weight_decay_;
  bool decoupled_;
};

class Sgd final : public Optimizer {
 public:
  Sgd(const TrainConfig& config, const std::vector<NamedTensor>& parameters)
      : named_(parameters),
        parameters_(tensors_of(parameters)),
        learning_rate_(config.learning_rate),
        weight_decay_(config.weight_decay),
        momentum_(config.momentum) {
    if (momentum_ != 0) momenta_ = zeros_like(parameters_);
  }

  void step() override {
    const at::NoGradGuard no_grad;
    collect_gradients(parameters_, gradients_);
    // torch begins with momentum = gradient; from a momentum of zero the formula gives just that.
    at::_fused_sgd_(parameters_, gradients_, momenta_, weight_decay_, momentum_, learning_rate_,
                    /*dampening=*/0,
                    /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false);
  }

  void set_learning_rate(double rate) override { learning_rate_ = rate; }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> out;
    add_state("momentum_buffer", named_, momenta_, out);
    return out;
  }

 private:
  std::vector<NamedTensor> named_;
  std::vector<at::Tensor> parameters_, momenta_, gradients_;
  double learning_rate_, weight_decay_, momentum_;
};

}  // namespace

void clip_gradients(const std::vector<at::Tensor>& parameters, double most) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients, norms;
  collect_gradients(parameters, gradients);
  for (const at::Tensor& gradient : gradients) norms.push_back(at::linalg_vector_norm(gradient, 2));
  const double norm = at::linalg_vector_norm(at::stack(norms), 2).item<double>();
  const double factor = most / (norm + 1e-6);
  if (factor < 1)
    for (at::Tensor& gradient : gradients) gradient.mul_(factor);
}

Result<std::unique_ptr<Optimizer>> make_optimizer(const TrainConfig& config,
                                                  const std::vector<NamedTensor>& parameters) {
  MILLSTREAM_TRY(validate(config));
  if (config.optimizer == "sgd") return std::make_unique<Sgd>(config, parameters);
  return std::make_unique<Adam>(config, parameters);
}

}  // namespace millstream::train
