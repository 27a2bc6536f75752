#include "exec/breakers.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/progress.h"
#include "comm/all_to_all.h"
#include "exec/aggregate.h"
#include "exec/batch_bytes.h"
#include "exec/row_bytes.h"
#include "exec/row_partitions.h"
#include "exec/sort.h"
#include "expr/expression.h"

namespace millstream::exec {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;

constexpr int kPartitions = 256;
constexpr int kSplitParts = 16;  // of a partition that is too large
constexpr int kDeepestSplit = 8;
constexpr int kSampleUnits = 4;
constexpr int64_t kSampleRows = 1024;                  // of each
constexpr int64_t kSplitSampleRows = 1 << 14;          // of a partition that is too large
constexpr int64_t kExchangeBytes = int64_t{32} << 20;  // that a rank sends at a time
constexpr int64_t kMostBytesAtOnce = int64_t{512} << 20;
constexpr int64_t kAlignment = 64;
constexpr std::string_view kGroups = "the groups of an aggregate";
constexpr std::string_view kSortedRows = "the rows of ORDER BY";

// ---- threads over units

// Works on the units of a rank, with threads. The first units may be looked into before.
class UnitWork {
 public:
  UnitWork(QueryContext& context, const Units& units)
      : context_(context), units_(units), mine_(units.of_rank(context.rank(), context.size())) {}

  int threads() const {
    return std::clamp(context_.options.threads, 1, std::max(1, static_cast<int>(mine_.size())));
  }

  struct First {
    Batch rows;
    uint64_t position;
  };

  // The first batches of some units that lie apart; run() still sees them. An error waits until then.
  std::vector<First> first_batches() {
    std::vector<First> batches;
    for (int k = 0; k < kSampleUnits; ++k) {
      const size_t at = mine_.size() * static_cast<size_t>(k) / kSampleUnits;
      if (at >= mine_.size() || opened_.contains(mine_[at])) continue;
      Opened& opened = opened_[mine_[at]];
      opened.status = [&]() -> Status {
        MILLSTREAM_ASSIGN(opened.stream, units_.open(mine_[at]));
        MILLSTREAM_ASSIGN(opened.first, opened.stream->next());
        return Status::OK();
      }();
      if (opened.first != nullptr) batches.push_back({opened.first, first_position(mine_[at])});
      beat();
    }
    return batches;
  }

  // f(thread, batch, position of its first row) for all batches. The failure of the first unit that failed, on this
  // rank.
  template <class F>
  Status run(F&& f) {
    std::atomic<size_t> next = 0;
    std::atomic<bool> failed = false;
    std::mutex mutex;
    std::map<int, Status> failures;  // by unit
    const auto work = [&](int thread) {
      while (!failed) {
        const size_t at = next.fetch_add(1);
        if (at >= mine_.size()) return;
        const Status status = one(mine_[at], thread, f);
        if (status.ok()) continue;
        failed = true;
        std::lock_guard lock(mutex);
        failures.emplace(mine_[at], status);
      }
    };
    run_threads(threads(), work);
    return failures.empty() ? Status::OK() : failures.begin()->second;
  }

  template <class F>
  static void run_threads(int threads, F&& work) {
    std::vector<std::thread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work, i);
    work(0);
    for (auto& worker : workers) worker.join();
  }

 private:
  struct Opened {
    Status status;
    std::unique_ptr<UnitStream> stream;
    Batch first;
  };

  static uint64_t first_position(int unit) { return static_cast<uint64_t>(unit) << 32; }

  template <class F>
  Status one(int unit, int thread, F&& f) {
    Opened opened;
    if (const auto known = opened_.find(unit); known != opened_.end()) {
      opened = std::move(known->second);
      MILLSTREAM_TRY(opened.status);
      if (opened.first == nullptr) return Status::OK();
    } else {
      MILLSTREAM_ASSIGN(opened.stream, units_.open(unit));
    }
    uint64_t position = first_position(unit);
    while (true) {
      Batch batch = std::move(opened.first);
      if (batch == nullptr) {
        MILLSTREAM_ASSIGN(batch, opened.stream->next());
      }
      if (batch == nullptr) return Status::OK();
      if (batch->num_rows() > 0) MILLSTREAM_TRY(f(thread, batch, position));
      position += static_cast<uint64_t>(batch->num_rows());
      beat();
      if (context_.job != nullptr && context_.job->failed()) return context_.job->failure();
    }
  }

