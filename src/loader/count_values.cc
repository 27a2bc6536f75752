#include "loader/count_values.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/progress.h"
#include "base/trace.h"

namespace millstream::loader {
namespace {

// Of one broadcast.
constexpr int64_t kChunkBytes = int64_t{16} << 20;

// Calls work(0 … count - 1) by `threads` threads; the error of the lowest that fails.
template <class Work>
Status for_each(int count, int threads, const Work& work) {
  std::vector<Status> statuses(static_cast<size_t>(count));
  std::atomic<int> next{0};
  const auto run = [&] {
    for (int i = next.fetch_add(1); i < count; i = next.fetch_add(1))
      statuses[static_cast<size_t>(i)] = work(i);
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < std::min(threads, count); ++i) workers.emplace_back(run);
  run();
  for (std::thread& worker : workers) worker.join();
  for (const Status& status : statuses) MILLSTREAM_TRY(status);
  return Status::OK();
}

// Several texts as one, and back.
std::string joined(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    const uint64_t size = text.size();
    bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
    bytes += text;
  }
  return bytes;
}

Result<std::vector<std::string_view>> parted(std::string_view bytes, size_t count) {
  std::vector<std::string_view> texts;
  while (texts.size() < count && bytes.size() >= sizeof(uint64_t)) {
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
    if (size > bytes.size()) break;
    texts.push_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (texts.size() < count || !bytes.empty()) return bug_error("counts of another rank are not readable");
  return texts;
}

}  // namespace

Result<features::CountedValues> count_together(comm::Job& job, PhaseAgreement& phase,
                                               features::ValueCounter& counter,
                                               const features::FitRequest& fit, int threads,
                                               int64_t* spilled_bytes) {
  TraceSpan span("count values");
  const int ranks = job.size();
  // A quarter for what is at hand of the parts; their merge may keep as much.
  features::PartMerge merge(counter.order(), &counter.spill(), counter.memory() / 4);
  counter.finish();
  int64_t distinct = 0;
  // Each rank puts `each` parts of a round together: those from (round * ranks + rank) * each on.
  const int each = std::max(1, std::min(std::max(threads, 4), features::kCountParts / ranks));
  for (int first = 0; first < features::kCountParts; first += ranks * each) {
    beat();
    const int end = std::min(features::kCountParts, first + ranks * each);
    std::vector<std::string> mine(static_cast<size_t>(end - first));
    Status status = for_each(end - first, threads,
                             [&](int i) { return counter.part(first + i, &mine[static_cast<size_t>(i)]); });
    MILLSTREAM_TRY(phase.agree(status));
    std::vector<std::vector<std::string_view>> of_rank;
    std::vector<std::string> gathered;
    if (ranks == 1) {
      of_rank.emplace_back(mine.begin(), mine.end());
    } else {
      MILLSTREAM_ASSIGN(gathered, job.world().allgather_bytes(joined(mine)));
      mine.clear();
      for (const std::string& bytes : gathered) {
        MILLSTREAM_ASSIGN(auto parts, parted(bytes, static_cast<size_t>(end - first)));
        of_rank.push_back(std::move(parts));
      }
    }
    const int my_first = std::min(end, first + job.rank() * each), my_end = std::min(end, my_first + each);
    std::vector<std::string> combined(static_cast<size_t>(my_end - my_first));
    std::vector<int64_t> found(combined.size());
    status = for_each(my_end - my_first, threads, [&](int i) {
      std::vector<std::string_view> records;
      for (const auto& parts : of_rank) records.push_back(parts[static_cast<size_t>(my_first - first + i)]);
      return features::combine_part(records, counter.order(), fit.min_count, fit.max_size,
                                    &combined[static_cast<size_t>(i)], &found[static_cast<size_t>(i)]);
    });
    for (const int64_t count : found) distinct += count;
    MILLSTREAM_TRY(phase.agree(status));
    of_rank.clear();
    gathered.clear();
    if (ranks == 1) {
      for (std::string& records : combined) {
        status = merge.add(std::move(records));
        if (!status.ok()) break;
      }
    } else {
      std::string bytes;
      for (const std::string& records : combined) bytes += joined({records});
      MILLSTREAM_ASSIGN(const auto all, job.world().allgather_bytes(bytes));
      for (int rank = 0; rank < ranks && job.rank() == 0 && status.ok(); ++rank) {
        const int rank_first = std::min(end, first + rank * each),
                  rank_end = std::min(end, rank_first + each);
        auto parts = parted(all[static_cast<size_t>(rank)], static_cast<size_t>(rank_end - rank_first));
        status = parts.status();
        for (size_t i = 0; status.ok() && i < parts->size(); ++i)
          status = merge.add(std::string((*parts)[i]));
      }
    }
    MILLSTREAM_TRY(phase.agree(status));
  }
  counter.clear();
  features::CountedValues values;
  Status status;
  if (job.rank() == 0) {
    auto merged = merge.merged(fit.max_size);
    status = merged.status();
    if (status.ok()) values.values = std::move(*merged);
  }
  if (!status.ok()) status = with_context(status, fmt::format("{} of column '{}'", fit.step, fit.column));
  MILLSTREAM_TRY(phase.agree(status));
  int64_t sums[2] = {distinct, counter.spilled_bytes()};
  MILLSTREAM_TRY(job.world().all_reduce(sums, 2, comm::DataType::kInt64, comm::ReduceOp::kSum));
  values.distinct = sums[0];
  *spilled_bytes = sums[1];
  MILLSTREAM_TRY(broadcast_values(job, &values));
  return values;
}

Status broadcast_values(comm::Job& job, features::CountedValues* values) {
  if (job.size() == 1) return Status::OK();
  int64_t sizes[3] = {values->distinct, 0, 0};
  if (job.rank() == 0) {
    sizes[1] = values->values->size();
    sizes[2] = static_cast<int64_t>(values->values->bytes.size());
  }
  MILLSTREAM_TRY(job.world().broadcast(sizes, sizeof(sizes), 0));
  values->distinct = sizes[0];
  // Rank 0 sends what it has; the others make room for it.
  auto made = std::make_shared<expr::TextList>();
  char* ends = nullptr;
  char* bytes = nullptr;
  if (job.rank() == 0) {
    ends = reinterpret_cast<char*>(const_cast<uint32_t*>(values->values->ends.data()));
    bytes = const_cast<char*>(values->values->bytes.data());
  } else {
    made->ends.resize(static_cast<size_t>(sizes[1]));
    made->bytes.resize(static_cast<size_t>(sizes[2]));
    ends = reinterpret_cast<char*>(made->ends.data());
    bytes = made->bytes.data();
  }
  const auto send = [&](char* data, int64_t size) -> Status {
    for (int64_t at = 0; at < size; at += kChunkBytes)
      MILLSTREAM_TRY(job.world().broadcast(data + at, std::min(kChunkBytes, size - at), 0));
    return Status::OK();
  };
  MILLSTREAM_TRY(send(ends, sizes[1] * static_cast<int64_t>(sizeof(uint32_t))));
  MILLSTREAM_TRY(send(bytes, sizes[2]));
  if (job.rank() != 0) values->values = std::move(made);
  return Status::OK();
}

}  // namespace millstream::loader
