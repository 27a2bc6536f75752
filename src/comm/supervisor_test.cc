// Ranks that end in every way: the exit code, the one message, nothing left behind.

#include "comm/supervisor.h"

#include <algorithm>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include <dirent.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/job_leftovers.h"

namespace millstream::comm {
namespace {

struct Ended {
  int code = -1;
  std::string out, err;
};

/// What a job has in shared memory.
std::vector<std::string> shared_memory(const std::string& job_id) {
  std::vector<std::string> names;
  if (DIR* folder = opendir("/dev/shm")) {
    while (const dirent* entry = readdir(folder)) {
      if (std::string(entry->d_name).find(job_id) != std::string::npos) names.push_back(entry->d_name);
    }
    closedir(folder);
  }
  return names;
}

class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const char* grace_s = "60") {
    static int programs = 0;
    job_id = fmt::format("test{}x{}y", getpid(), ++programs);
    std::vector<std::string> line = {std::string(MILLSTREAM_BINARY_DIR) + "/test/rank_program", "supervise"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (auto& argument : line) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    int out[2], err[2];
    EXPECT_EQ(pipe(out), 0);
    EXPECT_EQ(pipe(err), 0);
    pid = fork();
    if (pid == 0) {
      dup2(out[1], 1);
      dup2(err[1], 2);
      for (int fd : {out[0], out[1], err[0], err[1]}) close(fd);
      setenv("RANK_PROGRAM_JOB_ID", job_id.c_str(), 1);
      setenv("RANK_PROGRAM_GRACE", grace_s, 1);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    fds_[0] = out[0];
    fds_[1] = err[0];
  }
  /// Reads until standard output holds `times` lines.
  void wait_for_lines(int times) {
    while (std::count(ended.out.begin(), ended.out.end(), '\n') < times && read_some()) {
    }
  }
  Ended end() {
    while (read_some()) {
    }
    int state = 0;
    waitpid(pid, &state, 0);
    EXPECT_EQ(shared_memory(job_id), std::vector<std::string>{});
    ended.code = WIFEXITED(state) ? WEXITSTATUS(state) : 1000 + WTERMSIG(state);
    return ended;
  }
  pid_t pid = -1;
  std::string job_id;
  Ended ended;

 private:
  bool read_some() {
    pollfd watched[2] = {{fds_[0], POLLIN, 0}, {fds_[1], POLLIN, 0}};
    if (fds_[0] < 0 && fds_[1] < 0) return false;
    if (poll(watched, 2, 60'000) <= 0) {
      ADD_FAILURE() << "the program hangs; so far: " << ended.out << ended.err;
      kill(pid, SIGKILL);
      return false;
    }
    for (int i = 0; i < 2; ++i) {
      if (!watched[i].revents) continue;
      char buffer[4096];
      const ssize_t got = read(fds_[i], buffer, sizeof buffer);
      if (got > 0) {
        (i == 0 ? ended.out : ended.err).append(buffer, static_cast<size_t>(got));
      } else {
        close(fds_[i]);
        fds_[i] = -1;
      }
    }
    return true;
  }
  int fds_[2];
};

Ended run(const std::vector<std::string>& arguments) {
  return Program(arguments).end();
}

size_t count_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Ends : public testing::TestWithParam<bool> {
 protected:
  Ended ranks(int n, const std::string& name, double deadline = 60) {
    std::vector<std::string> arguments = {std::to_string(n), "--deadline", std::to_string(deadline)};
    if (GetParam()) arguments.push_back("--messages");
    arguments.push_back(name);
    return run(arguments);
  }
};
INSTANTIATE_TEST_SUITE_P(Supervisor, Ends, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "messages" : "shared"; });

TEST_P(Ends, Well) {
  const Ended ended = ranks(3, "hello");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(count_lines(ended.out), 3u);
  for (const char* line : {"rank 0 of 3\n", "rank 1 of 3\n", "rank 2 of 3\n"}) {
    EXPECT_NE(ended.out.find(line), std::string::npos) << ended.out;
  }
}

TEST_P(Ends, WithAnErrorOfOneRank) {
  const Ended ended = ranks(3, "data_error");
  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.err, "millstream: error: a.parquet, row 7: not a number\n");
}

TEST_P(Ends, WithAFailureInTheBackground) {
  const Ended ended = ranks(3, "background_failure");
  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.err, "millstream: error: b.parquet, row 8: not a number\n");
}

TEST_P(Ends, WithErrorsOfAllRanks) {
  const Ended ended = ranks(4, "many_ends");
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.err, "millstream: error: rank 0 can't go on\n");
}

TEST_P(Ends, WithRanksThatGoDifferentWaysOut) {
  // A rank that waited for an agreement which another one skips would be killed: with another message.
  const Ended ended = ranks(4, "different_ways_out");
  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.err, "millstream: error: c.parquet, row 9: not a number\n");
}