  QueryContext& context_;
  const Units& units_;
  const std::vector<int> mine_;
  std::map<int, Opened> opened_;
};

// ---- rows with their positions

constexpr const char* kPositionName = "position";

std::shared_ptr<arrow::Schema> with_position(const arrow::Schema& schema) {
  arrow::FieldVector fields = schema.fields();
  fields.push_back(arrow::field(kPositionName, arrow::uint64(), false));
  return arrow::schema(std::move(fields));
}

Result<Batch> with_position(const Batch& batch, const std::shared_ptr<arrow::Schema>& schema,
                            uint64_t position) {
  const int64_t rows = batch->num_rows();
  MILLSTREAM_ASSIGN(auto buffer, arrow::AllocateBuffer(rows * 8));
  auto* const values = reinterpret_cast<uint64_t*>(buffer->mutable_data());
  for (int64_t i = 0; i < rows; ++i) values[i] = position + static_cast<uint64_t>(i);
  arrow::ArrayVector columns = batch->columns();
  columns.push_back(
      std::make_shared<arrow::UInt64Array>(rows, std::shared_ptr<arrow::Buffer>(std::move(buffer))));
  return arrow::RecordBatch::Make(schema, rows, std::move(columns));
}

// ---- the order that all ranks cut by

struct Cuts {
  std::shared_ptr<const KeyOrder> order;
  std::vector<uint64_t> codes;
};

Result<Cuts> make_cuts(const std::vector<plan::SortKey>& keys, const Batch& sample, int parts) {
  std::vector<uint64_t> codes;
  MILLSTREAM_ASSIGN(auto order, KeyOrder::learn(keys, *sample, &codes));
  return Cuts{std::make_shared<const KeyOrder>(std::move(order)), cuts_of(std::move(codes), parts)};
}

// Some rows of a batch, the columns of the keys alone.
Result<Batch> sample_of(const arrow::RecordBatch& batch, const std::vector<plan::SortKey>& keys,
                        const std::shared_ptr<arrow::Schema>& schema, int64_t most) {
  arrow::ArrayVector columns;
  for (const plan::SortKey& key : keys) columns.push_back(batch.column(key.column));
  const auto projected = arrow::RecordBatch::Make(schema, batch.num_rows(), std::move(columns));
  const int64_t count = std::min(most, batch.num_rows());
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(i * batch.num_rows() / count));
  return expr::take_rows(*projected, rows);
}

std::shared_ptr<arrow::Schema> schema_of_keys(const arrow::Schema& schema,
                                              const std::vector<plan::SortKey>& keys) {
  arrow::FieldVector fields;
  for (size_t k = 0; k < keys.size(); ++k)
    fields.push_back(arrow::field(fmt::format("k{}", k), schema.field(keys[k].column)->type()));
  return arrow::schema(std::move(fields));
}

// From the samples of all ranks: the same everywhere.
Result<Cuts> agree_on_cuts(QueryContext& context, const std::vector<plan::SortKey>& keys,
                           const std::vector<Batch>& batches, const arrow::Schema& schema) {
  const auto key_schema = schema_of_keys(schema, keys);
  const auto sample = [&]() -> Result<Batch> {
    std::vector<Batch> samples;
    for (const Batch& batch : batches) {
      MILLSTREAM_ASSIGN(auto rows, sample_of(*batch, keys, key_schema, kSampleRows));
      samples.push_back(std::move(rows));
    }
    return concatenate(key_schema, samples);
  }();
  MILLSTREAM_TRY(context.agree(sample.status()));
  if (context.size() == 1) return make_cuts(keys, *sample, kPartitions);
  const auto bytes = to_bytes(**sample);
  MILLSTREAM_TRY(context.agree(bytes.status()));
  MILLSTREAM_ASSIGN(const auto messages,
                    context.job->world().allgather_bytes({reinterpret_cast<const char*>((*bytes)->data()),
                                                          static_cast<size_t>((*bytes)->size())}));
  std::vector<Batch> samples;
  for (const std::string& message : messages) {
    MILLSTREAM_ASSIGN(auto rows,
                      from_bytes(key_schema, message.data(), static_cast<int64_t>(message.size())));
    samples.push_back(std::move(rows));
  }
  MILLSTREAM_ASSIGN(const auto all, concatenate(key_schema, samples));
  return make_cuts(keys, all, kPartitions);
}

