#include "base/cpu_share.h"

#include <gtest/gtest.h>

namespace millstream {
namespace {

TEST(CpuShare, ParsesBytes) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("512MiB"), 512 << 20);
  EXPECT_EQ(parse_bytes("1.5GB"), 1500000000);
  EXPECT_EQ(parse_bytes("2 g"), int64_t{2} << 30);
  for (const char* bad : {"", "MiB", "1XB", "-1", "1e40"}) EXPECT_EQ(parse_bytes(bad), -1) << bad;
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(512 << 20), "512 MiB");
}

TEST(CpuShare, ShareIsAtLeastOneThread) {
  EXPECT_GE(threads_of_share(1), 1);
  EXPECT_EQ(threads_of_share(100000), 1);
  EXPECT_GT(available_memory_bytes(), 0);
  EXPECT_GT(peak_rss_bytes(), 0);
  EXPECT_FALSE(host_name().empty());
}

}  // namespace
}  // namespace millstream
