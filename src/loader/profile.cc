#include "loader/profile.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/progress.h"
#include "exec/block_source.h"
#include "exec/query.h"
#include "plan/planner.h"

namespace millstream::loader {
namespace {

using features::ColumnProfile;

// Tables of hardly more rows have exact quantiles.
constexpr int64_t kExactRows = int64_t{1} << 16;
constexpr int64_t kSketchCapacity = int64_t{1} << 11;

std::vector<ColumnProfile> new_profiles(const arrow::Schema& schema, int64_t capacity) {
  std::vector<ColumnProfile> profiles;
  for (const auto& field : schema.fields())
    profiles.emplace_back(features::profile_kind(*field->type()), capacity);
  return profiles;
}

Status add_batch(const arrow::RecordBatch& batch, int target, std::vector<ColumnProfile>* profiles) {
  if (batch.num_rows() == 0) return Status::OK();
  features::ColumnValues of_target;
  if (target >= 0) {
    MILLSTREAM_ASSIGN(of_target, features::column_values(*batch.column(target)));
  }
  for (int i = 0; i < batch.num_columns(); ++i) {
    if (i == target) {
      (*profiles)[i].add(of_target, nullptr);
      continue;
    }
    MILLSTREAM_ASSIGN(const auto values, features::column_values(*batch.column(i)));
    (*profiles)[i].add(values, target >= 0 ? &of_target : nullptr);
  }
  return Status::OK();
}

void append_number(std::string& bytes, uint64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}
bool take_number(std::string_view& bytes, uint64_t* number) {
  if (bytes.size() < sizeof(*number)) return false;
  std::memcpy(number, bytes.data(), sizeof(*number));
  bytes.remove_prefix(sizeof(*number));
  return true;
}

// The states of one stretch as bytes; merging always starts from these, so that the way between ranks changes nothing.
std::string encode_stretch(int stretch, const std::vector<ColumnProfile>& profiles) {
  std::string bytes;
  append_number(bytes, static_cast<uint64_t>(stretch));
  append_number(bytes, profiles.size());
  for (const ColumnProfile& profile : profiles) {
    const std::string state = profile.encode();
    append_number(bytes, state.size());
    bytes += state;
  }
  return bytes;
}

struct Stretch {
  uint64_t number = 0;
  std::vector<std::string_view> states;
};

Result<std::vector<Stretch>> decode_stretches(std::string_view bytes) {
  std::vector<Stretch> stretches;
  while (!bytes.empty()) {
    Stretch stretch;
    uint64_t columns = 0;
    bool whole = take_number(bytes, &stretch.number) && take_number(bytes, &columns);
    for (uint64_t i = 0; i < columns && whole; ++i) {
      uint64_t size = 0;
      whole = take_number(bytes, &size) && size <= bytes.size();
      if (!whole) break;
      stretch.states.push_back(bytes.substr(0, size));
      bytes.remove_prefix(size);
    }
    if (!whole) return bug_error("the profile of another rank is not readable");
    stretches.push_back(std::move(stretch));
  }
  return stretches;
}

// The stretches that this rank's threads read.
Result<std::string> read_stretches(const ProfileRequest& request, const exec::BlockSource& source,
                                   int64_t capacity) {
  const int num_entry_points = static_cast<int>(source.table().entry_points().size());
  const int num_stretches = std::min(num_entry_points, kProfileStretches);
  const auto first_of = [&](int stretch) {
    return static_cast<int>(int64_t{stretch} * num_entry_points / std::max(num_stretches, 1));
  };
  const auto read = [&](int stretch, std::string* bytes) -> Status {
    auto profiles = new_profiles(*source.schema(), capacity);
    for (int entry_point = first_of(stretch); entry_point < first_of(stretch + 1); ++entry_point) {
      MILLSTREAM_ASSIGN(auto stream, source.open(entry_point));
      for (;;) {
        MILLSTREAM_ASSIGN(const auto block, stream->next());
        beat();
        if (!block) break;
        MILLSTREAM_TRY(add_batch(*block->rows, request.target, &profiles));
      }
    }
    *bytes += encode_stretch(stretch, profiles);
    return Status::OK();
  };
  const int size = request.job->size();
  std::atomic<int> next{request.job->rank()};
  std::atomic<int> failed{INT32_MAX};
  std::vector<std::string> found(request.threads);
  std::vector<Status> statuses(request.threads);
  const auto work = [&](int thread) {
    for (;;) {
      const int stretch = next.fetch_add(size);
      if (stretch >= num_stretches || stretch > failed.load()) return;
      const Status status = read(stretch, &found[thread]);
      if (status.ok()) continue;
      int lowest = failed.load();
      while (stretch < lowest && !failed.compare_exchange_weak(lowest, stretch)) {
      }
      statuses[thread] = status;
      return;
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < request.threads; ++i) workers.emplace_back(work, i);
  work(0);
  for (std::thread& worker : workers) worker.join();
  Status first;
  std::string all;
  for (int i = 0; i < request.threads; ++i) {
    if (!statuses[i].ok() && (first.ok() || reported_before(statuses[i], 0, first, 0))) first = statuses[i];
    all += found[i];
  }
  MILLSTREAM_TRY(first);
  return all;
}

// Of a query that does not stream: rank 0 gets its rows and cuts them into blocks.
Result<std::string> read_result(const ProfileRequest& request) {
  auto profiles = new_profiles(*request.plan->schema, kSketchCapacity);
  std::vector<std::shared_ptr<arrow::RecordBatch>> waiting;
  int64_t rows = 0;
  const auto flush = [&](int64_t least) -> Status {
    while (rows >= least && rows > 0) {
      MILLSTREAM_ASSIGN(auto table, arrow::Table::FromRecordBatches(request.plan->schema, waiting));
      MILLSTREAM_ASSIGN(auto block, table->Slice(0, plan::kBlockRows)->CombineChunksToBatch());
      MILLSTREAM_TRY(add_batch(*block, request.target, &profiles));
      beat();
      waiting.clear();
      rows = std::max<int64_t>(rows - plan::kBlockRows, 0);
      if (rows == 0) break;
      const auto rest = table->Slice(plan::kBlockRows);
      arrow::TableBatchReader reader(*rest);
      for (;;) {
        MILLSTREAM_ASSIGN(auto batch, reader.Next());
        if (batch == nullptr) break;
        waiting.push_back(std::move(batch));
      }
    }
    return Status::OK();
  };
  exec::QueryRunOptions options;
  options.threads = request.threads;
  options.memory_bytes = request.memory_bytes;
  const auto ran = exec::run_query(request.job, request.plan, options,
                                   [&](const std::shared_ptr<arrow::RecordBatch>& batch) -> Status {
                                     waiting.push_back(batch);
                                     rows += batch->num_rows();
                                     return flush(plan::kBlockRows);
                                   });
  MILLSTREAM_TRY(ran.status());
  MILLSTREAM_TRY(flush(1));
  return request.job->rank() == 0 ? encode_stretch(0, profiles) : std::string();
}

}  // namespace

Result<TableProfile> profile_table(const ProfileRequest& request) {
  comm::Job& job = *request.job;
  set_phase("profile");
  auto pipeline = plan::to_pipeline(request.plan);
  int64_t capacity = kSketchCapacity;
  Result<std::string> mine = std::string();
  if (pipeline.ok()) {
    const exec::BlockSource source(std::move(pipeline).ValueUnsafe());
    int64_t rows = 0;
    for (const plan::EntryPoint& entry : source.table().entry_points())
      rows += entry.rows >= 0 ? entry.rows : entry.bytes / 16;
    if (rows <= kExactRows) capacity = kExactRows;
    mine = read_stretches(request, source, capacity);
  } else {
    mine = read_result(request);
    if (!mine.ok()) job.fail(mine.status());  // the others may wait for rows
  }
  MILLSTREAM_TRY(job.agree(mine.status()));
  MILLSTREAM_ASSIGN(const auto gathered, job.world().allgather_bytes(*mine));
  std::vector<Stretch> stretches;
  for (const std::string& bytes : gathered) {
    MILLSTREAM_ASSIGN(const auto some, decode_stretches(bytes));
    stretches.insert(stretches.end(), some.begin(), some.end());
  }
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.number < b.number; });
  TableProfile profile;
  profile.schema = request.plan->schema;
  profile.target = request.target;
  profile.columns = new_profiles(*profile.schema, capacity);
  for (const Stretch& stretch : stretches) {
    for (size_t i = 0; i < profile.columns.size(); ++i) {
      MILLSTREAM_ASSIGN(const auto state, ColumnProfile::decode(stretch.states[i]));
      profile.columns[i].merge(state);
    }
  }
  if (!profile.columns.empty()) profile.rows = profile.columns[0].rows();
  return profile;
}

}  // namespace millstream::loader
