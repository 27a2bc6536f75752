#include "train/process_group.h"

#include <atomic>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/trace.h"

namespace millstream::train {
namespace {

std::atomic<int64_t> collective_ns{0};

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

void check_like(const at::Tensor& output, const at::Tensor& input, const char* operation) {
  TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(), "millstream ", operation,
                   ": a tensor of type ", output.scalar_type(), " beside one of type ", input.scalar_type());
  TORCH_CHECK_VALUE(output.numel() == input.numel(), "millstream ", operation, ": a tensor of ",
                    output.numel(), " elements beside one of ", input.numel());
}

class MillstreamWork final : public c10d::Work {
 public:
  MillstreamWork(int rank, c10d::OpType type, std::string description, std::vector<at::Tensor> outputs,
                 uint64_t sequence, std::chrono::milliseconds timeout)
      : Work(rank, type),
        description_(std::move(description)),
        outputs_(std::move(outputs)),
        sequence_(sequence),
        timeout_(timeout),
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
    if (timeout <= kNoTimeout) timeout = timeout_;
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
  const std::chrono::milliseconds timeout_;
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
                                                          std::chrono::milliseconds timeout,
                                                          std::function<Status()> run) {
  c10::intrusive_ptr<c10d::Work> work;
  {
    std::lock_guard lock(mutex_);
    work = c10::make_intrusive<MillstreamWork>(getRank(), type, std::move(description), std::move(outputs),
                                               sequence_, timeout);
    ++sequence_;
    queue_.push_back({work, std::move(run)});
  }
  wake_.notify_one();
  return work;
}

double seconds_in_collectives() {
  return static_cast<double>(collective_ns.load(std::memory_order_relaxed)) * 1e-9;
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
      const int64_t began = monotonic_ns();
      try {
        status = task.run();
      } catch (const std::exception& error) {
        status = bug_error("{}", error.what());
      }
      collective_ns.fetch_add(monotonic_ns() - began, std::memory_order_relaxed);
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
                 describe("allreduce", tensors), tensors, options.timeout,
                 [parts = std::move(parts)]() -> Status {
                   for (const auto& part : parts) MILLSTREAM_TRY(part());
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                            const c10d::AllreduceOptions& options) {
  only_one(tensors, "allreduce");
  c10d::AllreduceCoalescedOptions coalesced;
  coalesced.reduceOp = options.reduceOp;
  coalesced.timeout = options.timeout;
  return allreduce_coalesced(tensors, coalesced);
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                            const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only_one(tensors, "broadcast");
  check_tensor(tensor, "broadcast");
  check_root(options.rootRank, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  return enqueue(c10d::OpType::BROADCAST, describe("broadcast", tensors), tensors, options.timeout,
                 [this, tensor, root] {
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
  return enqueue(c10d::OpType::REDUCE, describe("reduce", tensors), tensors, options.timeout,
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
  return enqueue(c10d::OpType::ALLGATHER, describe("allgather", inputs), outputs[0], options.timeout,
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
  return enqueue(c10d::OpType::_ALLGATHER_BASE, describe("allgather", inputs), outputs, options.timeout,
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

c10::intrusive_ptr<c10d::Work> MillstreamBackend::allgather_coalesced(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize(), "millstream allgather_coalesced needs ",
                    getSize(), " lists of outputs, one a rank of the group; got ", outputs.size());
  std::vector<at::Tensor> all;
  for (const auto& list : outputs) {
    TORCH_CHECK_VALUE(list.size() == inputs.size(), "millstream allgather_coalesced: ", inputs.size(),
                      " inputs and ", list.size(), " outputs of a rank");
    for (size_t i = 0; i < list.size(); ++i) {
      check_tensor(list[i], "allgather_coalesced");
      check_like(list[i], inputs[i], "allgather_coalesced");
      all.push_back(list[i]);
    }
  }
  for (const at::Tensor& input : inputs) check_tensor(input, "allgather_coalesced");
  return enqueue(c10d::OpType::ALLGATHER_COALESCED, describe("allgather_coalesced", inputs), std::move(all),
                 options.timeout, [this, inputs, outputs]() -> Status {
                   for (size_t i = 0; i < inputs.size(); ++i) {
                     const at::Tensor mine = inputs[i].contiguous();
                     const at::Tensor from_all = at::empty({getSize(), mine.numel()}, mine.options());
                     MILLSTREAM_TRY(communicator_->all_gather(
                         mine.data_ptr(), static_cast<int64_t>(mine.nbytes()), from_all.data_ptr()));
                     for (int rank = 0; rank < getSize(); ++rank)
                       outputs[rank][i].copy_(from_all[rank].view(outputs[rank][i].sizes()));
                   }
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                                         std::vector<at::Tensor>& inputs,
                                                         const c10d::GatherOptions& options) {
  const at::Tensor input = only_one(inputs, "gather");
  check_tensor(input, "gather");
  check_root(options.rootRank, "gather");
  const bool is_root = getRank() == options.rootRank;
  std::vector<at::Tensor> list;
  if (is_root) {
    TORCH_CHECK_VALUE(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(),
                      "millstream gather needs one list of ", getSize(), " output tensors on the root");
    list = outputs[0];
    for (const at::Tensor& output : list) {
      check_tensor(output, "gather");
      check_like(output, input, "gather");
    }
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(), "millstream gather: only the root has outputs");
  }
  return enqueue(c10d::OpType::GATHER, describe("gather", inputs), list, options.timeout,
                 [this, input, list]() -> Status {
                   const at::Tensor mine = input.contiguous();
                   const at::Tensor all = at::empty({getSize(), mine.numel()}, mine.options());
                   MILLSTREAM_TRY(communicator_->all_gather(
                       mine.data_ptr(), static_cast<int64_t>(mine.nbytes()), all.data_ptr()));
                   for (size_t rank = 0; rank < list.size(); ++rank)
                     list[rank].copy_(all[static_cast<int64_t>(rank)].view(list[rank].sizes()));
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::scatter(std::vector<at::Tensor>& outputs,
                                                          std::vector<std::vector<at::Tensor>>& inputs,
                                                          const c10d::ScatterOptions& options) {
  const at::Tensor output = only_one(outputs, "scatter");
  check_tensor(output, "scatter");
  check_root(options.rootRank, "scatter");
  const int root = static_cast<int>(options.rootRank);
  std::vector<at::Tensor> list;
  if (getRank() == root) {
    TORCH_CHECK_VALUE(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
                      "millstream scatter needs one list of ", getSize(), " input tensors on the root");
    list = inputs[0];
    for (const at::Tensor& input : list) {
      check_tensor(input, "scatter");
      check_like(input, output, "scatter");
    }
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(), "millstream scatter: only the root has inputs");
  }
  return enqueue(
      c10d::OpType::SCATTER, describe("scatter", outputs), outputs, options.timeout,
      [this, output, list, root]() -> Status {
        const at::Tensor all = at::empty({getSize(), output.numel()}, output.options());
        for (size_t rank = 0; rank < list.size(); ++rank)
          all[static_cast<int64_t>(rank)].copy_(list[rank].reshape({-1}));
        MILLSTREAM_TRY(communicator_->broadcast(all.data_ptr(), static_cast<int64_t>(all.nbytes()), root));
        output.copy_(all[getRank()].view(output.sizes()));
        return Status::OK();
      });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                                 std::vector<std::vector<at::Tensor>>& inputs,
                                                                 const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only_one(outputs, "reduce_scatter");
  check_tensor(output, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
                    "millstream reduce_scatter needs one list of ", getSize(),
                    " input tensors, one a rank of the group");
  const std::vector<at::Tensor> list = inputs[0];
  for (const at::Tensor& input : list) {
    check_tensor(input, "reduce_scatter");
    TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(),
                     "millstream reduce_scatter: an input of type ", input.scalar_type(),
                     " for an output of type ", output.scalar_type());
  }
  check_like(list[getRank()], output, "reduce_scatter");
  const comm::DataType type = data_type(output);
  const comm::ReduceOp op = reduce_op(options.reduceOp, output, "reduce_scatter");
  const bool average = options.reduceOp.op_ == c10d::ReduceOp::AVG;
  return enqueue(c10d::OpType::REDUCE_SCATTER, describe("reduce_scatter", list), outputs, options.timeout,
                 [this, output, list, type, op, average]() -> Status {
                   std::vector<at::Tensor> flat;
                   for (const at::Tensor& input : list) flat.push_back(input.reshape({-1}));
                   const at::Tensor all = at::cat(flat);
                   int64_t begin = 0;
                   for (int rank = 0; rank < getRank(); ++rank) begin += list[rank].numel();
                   MILLSTREAM_TRY(communicator_->all_reduce(all.data_ptr(), all.numel(), type, op));
                   output.copy_(all.narrow(0, begin, output.numel()).view(output.sizes()));
                   if (average) output.div_(getSize());
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "millstream reduce_scatter: ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i], "reduce_scatter");
    check_tensor(outputs[i], "reduce_scatter");
    TORCH_CHECK_TYPE(outputs[i].scalar_type() == inputs[i].scalar_type(),
                     "millstream reduce_scatter: an output of type ", outputs[i].scalar_type(),
                     " for an input of type ", inputs[i].scalar_type());
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * getSize(),
                      "millstream reduce_scatter: the input has ", inputs[i].numel(), " elements; ",
                      getSize(), " ranks of ", outputs[i].numel(), " need ", outputs[i].numel() * getSize());
    reduce_op(options.reduceOp, inputs[i], "reduce_scatter");
  }
  return enqueue(
      c10d::OpType::_REDUCE_SCATTER_BASE, describe("reduce_scatter", inputs), outputs, options.timeout,
      [this, outputs, inputs, operation = options.reduceOp]() -> Status {
        for (size_t i = 0; i < inputs.size(); ++i) {
          const at::Tensor all = inputs[i].clone(at::MemoryFormat::Contiguous).view({-1});
          MILLSTREAM_TRY(communicator_->all_reduce(all.data_ptr(), all.numel(), data_type(all),
                                                   reduce_op(operation, all, "reduce_scatter")));
          const at::Tensor& output = outputs[i];
          output.copy_(all.narrow(0, getRank() * output.numel(), output.numel()).view(output.sizes()));
          if (operation.op_ == c10d::ReduceOp::AVG) output.div_(getSize());
        }
        return Status::OK();
      });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  std::vector<at::Tensor> outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

/// inputs[r] goes to rank r, whose input for this rank comes to outputs[r]. Contiguous on both sides.
Status MillstreamBackend::exchange(const std::vector<at::Tensor>& outputs,
                                   const std::vector<at::Tensor>& inputs) {
  // Each rank's parts behind their lengths.
  const auto ranks = static_cast<size_t>(getSize());
  std::string mine(ranks * sizeof(uint64_t), '\0');
  for (size_t rank = 0; rank < ranks; ++rank) {
    const uint64_t bytes = inputs[rank].nbytes();
    std::memcpy(mine.data() + rank * sizeof bytes, &bytes, sizeof bytes);
    mine.append(static_cast<const char*>(inputs[rank].data_ptr()), bytes);
  }
  MILLSTREAM_ASSIGN(const auto all, communicator_->allgather_bytes(mine));
  for (size_t rank = 0; rank < ranks; ++rank) {
    size_t at = ranks * sizeof(uint64_t);
    uint64_t bytes = 0;
    for (int to = 0; to <= getRank(); ++to) {
      at += bytes;
      std::memcpy(&bytes, all[rank].data() + static_cast<size_t>(to) * sizeof bytes, sizeof bytes);
    }
    if (bytes != outputs[rank].nbytes())
      return failed_error("rank {} of the group sent {} bytes where {} were expected", rank, bytes,
                          outputs[rank].nbytes());
    if (bytes > 0) std::memcpy(outputs[rank].data_ptr(), all[rank].data() + at, bytes);
  }
  return Status::OK();
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::alltoall(std::vector<at::Tensor>& outputs,
                                                           std::vector<at::Tensor>& inputs,
                                                           const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(
      static_cast<int>(inputs.size()) == getSize() && static_cast<int>(outputs.size()) == getSize(),
      "millstream alltoall needs ", getSize(), " inputs and outputs, one a rank of the group; got ",
      inputs.size(), " and ", outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i], "alltoall");
    check_tensor(outputs[i], "alltoall");
    TORCH_CHECK_TYPE(outputs[i].scalar_type() == inputs[i].scalar_type(),
                     "millstream alltoall: an output of type ", outputs[i].scalar_type(),
                     " for an input of type ", inputs[i].scalar_type());
  }
  check_like(outputs[getRank()], inputs[getRank()], "alltoall");
  return enqueue(c10d::OpType::ALLTOALL, describe("alltoall", inputs), outputs, options.timeout,
                 [this, outputs, inputs]() -> Status {
                   std::vector<at::Tensor> from, to;
                   for (size_t i = 0; i < inputs.size(); ++i) {
                     from.push_back(inputs[i].contiguous());
                     to.push_back(outputs[i].is_contiguous() ? outputs[i] : outputs[i].contiguous());
                   }
                   MILLSTREAM_TRY(exchange(to, from));
                   for (size_t i = 0; i < outputs.size(); ++i)
                     if (!outputs[i].is_contiguous()) outputs[i].copy_(to[i]);
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                                std::vector<int64_t>& output_splits,
                                                                std::vector<int64_t>& input_splits,
                                                                const c10d::AllToAllOptions& options) {
  check_tensor(input, "alltoall");
  check_tensor(output, "alltoall");
  TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(), "millstream alltoall: an output of type ",
                   output.scalar_type(), " for an input of type ", input.scalar_type());
  TORCH_CHECK_VALUE(input.dim() > 0 && output.dim() > 0,
                    "millstream alltoall: tensors need a dimension to be split along");
  const auto splits_of = [&](const at::Tensor& tensor, const std::vector<int64_t>& splits,
                             const char* which) {
    std::vector<int64_t> parts = splits;
    if (parts.empty()) {
      TORCH_CHECK_VALUE(tensor.size(0) % getSize() == 0, "millstream alltoall: the ", which,
                        "'s first dimension is ", tensor.size(0), ", which ", getSize(),
                        " ranks can't share evenly; give splits");
      parts.assign(static_cast<size_t>(getSize()), tensor.size(0) / getSize());
    }
    int64_t sum = 0;
    for (const int64_t part : parts) {
      TORCH_CHECK_VALUE(part >= 0, "millstream alltoall: a split of the ", which, " is ", part);
      sum += part;
    }
    TORCH_CHECK_VALUE(static_cast<int>(parts.size()) == getSize() && sum == tensor.size(0),
                      "millstream alltoall: the ", which, "'s ", parts.size(), " splits add up to ", sum,
                      "; ", getSize(), " that add up to its first dimension, ", tensor.size(0),
                      ", are needed");
    return parts;
  };
  const std::vector<int64_t> to = splits_of(output, output_splits, "output"),
                             from = splits_of(input, input_splits, "input");
  return enqueue(c10d::OpType::ALLTOALL_BASE, describe("alltoall", {input}), {output}, options.timeout,
                 [this, output, input, to, from]() -> Status {
                   const at::Tensor source = input.contiguous();
                   const at::Tensor target = output.is_contiguous() ? output : output.contiguous();
                   const auto parts_of = [](const at::Tensor& whole, const std::vector<int64_t>& sizes) {
                     std::vector<at::Tensor> parts;
                     int64_t begin = 0;
                     for (const int64_t size : sizes) {
                       parts.push_back(whole.narrow(0, begin, size));
                       begin += size;
                     }
                     return parts;
                   };
                   MILLSTREAM_TRY(exchange(parts_of(target, to), parts_of(source, from)));
                   if (!output.is_contiguous()) output.copy_(target);
                   return Status::OK();
                 });
}

c10::intrusive_ptr<c10d::Work> MillstreamBackend::barrier(const c10d::BarrierOptions& options) {
  return enqueue(c10d::OpType::BARRIER, "barrier", {}, options.timeout,
                 [this] { return communicator_->barrier(); });
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
