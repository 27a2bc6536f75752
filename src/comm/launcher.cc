#include "comm/launcher.h"

#include <cstdlib>

namespace millstream::comm {

Environment process_environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

Result<Launch> detect_launch(const Environment& environment, MpiKind built_with,
                             const std::string& mpi_name) {
  auto set = [&](const char* name) {
    const char* value = environment(name);
    return value && *value;
  };
  auto number = [&](const char* name, int otherwise) {
    const char* value = environment(name);
    if (!value || !*value) return otherwise;
    char* end = nullptr;
    const long parsed = std::strtol(value, &end, 10);
    return *end || parsed < 0 || parsed > 1'000'000'000 ? otherwise : static_cast<int>(parsed);
  };
  const bool pmi = set("PMI_RANK");
  const bool open_mpi = set("OMPI_COMM_WORLD_SIZE");
  const bool pmix = set("PMIX_RANK") && set("PMIX_NAMESPACE");
  // Inside salloc or sbatch there are SLURM variables too; only a step started by srun is a launch.
  const bool slurm_step = set("SLURM_STEP_ID") && set("SLURM_PROCID");
  const int slurm_size = number("SLURM_STEP_NUM_TASKS", number("SLURM_NTASKS", 1));
  const int torchrun_size = set("TORCHELASTIC_RUN_ID") ? number("WORLD_SIZE", 1) : 1;

  auto mpi = [&](std::string launcher, int rank, int size) {
    Launch launch;
    // A job of one needs no MPI, whoever started it.
    launch.mpi = size != 1;
    launch.rank = size == 1 ? 0 : rank;
    launch.size = size;
    launch.launcher = std::move(launcher);
    return launch;
  };
  const int slurm_or_unknown = slurm_step ? slurm_size : -1;

  if (built_with == MpiKind::kOpenMpi) {
    if (open_mpi)
      return mpi("mpirun of Open MPI", number("OMPI_COMM_WORLD_RANK", 0), number("OMPI_COMM_WORLD_SIZE", -1));
    if (pmix) return mpi(slurm_step ? "srun" : "a PMIx launcher", number("PMIX_RANK", 0), slurm_or_unknown);
    if (pmi && slurm_step) return mpi("srun", number("PMI_RANK", 0), number("PMI_SIZE", slurm_size));
    if (pmi && number("PMI_SIZE", 1) > 1) {
      return usage_error(
          "started by an mpiexec of MPICH's family (rank {} of {}), but this program is built with {}: every "
          "rank would "
          "be a job of its own; start it with --ranks {}, or with Open MPI's mpirun, or build with the other "
          "MPI",
          number("PMI_RANK", 0), number("PMI_SIZE", 1), mpi_name, number("PMI_SIZE", 1));
    }
  } else {
    if (pmi)
      return mpi(slurm_step ? "srun" : "mpiexec", number("PMI_RANK", 0),
                 number("PMI_SIZE", slurm_or_unknown));
    if (open_mpi && built_with == MpiKind::kMpich && number("OMPI_COMM_WORLD_SIZE", 1) > 1) {
      return usage_error(
          "started by Open MPI's mpirun (rank {} of {}), but this program is built with {}: every rank would "
          "be a job of "
          "its own; start it with --ranks {}, or with MPICH's mpiexec, or build with -DMILLSTREAM_MPI=system",
          number("OMPI_COMM_WORLD_RANK", 0), number("OMPI_COMM_WORLD_SIZE", 1), mpi_name,
          number("OMPI_COMM_WORLD_SIZE", 1));
    }
    if (pmix && !open_mpi)
      return mpi(slurm_step ? "srun" : "a PMIx launcher", number("PMIX_RANK", 0), slurm_or_unknown);
  }
  if (slurm_step && slurm_size > 1) {
    return usage_error(
        "started by srun as task {} of {}, but without the process management that {} needs: every task "
        "would be a job "
        "of its own; use srun --mpi={} (srun --mpi=list shows what there is), or --ranks {} in one task",
        number("SLURM_PROCID", 0), slurm_size, mpi_name, built_with == MpiKind::kOpenMpi ? "pmix" : "pmi2",
        slurm_size);
  }
  if (torchrun_size > 1) {
    return usage_error(
        "started by torchrun (rank {} of {}), but this program is an MPI job, built with {}: every process "
        "would be a job "
        "of its own; start it with --ranks {} or with mpiexec",
        number("RANK", 0), torchrun_size, mpi_name, torchrun_size);
  }
  return Launch{};
}

}  // namespace millstream::comm
