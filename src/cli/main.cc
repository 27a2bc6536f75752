// The program. A process of it is one of three things: the supervisor of `--ranks N`, a rank of a job (ours, or of
// mpirun or srun), or a job of its own.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/interrupt.h"
#include "base/keep_memory.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/recipe.h"
#include "comm/job.h"
#include "comm/launcher.h"
#include "comm/supervisor.h"
#include "comm/supervisor_protocol.h"

namespace {

using namespace millstream;

/// The rank that a launcher gave this process, before there is a job; 0 without one.
int launched_rank() {
  for (const char* name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

void print_error(const Status& status) {
  set_status_line("");
  const bool bug = error_category(status) == ErrorCategory::kBug;
  std::fprintf(stderr, "millstream: %s%s\n", bug ? "a bug: " : "error: ", status.message().c_str());
  std::fflush(stderr);
}

/// Ends a process that has no job yet: the supervisor tells the user, or the first rank does.
int end_without_job(const Status& status) {
  if (!comm::report_end_to_supervisor(status, false) && launched_rank() == 0) print_error(status);
  return exit_code(status);
}

[[noreturn]] void end_by_bug(const std::string& what) {
  const Status status = bug_error("{}", what);
  print_error(status);
  comm::report_end_to_supervisor(status, true);
  _exit(exit_code(status));
}

[[noreturn]] void on_terminate() {
  std::string what = "std::terminate was called";
  if (const auto exception = std::current_exception()) {
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception& e) {
      what = fmt::format("an exception was not caught: {}", e.what());
    } catch (...) {
      what = "an exception of unknown type was not caught";
    }
  }
  end_by_bug(what);
}

/// A recipe that can't be read is known before any rank is started.
Status check_recipe(const cli::Options& options) {
  if (options.command != cli::Command::kTrain && options.command != cli::Command::kBatches)
    return Status::OK();
  MILLSTREAM_ASSIGN(const std::string text, cli::read_recipe_file(options.recipe));
  std::error_code error;
  const auto here = std::filesystem::current_path(error).string();
  return cli::parse_recipe(text, options.recipe, options.settings, here).status();
}

/// The command line that goes on after a lost rank: in --out's directory from its newest checkpoint, or anew where there
/// is none yet.
std::vector<std::string> command_of_restart(const cli::Options& options,
                                            const std::vector<std::string>& command) {
  std::vector<std::string> again;
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& argument = command[i];
    if (argument == "--resume" || argument == "--out") {
      ++i;
    } else if (!argument.starts_with("--resume=") && !argument.starts_with("--out=")) {
      again.push_back(argument);
    }
  }
  const bool automatic = options.resume.empty() || options.resume == "auto";
  if (automatic) again.insert(again.end(), {"--out", options.out_directory});
  again.insert(again.end(), {"--resume", automatic ? "auto" : options.resume});
  return again;
}

int supervise(const cli::Options& options, int argc, char** argv) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> command(argv, argv + argc);
  if (!error) command[0] = self.string();
  const int ranks = std::max(1, options.ranks);
  const int lost = exit_code(communication_error("a lost rank"));
  for (int restart = 1;; ++restart) {
    const int code = comm::run_supervisor(ranks, command);
    if (code != lost || restart > options.max_restarts) return code;
    if (!options.quiet)
      std::fprintf(
          stderr,
          "millstream: note: the ranks are started again, from the newest checkpoint (restart %d of %d)\n",
          restart, options.max_restarts);
    command = command_of_restart(options, command);
  }
}

int run(int argc, char** argv) {
  const auto parsed = cli::parse_command_line(argc, argv);
  if (!parsed.ok()) return end_without_job(parsed.status());
  const cli::Options& options = *parsed;
  if (options.command == cli::Command::kPrintText) {
    if (launched_rank() == 0) std::fwrite(options.text.data(), 1, options.text.size(), stdout);
    return 0;
  }
  const std::string mpi = comm::mpi_compiled_in();
  const auto kind = mpi.starts_with("MPICH")      ? comm::MpiKind::kMpich
                    : mpi.starts_with("Open MPI") ? comm::MpiKind::kOpenMpi
                                                  : comm::MpiKind::kOther;
  const auto launch = comm::detect_launch(comm::process_environment(), kind, mpi);
  if (!launch.ok()) return end_without_job(launch.status());
  if (options.max_restarts > 0 && launch->mpi && !comm::has_supervisor())
    return end_without_job(usage_error(
        "--max-restarts starts ranks again, which the launcher that started them would have to do: take "
        "--ranks N without it, or let the scheduler requeue the job with --resume auto"));
  if (options.max_restarts > 0 && !launch->mpi &&
      std::filesystem::exists(std::filesystem::path(options.resume) / "checkpoint.json"))
    return end_without_job(
        usage_error("--max-restarts goes on from the newest checkpoint of a run: give --resume the "
                    "run's directory, not one of its checkpoints"));
  if ((options.ranks > 1 || options.max_restarts > 0) && !launch->mpi) {
    const Status recipe = check_recipe(options);
    if (!recipe.ok()) return end_without_job(recipe);
    return supervise(options, argc, argv);
  }

  set_log(launch->rank == 0, options.quiet);
  install_interrupt_handlers();
  comm::JobOptions job_options;
  job_options.deadline_s = options.deadline_s;
  job_options.force_messages = options.transport_given && options.transport == loader::Transport::kMessages;
  auto started = comm::Job::start(job_options);
  if (!started.ok()) return end_without_job(started.status());
  comm::Job& job = **started;
  set_log(job.rank() == 0, options.quiet);
  const int rank = job.rank();

  Status status;
  {
    OnInterrupt on_interrupt([&job](const Status& interrupted) { job.fail(interrupted); });
    status = cli::run_command(options, job);
    if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout)))
      status = file_error("standard output can't be written: {}", std::strerror(errno));
    if (!status.ok()) job.fail(status);
  }
  status = job.finish(status);  // a supervisor prints what it learns there
  if (!status.ok() && rank == 0 && !comm::has_supervisor()) print_error(status);
  return exit_code(status);
}

}  // namespace

int main(int argc, char** argv) {
  use_malloc_for_arrow();
  keep_freed_memory();
  comm::enter_rank_process();
  std::set_terminate(on_terminate);
  std::signal(SIGABRT, [](int) { _exit(70); });  // a failed check has said what it is
  std::signal(SIGPIPE, SIG_IGN);  // `millstream batches --digest | head` is no reason to die silently
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    end_by_bug(fmt::format("an exception was not caught: {}", e.what()));
  } catch (...) {
    end_by_bug("an exception of unknown type was not caught");
  }
}
