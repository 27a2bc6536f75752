// main() of rank tests (comm/mpi_test.h). Options beside gtest's: --messages (or MILLSTREAM_TEST_MESSAGES=1)
// runs the same tests with every rank as if on a host of its own.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/mpi_test.h"
#include "comm/supervisor_protocol.h"

namespace millstream::comm {
namespace {

Job* the_job = nullptr;

/// Ends each test on all ranks together.
class RankListener : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    any_failure = true;
    // Others may wait for this rank in a call that it won't make now.
    the_job->fail(failed_error("{}:{}: {}", result.file_name() ? result.file_name() : "?",
                               result.line_number(), result.message()));
    if (the_job->rank() != 0) {
      std::fprintf(stderr, "[rank %d] %s:%d: %s\n", the_job->rank(),
                   result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
    }
  }
  void OnTestEnd(const testing::TestInfo& info) override {
    const Status agreed = the_job->agree(
        info.result()->Failed() ? failed_error("{}.{} failed", info.test_suite_name(), info.name())
                                : Status::OK());
    if (agreed.ok()) return;
    // A test that means to fail the job clears it itself; what is left here is a test's own failure.
    any_failure = true;
    the_job->clear_failure();
  }
  bool any_failure = false;
};

int run(int argc, char** argv) {
  JobOptions options;
  options.deadline_s = 60;
  const char* variable = std::getenv("MILLSTREAM_TEST_MESSAGES");
  options.force_messages = variable && std::strcmp(variable, "1") == 0;
  for (int i = 1; i < argc; ++i) options.force_messages |= std::strcmp(argv[i], "--messages") == 0;
  auto job = Job::start(options);
  if (!job.ok()) {
    std::fprintf(stderr, "the test's job can't start: %s\n", job.status().message().c_str());
    return 1;
  }
  the_job = job->get();
  set_log(the_job->rank() == 0, true);
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (the_job->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  auto* listener = new RankListener;
  listeners.Append(listener);
  const int code = RUN_ALL_TESTS();
  const bool failed = code != 0 || listener->any_failure;
  const Status end = the_job->finish(failed ? failed_error("tests failed") : Status::OK());
  the_job = nullptr;
  return end.ok() ? 0 : 1;
}

}  // namespace

Job& test_job() {
  return *the_job;
}

}  // namespace millstream::comm

int main(int argc, char** argv) {
  millstream::comm::enter_rank_process();
  return millstream::comm::run(argc, argv);
}
