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

  EXPECT_EQ(checkpoint_requests(), 0);
  raise(SIGUSR1);
  raise(SIGUSR1);
  EXPECT_EQ(checkpoint_requests(), 2);
  EXPECT_FALSE(interrupted());

  std::promise<Status> got;
  OnInterrupt watch([&](const Status& status) { got.set_value(status); });
  raise(SIGTERM);
  const Status status = got.get_future().get();
  EXPECT_EQ(status.message(), "interrupted by SIGTERM");
  EXPECT_EQ(exit_code(status), 130);
  EXPECT_EQ(interrupt_signal(), SIGTERM);

  // Whoever ends by itself is not disturbed while it does.
  std::atomic<bool> ending{true};
  std::promise<bool> disturbed;
  auto patient = std::make_unique<PatientInterrupt>(3600);
  OnInterrupt patient_watch([&](const Status&) { disturbed.set_value(ending); });
  ending = false;
  patient.reset();
  EXPECT_FALSE(disturbed.get_future().get());
}

}  // namespace
}  // namespace millstream
