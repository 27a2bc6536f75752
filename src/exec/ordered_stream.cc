#include "exec/ordered_stream.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/progress.h"
#include "exec/row_bytes.h"

namespace millstream::exec {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;

constexpr size_t kBatchesAhead = 4;  // of each unit

// The units of this rank, made by its threads in ascending order and taken in ascending order.
class Producers {
 public:
  Producers(const Units& units, comm::Job* job, int rank, int size, int threads)
      : units_(units), job_(job), mine_(units.of_rank(rank, size)), ahead_(static_cast<size_t>(threads) + 1) {
    for (int i = 0; i < std::min(threads, static_cast<int>(mine_.size())); ++i)
      threads_.emplace_back([this] { work(); });
  }
  ~Producers() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  // The next batch of `unit`, null at its end. Units are asked for in order.
  Result<Batch> take(int unit) {
    std::unique_lock lock(mutex_);
    Made& made = made_[unit];
    while (made.batches.empty() && !made.ended) {
      // A failure of another rank wakes nobody here.
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (job_ != nullptr && job_->failed()) return job_->failure();
    }
    if (!made.batches.empty()) {
      Batch batch = std::move(made.batches.front());
      made.batches.pop_front();
      lock.unlock();
      changed_.notify_all();
      return batch;
    }
    const Status status = made.status;
    made_.erase(unit);
    ++head_;
    lock.unlock();
    changed_.notify_all();
    MILLSTREAM_TRY(status);
    return nullptr;
  }

 private:
  struct Made {
    std::deque<Batch> batches;
    bool ended = false;
    Status status;
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (next_ == mine_.size()) return;
      if (next_ >= head_ + ahead_) {
        changed_.wait(lock);
        continue;
      }
      const int unit = mine_[next_++];
      lock.unlock();
      const Status status = make(unit);
      lock.lock();
      Made& made = made_[unit];
      made.ended = true;
      made.status = status;
      changed_.notify_all();
    }
  }

  Status make(int unit) {
    MILLSTREAM_ASSIGN(auto stream, units_.open(unit));
    while (true) {
      MILLSTREAM_ASSIGN(auto batch, stream->next());
      if (batch == nullptr) return Status::OK();
      if (batch->num_rows() == 0) continue;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || made_[unit].batches.size() < kBatchesAhead; });
      if (stop_) return Status::OK();
      made_[unit].batches.push_back(std::move(batch));
      changed_.notify_all();
    }
  }

  const Units& units_;
  comm::Job* job_;
  const std::vector<int> mine_;
  const size_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Made> made_;
  size_t next_ = 0;  // of mine_, to be made next
  size_t head_ = 0;  // of mine_, to be taken next
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// What a unit's rank sends: 'B', the number of rows and the batch; 'E' at the unit's end; '-' and an error.
std::string end_message(const Status& status) {
  return status.ok() ? "E" : "-" + encode_status(status);
}

Result<std::string> batch_message(const Batch& batch) {
  std::string message = "B";
  const int64_t rows = batch->num_rows();
  message.append(reinterpret_cast<const char*>(&rows), sizeof rows);
  MILLSTREAM_ASSIGN(const auto bytes, to_bytes(*batch));
  message.append(reinterpret_cast<const char*>(bytes->data()), static_cast<size_t>(bytes->size()));
  return message;
}

Result<Batch> read_batch(const std::shared_ptr<arrow::Schema>& schema, const std::string& message) {
  constexpr size_t kHead = 1 + sizeof(int64_t);
  return from_bytes(schema, message.data() + kHead, static_cast<int64_t>(message.size() - kHead));
}

// Counts rows against offset and limit.
class Window {
 public:
  Window(int64_t limit, int64_t offset) : left_(limit), skip_(offset) {}
  bool full() const { return left_ == 0; }
  // Which of the next `rows` rows count: first, number.
  std::pair<int64_t, int64_t> take(int64_t rows) {
    const int64_t first = std::min(skip_, rows);
    skip_ -= first;
    int64_t count = rows - first;
    if (left_ >= 0) {
      count = std::min(count, left_);
      left_ -= count;
    }
    taken_ += count;
    return {first, count};
  }
  int64_t taken() const { return taken_; }

 private:
  int64_t left_;
  int64_t skip_;
  int64_t taken_ = 0;
};

}  // namespace

Result<int64_t> stream_in_order(comm::Job* job, const Units& units, const OrderedStreamOptions& options,
                                const BatchConsumer& consume) {
  const int rank = job == nullptr ? 0 : job->rank();
  const int size = job == nullptr ? 1 : job->size();
  Window window(options.limit, options.offset);
  if (window.full()) return 0;
  Producers producers(units, job, rank, size, options.threads);
  for (int unit = 0; unit < units.count(); ++unit) {
    const int owner = units.owner(unit, size);
    bool unit_ended = false;
    while (!unit_ended && !window.full()) {
      Batch batch;
      Status status;
      std::string message;
      if (owner == rank) {
        auto taken = producers.take(unit);
        status = taken.status();
        if (taken.ok()) batch = *std::move(taken);
        unit_ended = status.ok() && batch == nullptr;
      }
      int64_t rows = batch == nullptr ? 0 : batch->num_rows();
      if (size > 1) {
        if (owner == rank) {
          Result<std::string> made = end_message(status);
          if (batch != nullptr) made = batch_message(batch);
          message = made.ok() ? *std::move(made) : end_message(made.status());
        }
        MILLSTREAM_ASSIGN(message, job->world().broadcast_bytes(message, owner));
        if (message.empty()) return bug_error("the rank of unit {} sent nothing", unit);
        if (message[0] == '-') return decode_status(std::string_view(message).substr(1));
        unit_ended = message[0] == 'E';
        if (!unit_ended) std::memcpy(&rows, message.data() + 1, sizeof rows);
      }
      MILLSTREAM_TRY(status);
      if (unit_ended) break;
      beat();
      const auto [first, count] = window.take(rows);
      if (count == 0 || (!options.everywhere && rank != 0)) continue;
      if (batch == nullptr) {
        MILLSTREAM_ASSIGN(batch, read_batch(units.schema(), message));
      }
      if (count < rows) batch = batch->Slice(first, count);
      MILLSTREAM_TRY(consume(batch));
    }
    if (window.full()) break;
  }
  return window.taken();
}

}  // namespace millstream::exec
