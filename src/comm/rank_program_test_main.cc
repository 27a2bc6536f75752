// A program whose ranks end in every way there is; supervisor_test.cc runs it.
//
//   rank_program supervise N [--messages] [--deadline S] CASE     starts N ranks of "rank … CASE"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "base/futex.h"
#include "base/progress.h"
#include "comm/job.h"
#include "comm/supervisor.h"
#include "comm/supervisor_protocol.h"

namespace {

using namespace millstream;

std::atomic<uint32_t> signalled{0};

int rank_main(const comm::JobOptions& options, const std::string& name) {
  for (int signal : {SIGTERM, SIGINT}) {
    std::signal(signal, [](int) {
      signalled.store(1);
      futex_wake_all(signalled);
    });
  }
  if (name == "ignores_signals") {
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
  }
  if (name == "usage") {
    const Status status = usage_error("there is no case like this");
    if (!comm::report_end_to_supervisor(status, false)) return 70;
    return exit_code(status);
  }
  if (name == "dies_early") raise(SIGKILL);
  if (name == "left_mpi_memory") {
    // As MPI_Init would that is killed between making and mapping.
    const std::string path = std::string("/dev/shm/mpich_shm_") + std::getenv("MILLSTREAM_JOB_ID") + "_0";
    if (std::FILE* file = std::fopen(path.c_str(), "w")) std::fclose(file);
    raise(SIGKILL);
  }
  set_phase("the test");
  auto started = comm::Job::start(options);
  if (!started.ok()) {
    comm::report_end_to_supervisor(started.status(), false);
    return exit_code(started.status());
  }
  comm::Job& job = **started;
  // Not interrupted by ranks that are further along and fail already.
  Status status = job.agree(Status::OK());
  const bool chosen = job.rank() == 1;
  if (!status.ok()) {
    // Another rank has ended already.
  } else if (name == "hello") {
    std::printf("rank %d of %d\n", job.rank(), job.size());
    std::fflush(stdout);
  } else if (name == "data_error") {
    if (chosen) status = data_error("a.parquet, row 7: not a number");
  } else if (name == "background_failure") {
    // A thread of rank 1 fails while the main threads wait for one another.
    if (chosen) job.fail(data_error("b.parquet, row 8: not a number"));
    status = job.world().barrier();
  } else if (name == "different_ways_out") {
    // Each rank meets another number of agreements before its end.
    if (chosen) {
      status = data_error("c.parquet, row 9: not a number");
    } else {
      for (int i = 0; i < 1 + job.rank(); ++i) status = job.agree(status);
    }
  } else if (name == "one_goes_on") {
    if (!chosen) status = job.agree(status);
  } else if (name == "killed") {
    if (chosen) raise(SIGKILL);
    status = job.world().barrier();
  } else if (name == "crashes") {
    std::signal(SIGSEGV, SIG_DFL);
    if (chosen) raise(SIGSEGV);
    status = job.world().barrier();
  } else if (name == "stopped") {
    if (chosen) raise(SIGSTOP);
    status = job.world().barrier();
  } else if (name == "all_stopped") {
    raise(SIGSTOP);
    status = job.world().barrier();
  } else if (name == "stopped_then_signalled") {
    std::printf("%d\n", getpid());
    std::fflush(stdout);
    raise(SIGSTOP);
    while (signalled.load() == 0) futex_wait(signalled, 0, std::chrono::seconds(60));
    status = make_error(ErrorCategory::kInterrupted, "interrupted by a signal");
  } else if (name == "ignores_signals") {
    std::printf("ready\n");
    std::fflush(stdout);
    while (true) pause();
  } else if (name == "first_stopped") {
    if (job.rank() == 0) raise(SIGSTOP);
    status = job.world().barrier();
  } else if (name == "does_nothing") {
    while (chosen) pause();
    status = job.world().barrier();
  } else if (name == "all_wait") {
    std::atomic<uint32_t> never{0};
    status = comm::wait_while_equal(job, never, 0);
  } else if (name == "leaves") {
    if (chosen) _exit(3);
    status = job.world().barrier();
  } else if (name == "waits_for_signal") {
    std::printf("ready\n");
    std::fflush(stdout);
    while (signalled.load() == 0) futex_wait(signalled, 0, std::chrono::seconds(60));
    status = make_error(ErrorCategory::kInterrupted, "interrupted by a signal");
  } else if (name == "left_memory") {
    // As a rank would that is killed between making and unlinking.
    if (chosen) {
      const std::string path =
          std::string("/dev/shm/millstream-") + std::getenv("MILLSTREAM_JOB_ID") + "-1-99";
      if (std::FILE* file = std::fopen(path.c_str(), "w")) std::fclose(file);
      raise(SIGKILL);
    }
    status = job.world().barrier();
  } else if (name == "many_ends") {
    status = failed_error("rank {} can't go on", job.rank());
  }
  status = job.finish(status);
  return exit_code(status);
}

}  // namespace

int main(int argc, char** argv) {
  // Before anybody guards it.
  const char* launched_rank = std::getenv("PMI_RANK");
  if (argc > 2 && std::string(argv[1]) == "rank" && std::string(argv[argc - 1]) == "dies_first" &&
      launched_rank && std::string(launched_rank) == "1")
    raise(SIGKILL);
  comm::enter_rank_process();
  comm::JobOptions options;
  options.deadline_s = 60;
  std::string mode = argc > 1 ? argv[1] : "";
  std::string name;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--messages") {
      options.force_messages = true;
    } else if (argument == "--deadline" && i + 1 < argc) {
      options.deadline_s = std::atof(argv[++i]);
    } else {
      name = argument;
    }
  }
  if (mode == "rank") return rank_main(options, name);
  if (mode != "supervise" || argc < 4) return 2;
  std::vector<std::string> command = {argv[0], "rank"};
  for (int i = 3; i < argc; ++i) command.push_back(argv[i]);
  const char* job_id = std::getenv("RANK_PROGRAM_JOB_ID");
  const char* grace = std::getenv("RANK_PROGRAM_GRACE");
  comm::SupervisorOptions supervisor;
  if (job_id) supervisor.job_id = job_id;
  if (grace) supervisor.grace_s = std::atof(grace);
  return comm::run_supervisor(std::atoi(argv[2]), command, supervisor);
}
