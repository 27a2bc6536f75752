#pragma once
// The job: all ranks of one run, however they were started (one process; our supervisor; mpirun; srun).
//
// Contract
// 1. One Job a process. start() and finish() are called by every rank, from the main thread.
// 2. A rank that fails calls fail(status) (any thread) or hands its status to agree(). fail() wakes every
// wait
//    of every rank; those return a kPeerFailed error. Nobody leaves before the agreement that ends the phase:
//    the main thread of every rank then calls agree(), and all get the same one status.
// 3. Every wait ends: by what it waits for, by a peer's failure, or by the watchdog (comm/watchdog.h), which
//    prints the phase and the missing ranks and ends the process with code 4 when for `deadline_s` seconds a
//    rank shows no life, or nothing in the job makes progress.
// 4. On one host ranks talk through shared memory and futexes; MPI is used at the start and the end and
// between
//    hosts. One thread a rank (comm/message_engine.h) calls MPI once started, nonblocking only.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/topology.h"

namespace arrow {
class Buffer;
}

namespace millstream::comm {

class SharedMemory;
class MessageEngine;
class Job;
Status wait_while_equal(Job& job, const std::atomic<uint32_t>& word, uint32_t expected);

struct JobOptions {
  double deadline_s = 300;
  /// Treat ranks of one host as if they were on hosts of their own (tests of the path between hosts).
  bool force_messages = false;
};

class Job {
 public:
  /// Joins the ranks of the launcher that started this process; without one, a job of one rank that never
  /// calls MPI. A launcher whose MPI is not the one compiled in is an error that says what to do instead.
  static Result<std::unique_ptr<Job>> start(const JobOptions& options);
  ~Job();

  int rank() const;
  int size() const;
  /// Control collectives of all ranks, from the main thread.
  Communicator& world();
  /// Hosts, local ranks, devices: the same on every rank.
  const Topology& topology() const;

  /// A communicator of the given ranks (ascending, the same list on every rank of the world; those not in it
  /// get null). Collective over the world. Each has its own channel: several may be used at once.
  Result<std::unique_ptr<Communicator>> make_communicator(const std::vector<int>& ranks);

  /// Memory that all ranks of this host map (zeroed, page-aligned), space reserved first; already unlinked
  /// when this returns. Collective over the ranks of the host, sizes equal. An error (on all of them) says
  /// what room the shared-memory file system has and what was asked. A rank alone on its host (always so with
  /// force_messages) gets memory of its own.
  Result<std::unique_ptr<SharedMemory>> make_shared_memory(int64_t bytes);
  /// The ranks that share memory with this one, ascending, this one among them.
  const std::vector<int>& node_ranks() const;

  /// Point-to-point messages between ranks that share no memory.
  MessageEngine& messages();

  /// This rank can't go on. Any thread, any number of times; the first counts. Returns at once.
  void fail(const Status& status);
  /// True once any rank failed. Cheap: waits poll it when woken.
  bool failed() const;
  /// The kPeerFailed error that interrupted waits return (or this rank's own failure).
  Status failure() const;

  /// One status for all: OK when every rank brought OK, else the one reported_before() the others. Every
  /// rank, main thread. Works also after fail().
  Status agree(const Status& mine);

  /// After an agreement that ended in an error: forgets the failure, so that the job can be used again.
  /// Collective over the world, main thread; nothing of the job may be in use. Communicators made by
  /// make_communicator() must be made anew. For tests and for programs that try again.
  void clear_failure();

  /// Leaves the job: agrees on `mine` (once a rank is here with an error, the agreements that other ranks may still
  /// meet on their way out return what was agreed on, at once), shuts MPI down in order (also after failures, within seconds), tells
  /// the supervisor. Returns what all agreed on. Nothing else of the job may be used afterwards.
  Status finish(const Status& mine);

 private:
  friend Status wait_while_equal(Job& job, const std::atomic<uint32_t>& word, uint32_t expected);
  friend Result<std::vector<std::shared_ptr<arrow::Buffer>>> all_to_all(
      Job& job, const std::vector<std::shared_ptr<arrow::Buffer>>& outgoing);
  struct State;
  explicit Job(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A futex wait on a word in shared or private memory, until `word` != `expected`, or the job failed (its
/// failure()). Counts as waiting for the watchdog. `word` must be woken by futex_wake_all on change; a
/// failure is noticed within 100 ms at most.
Status wait_while_equal(Job& job, const std::atomic<uint32_t>& word, uint32_t expected);

class SharedMemory {
 public:
  ~SharedMemory();
  uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  friend class Job;
  SharedMemory(uint8_t* data, int64_t size) : data_(data), size_(size) {}
  uint8_t* data_;
  int64_t size_;
};

}  // namespace millstream::comm
