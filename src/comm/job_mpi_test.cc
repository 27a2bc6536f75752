// Shared memory, waits, messages between ranks, the topology.

#include <atomic>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "base/futex.h"
#include "comm/clock.h"
#include "comm/job.h"
#include "comm/message_engine.h"
#include "comm/mpi_test.h"

namespace millstream::comm {
namespace {

TEST(SharedMemoryTest, IsSharedZeroedAndAligned) {
  Job& job = test_job();
  for (int64_t bytes : {1, 4096, 5'000'000}) {
    auto made = job.make_shared_memory(bytes);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    SharedMemory& memory = **made;
    ASSERT_GE(memory.size(), bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0u);
    const int index = static_cast<int>(
        std::find(job.node_ranks().begin(), job.node_ranks().end(), job.rank()) - job.node_ranks().begin());
    for (int64_t i = 0; i < bytes; i += 4096) ASSERT_EQ(memory.data()[i], 0) << i;
    ASSERT_TRUE(job.world().barrier().ok());
    if (index < bytes) memory.data()[index] = static_cast<uint8_t>(job.rank() + 1);
    ASSERT_TRUE(job.world().barrier().ok());
    for (size_t i = 0; i < job.node_ranks().size() && static_cast<int64_t>(i) < bytes; ++i) {
      EXPECT_EQ(memory.data()[i], job.node_ranks()[i] + 1);
    }
    ASSERT_TRUE(job.world().barrier().ok());
  }
}

TEST(SharedMemoryTest, SaysWhatRoomThereIs) {
  Job& job = test_job();
  auto made = job.make_shared_memory(int64_t{1} << 50);
  ASSERT_FALSE(made.ok());
  if (job.node_ranks().size() > 1) {
    EXPECT_NE(made.status().message().find("/dev/shm"), std::string::npos) << made.status().message();
    EXPECT_NE(made.status().message().find("available"), std::string::npos) << made.status().message();
  }
  ASSERT_TRUE(job.world().barrier().ok());
}

TEST(WaitTest, EndsByTheWord) {
  Job& job = test_job();
  auto made = job.make_shared_memory(4096);
  ASSERT_TRUE(made.ok());
  auto& word = *reinterpret_cast<std::atomic<uint32_t>*>((*made)->data());
  if (job.rank() == job.node_ranks().back()) {
    word.store(1);
    futex_wake_all(word);
  }
  ASSERT_TRUE(wait_while_equal(job, word, 0).ok());
  ASSERT_TRUE(job.world().barrier().ok());
}

TEST(WaitTest, EndsByAFailure) {
  Job& job = test_job();
  std::atomic<uint32_t> never{0};
  Status mine;
  if (job.rank() == 0) {
    mine = data_error("no more");
    job.fail(mine);
  }
  const Status waited = wait_while_equal(job, never, 0);
  EXPECT_EQ(error_category(waited), job.rank() == 0 ? ErrorCategory::kData : ErrorCategory::kPeerFailed);
  EXPECT_EQ(job.agree(mine).message(), "no more");
  job.clear_failure();
}

TEST(TopologyTest, IsTheSameEverywhere) {
  Job& job = test_job();
  const Topology& topology = job.topology();
  ASSERT_EQ(static_cast<int>(topology.ranks.size()), job.size());
  std::string text;
  for (const RankInfo& rank : topology.ranks) {
    EXPECT_GE(rank.threads, 1);
    text += fmt::format("{} {} {};", rank.host, rank.threads, rank.devices.size());
  }
  auto all = job.world().allgather_bytes(text);
  ASSERT_TRUE(all.ok());
  for (const auto& other : *all) EXPECT_EQ(other, text);
  const int host = topology.host_of_rank[job.rank()];
  // The test runs on one host; with --messages its ranks share no memory all the same.
  for (int rank : job.node_ranks()) EXPECT_EQ(topology.host_of_rank[rank], host);
  EXPECT_EQ(topology.hosts.size(), 1u);
}

// ---- messages ----------------------------------------------------------------------------------------------

// Here all ranks have one clock in truth: seen as one host they know, seen as many they find out about it.
TEST(ClockTest, OffsetsAreTheSameEverywhereAndZeroOnOneHost) {
  const auto offsets = clock_offsets(test_job());
  ASSERT_TRUE(offsets.ok()) << offsets.status().ToString();
  ASSERT_EQ(offsets->size(), static_cast<size_t>(test_job().size()));
  EXPECT_EQ((*offsets)[0], 0);
  std::string mine(reinterpret_cast<const char*>(offsets->data()), offsets->size() * sizeof(int64_t));
  for (const std::string& theirs : test_job().world().allgather_bytes(mine).ValueOrDie())
    EXPECT_EQ(theirs, mine);
  for (const int64_t offset : *offsets) {
    if (test_job().topology().host_ranks.size() == 1) {
      EXPECT_EQ(offset, 0);
    } else {
      EXPECT_LT(std::abs(offset), int64_t{60} * 1'000'000'000);
    }
  }
}

TEST(MessagesTest, RingOfManySizes) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  MessageEngine& engine = job.messages();
  const int next = (job.rank() + 1) % job.size(), before = (job.rank() + job.size() - 1) % job.size();
  for (int64_t bytes : {0, 1, 1000, 70'000, 3'000'000}) {
    std::vector<uint8_t> out(bytes), in(bytes, 0);
    for (int64_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(i * 31 + job.rank());
    std::atomic<int> called{0};
    auto note = [&](const Status& status) { called += status.ok(); };
    auto receive = engine.receive(before, 5, {{in.data(), bytes}}, note);
    auto send = engine.send(next, 5, {{out.data(), bytes}}, note);
    ASSERT_TRUE(send->wait().ok());
    ASSERT_TRUE(receive->wait().ok());
    EXPECT_TRUE(send->done() && receive->done());
    EXPECT_EQ(called.load(), 2);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(in[i], static_cast<uint8_t>(i * 31 + before)) << i;
  }
}

TEST(MessagesTest, GatherAndScatter) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  const int next = (job.rank() + 1) % job.size(), before = (job.rank() + job.size() - 1) % job.size();
  for (int64_t unit : {1, 300, 50'000}) {
    std::vector<uint8_t> out(10 * unit), in(10 * unit, 0);
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(i / unit + 16 * job.rank());
    // Sent as pieces 9, 0, 4 5; received as one of 1 unit and one of 3, the rest untouched.
    auto send = job.messages().send(
        next, 6,
        {{out.data() + 9 * unit, unit}, {out.data(), unit}, {nullptr, 0}, {out.data() + 4 * unit, 2 * unit}},
        {});
    auto receive = job.messages().receive(
        before, 6, {{in.data() + 7 * unit, unit}, {in.data() + 1 * unit, 3 * unit}}, {});
    ASSERT_TRUE(send->wait().ok());
    ASSERT_TRUE(receive->wait().ok());
    const int expected[10] = {-1, 0, 4, 5, -1, -1, -1, 9, -1, -1};
    for (int k = 0; k < 10; ++k) {
      const uint8_t value = expected[k] < 0 ? 0 : static_cast<uint8_t>(expected[k] + 16 * before);
      ASSERT_EQ(in[k * unit], value) << k;
      ASSERT_EQ(in[(k + 1) * unit - 1], value) << k;
    }
  }
}

TEST(MessagesTest, MoreReceivesThanMayBePosted) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  constexpr int kMany = 1000;
  const int next = (job.rank() + 1) % job.size(), before = (job.rank() + job.size() - 1) % job.size();
  std::vector<int> in(kMany, -1), out(kMany);
  std::vector<RequestPtr> requests;
  for (int i = 0; i < kMany; ++i)
    requests.push_back(job.messages().receive(before, i % 7, {{&in[i], sizeof(int)}}, {}));
  for (int i = 0; i < kMany; ++i) {
    out[i] = i * 10 + job.rank();
    requests.push_back(job.messages().send(next, i % 7, {{&out[i], sizeof(int)}}, {}));
  }
  for (auto& request : requests) ASSERT_TRUE(request->wait().ok());
  for (int i = 0; i < kMany; ++i) ASSERT_EQ(in[i], i * 10 + before);
}

TEST(MessagesTest, SendsAreSynchronous) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  // A small message is not done before its receive is posted: rank 0 posts it after the barrier only.
  int value = 42;
  RequestPtr send;
  if (job.rank() == 1) send = job.messages().send(0, 8, {{&value, sizeof value}}, {});
  ASSERT_TRUE(job.world().barrier().ok());
  if (send) {
    EXPECT_FALSE(send->done());
  }
  ASSERT_TRUE(job.world().barrier().ok());
  int got = 0;
  if (job.rank() == 0) {
    ASSERT_TRUE(job.messages().receive(1, 8, {{&got, sizeof got}}, {})->wait().ok());
    EXPECT_EQ(got, 42);
  }
  if (send) {
    ASSERT_TRUE(send->wait().ok());
  }
}

TEST(MessagesTest, AreEndedByAFailure) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<uint8_t> large(2'000'000), place(2'000'000);
  std::vector<RequestPtr> requests;
  const int last = job.size() - 1;
  // Receives that nobody sends to, and sends that nobody receives, small and large.
  for (int other = 0; other < job.size(); ++other) {
    if (other == job.rank()) continue;
    requests.push_back(job.messages().receive(other, 11, {{place.data(), 1000}}, {}));
    requests.push_back(job.messages().send(other, 12, {{large.data(), 100}}, {}));
    requests.push_back(job.messages().send(other, 13, {{large.data(), 2'000'000}}, {}));
  }
  ASSERT_TRUE(job.agree(Status::OK()).ok());
  Status mine;
  if (job.rank() == last) {
    mine = data_error("e.parquet is broken");
    job.fail(mine);
  }
  for (auto& request : requests) (void)request->wait();
  EXPECT_FALSE(requests[0]->wait().ok());
  // New ones fail at once.
  EXPECT_FALSE(
      job.messages().receive((job.rank() + 1) % job.size(), 14, {{place.data(), 10}}, {})->wait().ok());
  EXPECT_EQ(job.agree(mine).message(), "e.parquet is broken");
  job.clear_failure();
  // And nothing of the past comes back.
  const int next = (job.rank() + 1) % job.size(), before = (job.rank() + job.size() - 1) % job.size();
  int out = 7000 + job.rank(), in = 0;
  auto receive = job.messages().receive(before, 12, {{&in, sizeof in}}, {});
  ASSERT_TRUE(job.messages().send(next, 12, {{&out, sizeof out}}, {})->wait().ok());
  ASSERT_TRUE(receive->wait().ok());
  EXPECT_EQ(in, 7000 + before);
}

TEST(MessagesTest, OfAnotherSizeAreAnError) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  char text[100] = {};
  RequestPtr request;
  if (job.rank() == 0) request = job.messages().send(1, 15, {{text, 50}}, {});
  if (job.rank() == 1) request = job.messages().receive(0, 15, {{text, 60}}, {});
  const Status mine = request ? request->wait() : Status::OK();
  const Status agreed = job.agree(mine);
  EXPECT_NE(agreed.message().find("expected a message of 60 bytes from rank 0 (tag 15) and got 50"),
            std::string::npos)
      << agreed.message();
  job.clear_failure();
}

}  // namespace
}  // namespace millstream::comm
