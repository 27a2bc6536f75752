// The c10d backend on 1 to 4 ranks against straightforward references.
#include <cmath>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "comm/mpi_test.h"
#include "train/process_group.h"

namespace millstream::train {
namespace {

using comm::test_job;

std::unique_ptr<comm::Communicator> all_ranks() {
  std::vector<int> ranks(static_cast<size_t>(test_job().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto communicator = test_job().make_communicator(ranks);
  EXPECT_TRUE(communicator.ok()) << communicator.status().ToString();
  return communicator.ok() ? std::move(communicator).ValueUnsafe() : nullptr;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
                                     at::kByte,  at::kShort,  at::kInt,  at::kLong,     at::kBool};
constexpr int64_t kSizes[] = {0, 1, 7, 1000, 70001};

/// Small integers, exact in every type even when multiplied over four ranks.
at::Tensor values_of(int rank, int64_t size, at::ScalarType type) {
  at::Tensor values = at::arange(size, at::TensorOptions(at::kLong)).add(rank).remainder(3);
  return (type == at::kBool ? values.ne(0) : values.to(type)).contiguous();
}

/// The reduction over all ranks, computed here from what each of them has.
at::Tensor expected_of(c10d::ReduceOp::RedOpType op, int ranks, int64_t size, at::ScalarType type) {
  at::Tensor result = values_of(0, size, type).to(at::kDouble);
  for (int rank = 1; rank < ranks; ++rank) {
    const at::Tensor other = values_of(rank, size, type).to(at::kDouble);
    switch (op) {
      case c10d::ReduceOp::SUM:
      case c10d::ReduceOp::AVG:
        result = result + other;
        break;
      case c10d::ReduceOp::PRODUCT:
        result = result * other;
        break;
      case c10d::ReduceOp::MIN:
        result = at::minimum(result, other);
        break;
      case c10d::ReduceOp::MAX:
        result = at::maximum(result, other);
        break;
      default:
        ADD_FAILURE();
    }
  }
  if (op == c10d::ReduceOp::AVG) result = result / ranks;
  return type == at::kBool ? result.ne(0) : result.to(type);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST(ProcessGroup, AllReduceOfEveryTypeSizeAndOperation) {
  auto group = make_process_group(all_ranks(), "test");
  const int rank = group->getRank(), ranks = group->getSize();
  EXPECT_EQ(rank, test_job().rank());
  EXPECT_EQ(ranks, test_job().size());
  for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG, c10d::ReduceOp::PRODUCT,
                        c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
    for (const at::ScalarType type : kTypes) {
      if (op == c10d::ReduceOp::AVG && !at::isFloatingType(type)) continue;
      for (const int64_t size : kSizes) {
        std::vector<at::Tensor> tensors{values_of(rank, size, type)};
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        group->allreduce(tensors, options)->wait();
        EXPECT_TRUE(at::allclose(tensors[0].to(at::kDouble),
                                 expected_of(op, ranks, size, type).to(at::kDouble), 1e-2, 1e-2))
            << "operation " << int(op) << " type " << type << " size " << size;
        if (type != at::kHalf && type != at::kBFloat16 && op != c10d::ReduceOp::AVG) {
          EXPECT_TRUE(tensors[0].equal(expected_of(op, ranks, size, type)))
              << int(op) << " " << type << " " << size;
        }
      }
    }
  }
}

TEST(ProcessGroup, BitwiseReductions) {
  auto group = make_process_group(all_ranks(), "test");
  const int ranks = group->getSize();
  int64_t all_and = ~int64_t{0}, all_or = 0, all_xor = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t value = 0b1010 ^ (rank * 3);
    all_and &= value;
    all_or |= value;
    all_xor ^= value;
  }
  for (const auto& [op, expected] : {std::pair{c10d::ReduceOp::BAND, all_and},
                                     {c10d::ReduceOp::BOR, all_or},
                                     {c10d::ReduceOp::BXOR, all_xor}}) {
    std::vector<at::Tensor> tensors{
        at::full({5}, int64_t{0b1010 ^ (group->getRank() * 3)}, at::TensorOptions(at::kInt))};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    group->allreduce(tensors, options)->wait();
    EXPECT_TRUE(tensors[0].equal(at::full({5}, expected, at::TensorOptions(at::kInt)))) << int(op);
  }
}

TEST(ProcessGroup, BroadcastAndReduceFromAndToEveryRoot) {
  auto group = make_process_group(all_ranks(), "test");
  const int rank = group->getRank(), ranks = group->getSize();
  for (int root = 0; root < ranks; ++root) {
    for (const at::ScalarType type : kTypes) {
      for (const int64_t size : kSizes) {
        std::vector<at::Tensor> tensors{values_of(rank, size, type)};
        c10d::BroadcastOptions broadcast;
        broadcast.rootRank = root;
        group->broadcast(tensors, broadcast)->wait();
        EXPECT_TRUE(tensors[0].equal(values_of(root, size, type))) << root << " " << type << " " << size;
      }
    }
    std::vector<at::Tensor> tensors{values_of(rank, 1000, at::kDouble)};
    c10d::ReduceOptions reduce;
    reduce.rootRank = root;
    group->reduce(tensors, reduce)->wait();
    if (rank == root) {
      EXPECT_TRUE(tensors[0].equal(expected_of(c10d::ReduceOp::SUM, ranks, 1000, at::kDouble)));
    }
  }
}

TEST(ProcessGroup, AllGatherListBaseAndUneven) {
  auto group = make_process_group(all_ranks(), "test");
  const int rank = group->getRank(), ranks = group->getSize();
  for (const at::ScalarType type : kTypes) {
    for (const int64_t size : kSizes) {
      std::vector<at::Tensor> inputs{values_of(rank, size, type)};
      std::vector<std::vector<at::Tensor>> outputs(1);
      for (int r = 0; r < ranks; ++r) outputs[0].push_back(at::zeros({size}, at::TensorOptions(type)));
      group->allgather(outputs, inputs)->wait();
      for (int r = 0; r < ranks; ++r)
        EXPECT_TRUE(outputs[0][r].equal(values_of(r, size, type))) << r << " " << type << " " << size;

      at::Tensor flat = at::zeros({ranks * size}, at::TensorOptions(type)),
                 input = values_of(rank, size, type);
      auto backend = group->getBackend(c10::DeviceType::CPU);
      backend->_allgather_base(flat, input, {})->wait();
      for (int r = 0; r < ranks; ++r)
        EXPECT_TRUE(flat.slice(0, r * size, (r + 1) * size).equal(values_of(r, size, type)));
    }
  }
  std::vector<at::Tensor> inputs{values_of(rank, rank, at::kFloat)};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int r = 0; r < ranks; ++r) outputs[0].push_back(at::zeros({r}));
  group->allgather(outputs, inputs)->wait();
  for (int r = 0; r < ranks; ++r) EXPECT_TRUE(outputs[0][r].equal(values_of(r, r, at::kFloat)));
}

TEST(ProcessGroup, TensorsOfAnyStrides) {
  auto group = make_process_group(all_ranks(), "test");
  const int rank = group->getRank(), ranks = group->getSize();
  at::Tensor matrix = values_of(rank, 12, at::kFloat).view({3, 4}).t();  // 4 x 3, column-major
  ASSERT_FALSE(matrix.is_contiguous());
  std::vector<at::Tensor> tensors{matrix};
  group->allreduce(tensors)->wait();
  EXPECT_TRUE(matrix.equal(expected_of(c10d::ReduceOp::SUM, ranks, 12, at::kFloat).view({3, 4}).t()));

  at::Tensor wide = at::full({6}, static_cast<double>(rank + 1));
  std::vector<at::Tensor> every_other{wide.slice(0, 0, 6, 2)};
  group->broadcast(every_other)->wait();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(wide[i].item<float>(), i % 2 == 0 ? 1 : rank + 1);
}

TEST(ProcessGroup, WorkCompletesItsFuture) {
  auto group = make_process_group(all_ranks(), "test");
  std::vector<at::Tensor> tensors{at::ones({3})};
  auto work = group->allreduce(tensors);
  auto future = work->getFuture();
  future->wait();
  EXPECT_TRUE(future->completed());
  EXPECT_TRUE(future->value().toTensorVector()[0].equal(at::full({3}, group->getSize())));
  EXPECT_TRUE(work->wait());
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(work->isSuccess());
  EXPECT_EQ(work->retrieveOpType(), c10d::OpType::ALLREDUCE);
  EXPECT_TRUE(group->barrier()->wait());
}

TEST(ProcessGroup, ManyOperationsAreInFlightInOrder) {
  auto group = make_process_group(all_ranks(), "test");
  const int ranks = group->getSize();
  // Each starts from the result of the one before, on the same memory: only order makes the numbers right.
  at::Tensor value = at::ones({100}, at::TensorOptions(at::kDouble));
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int i = 0; i < 10; ++i) {
    std::vector<at::Tensor> tensors{value};
    works.push_back(group->allreduce(tensors));
  }
  works.back()->wait();
  for (const auto& work : works) EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(value.equal(at::full({100}, std::pow(ranks, 10), at::TensorOptions(at::kDouble))));
}

TEST(ProcessGroup, GroupsDoNotWaitForEachOther) {
  auto first = make_process_group(all_ranks(), "first");
  auto second = make_process_group(all_ranks(), "second");
  const int ranks = first->getSize();
  // Ranks start the two groups' operations in opposite orders: where one waited for the other this would not end.
  std::vector<at::Tensor> a{at::ones({1000})}, b{at::ones({1000})};
  c10::intrusive_ptr<c10d::Work> work_a, work_b;
  if (first->getRank() % 2 == 0) {
    work_a = first->allreduce(a);
    work_a->wait();
    work_b = second->allreduce(b);
  } else {
    work_b = second->allreduce(b);
    work_a = first->allreduce(a);
  }
  work_b->wait();
  work_a->wait();
  EXPECT_EQ(a[0][0].item<float>(), ranks);
  EXPECT_EQ(b[0][0].item<float>(), ranks);
}

TEST(ProcessGroup, Subgroups) {
  const int ranks = test_job().size();
  auto communicator = test_job().make_communicator({ranks - 1});
  ASSERT_TRUE(communicator.ok());
  if (test_job().rank() == ranks - 1) {
    auto group = make_process_group(std::move(communicator).ValueUnsafe(), "last");
    EXPECT_EQ(group->getRank(), 0);
    EXPECT_EQ(group->getSize(), 1);
    std::vector<at::Tensor> tensors{at::full({2}, 5)};
    group->allreduce(tensors)->wait();
    EXPECT_TRUE(tensors[0].equal(at::full({2}, 5)));
  } else {
    EXPECT_EQ(*communicator, nullptr);
  }
}

TEST(ProcessGroup, BadArgumentsThrowAtOnce) {
  auto group = make_process_group(all_ranks(), "test");
  const auto backend = group->getBackend(c10::DeviceType::CPU);
  std::vector<at::Tensor> two{at::ones({1}), at::ones({1})},
      complex{at::zeros({1}, at::TensorOptions(at::kComplexFloat))},
      integer{at::ones({1}, at::TensorOptions(at::kInt))}, one{at::ones({1})};
  EXPECT_NE(error_of([&] { backend->allreduce(two, {}); }).find("takes one tensor a call, got 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { backend->allreduce(complex, {}); }).find("ComplexFloat can't be sent"),
            std::string::npos);
  c10d::AllreduceOptions average, band;
  average.reduceOp = c10d::ReduceOp::AVG;
  band.reduceOp = c10d::ReduceOp::BAND;
  EXPECT_NE(error_of([&] { backend->allreduce(integer, average); }).find("AVG needs a floating-point type"),
            std::string::npos);
  EXPECT_NE(error_of([&] { backend->allreduce(one, band); }).find("need an integer type"), std::string::npos);
  c10d::BroadcastOptions root;
  root.rootRank = 99;
  EXPECT_NE(error_of([&] { backend->broadcast(one, root); }).find("root 99 is not a rank"),
            std::string::npos);
  std::vector<std::vector<at::Tensor>> none;
  EXPECT_NE(error_of([&] { backend->allgather(none, one, {}); }).find("output tensors"), std::string::npos);
  EXPECT_NE(error_of([&] { backend->send(one, 0, 0); }).find("does not support send"), std::string::npos);
  // None of them was sent: the group still works.
  backend->allreduce(one, {})->wait();
  EXPECT_EQ(one[0].item<float>(), group->getSize());
}

TEST(ProcessGroup, AFailedPeerBecomesAnErrorThatNamesOperationAndRanks) {
  if (test_job().size() < 2) GTEST_SKIP() << "needs a peer";
  auto group = make_process_group(all_ranks(), "test");
  group->barrier()->wait();
  if (group->getRank() == 1) {
    test_job().fail(failed_error("rank 1 gave up"));
  } else {
    std::vector<at::Tensor> tensors{at::ones({10})};
    const std::string text = error_of([&] { group->allreduce(tensors)->wait(); });
    EXPECT_NE(text.find("allreduce of 10 Float elements over ranks [0, 1"), std::string::npos) << text;
    EXPECT_FALSE(static_cast<MillstreamBackend&>(*group->getBackend(c10::DeviceType::CPU)).failure().ok());
    // And so does every later operation, also through its future.
    auto work = group->allreduce(tensors);
    EXPECT_FALSE(error_of([&] { work->wait(); }).empty());
    EXPECT_TRUE(work->getFuture()->hasError());
    EXPECT_FALSE(work->isSuccess());
  }
  const Status agreed =
      test_job().agree(test_job().rank() == 1 ? failed_error("rank 1 gave up") : Status::OK());
  EXPECT_EQ(agreed.message(), "rank 1 gave up");
  group.reset();
  test_job().clear_failure();
}

TEST(ProcessGroup, GatherAndScatterToAndFromEveryRoot) {
  auto group = make_process_group(all_ranks(), "test");
  const int rank = group->getRank(), ranks = group->getSize();
  for (int root = 0; root < ranks; ++root) {
    for (const at::ScalarType type : kTypes) {
      for (const int64_t size : kSizes) {
        std::vector<at::Tensor> mine{values_of(rank, size, type)};
        std::vector<std::vector<at::Tensor>> all;
        if (rank == root) {
          all.resize(1);
          for (int r = 0; r < ranks; ++r) all[0].push_back(at::empty({size}, mine[0].options()));
        }
        c10d::GatherOptions gather;
        gather.rootRank = root;
        group->gather(all, mine, gather)->wait();
        for (int r = 0; r < ranks && rank == root; ++r)
          EXPECT_TRUE(all[0][r].equal(values_of(r, size, type))) << root << " " << type << " " << size;

        std::vector<std::vector<at::Tensor>> parts;
        if (rank == root) {
          parts.resize(1);
          for (int r = 0; r < ranks; ++r) parts[0].push_back(values_of(r + 5, size, type));
        }
        std::vector<at::Tensor> got{at::empty({size}, mine[0].options())};
        c10d::ScatterOptions scatter;
        scatter.rootRank = root;
        group->scatter(got, parts, scatter)->wait();
        EXPECT_TRUE(got[0].equal(values_of(rank + 5, size, type))) << root << " " << type << " " << size;
      }
    }
  }
}

TEST(ProcessGroup, ReduceScatterOfListsAndTensors) {
  auto group = make_process_group(all_ranks(), "test");
  const int rank = group->getRank(), ranks = group->getSize();
  for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG, c10d::ReduceOp::PRODUCT,
                        c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
    for (const at::ScalarType type : kTypes) {
      if (op == c10d::ReduceOp::AVG && !at::isFloatingType(type)) continue;
      for (const int64_t size : {0, 1, 7, 1000}) {
        c10d::ReduceScatterOptions options;
        options.reduceOp = op;
        const at::Tensor whole = values_of(rank, size * ranks, type),
                         expected = expected_of(op, ranks, size * ranks, type).narrow(0, rank * size, size);
        at::Tensor output = at::empty({size}, whole.options()), input = whole.clone();
        group->reduce_scatter_single(output, input, options)->wait();
        EXPECT_TRUE(at::allclose(output.to(at::kDouble), expected.to(at::kDouble), 1e-2, 1e-2))
            << int(op) << " " << type << " " << size;
        EXPECT_TRUE(input.equal(whole));
        // A list whose parts differ in length: rank r gets size + r.
        std::vector<std::vector<at::Tensor>> list(1);
        int64_t begin = 0, mine = 0;
        const at::Tensor longer = values_of(rank, size * ranks + ranks * (ranks - 1) / 2, type);
        for (int r = 0; r < ranks; ++r) {
          if (r == rank) mine = begin;
          list[0].push_back(longer.narrow(0, begin, size + r));
          begin += size + r;
        }
        std::vector<at::Tensor> outputs{at::empty({size + rank}, whole.options())};
        group->reduce_scatter(outputs, list, options)->wait();
        EXPECT_TRUE(at::allclose(
            outputs[0].to(at::kDouble),
            expected_of(op, ranks, longer.numel(), type).narrow(0, mine, size + rank).to(at::kDouble), 1e-2,
            1e-2))
            << int(op) << " " << type << " " << size;
      }
    }
  }
}

TEST(ProcessGroup, AllToAllEvenUnevenAndOfLists) {
  auto group = make_process_group(all_ranks(), "test");
  const int rank = group->getRank(), ranks = group->getSize();
  /// What rank a sends to rank b: a + b rows of two.
  const auto part = [](int a, int b, at::ScalarType type) {
    return values_of(10 * a + b, 2 * (a + b), type).view({a + b, 2});
  };
  for (const at::ScalarType type : kTypes) {
    std::vector<at::Tensor> inputs, outputs, expected;
    std::vector<int64_t> from, to;
    for (int r = 0; r < ranks; ++r) {
      inputs.push_back(part(rank, r, type));
      expected.push_back(part(r, rank, type));
      outputs.push_back(at::empty_like(expected.back()));
      from.push_back(inputs.back().size(0));
      to.push_back(expected.back().size(0));
    }
    group->alltoall(outputs, inputs, {})->wait();
    for (int r = 0; r < ranks; ++r) EXPECT_TRUE(outputs[r].equal(expected[r])) << type << " from " << r;
    at::Tensor input = at::cat(inputs), output = at::empty_like(at::cat(expected));
    group->all_to_all_single(output, input, to, from, {})->wait();
    EXPECT_TRUE(output.equal(at::cat(expected))) << type;
    // Even shares, into a tensor that is not contiguous.
    at::Tensor even = values_of(rank, 6 * ranks, type).view({3 * ranks, 2}),
               strided = at::zeros({2, 3 * ranks}, even.options()).t();
    std::vector<int64_t> none;
    group->all_to_all_single(strided, even, none, none, {})->wait();
    for (int r = 0; r < ranks; ++r)
      EXPECT_TRUE(strided.narrow(0, 3 * r, 3)
                      .equal(values_of(r, 6 * ranks, type).view({3 * ranks, 2}).narrow(0, 3 * rank, 3)))
          << type;
  }
  std::vector<int64_t> wrong(static_cast<size_t>(ranks), 1), none;
  at::Tensor input = at::zeros({ranks + 1}), output = at::zeros({ranks});
  EXPECT_NE(error_of([&] {
              group->all_to_all_single(output, input, none, wrong, {});
            }).find("that add up to its first dimension"),
            std::string::npos);
}

TEST(ProcessGroup, CoalescedAllGather) {
  auto group = make_process_group(all_ranks(), "test");
  const int rank = group->getRank(), ranks = group->getSize();
  std::vector<at::Tensor> inputs{values_of(rank, 5, at::kFloat), values_of(rank, 70001, at::kLong)};
  std::vector<std::vector<at::Tensor>> outputs;
  for (int r = 0; r < ranks; ++r)
    outputs.push_back({at::empty({5}), at::empty({70001}, at::TensorOptions(at::kLong))});
  auto* backend = static_cast<MillstreamBackend*>(group->getBackend(c10::DeviceType::CPU).get());
  backend->allgather_coalesced(outputs, inputs, {})->wait();
  for (int r = 0; r < ranks; ++r) {
    EXPECT_TRUE(outputs[r][0].equal(values_of(r, 5, at::kFloat)));
    EXPECT_TRUE(outputs[r][1].equal(values_of(r, 70001, at::kLong)));
  }
}

TEST(ProcessGroup, SubgroupsAndSeveralGroupsAtOnce) {
  const int size = test_job().size(), rank = test_job().rank();
  auto whole = make_process_group(all_ranks(), "whole"), second = make_process_group(all_ranks(), "second");
  // Every pair of neighbours, made by all in the same order.
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> pairs;
  for (int first = 0; first + 1 < size; ++first) {
    auto communicator = test_job().make_communicator({first, first + 1});
    ASSERT_TRUE(communicator.ok());
    pairs.push_back(*communicator ? make_process_group(std::move(*communicator), "pair") : nullptr);
  }
  for (int round = 0; round < 20; ++round) {
    // Ranks enqueue on their groups in different orders: groups don't wait for one another.
    std::vector<at::Tensor> a{at::full({10000}, rank + 1.0)}, b{at::full({1}, rank + 2.0)};
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<std::vector<at::Tensor>> in_pairs(pairs.size());
    const auto on_pairs = [&] {
      for (size_t pair = 0; pair < pairs.size(); ++pair) {
        if (!pairs[pair]) continue;
        in_pairs[pair] = {at::full({3}, 1.0 * rank)};
        works.push_back(pairs[pair]->allreduce(in_pairs[pair]));
      }
    };
    if (rank % 2 == 0) works.push_back(whole->allreduce(a));
    on_pairs();
    works.push_back(second->allreduce(b));
    if (rank % 2 != 0) works.push_back(whole->allreduce(a));
    for (const auto& work : works) work->wait();
    EXPECT_EQ(a[0][9999].item<double>(), size * (size + 1) / 2.0);
    EXPECT_EQ(b[0].item<double>(), size * (size + 1) / 2.0 + size);
    for (size_t pair = 0; pair < pairs.size(); ++pair)
      if (pairs[pair]) {
        EXPECT_EQ(in_pairs[pair][0][2].item<double>(), 2.0 * static_cast<double>(pair) + 1);
      }
  }
}

}  // namespace
}  // namespace millstream::train
