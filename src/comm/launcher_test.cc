// Launchers as tables of environment variables.

#include "comm/launcher.h"

#include <map>

#include <gtest/gtest.h>

namespace millstream::comm {
namespace {

using Table = std::map<std::string, std::string>;

Result<Launch> detect(const Table& table, MpiKind kind = MpiKind::kMpich) {
  return detect_launch(
      [&](const char* name) -> const char* {
        const auto found = table.find(name);
        return found == table.end() ? nullptr : found->second.c_str();
      },
      kind, kind == MpiKind::kOpenMpi ? "Open MPI 4.1.4" : "MPICH 5.0.2");
}

void expect_alone(const Table& table, MpiKind kind = MpiKind::kMpich) {
  const auto launch = detect(table, kind);
  ASSERT_TRUE(launch.ok()) << launch.status().ToString();
  EXPECT_FALSE(launch->mpi);
  EXPECT_EQ(launch->size, 1);
}

void expect_rank(const Table& table, int rank, int size, MpiKind kind = MpiKind::kMpich) {
  const auto launch = detect(table, kind);
  ASSERT_TRUE(launch.ok()) << launch.status().ToString();
  EXPECT_TRUE(launch->mpi);
  EXPECT_EQ(launch->rank, rank);
  EXPECT_EQ(launch->size, size);
}

void expect_refused(const Table& table, MpiKind kind, const std::vector<std::string>& parts) {
  const auto launch = detect(table, kind);
  ASSERT_FALSE(launch.ok());
  EXPECT_EQ(error_category(launch.status()), ErrorCategory::kUsage);
  for (const auto& part : parts) {
    EXPECT_NE(launch.status().message().find(part), std::string::npos)
        << part << " in: " << launch.status().message();
  }
}

const Table kHydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"PMI_FD", "6"}};
const Table kOpenMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "3"},
                           {"PMIX_RANK", "1"},
                           {"PMIX_NAMESPACE", "x"}};

TEST(LauncherTest, Alone) {
  expect_alone({});
  expect_alone({}, MpiKind::kOpenMpi);
  // mpiexec -n 1.
  expect_alone({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
  // A shell inside salloc, a script of sbatch, an interactive step of one task.
  expect_alone({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}});
  expect_alone({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}});
  expect_alone({{"SLURM_JOB_ID", "7"},
                {"SLURM_NTASKS", "8"},
                {"SLURM_PROCID", "0"},
                {"SLURM_STEP_ID", "4294967290"},
                {"SLURM_STEP_NUM_TASKS", "1"}});
  // torchrun with one process.
  expect_alone({{"TORCHELASTIC_RUN_ID", "x"}, {"WORLD_SIZE", "1"}});
  // WORLD_SIZE alone is no launcher.
  expect_alone({{"WORLD_SIZE", "4"}, {"RANK", "2"}});
}

TEST(LauncherTest, OwnMpi) {
  expect_rank(kHydra, 1, 3);
  expect_rank(kOpenMpirun, 1, 3, MpiKind::kOpenMpi);
  // srun with PMI-2, and with PMIx, whose size is known from Slurm.
  Table srun = {
      {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_NTASKS", "4"}};
  Table pmi2 = srun;
  pmi2.insert({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}});
  expect_rank(pmi2, 2, 4);
  expect_rank(pmi2, 2, 4, MpiKind::kOpenMpi);
  Table pmix = srun;
  pmix.insert({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}});
  expect_rank(pmix, 2, 4);
  expect_rank(pmix, 2, 4, MpiKind::kOpenMpi);
  // Our mpiexec inside a job of the other MPI: the inner one counts.
  Table nested = kOpenMpirun;
  nested.insert(kHydra.begin(), kHydra.end());
  expect_rank(nested, 1, 3);
}

TEST(LauncherTest, ForeignMpiIsRefusedWithWhatToDo) {
  expect_refused(
      kOpenMpirun, MpiKind::kMpich,
      {"Open MPI's mpirun (rank 1 of 3)", "built with MPICH 5.0.2", "--ranks 3", "MPICH's mpiexec"});
  expect_refused(kHydra, MpiKind::kOpenMpi,
                 {"rank 1 of 3", "built with Open MPI 4.1.4", "--ranks 3", "Open MPI's mpirun"});
  const Table srun = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  expect_refused(srun, MpiKind::kMpich, {"srun as task 2 of 4", "srun --mpi=pmi2"});
  expect_refused(srun, MpiKind::kOpenMpi, {"srun as task 2 of 4", "srun --mpi=pmix"});
  expect_refused({{"TORCHELASTIC_RUN_ID", "x"}, {"WORLD_SIZE", "2"}, {"RANK", "1"}}, MpiKind::kMpich,
                 {"torchrun (rank 1 of 2)", "--ranks 2"});
}

}  // namespace
}  // namespace millstream::comm
