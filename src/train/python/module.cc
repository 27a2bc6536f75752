// The backend for Python: `import millstream_c10d` registers it with torch.distributed, so that programs on stock PyTorch
// run on it under mpiexec or srun:
//
//   import torch.distributed as dist
//   import millstream_c10d
//   dist.init_process_group("millstream", store=dist.HashStore(), rank=millstream_c10d.rank(),
//                           world_size=millstream_c10d.size())
//
// 1. The first call joins the job of the launcher; rank and size are the launcher's.
// 2. Groups are of all ranks, any number of them: those of fewer ranks can only be made in C++ (a communicator is made by
//    all ranks of the job).
// 3. When Python ends the job is left in order. A rank that ends by an exception says so first, and the others' calls end
//    with an error.

#include <numeric>

#include <torch/csrc/utils/pybind.h>

#include "comm/job.h"
#include "train/process_group.h"

namespace millstream::train {
namespace {

namespace py = pybind11;

[[noreturn]] void raise(const Status& status) {
  throw std::runtime_error("millstream: " + status.message());
}

/// The job of this process. Never destroyed: leave() ends it while Python still runs.
comm::Job& job() {
  static comm::Job* joined = [] {
    auto started = comm::Job::start({});
    if (!started.ok()) raise(started.status());
    return std::move(started).ValueUnsafe().release();
  }();
  return *joined;
}

c10::intrusive_ptr<c10d::Backend> make_backend(const py::object& options,
                                               const py::object& /*backend_options*/) {
  const int rank = options.attr("group_rank").cast<int>(), size = options.attr("group_size").cast<int>();
  const auto name = options.attr("group_id").cast<std::string>();
  if (size != job().size())
    raise(
        usage_error("a group of {} of the {} ranks: in Python groups are of all ranks", size, job().size()));
  if (rank != job().rank())
    raise(
        usage_error("this process is rank {} for torch.distributed and rank {} for the launcher; give "
                    "init_process_group rank=millstream_c10d.rank()",
                    rank, job().rank()));
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const py::gil_scoped_release waiting;
  auto communicator = job().make_communicator(ranks);
  if (!communicator.ok()) raise(communicator.status());
  return c10::make_intrusive<MillstreamBackend>(std::move(communicator).ValueUnsafe(), name);
}

void leave() {
  // What ended Python, if it was an exception.
  const py::module_ sys = py::module_::import("sys");
  Status status;
  if (py::hasattr(sys, "last_value") && !sys.attr("last_value").is_none())
    status = failed_error("{}", py::str(sys.attr("last_value")).cast<std::string>());
  // Groups that the program did not destroy have threads and communicators of the job.
  const py::module_ distributed = py::module_::import("torch.distributed");
  if (status.ok() && distributed.attr("is_initialized")().cast<bool>())
    distributed.attr("destroy_process_group")();
  const py::gil_scoped_release waiting;
  if (!status.ok()) job().fail(status);
  (void)job().finish(status);
}

}  // namespace
}  // namespace millstream::train

PYBIND11_MODULE(millstream_c10d, module) {
  using namespace millstream::train;  // NOLINT
  module.doc() = "torch.distributed over MPI and shared memory: the backend \"millstream\"";
  const auto distributed = py::module_::import("torch.distributed");
  module.def(
      "rank", [] { return job().rank(); }, "This process's rank, from the launcher");
  module.def(
      "size", [] { return job().size(); }, "How many ranks the launcher started");
  distributed.attr("Backend").attr("register_backend")("millstream", py::cpp_function(&make_backend),
                                                       py::arg("extended_api") = true,
                                                       py::arg("devices") = std::vector<std::string>{"cpu"});
  job();
  py::module_::import("atexit").attr("register")(py::cpp_function(&leave));
}
