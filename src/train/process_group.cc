#include "train/process_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace millstream::train {
namespace {

comm::DataType data_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return comm::DataType::kFloat;
    case at::kDouble:
      return comm::DataType::kDouble;
    case at::kHalf:
      return comm::DataType::kHalf;
    case at::kBFloat16:
      return comm::DataType::kBFloat16;
    case at::kChar:
      return comm::DataType::kInt8;
    case at::kByte:
    case at::kBool:  // a byte of 0 or 1
      return comm::DataType::kUInt8;
    case at::kShort:
      return comm::DataType::kInt16;
    case at::kInt:
      return comm::DataType::kInt32;
    case at::kLong:
      return comm::DataType::kInt64;
    default:
      C10_THROW_ERROR(TypeError,
                      fmt::format("millstream: tensors of type {} can't be sent; the types are float, "
                                  "double, half, bfloat16, int8 to int64, uint8 and bool",
                                  std::string(c10::toString(tensor.scalar_type()))));
  }
}

comm::ReduceOp reduce_op(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* operation) {
  const bool is_bool = tensor.scalar_type() == at::kBool;
  const bool is_floating = at::isFloatingType(tensor.scalar_type());
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return is_bool ? comm::ReduceOp::kMax : comm::ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      TORCH_CHECK_TYPE(is_floating, "millstream ", operation, ": AVG needs a floating-point type, not ",
                       std::string(c10::toString(tensor.scalar_type())));
      return comm::ReduceOp::kSum;
    case c10d::ReduceOp::PRODUCT:
      return is_bool ? comm::ReduceOp::kMin : comm::ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return comm::ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return comm::ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
    case c10d::ReduceOp::BXOR:
      TORCH_CHECK_TYPE(!is_floating, "millstream ", operation,
                       ": bitwise reductions need an integer type, not ",
                       std::string(c10::toString(tensor.scalar_type())));
      return op.op_ == c10d::ReduceOp::BAND  ? comm::ReduceOp::kBitAnd
             : op.op_ == c10d::ReduceOp::BOR ? comm::ReduceOp::kBitOr
                                             : comm::ReduceOp::kBitXor;
    default:
      C10_THROW_ERROR(ValueError,
                      fmt::format("millstream {}: the reduction is not supported; there are SUM, AVG, "
                                  "PRODUCT, MIN, MAX, BAND, BOR and BXOR",
                                  operation));
  }
}

std::string describe(const char* operation, const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return operation;
  int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  return fmt::format("{} of {} {} element{}", operation, elements, c10::toString(tensors[0].scalar_type()),
                     elements == 1 ? "" : "s");
}

const at::Tensor& only_one(const std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "millstream ", operation, " takes one tensor a call, got ",
                    tensors.size());
  return tensors[0];
}

/// Runs `operation` on contiguous memory with the tensor's elements; what it leaves there becomes the
/// tensor's.
Status on_contiguous(const at::Tensor& tensor, bool write_back,
                     const std::function<Status(void*)>& operation) {
  if (tensor.is_contiguous()) return operation(tensor.data_ptr());
  const at::Tensor copy = tensor.contiguous();
  MILLSTREAM_TRY(operation(copy.data_ptr()));
  if (write_back) tensor.copy_(copy);
  return Status::OK();
}

class MillstreamWork final : public c10d::Work {
 public:
  MillstreamWork(int rank, c10d::OpType type, std::string description, std::vector<at::Tensor> outputs,
                 uint64_t sequence)
      : Work(rank, type),
        description_(std::move(description)),
        outputs_(std::move(outputs)),
        sequence_(sequence),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  const std::string& description() const { return description_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return sequence_; }
  void synchronize() override {}
  void abort() override {
    TORCH_CHECK(false, "millstream: an operation of the group can't be aborted alone");
  }

  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    auto done = [this] { return completed_; };
    if (timeout <= kNoTimeout) {  // zero, or unset (-1): for as long as it takes
      cv_.wait(lock, done);
    } else if (!cv_.wait_for(lock, timeout, done)) {
      C10_THROW_ERROR(DistBackendError,
                      fmt::format("millstream {}: not finished after {} ms", description_, timeout.count()));
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }

  void complete() {
    future_->markCompleted(c10::IValue(outputs_));
    finish();
  }
  void complete(std::exception_ptr error) {
    future_->setError(error);
    finish(error);
  }