// ---- rows to the ranks that own their partitions

int owner_of(int partition, int count, int ranks) {
  return static_cast<int>(static_cast<int64_t>(partition) * ranks / count);
}

struct PieceHeader {
  int64_t bytes = 0;
  int64_t partition = 0;
};

// Takes up to `most` bytes of what goes to one rank.
class Outbox {
 public:
  Outbox(const RowPartitions& partitions, int begin, int end)
      : partitions_(partitions), partition_(begin), end_(end) {
    if (partition_ < end_) reader_ = partitions_.read(partition_, plan::kBlockRows);
  }
  bool empty() const { return partition_ >= end_; }

  Result<std::shared_ptr<arrow::Buffer>> take(int64_t most) {
    std::string bytes;
    while (!empty() && static_cast<int64_t>(bytes.size()) < most) {
      MILLSTREAM_ASSIGN(const Batch rows, reader_.next());
      if (rows == nullptr) {
        if (++partition_ < end_) reader_ = partitions_.read(partition_, plan::kBlockRows);
        continue;
      }
      MILLSTREAM_ASSIGN(const auto piece, to_bytes(*rows));
      const PieceHeader header{piece->size(), partition_};
      bytes.append(reinterpret_cast<const char*>(&header), sizeof header);
      bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
      bytes.append(reinterpret_cast<const char*>(piece->data()), static_cast<size_t>(piece->size()));
      bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
    }
    if (bytes.empty()) return nullptr;
    return arrow::Buffer::FromString(std::move(bytes));
  }

 private:
  const RowPartitions& partitions_;
  RowPartitions::Reader reader_;
  int partition_;
  int end_;
};

