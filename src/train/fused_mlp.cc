#include "train/fused_mlp.h"

#include <algorithm>
#include <cmath>

#include "base/trace.h"

namespace millstream::train {
namespace {

constexpr int64_t kCacheBytes = int64_t{1} << 20;  ///< of activations and errors that a chunk may have
constexpr int64_t kMinChunkRows = 512;

enum class Loss : uint8_t { kSquare, kAbsolute, kHuber, kBinary, kClasses };

Loss loss_of(const std::string& name) {
  if (name == "mae") return Loss::kAbsolute;
  if (name == "huber") return Loss::kHuber;
  if (name == "bce") return Loss::kBinary;
  if (name == "cross_entropy") return Loss::kClasses;
  return Loss::kSquare;
}

/// values += bias, then max(0, values) where `relu`.
template <class T>
void add_bias(T* __restrict values, const T* __restrict bias, int64_t rows, int64_t width, bool relu) {
  for (int64_t r = 0; r < rows; ++r) {
    T* row = values + r * width;
    if (relu) {
      for (int64_t c = 0; c < width; ++c) {
        const T value = row[c] + bias[c];
        row[c] = value < 0 ? T{0} : value;  // NaN stays
      }
    } else {
      for (int64_t c = 0; c < width; ++c) row[c] += bias[c];
    }
  }
}

/// errors = 0 where the activation is, and their sums over the rows are added to `sums`. In short runs, so that sums of
/// many rows lose no digits.
template <class T>
void mask_and_sum(T* __restrict errors, const T* __restrict activations, T* __restrict sums,
                  T* __restrict run, int64_t rows, int64_t width) {
  constexpr int64_t kRun = 64;
  for (int64_t first = 0; first < rows; first += kRun) {
    const int64_t end = std::min(first + kRun, rows);
    for (int64_t c = 0; c < width; ++c) run[c] = 0;
    for (int64_t r = first; r < end; ++r) {
      T* row = errors + r * width;
      if (activations != nullptr) {
        const T* active = activations + r * width;
        for (int64_t c = 0; c < width; ++c) row[c] = active[c] <= 0 ? T{0} : row[c];
      }
      for (int64_t c = 0; c < width; ++c) run[c] += row[c];
    }
    for (int64_t c = 0; c < width; ++c) sums[c] += run[c];
  }
}

/// Outputs become the derivatives of the losses times `scale`. Returns the sum of the losses. `weights` multiply both;
/// null: all 1.
template <class T>
double losses(Loss loss, double delta, T* outputs, int64_t width, const T* target, int64_t stride,
              const T* weights, int64_t rows, double scale) {
  double sum = 0;
  const T edge = static_cast<T>(delta);
  for (int64_t r = 0; r < rows; ++r) {
    const double weight = weights == nullptr ? 1.0 : static_cast<double>(weights[r]);
    const T factor = static_cast<T>(scale * weight), y = target[r * stride];
    T* const row = outputs + r * width;
    const T error = *row - y;
    switch (loss) {
      case Loss::kSquare:
        sum += weight * static_cast<double>(error) * static_cast<double>(error);
        *row = 2 * factor * error;
        break;
      case Loss::kAbsolute:
        sum += weight * std::abs(static_cast<double>(error));
        *row = error > 0 ? factor : error < 0 ? -factor : T{0} * error;
        break;
      case Loss::kHuber: {
        const double size = std::abs(static_cast<double>(error));
        sum += weight * (size <= delta ? 0.5 * size * size : delta * (size - 0.5 * delta));
        *row = factor * (error > edge ? edge : error < -edge ? -edge : error);
        break;
      }
      case Loss::kBinary: {
        const double x = *row, small = std::exp(-std::abs(x));
        sum += weight * (std::max(x, 0.0) - x * static_cast<double>(y) + std::log1p(small));
        const double probability = x >= 0 ? 1 / (1 + small) : small / (1 + small);
        *row = static_cast<T>(scale * weight * (probability - static_cast<double>(y)));
        break;
      }
      case Loss::kClasses: {
        const auto actual = static_cast<int64_t>(y);
        const double most = *std::max_element(row, row + width);
        double total = 0;
        for (int64_t c = 0; c < width; ++c) total += std::exp(static_cast<double>(row[c]) - most);
        sum += weight * (std::log(total) + most - static_cast<double>(row[actual]));
        for (int64_t c = 0; c < width; ++c) {
          const double probability = std::exp(static_cast<double>(row[c]) - most) / total;
          row[c] = static_cast<T>(scale * weight * (probability - (c == actual ? 1 : 0)));
        }
        break;
      }
    }
  }
  return sum;
}

template <class T>
class FusedMlpOf final : public FusedMlp {
 public:
  FusedMlpOf(Model& model, const TrainConfig& config, c10::intrusive_ptr<c10d::ProcessGroup> group,
             const DistributedOptions& options);
  double gradients(const at::Tensor& features, const at::Tensor& target, const at::Tensor& weights,
                   double scale, bool add, bool reduce) override;