 private:
  const std::string description_;
  std::vector<at::Tensor> outputs_;
  const uint64_t sequence_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace

MillstreamBackend::MillstreamBackend(std::unique_ptr<comm::Communicator> communicator, std::string name)
    : Backend(communicator->rank(), communicator->size()),
      communicator_(std::move(communicator)),
      name_(std::move(name)),
      worker_([this] { run_queue(); }) {}

MillstreamBackend::~MillstreamBackend() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  worker_.join();
}

c10::intrusive_ptr<c10d::Backend::Options> MillstreamBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("millstream");
  options->group_name = name_;
  return options;
}

uint64_t MillstreamBackend::getSequenceNumberForGroup() {
  std::lock_guard lock(mutex_);
  return sequence_;
}

Status MillstreamBackend::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void MillstreamBackend::check_tensor(const at::Tensor& tensor, const char* operation) const {
  TORCH_CHECK_VALUE(tensor.defined(), "millstream ", operation, ": the tensor is undefined");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "millstream ", operation,
                    ": only dense tensors can be sent");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "millstream ", operation, ": the tensor is on ",
                    tensor.device(), "; this group is for tensors in the CPU's memory");
  data_type(tensor);
}

void MillstreamBackend::check_root(int64_t root, const char* operation) const {
  TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "millstream ", operation, ": root ", root,
                    " is not a rank of the group of ", getSize());
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::enqueue(c10d::OpType type, std::string description,
                                                          std::vector<at::Tensor> outputs,
                                                          std::function<Status()> run) {
  c10::intrusive_ptr<c10d::Work> work;
  {
    std::lock_guard lock(mutex_);
    work = c10::make_intrusive<MillstreamWork>(getRank(), type, std::move(description), std::move(outputs),
                                               sequence_);
    ++sequence_;
    queue_.push_back({work, std::move(run)});
  }
  wake_.notify_one();
  return work;
}

