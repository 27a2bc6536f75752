#include "train/distributed.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "train/torch_error.h"
#include "train/torch_version.h"

namespace millstream::train {
namespace {

/// One line a tensor: what must be equal on all trainers.
std::string describe_model(const Model& model) {
  std::string out;
  for (const auto* list : {&model.parameters(), &model.buffers()})
    for (const NamedTensor& named : *list)
      out += fmt::format("{} {} [{}]\n", named.name, c10::toString(named.tensor.scalar_type()),
                         fmt::join(named.tensor.sizes().vec(), ", "));
  return out;
}

std::string first_difference(std::string_view mine, std::string_view other) {
  auto line_at = [](std::string_view text, size_t position) {
    const size_t begin = position == 0 ? 0 : text.rfind('\n', position - 1) + 1;
    const size_t end = text.find('\n', begin);
    return begin >= text.size() ? std::string("nothing") : std::string(text.substr(begin, end - begin));
  };
  size_t i = 0;
  while (i < mine.size() && i < other.size() && mine[i] == other[i]) ++i;
  return fmt::format("'{}' where trainer 0 has '{}'", line_at(other, i), line_at(mine, i));
}

Status compare_models(const Model& model, c10d::ProcessGroup& group) {
  const int trainers = group.getSize();
  // Descriptions differ in length, so lengths go first and texts are padded to the longest.
  const std::string mine = describe_model(model);
  auto gather = [&](at::Tensor tensor) {
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int trainer = 0; trainer < trainers; ++trainer) outputs[0].push_back(at::empty_like(tensor));
    std::vector<at::Tensor> inputs{std::move(tensor)};
    group.allgather(outputs, inputs)->wait();
    return outputs[0];
  };
  const auto lengths = gather(at::full({1}, static_cast<int64_t>(mine.size()), at::TensorOptions(at::kLong)));
  int64_t longest = 0;
  for (const at::Tensor& length : lengths) longest = std::max(longest, length.item<int64_t>());
  at::Tensor text = at::zeros({longest}, at::TensorOptions(at::kByte));
  std::copy(mine.begin(), mine.end(), text.data_ptr<uint8_t>());
  const auto texts = gather(text);
  auto description = [&](int trainer) {
    return std::string(reinterpret_cast<const char*>(texts[trainer].data_ptr<uint8_t>()),
                       static_cast<size_t>(lengths[trainer].item<int64_t>()));
  };
  const std::string first = description(0);
  for (int trainer = 1; trainer < trainers; ++trainer)
    if (description(trainer) != first)
      return usage_error("the trainers have different models: trainer {} has {}", trainer,
                         first_difference(first, description(trainer)));
  return Status::OK();
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Model& model, c10::intrusive_ptr<c10d::ProcessGroup> group)
    : model_(model), group_(std::move(group)), parameters_(model.parameter_tensors()) {
  if (group_) trainers_ = group_->getSize();
}

DistributedDataParallel::~DistributedDataParallel() {
  if (reducer_) reducer_->remove_autograd_hooks();
  clear_gradients();  // they are views of the Reducer's buckets
}

Result<std::unique_ptr<DistributedDataParallel>> DistributedDataParallel::make(
    Model& model, c10::intrusive_ptr<c10d::ProcessGroup> group, const DistributedOptions& options) {
  std::unique_ptr<DistributedDataParallel> parallel(new DistributedDataParallel(model, std::move(group)));
  if (parallel->trainers_ > 1) {
    model.set_group(parallel->group_);
    MILLSTREAM_TRY(catch_torch("starting DistributedDataParallel", [&] { return parallel->start(options); }));
  }
  return parallel;
}

Status make_models_equal(Model& model, c10d::ProcessGroup& group) {
  MILLSTREAM_TRY(compare_models(model, group));
  const at::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10d::Work>> pending;
  for (const auto* list : {&model.parameters(), &model.buffers()}) {
    for (const NamedTensor& named : *list) {
      std::vector<at::Tensor> tensors{named.tensor.detach()};
      pending.push_back(group.broadcast(tensors));
    }
  }
  for (const auto& work : pending) work->wait();
  return Status::OK();
}

Status DistributedDataParallel::start(const DistributedOptions& options) {
  MILLSTREAM_TRY(make_models_equal(model_, *group_));
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) names[i] = model_.parameters()[i].name;
  const size_t first = static_cast<size_t>(options.first_bucket_bytes),
               other = static_cast<size_t>(options.bucket_bytes);
  // Gradients come from the last layer to the first.
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters_, {first, other}));
  std::reverse(buckets.begin(), buckets.end());
  reducer_ = make_reducer(parameters_, std::move(buckets), group_, options.bucket_bytes,
                          options.first_bucket_bytes, std::move(names));
  ModelBatch empty = model_.empty_batch();
  empty.training = true;
  backward(model_.forward(empty).sum());
  reducer_->rebuild_buckets();
  clear_gradients();
  return Status::OK();
}

void DistributedDataParallel::backward(const at::Tensor& loss, bool reduce) {
  if (reducer_ && reduce) reducer_->prepare_for_backward({loss});
  loss.backward();
}

void DistributedDataParallel::clear_gradients() {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

}  // namespace millstream::train
