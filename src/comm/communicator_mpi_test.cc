// Collectives against references, on every communicator there is: the world, subsets, several at once; and with a
// rank that fails while the others wait.

#include <cmath>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/mpi_test.h"
#include "comm/reduction.h"

namespace millstream::comm {
namespace {

#define ASSERT_OK(expression)                             \
  do {                                                    \
    const Status status_ = ::arrow::ToStatus(expression); \
    ASSERT_TRUE(status_.ok()) << status_.ToString();      \
  } while (false)

constexpr DataType kTypes[] = {DataType::kFloat, DataType::kDouble, DataType::kHalf,  DataType::kBFloat16,
                               DataType::kInt8,  DataType::kUInt8,  DataType::kInt16, DataType::kInt32,
                               DataType::kInt64, DataType::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum,    ReduceOp::kProduct, ReduceOp::kMin,   ReduceOp::kMax,
                             ReduceOp::kBitAnd, ReduceOp::kBitOr,   ReduceOp::kBitXor};

/// Deterministic small values, different by rank and place, of any type.
std::vector<uint8_t> values(DataType type, int64_t count, int rank, int seed = 0) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count * size_of(type)));
  for (int64_t i = 0; i < count; ++i) {
    const int v = static_cast<int>((i * 7 + rank * 13 + seed * 31) % 23) - 7;
    uint8_t* place = bytes.data() + i * size_of(type);
    auto put = [&](auto value) { std::memcpy(place, &value, sizeof value); };
    switch (type) {
      case DataType::kFloat:
        put(static_cast<float>(v) * 0.37f);
        break;
      case DataType::kDouble:
        put(static_cast<double>(v) * 0.37);
        break;
      case DataType::kHalf:
        put(float_to_half(static_cast<float>(v) * 0.37f));
        break;
      case DataType::kBFloat16:
        put(float_to_bfloat16(static_cast<float>(v) * 0.37f));
        break;
      case DataType::kInt8:
        put(static_cast<int8_t>(v));
        break;
      case DataType::kUInt8:
        put(static_cast<uint8_t>(v));
        break;
      case DataType::kInt16:
        put(static_cast<int16_t>(v));
        break;
      case DataType::kInt32:
        put(static_cast<int32_t>(v * 100'003));
        break;
      case DataType::kInt64:
        put(static_cast<int64_t>(v) * 1'000'000'007);
        break;
      case DataType::kBool:
        put(static_cast<uint8_t>(v & 1));
        break;
    }
  }
  return bytes;
}

/// The reduction over members in order, one element at a time.
std::vector<uint8_t> reference(DataType type, ReduceOp op, int64_t count, const std::vector<int>& members,
                               int seed) {
  std::vector<std::vector<uint8_t>> all;
  std::vector<const void*> sources;
  for (int rank : members) all.push_back(values(type, count, rank, seed));
  std::vector<uint8_t> out(static_cast<size_t>(count * size_of(type)));
  for (int64_t i = 0; i < count; ++i) {
    sources.clear();
    for (auto& one : all) sources.push_back(one.data() + i * size_of(type));
    reduce_arrays(out.data() + i * size_of(type), sources.data(), static_cast<int>(sources.size()), 1, type,
                  op);
  }
  return out;
}

void check_collectives(Communicator& group) {
  const int n = group.size(), me = group.rank(), world = group.members()[me];
  ASSERT_EQ(world, test_job().rank());
  ASSERT_OK(group.barrier());

  for (int64_t size : {0, 1, 7, 16'376, 16'377, 100'000}) {
    // Sizes that differ by rank, and bytes of every value.
    std::string mine(static_cast<size_t>(size / (me + 1)), static_cast<char>('a' + me));
    if (size) mine.back() = '\0';
    auto all = group.allgather_bytes(mine);
    ASSERT_OK(all);
    ASSERT_EQ(static_cast<int>(all->size()), n);
    for (int i = 0; i < n; ++i) {
      std::string expected(static_cast<size_t>(size / (i + 1)), static_cast<char>('a' + i));
      if (size && !expected.empty()) expected.back() = '\0';
      ASSERT_EQ((*all)[i], expected) << i;
    }
    for (int root = 0; root < n; ++root) {
      auto told = group.broadcast_bytes(
          me == root ? std::string(static_cast<size_t>(size), static_cast<char>('A' + root)) : "", root);
      ASSERT_OK(told);
      ASSERT_EQ(*told, std::string(static_cast<size_t>(size), static_cast<char>('A' + root)));
    }
  }
  int seed = 0;
  for (int64_t count : {0, 1, 3, 1000, 40'001}) {
    for (DataType type : kTypes) {
      for (ReduceOp op : kOps) {
        if (!check_reduction(type, op).ok()) continue;
        if (count > 1000 && op != ReduceOp::kSum && op != ReduceOp::kMax) continue;
        ++seed;
        auto data = values(type, count, world, seed);
        ASSERT_OK(group.all_reduce(data.data(), count, type, op));
        const auto expected = reference(type, op, count, group.members(), seed);
        ASSERT_EQ(data, expected) << "count " << count << " type " << int(type) << " op " << int(op);
        const int root = seed % n;
        data = values(type, count, world, seed);
        ASSERT_OK(group.reduce(data.data(), count, type, op, root));
        if (me == root) {
          ASSERT_EQ(data, expected) << "count " << count << " type " << int(type) << " op " << int(op);
        }
      }
    }
  }
  for (int64_t bytes : {0, 1, 5, 64, 5'000, 700'001}) {
    for (int root = 0; root < n; ++root) {
      auto data = values(DataType::kUInt8, bytes, me == root ? 50 + root : me);
      ASSERT_OK(group.broadcast(data.data(), bytes, root));
      ASSERT_EQ(data, values(DataType::kUInt8, bytes, 50 + root));
    }
    const auto mine = values(DataType::kUInt8, bytes, me);
    std::vector<uint8_t> all(static_cast<size_t>(bytes * n));
    ASSERT_OK(group.all_gather(mine.data(), bytes, all.data()));
    for (int i = 0; i < n; ++i) {
      const auto expected = values(DataType::kUInt8, bytes, i);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), all.begin() + i * bytes)) << i;
    }
  }
}

TEST(Collectives, OfTheWorld) {
  check_collectives(test_job().world());
}

TEST(Collectives, OfSubsets) {
  Job& job = test_job();
  // All ranks; each alone; every second; all but the first.
  std::vector<std::vector<int>> subsets(2);
  for (int rank = 0; rank < job.size(); ++rank) {
    subsets[0].push_back(rank);
    if (rank % 2 == 0) subsets[1].push_back(rank);
    subsets.push_back({rank});
    if (rank == 1) subsets.push_back({});
  }
  for (auto& subset : subsets) {
    if (subset.empty()) {
      for (int rank = 1; rank < job.size(); ++rank) subset.push_back(rank);
    }
    auto made = job.make_communicator(subset);
    ASSERT_OK(made);
    const bool member = std::find(subset.begin(), subset.end(), job.rank()) != subset.end();
    ASSERT_EQ(*made != nullptr, member);
    if (member) {
      ASSERT_EQ((*made)->members(), subset);
      check_collectives(**made);
    }
  }
}

TEST(Collectives, LargerThanAnyBuffer) {
  Job& job = test_job();
  std::vector<int> everyone(job.size());
  for (int i = 0; i < job.size(); ++i) everyone[i] = i;
  auto group = job.make_communicator(everyone);
  ASSERT_OK(group);
  const int64_t count = 5'000'003;
  std::vector<float> data(count);
  for (int64_t i = 0; i < count; ++i) data[i] = static_cast<float>((i % 1000) * (job.rank() + 1));
  ASSERT_OK((*group)->all_reduce(data.data(), count, DataType::kFloat, ReduceOp::kSum));
  const float factor = static_cast<float>(job.size() * (job.size() + 1) / 2);
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(data[i], static_cast<float>(i % 1000) * factor) << i;
}

TEST(Collectives, OfSeveralCommunicatorsAtOnce) {
  Job& job = test_job();
  std::vector<int> everyone(job.size());
  for (int i = 0; i < job.size(); ++i) everyone[i] = i;
  std::vector<std::unique_ptr<Communicator>> groups;
  for (int k = 0; k < 3; ++k) {
    auto made = job.make_communicator(everyone);
    ASSERT_OK(made);
    groups.push_back(std::move(*made));
  }
  std::vector<std::thread> threads;
  std::vector<Status> results(groups.size());
  for (size_t k = 0; k < groups.size(); ++k) {
    threads.emplace_back([&, k] {
      for (int round = 0; round < 50 && results[k].ok(); ++round) {
        const int64_t count = 1 + (round * 997) % 9000;
        std::vector<int64_t> data(static_cast<size_t>(count), (job.rank() + 1) * static_cast<int64_t>(k + 1));
        results[k] = groups[k]->all_reduce(data.data(), count, DataType::kInt64, ReduceOp::kSum);
        const int64_t expected = static_cast<int64_t>(k + 1) * job.size() * (job.size() + 1) / 2;
        for (int64_t value : data) {
          if (value != expected) results[k] = bug_error("{} where {} was due", value, expected);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Status& status : results) EXPECT_TRUE((status).ok());
  ASSERT_OK(job.world().barrier());
}

TEST(Collectives, RefuseWhatMakesNoSense) {
  Communicator& world = test_job().world();
  float value = 1;
  EXPECT_FALSE(world.all_reduce(&value, 1, DataType::kFloat, ReduceOp::kBitOr).ok());
  EXPECT_FALSE(world.broadcast(&value, 4, world.size()).ok());
  EXPECT_FALSE(world.reduce(&value, 1, DataType::kFloat, ReduceOp::kSum, -1).ok());
  EXPECT_FALSE(test_job().make_communicator({1, 0}).ok());
  EXPECT_FALSE(test_job().make_communicator({world.size()}).ok());
  EXPECT_FALSE(test_job().make_communicator({}).ok());
  ASSERT_OK(world.barrier());
}

TEST(Collectives, ThatDoNotMatchAreNamed) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  float value = 1;
  const Status mine = job.rank() == 0 ? job.world().barrier()
                                      : job.world().all_reduce(&value, 1, DataType::kFloat, ReduceOp::kSum);
  EXPECT_FALSE(mine.ok());
  const Status agreed = job.agree(mine);
  EXPECT_EQ(error_category(agreed), ErrorCategory::kBug);
  EXPECT_NE(agreed.message().find("ranks call different collectives: rank"), std::string::npos)
      << agreed.message();
  EXPECT_NE(agreed.message().find("barrier"), std::string::npos) << agreed.message();
  EXPECT_NE(agreed.message().find("all_reduce (sum) of 1 float"), std::string::npos) << agreed.message();
  job.clear_failure();
}

// ---- failures ----------------------------------------------------------------------------------------------

using Call = Status (*)(Communicator&, std::vector<float>&);

struct NamedCall {
  const char* name;
  Call call;
};

const NamedCall kCalls[] = {
    {"barrier", [](Communicator& c, std::vector<float>&) { return c.barrier(); }},
    {"allgather_bytes",
     [](Communicator& c, std::vector<float>&) { return c.allgather_bytes("text").status(); }},
    {"broadcast_bytes",
     [](Communicator& c, std::vector<float>&) { return c.broadcast_bytes("text", c.size() - 1).status(); }},
    {"all_reduce",
     [](Communicator& c, std::vector<float>& data) {
       return c.all_reduce(data.data(), static_cast<int64_t>(data.size()), DataType::kFloat, ReduceOp::kSum);
     }},
    {"all_reduce of one",
     [](Communicator& c, std::vector<float>& data) {
       return c.all_reduce(data.data(), 1, DataType::kFloat, ReduceOp::kSum);
     }},
    {"reduce",
     [](Communicator& c, std::vector<float>& data) {
       return c.reduce(data.data(), static_cast<int64_t>(data.size()), DataType::kFloat, ReduceOp::kSum, 0);
     }},
    {"broadcast",
     [](Communicator& c, std::vector<float>& data) {
       return c.broadcast(data.data(), static_cast<int64_t>(data.size() * sizeof(float)), c.size() - 1);
     }},
    {"all_gather",
     [](Communicator& c, std::vector<float>& data) {
       std::vector<float> all(data.size() * c.size());
       return c.all_gather(data.data(), static_cast<int64_t>(data.size() * sizeof(float)), all.data());
     }},
};

TEST(Failures, WakeEveryCollective) {
  Job& job = test_job();
  if (job.size() == 1) GTEST_SKIP() << "needs two ranks";
  const int failing = job.size() - 1;
  for (const auto& [name, call] : kCalls) {
    std::vector<float> data(300'000, 1.0f);
    // Nobody is called to the failing collective before all are there.
    ASSERT_OK(job.agree(Status::OK()));
    Status mine;
    if (job.rank() == failing) {
      mine = data_error("c.parquet, row 9: {}", name);
      job.fail(mine);
      EXPECT_TRUE(job.failed());
      EXPECT_EQ(job.failure().message(), mine.message());
    } else {
      mine = call(job.world(), data);
      // A rank may have had what it needs; but no later call gets through.
      if (mine.ok()) mine = job.world().barrier();
      EXPECT_EQ(error_category(mine), ErrorCategory::kPeerFailed) << name << ": " << mine.ToString();
      EXPECT_NE(mine.message().find(fmt::format("rank {} failed: c.parquet, row 9: {}", failing, name)),
                std::string::npos)
          << mine.message();
    }
    const Status agreed = job.agree(mine);
    EXPECT_EQ(error_category(agreed), ErrorCategory::kData);
    EXPECT_EQ(agreed.message(), fmt::format("c.parquet, row 9: {}", name));
    job.clear_failure();
    EXPECT_FALSE(job.failed());
  }
  // All is well again.
  check_collectives(job.world());
}

TEST(Failures, LowestPositionIsReported) {
  Job& job = test_job();
  // Rank r reports row 100 - r, so the last rank has the lowest.
  const Status mine = make_error(ErrorCategory::kData, fmt::format("row {}", 100 - job.rank()),
                                 SourcePosition{.file = 2, .row = 100 - job.rank()});
  const Status agreed = job.agree(mine);
  EXPECT_EQ(agreed.message(), fmt::format("row {}", 100 - (job.size() - 1)));
  ASSERT_TRUE(error_position(agreed).has_value());
  EXPECT_EQ(error_position(agreed)->row, 100 - (job.size() - 1));
  job.clear_failure();
}

TEST(Failures, OfAThreadReachTheAgreement) {
  Job& job = test_job();
  if (job.rank() == job.size() - 1) {
    std::thread([&job] { job.fail(file_error("d.parquet is gone")); }).join();
  }
  const Status agreed = job.agree(Status::OK());
  EXPECT_EQ(error_category(agreed), ErrorCategory::kFile);
  EXPECT_EQ(agreed.message(), "d.parquet is gone");
  EXPECT_TRUE(job.failed());
  job.clear_failure();
  EXPECT_TRUE((job.agree(Status::OK())).ok());
}

TEST(Failures, LongTextsAreCutNotLost) {
  Job& job = test_job();
  const Status agreed = job.agree(failed_error("{}", std::string(100'000, 'x')));
  EXPECT_EQ(error_category(agreed), ErrorCategory::kFailed);
  EXPECT_GT(agreed.message().size(), 1000u);
  job.clear_failure();
}

TEST(Agreement, OfAllWell) {
  for (int i = 0; i < 100; ++i) ASSERT_OK(test_job().agree(Status::OK()));
}

}  // namespace
}  // namespace millstream::comm