void MillstreamBackend::run_queue() {
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    Status status = failure_;
    lock.unlock();
    auto& work = static_cast<MillstreamWork&>(*task.work);
    if (status.ok()) {
      try {
        status = task.run();
      } catch (const std::exception& error) {
        status = bug_error("{}", error.what());
      }
    }
    if (status.ok()) {
      work.complete();
    } else {
      {
        std::lock_guard relock(mutex_);
        if (failure_.ok()) failure_ = status;
      }
      const std::string text = fmt::format("millstream {} over ranks [{}] failed: {}", work.description(),
                                           fmt::join(communicator_->members(), ", "), status.message());
      work.complete(std::make_exception_ptr(
          c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text)));
    }
    task = {};  // the tensors go before the next wait
    lock.lock();
  }
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<std::function<Status()>> parts;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, "allreduce");
    const comm::DataType type = data_type(tensor);
    const comm::ReduceOp op = reduce_op(options.reduceOp, tensor, "allreduce");
    const bool average = options.reduceOp.op_ == c10d::ReduceOp::AVG;
    parts.push_back([this, tensor, type, op, average]() -> Status {
      MILLSTREAM_TRY(on_contiguous(tensor, true, [&](void* data) {
        return communicator_->all_reduce(data, tensor.numel(), type, op);
      }));
      if (average) tensor.div_(getSize());
      return Status::OK();
    });
  }
  return enqueue(tensors.size() == 1 ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED,
                 describe("allreduce", tensors), tensors, [parts = std::move(parts)]() -> Status {
                   for (const auto& part : parts) MILLSTREAM_TRY(part());
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                            const c10d::AllreduceOptions& options) {
  only_one(tensors, "allreduce");
  c10d::AllreduceCoalescedOptions coalesced;
  coalesced.reduceOp = options.reduceOp;
  return allreduce_coalesced(tensors, coalesced);
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                            const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only_one(tensors, "broadcast");
  check_tensor(tensor, "broadcast");
  check_root(options.rootRank, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  return enqueue(c10d::OpType::BROADCAST, describe("broadcast", tensors), tensors, [this, tensor, root] {
    return on_contiguous(tensor, getRank() != root, [&](void* data) {
      return communicator_->broadcast(data, static_cast<int64_t>(tensor.nbytes()), root);
    });
  });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::reduce(std::vector<at::Tensor>& tensors,
                                                         const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only_one(tensors, "reduce");
  check_tensor(tensor, "reduce");
  check_root(options.rootRank, "reduce");
  const int root = static_cast<int>(options.rootRank);
  const comm::DataType type = data_type(tensor);
  const comm::ReduceOp op = reduce_op(options.reduceOp, tensor, "reduce");
  const bool average = options.reduceOp.op_ == c10d::ReduceOp::AVG;
  return enqueue(c10d::OpType::REDUCE, describe("reduce", tensors), tensors,
                 [this, tensor, root, type, op, average]() -> Status {
                   MILLSTREAM_TRY(on_contiguous(tensor, getRank() == root, [&](void* data) {
                     return communicator_->reduce(data, tensor.numel(), type, op, root);
                   }));
                   if (average && getRank() == root) tensor.div_(getSize());
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                            std::vector<at::Tensor>& inputs,
                                                            const c10d::AllgatherOptions& options) {
  const at::Tensor input = only_one(inputs, "allgather");
  check_tensor(input, "allgather");
  TORCH_CHECK_VALUE(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(),
                    "millstream allgather needs one list of ", getSize(),
                    " output tensors, one a rank of the group");
  bool even = true;
  for (const at::Tensor& output : outputs[0]) {
    check_tensor(output, "allgather");
    TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(), "millstream allgather: outputs of type ",
                     output.scalar_type(), " for an input of type ", input.scalar_type());
    even = even && output.numel() == outputs[0][0].numel();
  }
  TORCH_CHECK_VALUE(outputs[0][getRank()].numel() == input.numel(),
                    "millstream allgather: this rank's input has ", input.numel(),
                    " elements and its output ", outputs[0][getRank()].numel());
  return enqueue(c10d::OpType::ALLGATHER, describe("allgather", inputs), outputs[0],
                 [this, input, list = outputs[0], even]() -> Status {
                   const at::Tensor mine = input.contiguous();
                   const int64_t bytes = static_cast<int64_t>(mine.nbytes());
                   if (even) {
                     const at::Tensor all = at::empty({getSize(), mine.numel()}, mine.options());
                     MILLSTREAM_TRY(communicator_->all_gather(mine.data_ptr(), bytes, all.data_ptr()));
                     for (int rank = 0; rank < getSize(); ++rank)
                       list[rank].copy_(all[rank].view(list[rank].sizes()));
                     return Status::OK();
                   }
                   MILLSTREAM_ASSIGN(const auto parts, communicator_->allgather_bytes(
                                                           {static_cast<const char*>(mine.data_ptr()),
                                                            static_cast<size_t>(bytes)}));
                   for (int rank = 0; rank < getSize(); ++rank) {
                     if (parts[rank].size() != list[rank].nbytes())
                       return failed_error("rank {} of the group sent {} bytes where {} were expected", rank,
                                           parts[rank].size(), list[rank].nbytes());
                     if (parts[rank].empty()) continue;
                     list[rank].copy_(at::from_blob(const_cast<char*>(parts[rank].data()), list[rank].sizes(),
                                                    list[rank].options()));
                   }
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "millstream allgather: ", inputs.size(), " inputs and ",
                    outputs.size(), " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i], "allgather");
    check_tensor(outputs[i], "allgather");
    TORCH_CHECK_TYPE(outputs[i].scalar_type() == inputs[i].scalar_type(),
                     "millstream allgather: an output of type ", outputs[i].scalar_type(),
                     " for an input of type ", inputs[i].scalar_type());
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * getSize(),
                      "millstream allgather: the output has ", outputs[i].numel(), " elements; ", getSize(),
                      " ranks of ", inputs[i].numel(), " need ", inputs[i].numel() * getSize());
  }
  return enqueue(c10d::OpType::_ALLGATHER_BASE, describe("allgather", inputs), outputs,
                 [this, inputs, outputs]() -> Status {
                   for (size_t i = 0; i < inputs.size(); ++i) {
                     const at::Tensor mine = inputs[i].contiguous();
                     MILLSTREAM_TRY(on_contiguous(outputs[i], true, [&](void* data) {
                       return communicator_->all_gather(mine.data_ptr(), static_cast<int64_t>(mine.nbytes()),
                                                        data);
                     }));
                   }
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                  const c10d::AllgatherOptions& options) {
  std::vector<at::Tensor> outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::barrier(const c10d::BarrierOptions& options) {
  return enqueue(c10d::OpType::BARRIER, "barrier", {}, [this] { return communicator_->barrier(); });
}

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(std::unique_ptr<comm::Communicator> communicator,
                                                          std::string name) {
  MILLSTREAM_CHECK(communicator != nullptr, "this rank is not in the group '{}'", name);
  auto backend = c10::make_intrusive<MillstreamBackend>(std::move(communicator), std::move(name));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::intrusive_ptr<c10d::Backend>(backend));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

}  // namespace millstream::train
