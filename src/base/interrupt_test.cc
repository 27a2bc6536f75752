#include "base/interrupt.h"

#include <future>

#include <gtest/gtest.h>
#include <signal.h>

namespace millstream {
namespace {

// One process remembers one signal, so the whole story is one test.
TEST(Interrupt, SignalBecomesAnErrorAndRunsTheAction) {
  install_interrupt_handlers();
  {
    OnInterrupt unused([](const Status&) { FAIL() << "no signal came"; });
  }
  EXPECT_FALSE(interrupted());
  EXPECT_TRUE(interrupt_status().ok());

  std::promise<Status> got;
  OnInterrupt watch([&](const Status& status) { got.set_value(status); });
  raise(SIGTERM);
  const Status status = got.get_future().get();
  EXPECT_EQ(status.message(), "interrupted by SIGTERM");
  EXPECT_EQ(exit_code(status), 130);
  EXPECT_EQ(interrupt_signal(), SIGTERM);
}

}  // namespace
}  // namespace millstream
