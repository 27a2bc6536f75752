#pragma once
// torch.distributed over our own communicators: a c10d::Backend, so that libtorch's Reducer (and whoever
// writes against c10d) runs on the ranks of a Millstream job with the stock libtorch.
//
// Contract
// 1. One backend owns one comm::Communicator. Every member makes the same calls in the same order; calls come
//    from one thread at a time.
// 2. No call blocks its caller: it checks its arguments (a bad one throws at once, before anything is sent),
// puts
//    the operation on the group's queue and returns a Work. One worker thread a group runs the queue in
//    order. Groups don't wait for each other.
// 3. The tensors of a call are kept alive by it and must not be changed, or read where they are outputs,
// until
//    the Work is done. Dense tensors of any strides are taken; those that are not contiguous go through a
//    copy. Empty tensors are ordinary.
// 4. Work: wait(timeout) throws what went wrong, or an error when the timeout passes (the operation goes on). Without
//    one it takes that of the call's options; where they name none either, it waits for as long as it takes.
//    getFuture() completes with the list of output tensors, in the worker thread: callbacks there must not
//    block.
//    reduce_scatter, scatter, gather and alltoall are made of all_reduce, broadcast and all_gather: right, and as fast
//    as these are.
// 5. Types: float, double, half, bfloat16 (summed in float), int8…int64, uint8, bool. A bool's sum is a
// logical
//    or, its product a logical and. AVG is for floating point.
// 6. A failure (of the job, or of a peer) is a c10::DistBackendError naming operation and ranks; every later
//    operation of the group fails with it too. failure() is the Status behind it.
// 7. The destructor waits for the queue. When the job has failed the queue empties by itself.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "base/status.h"
#include "comm/communicator.h"

namespace millstream::train {

class MillstreamBackend final : public c10d::Backend {
 public:
  MillstreamBackend(std::unique_ptr<comm::Communicator> communicator, std::string name);
  ~MillstreamBackend() override;

  const std::string getBackendName() const override { return "millstream"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  uint64_t getSequenceNumberForGroup() override;
  /// OK while nothing failed.
  Status failure() const;

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits,
                                               std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  struct Task {
    c10::intrusive_ptr<c10d::Work> work;
    std::function<Status()> run;
  };
  c10::intrusive_ptr<c10d::Work> enqueue(c10d::OpType type, std::string description,
                                         std::vector<at::Tensor> outputs, std::chrono::milliseconds timeout,
                                         std::function<Status()> run);
  Status exchange(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);
  void check_tensor(const at::Tensor& tensor, const char* operation) const;
  void check_root(int64_t root, const char* operation) const;
  void run_queue();

  std::unique_ptr<comm::Communicator> communicator_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> queue_;
  uint64_t sequence_ = 0;
  Status failure_;
  bool stop_ = false;
  std::thread worker_;
};

/// Seconds so far that the groups' threads of this process spent in collectives, waiting for the others included.
double seconds_in_collectives();

/// A c10d::ProcessGroup whose CPU backend is a MillstreamBackend over `communicator`.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(std::unique_ptr<comm::Communicator> communicator,
                                                          std::string name);

}  // namespace millstream::train