Status file_pieces(const std::shared_ptr<arrow::Buffer>& buffer, RowPartitions& partitions) {
  for (int64_t at = 0; at < buffer->size();) {
    PieceHeader header;
    std::memcpy(&header, buffer->data() + at, sizeof header);
    at += kAlignment;
    // Rows of their own, so that the whole message does not stay for the sake of a few.
    MILLSTREAM_ASSIGN(auto rows, from_bytes(partitions.schema(), buffer->data() + at, header.bytes));
    MILLSTREAM_TRY(partitions.add(static_cast<int>(header.partition), std::move(rows)));
    at += (header.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return Status::OK();
}

// Afterwards the owner of each partition has all of its rows.
Status exchange_rows(QueryContext& context, RowPartitions& partitions) {
  const int size = context.size(), rank = context.rank(), count = partitions.count();
  if (size == 1) return Status::OK();
  std::vector<Outbox> outboxes;
  for (int other = 0; other < size; ++other) {
    int begin = 0;
    while (begin < count && owner_of(begin, count, size) < other) ++begin;
    int end = begin;
    while (end < count && owner_of(end, count, size) == other) ++end;
    outboxes.emplace_back(partitions, begin, other == rank ? begin : end);
  }
  while (true) {
    std::vector<std::shared_ptr<arrow::Buffer>> outgoing(static_cast<size_t>(size));
    bool more = false;
    const Status taken = [&]() -> Status {
      for (int other = 0; other < size; ++other) {
        if (other == rank) continue;
        MILLSTREAM_ASSIGN(outgoing[static_cast<size_t>(other)],
                          outboxes[static_cast<size_t>(other)].take(kExchangeBytes / size));
        more |= !outboxes[static_cast<size_t>(other)].empty();
      }
      return Status::OK();
    }();
    MILLSTREAM_TRY(context.agree(taken));
    MILLSTREAM_ASSIGN(const auto incoming, comm::all_to_all(*context.job, outgoing));
    Status filed;
    for (const auto& buffer : incoming)
      if (buffer != nullptr && filed.ok()) filed = file_pieces(buffer, partitions);
    MILLSTREAM_TRY(context.agree(filed));
    int64_t any = more ? 1 : 0;
    MILLSTREAM_TRY(context.job->world().all_reduce(&any, 1, comm::DataType::kInt64, comm::ReduceOp::kMax));
    if (any == 0) return Status::OK();
  }
}

// ---- partitions that fit

// The rows of a partition cut into ranges again; null where they are few enough, or nearly all of one key.
Result<std::unique_ptr<RowPartitions>> cut_again(QueryContext& context,
                                                 const std::vector<plan::SortKey>& keys,
                                                 const RowPartitions& rows, int partition, int64_t most_bytes,
                                                 int depth) {
  if (rows.bytes(partition) <= most_bytes || depth == kDeepestSplit) return nullptr;
  const auto key_schema = schema_of_keys(*rows.schema(), keys);
  std::vector<Batch> samples;
  auto reader = rows.read(partition, plan::kBlockRows);
  while (true) {
    MILLSTREAM_ASSIGN(const auto batch, reader.next());
    if (batch == nullptr) break;
    const int64_t wanted = std::max<int64_t>(16, kSplitSampleRows * batch->num_rows() / rows.rows(partition));
    MILLSTREAM_ASSIGN(auto sample, sample_of(*batch, keys, key_schema, wanted));
    samples.push_back(std::move(sample));
  }
  MILLSTREAM_ASSIGN(const auto sample, concatenate(key_schema, samples));
  MILLSTREAM_ASSIGN(auto cuts, make_cuts(keys, sample, kSplitParts));
  if (cuts.codes.empty() || cuts.codes.front() == cuts.codes.back()) return nullptr;
  auto parts =
      std::make_unique<RowPartitions>(rows.schema(), cuts.order, cuts.codes, context.memory, context.spill);
  reader = rows.read(partition, plan::kBlockRows);
  while (true) {
    MILLSTREAM_ASSIGN(const auto batch, reader.next());
    if (batch == nullptr) return parts;
    MILLSTREAM_TRY(parts->add(*batch));
    beat();
  }
}

// What one of the threads that work on partitions may hold of rows. No more than that anyway: the texts of a column in
// one piece have less than 2 GiB.
int64_t most_bytes_at_once(const QueryContext& context) {
  const int64_t budget = context.memory.budget();
  if (budget <= 0) return kMostBytesAtOnce;
  return std::min(kMostBytesAtOnce, budget / (8 * std::max(1, context.options.threads)));
}

// The partitions as units, each made when it is asked for: what is sorted or grouped is never there as a whole.
class PartitionUnits final : public Units {
 public:
  // Appends the rows of a partition, in their order. Any thread, a partition at a time or several.
  using Make = std::function<Status(int partition, std::vector<Batch>& results)>;

  PartitionUnits(std::shared_ptr<arrow::Schema> schema, int count, int64_t morsel_rows, Make make)
      : schema_(std::move(schema)), count_(count), morsel_rows_(morsel_rows), make_(std::move(make)) {}
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  int count() const override { return count_; }
  int owner(int unit, int ranks) const override { return owner_of(unit, count_, ranks); }

  Result<std::unique_ptr<UnitStream>> open(int unit) const override {
    class Stream final : public UnitStream {
     public:
      Stream(std::vector<Batch> batches, int64_t rows) : batches_(std::move(batches)), rows_(rows) {}
      Result<Batch> next() override {
        while (at_ < batches_.size()) {
          Batch& batch = batches_[at_];
          if (row_ >= batch->num_rows()) {
            batch.reset();
            row_ = 0;
            ++at_;
            continue;
          }
          Batch slice = batch->Slice(row_, rows_);
          row_ += rows_;
          return slice;
        }
        return nullptr;
      }

     private:
      std::vector<Batch> batches_;
      const int64_t rows_;
      size_t at_ = 0;
      int64_t row_ = 0;
    };
    std::vector<Batch> results;
    MILLSTREAM_TRY(make_(unit, results));
    beat();
    return std::make_unique<Stream>(std::move(results), morsel_rows_);
  }

 private:
  std::shared_ptr<arrow::Schema> schema_;
  int count_;
  int64_t morsel_rows_;
  Make make_;
};

// ---- grouping

// What one thread does with the rows of an aggregate: it groups them itself while there are few groups. Behind that
// only groups that are there go on where that pays (a key that many rows have), the others to the partitions.
class GroupingThread {
 public:
  GroupingThread(QueryContext& context, const plan::Node& node, std::unique_ptr<Aggregator> groups,
                 int64_t most_groups, int64_t most_bytes)
      : context_(context),
        groups_(std::move(groups)),
        most_groups_(most_groups),
        most_bytes_(most_bytes),
        positions_used_(std::ranges::any_of(
            node.aggregates, [](const plan::AggregateCall& call) { return uses_positions(call.kind); })) {}
  ~GroupingThread() { context_.memory.release(held_); }

  // `partitions` null: there are no keys to cut by.
  Status add(const Batch& batch, uint64_t position, RowPartitions* partitions) {
    // In steps that cannot make the groups grow far over what they may be.
    const int64_t step = std::clamp<int64_t>(most_bytes_ / kBytesOfAGroup, 1024, plan::kBlockRows);
    int64_t at = 0;
    for (; at < batch->num_rows() && !full_; at += step) {
      const Batch rows = step < batch->num_rows() ? batch->Slice(at, step) : batch;
      MILLSTREAM_TRY(groups_->add(*rows, {position + static_cast<uint64_t>(at)}));
      const int64_t now = groups_->memory();
      full_ = partitions != nullptr && (groups_->groups() > most_groups_ || now > most_bytes_);
      MILLSTREAM_TRY(context_.memory.hold(now - held_, kGroups));
      held_ = now;
    }
    if (at >= batch->num_rows()) return Status::OK();
    return deal(at == 0 ? batch : batch->Slice(at), position + static_cast<uint64_t>(at), *partitions);
  }

  bool full() const { return full_; }
  bool positions_used() const { return positions_used_; }
  Aggregator& groups() { return *groups_; }

 private:
  static constexpr int64_t kBytesOfAGroup = 256;  // about

  // Rows that belong to no group that is there go to their partitions.
  Status deal(const Batch& batch, uint64_t position, RowPartitions& partitions) {
    Batch rest = batch;
    if (positions_used_) {
      MILLSTREAM_ASSIGN(rest, with_position(batch, partitions.schema(), position));
    }
    if (looks_up_) {
      std::vector<int32_t> others;
      MILLSTREAM_TRY(groups_->add_known(*batch, {position}, others));
      tried_ += batch->num_rows();
      found_ += batch->num_rows() - static_cast<int64_t>(others.size());
      looks_up_ = 2 * found_ > tried_;
      MILLSTREAM_ASSIGN(rest, expr::take_rows(*rest, others));
    }
    return partitions.add(*rest);
  }

  QueryContext& context_;
  std::unique_ptr<Aggregator> groups_;
  const int64_t most_groups_, most_bytes_;
  const bool positions_used_;
  int64_t held_ = 0;
  bool full_ = false;
  bool looks_up_ = !groups_->has_distinct();
  int64_t tried_ = 0, found_ = 0;
};

// The groups of all ranks, on every rank.
Status merge_ranks(QueryContext& context, Aggregator& groups) {
  if (context.size() == 1) return Status::OK();
  const auto saved = groups.save();
  MILLSTREAM_TRY(context.agree(saved.status()));
  MILLSTREAM_ASSIGN(const auto messages, context.job->world().allgather_bytes(*saved));
  for (int other = 0; other < context.size(); ++other) {
    if (other == context.rank()) continue;
    MILLSTREAM_TRY(groups.merge_saved(messages[static_cast<size_t>(other)]));
    MILLSTREAM_TRY(context.memory.check(groups.memory(), kGroups));
  }
  return Status::OK();
}

// The rows of a partition, and `known`, the groups that threads made of others of its keys, as groups.
Status group_partition(QueryContext& context, const plan::Node& node, const std::vector<plan::SortKey>& keys,
                       const RowPartitions& rows, int partition, bool positions_used,
                       std::unique_ptr<Aggregator> known, int depth, std::vector<Batch>& results) {
  MILLSTREAM_ASSIGN(const auto parts,
                    cut_again(context, keys, rows, partition, most_bytes_at_once(context), depth));
  if (parts != nullptr) {
    MILLSTREAM_ASSIGN(const auto split,
                      known->split(parts->count(), [&](const arrow::RecordBatch& key_rows, auto& places) {
                        return parts->places(key_rows, places);
                      }));
    for (int part = 0; part < parts->count(); ++part) {
      MILLSTREAM_ASSIGN(auto of_part, Aggregator::make(node));
      MILLSTREAM_TRY(of_part->merge(split, part));
      MILLSTREAM_TRY(group_partition(context, node, keys, *parts, part, positions_used, std::move(of_part),
                                     depth + 1, results));
    }
    return Status::OK();
  }
  auto reader = rows.read(partition, plan::kBlockRows);
  while (true) {
    MILLSTREAM_ASSIGN(const auto batch, reader.next());
    if (batch == nullptr) break;
    Positions positions;
    if (positions_used)
      positions.of_row = batch->column_data(batch->num_columns() - 1)->GetValues<uint64_t>(1);
    MILLSTREAM_TRY(known->add(*batch, positions));
    MILLSTREAM_TRY(context.memory.check(known->memory(), kGroups));
    beat();
  }
  MILLSTREAM_ASSIGN(auto groups, known->finish());
  MILLSTREAM_TRY(context.memory.check(bytes_of(*groups), kGroups));
  results.push_back(std::move(groups));
  return Status::OK();
}

// The rows of a partition in order.
Status sort_partition(QueryContext& context, const std::vector<plan::SortKey>& keys,
                      const RowPartitions& partitions, int partition,
                      const std::shared_ptr<arrow::Schema>& schema, int depth, std::vector<Batch>& results) {
  MILLSTREAM_ASSIGN(const auto parts,
                    cut_again(context, keys, partitions, partition, most_bytes_at_once(context), depth));
  if (parts != nullptr) {
    for (int part = 0; part < parts->count(); ++part)
      MILLSTREAM_TRY(sort_partition(context, keys, *parts, part, schema, depth + 1, results));
    return Status::OK();
  }
  auto reader = partitions.read(partition, INT64_MAX);
  MILLSTREAM_ASSIGN(auto rows, reader.next());
  if (rows == nullptr) return Status::OK();
  MILLSTREAM_TRY(context.memory.check(2 * bytes_of(*rows), kSortedRows));
  MILLSTREAM_ASSIGN(rows, sort_rows(rows, keys, -1));
  arrow::ArrayVector columns = rows->columns();
  columns.pop_back();  // the position
  rows = arrow::RecordBatch::Make(schema, rows->num_rows(), std::move(columns));
  results.push_back(std::move(rows));
  return Status::OK();
}

}  // namespace

Result<std::unique_ptr<Units>> grouped_units(QueryContext& context, const plan::Node& node,
                                             std::unique_ptr<Units> input) {
  std::vector<plan::SortKey> keys;
  for (int i = 0; i < node.num_keys; ++i) keys.push_back({i, false, false});
  UnitWork work(context, *input);
  const int threads = work.threads();
  // Every rank merges what all threads of all ranks group themselves.
  const int64_t all_threads = static_cast<int64_t>(std::max(1, context.options.threads)) * context.size();
  const int64_t most_groups =
      std::min(context.options.groups_of_a_thread,
               std::max<int64_t>(1024, 4 * context.options.groups_of_a_thread / all_threads));
  const int64_t most_bytes =
      context.memory.budget() > 0
          ? std::max<int64_t>(context.memory.budget() / (8 * all_threads), context.memory.budget() / 64)
          : INT64_MAX;
  std::vector<std::unique_ptr<GroupingThread>> of_threads;
  for (int i = 0; i < threads; ++i) {
    MILLSTREAM_ASSIGN(auto groups, Aggregator::make(node));
    of_threads.push_back(
        std::make_unique<GroupingThread>(context, node, std::move(groups), most_groups, most_bytes));
  }
  const bool positions_used = of_threads[0]->positions_used();
  std::unique_ptr<RowPartitions> partitions;
  if (!keys.empty()) {
    std::vector<Batch> first;
    for (auto& [rows, position] : work.first_batches()) first.push_back(rows);
    MILLSTREAM_ASSIGN(auto cuts, agree_on_cuts(context, keys, first, *input->schema()));
    const auto schema = positions_used ? with_position(*input->schema()) : input->schema();
    partitions = std::make_unique<RowPartitions>(schema, std::move(cuts.order), std::move(cuts.codes),
                                                 context.memory, context.spill);
  }
  const Status added = work.run([&](int thread, const Batch& batch, uint64_t position) {
    return of_threads[static_cast<size_t>(thread)]->add(batch, position, partitions.get());
  });
  MILLSTREAM_TRY(context.agree(added));

  // In the order of threads and ranks, which is any order: states are exact.
  Aggregator& all = of_threads[0]->groups();
  Status merged;
  int64_t full = of_threads[0]->full() ? 1 : 0;
  for (size_t i = 1; i < of_threads.size() && merged.ok(); ++i) {
    full |= of_threads[i]->full() ? 1 : 0;
    merged = all.merge(of_threads[i]->groups());
    if (merged.ok()) merged = context.memory.check(all.memory(), kGroups);
  }
  MILLSTREAM_TRY(context.agree(merged));
  MILLSTREAM_TRY(merge_ranks(context, all));
  if (context.size() > 1) {
    MILLSTREAM_TRY(context.job->world().all_reduce(&full, 1, comm::DataType::kInt64, comm::ReduceOp::kMax));
  }
  if (full == 0) {
    MILLSTREAM_ASSIGN(auto groups, all.finish());
    MILLSTREAM_TRY(context.memory.hold(bytes_of(*groups), kGroups));
    return units_of_batches(node.schema, {std::move(groups)}, context.options.morsel_rows);
  }

  MILLSTREAM_TRY(exchange_rows(context, *partitions));
  // Kept while partitions are made into groups.
  struct State {
    std::vector<std::unique_ptr<GroupingThread>> threads;
    std::unique_ptr<RowPartitions> partitions;
    Aggregator::Split known;
  };
  auto split = all.split(partitions->count(), [&](const arrow::RecordBatch& rows, auto& places) {
    return partitions->places(rows, places);
  });
  MILLSTREAM_TRY(context.agree(split.status()));
  const int count = partitions->count();
  const auto state = std::make_shared<State>(
      State{std::move(of_threads), std::move(partitions), std::move(split).ValueUnsafe()});
  return std::make_unique<PartitionUnits>(
      node.schema, count, context.options.morsel_rows,
      [&context, &node, keys, positions_used, state](int partition, std::vector<Batch>& results) -> Status {
        MILLSTREAM_ASSIGN(auto groups, Aggregator::make(node));
        MILLSTREAM_TRY(groups->merge(state->known, partition));
        return group_partition(context, node, keys, *state->partitions, partition, positions_used,
                               std::move(groups), 0, results);
      });
}

Result<std::unique_ptr<Units>> sorted_units(QueryContext& context, const std::vector<plan::SortKey>& keys,
                                            std::unique_ptr<Units> input) {
  const auto schema = input->schema();
  const auto positioned = with_position(*schema);
  // Equal rows by their positions, so that no two are equal.
  std::vector<plan::SortKey> order = keys;
  order.push_back({schema->num_fields(), false, false});
  UnitWork work(context, *input);
  std::vector<Batch> first;
  for (const auto& [rows, position] : work.first_batches()) {
    MILLSTREAM_ASSIGN(auto with, with_position(rows, positioned, position));
    first.push_back(std::move(with));
  }
  MILLSTREAM_ASSIGN(auto cuts, agree_on_cuts(context, order, first, *positioned));
  const auto partitions = std::make_shared<RowPartitions>(
      positioned, std::move(cuts.order), std::move(cuts.codes), context.memory, context.spill);
  MILLSTREAM_TRY(context.agree(work.run([&](int, const Batch& batch, uint64_t position) -> Status {
    MILLSTREAM_ASSIGN(const auto rows, with_position(batch, positioned, position));
    return partitions->add(*rows);
  })));
  MILLSTREAM_TRY(exchange_rows(context, *partitions));
  return std::make_unique<PartitionUnits>(
      schema, partitions->count(), context.options.morsel_rows,
      [&context, order, partitions, schema](int partition, std::vector<Batch>& results) {
        return sort_partition(context, order, *partitions, partition, schema, 0, results);
      });
}

}  // namespace millstream::exec