 private:
  struct Layer {
    int64_t inputs = 0, outputs = 0;
    at::Tensor weight, transposed, weight_gradient;  ///< [outputs, inputs], its view, the gradient's
    const T* bias = nullptr;
    T* bias_gradient = nullptr;
    int64_t end = 0;  ///< in flat_, of its gradients
    bool ends_bucket = false;
    at::Tensor all_values, all_errors;             ///< [chunk_rows_, outputs]
    at::Tensor values, errors, errors_transposed;  ///< their first rows_ rows
  };
  void make_room(int64_t rows);
  double chunk(const at::Tensor& features, const T* target, int64_t stride, const T* weights, double scale,
               bool add, bool reduce);

  Model& model_;
  const Loss loss_;
  const double delta_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<Layer> layers_;
  at::Tensor flat_;         ///< all gradients
  std::vector<T> run_;      ///< room for the widest layer
  int64_t chunk_rows_ = 0;  ///< 0: the whole share
  int64_t room_ = 0, rows_ = -1;
  std::vector<c10::intrusive_ptr<c10d::Work>> pending_;
};

template <class T>
FusedMlpOf<T>::FusedMlpOf(Model& model, const TrainConfig& config,
                          c10::intrusive_ptr<c10d::ProcessGroup> group, const DistributedOptions& options)
    : model_(model), loss_(loss_of(config.loss)), delta_(config.huber_delta), group_(std::move(group)) {
  const at::NoGradGuard no_grad;
  const auto& parameters = model_.parameters();
  layers_.resize(parameters.size() / 2);
  flat_ = at::zeros({model_.parameter_count()}, at::TensorOptions(model_.type()));
  T* const gradients = flat_.data_ptr<T>();
  int64_t place = 0, begin = 0, row_bytes = 0, widest = 0;
  int64_t bucket = options.first_bucket_bytes;
  for (size_t i = layers_.size(); i-- > 0;) {
    Layer& layer = layers_[i];
    at::Tensor weight = parameters[2 * i].tensor, bias = parameters[2 * i + 1].tensor;
    layer.inputs = weight.size(1);
    layer.outputs = weight.size(0);
    layer.weight_gradient = flat_.narrow(0, place, weight.numel()).view(weight.sizes());
    place += weight.numel();
    layer.bias_gradient = gradients + place;
    at::Tensor bias_gradient = flat_.narrow(0, place, bias.numel());
    place += bias.numel();
    layer.end = place;
    layer.weight = weight.detach();
    layer.transposed = layer.weight.t();
    layer.bias = bias.const_data_ptr<T>();
    weight.mutable_grad() = layer.weight_gradient;
    bias.mutable_grad() = bias_gradient;
    layer.ends_bucket = i == 0 || (place - begin) * static_cast<int64_t>(sizeof(T)) >= bucket;
    if (layer.ends_bucket) {
      begin = place;
      bucket = options.bucket_bytes;
    }
    row_bytes += 2 * layer.outputs * static_cast<int64_t>(sizeof(T));
    widest = std::max(widest, layer.outputs);
  }
  run_.resize(static_cast<size_t>(widest));
  const bool one_bucket = std::count_if(layers_.begin(), layers_.end(),
                                        [](const Layer& layer) { return layer.ends_bucket; }) == 1;
  if (!group_ || one_bucket) {
    chunk_rows_ = kMinChunkRows;
    while (2 * chunk_rows_ * row_bytes <= kCacheBytes) chunk_rows_ *= 2;
  }
}

template <class T>
void FusedMlpOf<T>::make_room(int64_t rows) {
  if (rows == rows_) return;
  for (Layer& layer : layers_) {
    if (rows > room_ || !layer.all_values.defined()) {  // the first share may have no rows
      layer.all_values = at::empty({rows, layer.outputs}, flat_.options());
      layer.all_errors = at::empty({rows, layer.outputs}, flat_.options());
    }
    layer.values = layer.all_values.narrow(0, 0, rows);
    layer.errors = layer.all_errors.narrow(0, 0, rows);
    layer.errors_transposed = layer.errors.t();
  }
  room_ = std::max(room_, rows);
  rows_ = rows;
}

template <class T>
double FusedMlpOf<T>::chunk(const at::Tensor& features, const T* target, int64_t stride, const T* weights,
                            double scale, bool add, bool reduce) {
  const int64_t rows = features.size(0);
  make_room(rows);
  double loss = 0;
  {
    TraceSpan span("forward");
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      const bool last = i + 1 == layers_.size();
      // What the last layer gives becomes its errors.
      at::Tensor& out = last ? layer.errors : layer.values;
      at::mm_out(out, i == 0 ? features : layers_[i - 1].values, layer.transposed);
      add_bias(out.template data_ptr<T>(), layer.bias, rows, layer.outputs, !last);
    }
    Layer& last = layers_.back();
    loss = losses(loss_, delta_, last.errors.template data_ptr<T>(), last.outputs, target, stride, weights,
                  rows, scale);
  }
  TraceSpan span("backward");
  int64_t reduced = 0;
  for (size_t i = layers_.size(); i-- > 0;) {
    Layer& layer = layers_[i];
    const bool last = i + 1 == layers_.size();
    if (!add) std::fill_n(layer.bias_gradient, layer.outputs, T{0});
    mask_and_sum(layer.errors.template data_ptr<T>(), last ? nullptr : layer.values.template data_ptr<T>(),
                 layer.bias_gradient, run_.data(), rows, layer.outputs);
    const at::Tensor& input = i == 0 ? features : layers_[i - 1].values;
    if (add)
      layer.weight_gradient.addmm_(layer.errors_transposed, input);
    else
      at::mm_out(layer.weight_gradient, layer.errors_transposed, input);
    if (group_ && reduce && layer.ends_bucket) {
      std::vector<at::Tensor> bucket{flat_.narrow(0, reduced, layer.end - reduced)};
      pending_.push_back(group_->allreduce(bucket));  // its default operation is the sum
      reduced = layer.end;
    }
    if (i > 0) at::mm_out(layers_[i - 1].errors, layer.errors, layer.weight);
  }
  return loss;
}

template <class T>
double FusedMlpOf<T>::gradients(const at::Tensor& features, const at::Tensor& target,
                                const at::Tensor& weights, double scale, bool add, bool reduce) {
  const at::NoGradGuard no_grad;
  const int64_t rows = features.size(0);
  const T* const actual = target.const_data_ptr<T>();
  const int64_t stride = target.stride(0);
  const at::Tensor dense_weights = weights.defined() ? weights.contiguous() : at::Tensor();
  const T* const weight = weights.defined() ? dense_weights.const_data_ptr<T>() : nullptr;
  double loss = 0;
  int64_t begin = 0;
  do {  // once for no rows too: gradients are zero then, and reduced
    const int64_t count = chunk_rows_ == 0 ? rows : std::min(chunk_rows_, rows - begin), end = begin + count;
    loss +=
        chunk(count == rows ? features : features.narrow(0, begin, count), actual + begin * stride, stride,
              weight == nullptr ? nullptr : weight + begin, scale, add || begin > 0, reduce && end == rows);
    begin = end;
  } while (begin < rows);
  for (const auto& work : pending_) work->wait();
  pending_.clear();
  return loss;
}

}  // namespace

Result<std::unique_ptr<FusedMlp>> FusedMlp::make(Model& model, const ModelConfig& kind,
                                                 const TrainConfig& config,
                                                 c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                 const DistributedOptions& options) {
  if (kind.kind != "mlp" || kind.batch_norm || kind.dropout > 0 || !model.inputs().embeddings.empty())
    return nullptr;
  if (group && group->getSize() == 1) group.reset();
  if (group) {
    MILLSTREAM_TRY(make_models_equal(model, *group));
  }
  std::unique_ptr<FusedMlp> fused;
  if (model.type() == at::kDouble)
    fused = std::make_unique<FusedMlpOf<double>>(model, config, std::move(group), options);
  else
    fused = std::make_unique<FusedMlpOf<float>>(model, config, std::move(group), options);
  return fused;
}

}  // namespace millstream::train
