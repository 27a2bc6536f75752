#include <gtest/gtest.h>

#include "comm/mpi_test.h"
namespace millstream::comm {
TEST(JobTest, Barrier) {
  ASSERT_TRUE(test_job().world().barrier().ok());
}
}  // namespace millstream::comm