TEST_P(Ends, WithRanksThatDisagreeAboutTheEnd) {
  const Ended ended = ranks(3, "one_goes_on");
  EXPECT_EQ(ended.code, 70);
  EXPECT_NE(ended.err.find("rank 1 has finished, but rank "), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST_P(Ends, ByAKilledRank) {
  const Ended ended = ranks(3, "killed");
  EXPECT_EQ(ended.code, 4);
  EXPECT_TRUE(ended.err.find("millstream: error: rank 1 (pid ") == 0) << ended.err;
  EXPECT_NE(ended.err.find(") was killed by signal 9 (SIGKILL)\n"), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST_P(Ends, ByACrash) {
  const Ended ended = ranks(2, "crashes");
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.err.find(") was killed by signal 11 (SIGSEGV)\n"), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST_P(Ends, ByAStoppedRank) {
  const Ended ended = ranks(3, "stopped", 1.5);
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.err.find("rank 1 (host "), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("has shown no sign of life for 1.5 s during the test"), std::string::npos)
      << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST_P(Ends, ByTheFirstRankStopped) {
  const Ended ended = ranks(3, "first_stopped", 1.5);
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.err.find("rank 0 (host "), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("rank 1"), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST_P(Ends, ByARankThatDoesNothing) {
  const Ended ended = ranks(2, "does_nothing", 1.5);
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.err.find("nothing has made progress for 1.5 s during the test: rank 1 "), std::string::npos)
      << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST_P(Ends, ByRanksThatWaitForOneAnother) {
  const Ended ended = ranks(2, "all_wait", 1.5);
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.err.find("all ranks wait for one another"), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST_P(Ends, ByARankThatLeaves) {
  const Ended ended = ranks(2, "leaves");
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("ended with exit code 3 without saying why"), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST(Supervisor, EndsWhenAllRanksAreStopped) {
  // Nobody is left to watch but the supervisor.
  const Ended ended = run({"3", "--deadline", "1", "all_stopped"});
  EXPECT_EQ(ended.code, 4);
  EXPECT_TRUE(ended.err.find("millstream: error: rank 0 (pid ") == 0) << ended.err;
  EXPECT_NE(ended.err.find(") and rank 2 (pid "), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find(") have been stopped (SIGSTOP, or a debugger) for 1 s; the job is ended\n"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST(Supervisor, TellsAUsageErrorOnce) {
  const Ended ended = run({"3", "usage"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.err, "millstream: error: there is no case like this\n");
}

TEST(Supervisor, EndsWhenARankDiesBeforeTheJobStarts) {
  const Ended ended = run({"2", "dies_early"});
  EXPECT_EQ(ended.code, 4);
  EXPECT_NE(ended.err.find("was killed by signal 9 (SIGKILL)"), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST(Supervisor, EndsWhenARankDiesBeforeItSaysAWord) {
  const Ended ended = run({"3", "dies_first"});
  EXPECT_EQ(ended.code, 4);
  EXPECT_TRUE(ended.err.find("millstream: error: a rank (pid ") == 0) << ended.err;
  EXPECT_NE(ended.err.find(") was killed by signal 9 (SIGKILL)\n"), std::string::npos) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
}

TEST(Supervisor, RemovesWhatADeadRankLeft) {
  EXPECT_EQ(run({"2", "left_memory"}).code, 4);
  EXPECT_EQ(run({"2", "left_mpi_memory"}).code, 4);
}

TEST(Supervisor, WakesStoppedRanksForASignal) {
  Program program({"3", "stopped_then_signalled"});
  program.wait_for_lines(3);
  std::istringstream pids(program.ended.out);
  for (pid_t pid; pids >> pid;) {
    while (!is_stopped(pid)) sched_yield();
  }
  kill(program.pid, SIGTERM);
  const Ended ended = program.end();
  EXPECT_EQ(ended.code, 130);
  EXPECT_EQ(ended.err, "millstream: error: interrupted by a signal\n");
}

TEST(Supervisor, KillsRanksThatDoNotEndAfterASignal) {
  Program program({"2", "ignores_signals"}, "0.2");
  program.wait_for_lines(2);
  kill(program.pid, SIGHUP);
  const Ended ended = program.end();
  EXPECT_EQ(ended.code, 130);
  EXPECT_TRUE(ended.err.find("millstream: error: interrupted by SIGHUP; rank 0 (pid ") == 0) << ended.err;
  EXPECT_NE(ended.err.find(") did not end within 0.2 s and was killed\n"), std::string::npos) << ended.err;
}

TEST(Supervisor, KillsAtTheSecondSignal) {
  Program program({"2", "ignores_signals"});
  program.wait_for_lines(2);
  kill(program.pid, SIGINT);
  kill(program.pid, SIGTERM);
  const Ended ended = program.end();
  EXPECT_EQ(ended.code, 130);
  EXPECT_TRUE(ended.err.find("millstream: error: interrupted by SIG") == 0) << ended.err;
  EXPECT_NE(ended.err.find(": the ranks were killed\n"), std::string::npos) << ended.err;
}

TEST(Supervisor, PassesSignalsOn) {
  for (int signal : {SIGTERM, SIGINT}) {
    Program program({"3", "waits_for_signal"});
    program.wait_for_lines(3);
    kill(program.pid, signal);
    const Ended ended = program.end();
    EXPECT_EQ(ended.code, 130);
    EXPECT_EQ(ended.err, "millstream: error: interrupted by a signal\n");
  }
}

TEST(Supervisor, TakesItsRanksAlong) {
  Program program({"2", "waits_for_signal"});
  program.wait_for_lines(2);
  kill(program.pid, SIGKILL);
  // The pipes close when the last rank is gone: a rank that lived on would hang here.
  EXPECT_EQ(program.end().code, 1000 + SIGKILL);
}

}  // namespace
}  // namespace millstream::comm
