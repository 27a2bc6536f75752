#include "loader/row_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu_share.h"
#include "base/trace.h"
#include "loader/lane_reader.h"

namespace millstream::loader {
namespace {

// A file of `bytes` bytes; -1 and the reason where there is none.
Result<int> create_file(const std::string& directory, int64_t bytes, std::string* path) {
  if (directory.empty()) {
    const int file = ::memfd_create("millstream-all-rows", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, bytes) != 0) {
      const std::string reason = std::strerror(errno);
      if (file >= 0) ::close(file);
      return file_error("no memory for {} of prepared rows: {}", format_bytes(bytes), reason);
    }
    *path = fmt::format("/proc/{}/fd/{}", ::getpid(), file);
    return file;
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  *path = directory + "/all-rows-XXXXXX";
  const int file = ::mkostemp(path->data(), O_CLOEXEC);
  if (file < 0) {
    return file_error(
        "prepared rows can't be written to {}: {}; give another place with --cache or $MILLSTREAM_CACHE",
        directory, std::strerror(errno));
  }
  // Reserved, so that a full disk is an error here and no signal later.
  if (const int reason = ::posix_fallocate(file, 0, bytes); reason != 0) {
    ::unlink(path->c_str());
    ::close(file);
    return file_error(
        "shuffle = \"full\" needs {} in {} for prepared rows: {}; give another place with --cache or "
        "$MILLSTREAM_CACHE, or take shuffle = \"window\"",
        format_bytes(bytes), directory, std::strerror(reason));
  }
  return file;
}

// Rows ahead that a gather asks the cache for: as many as it can have under way.
constexpr int64_t kPrefetchDistance = 16;

// With the number of features known to the compiler a row is a few vector moves.
template <int kFeatures>
void gather_rows(const float* store, const int64_t* rows, int64_t count, const RowShape& shape,
                 const RowPlaces& to) {
  const int64_t width = kFeatures ? kFeatures : shape.features;
  const int64_t stride = width + 1;
  const size_t bytes = static_cast<size_t>(width) * sizeof(float);
  for (int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchDistance < count) {
      const float* const ahead = store + rows[i + kPrefetchDistance] * stride;
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + width);
    }
    const float* const row = store + rows[i] * stride;
    std::memcpy(to.features + i * width, row, kFeatures ? kFeatures * sizeof(float) : bytes);
    to.targets[i] = row[width];
  }
}

// Rows with ids or a weight.
void gather_mixed(const float* store, const int64_t* rows, int64_t count, const RowShape& shape,
                  const RowPlaces& to) {
  const int64_t stride = shape.words();
  const SplitRows split = split_rows_for(shape);
  for (int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchDistance < count) {
      const float* const ahead = store + rows[i + kPrefetchDistance] * stride;
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + stride - 1);
    }
    split(store + rows[i] * stride, nullptr, 1, shape, to.after(i, shape));
  }
}

template <int... kFeatures>
GatherRows pick(int num_features, std::integer_sequence<int, kFeatures...>) {
  constexpr std::array<GatherRows, sizeof...(kFeatures)> kTable = {gather_rows<kFeatures>...};
  return num_features < static_cast<int>(kTable.size()) ? kTable[static_cast<size_t>(num_features)]
                                                        : gather_rows<0>;
}

}  // namespace

GatherRows gather_rows_for(const RowShape& shape) {
  if (shape.ids > 0 || shape.weight) return gather_mixed;
  return pick(shape.features, std::make_integer_sequence<int, 33>());
}

RowStore::~RowStore() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
}

Result<std::unique_ptr<RowStore>> RowStore::make(comm::Job& job, int64_t floats,
                                                 const std::string& directory) {
  const int64_t bytes = std::max<int64_t>(1, floats) * static_cast<int64_t>(sizeof(float));
  Status status;
  std::string path;
  int file = -1;
  if (job.rank() == 0) {
    auto created = create_file(directory, bytes, &path);
    status = created.status();
    if (status.ok()) {
      file = *created;
    } else {
      path.clear();
    }
  }
  auto shared = job.world().broadcast_bytes(path, 0);
  if (shared.ok() && job.rank() != 0) {
    path = *shared;
    if (path.empty()) {
      status =
          failed_error("rank 0 has no place for prepared rows");  // its own error is the one that is told
      status = with_category(status, ErrorCategory::kPeerFailed);
    } else if ((file = ::open(path.c_str(), O_RDWR | O_CLOEXEC)) < 0) {
      status =
          file_error("rank {} can't open the prepared rows of rank 0: {}", job.rank(), std::strerror(errno));
    }
  }
  std::unique_ptr<RowStore> store;
  if (status.ok()) status = shared.status();
  if (status.ok()) {
    void* const memory =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
      status =
          file_error("{} of prepared rows can't be mapped: {}", format_bytes(bytes), std::strerror(errno));
    } else {
      store.reset(new RowStore(static_cast<float*>(memory), bytes));
    }
  }
  // Until all have it open: a barrier that a failing rank passes too.
  uint8_t mine = status.ok();
  const Status together = job.world().all_reduce(&mine, 1, comm::DataType::kUInt8, comm::ReduceOp::kMin);
  if (job.rank() == 0 && !directory.empty() && !path.empty()) ::unlink(path.c_str());
  if (file >= 0) ::close(file);
  MILLSTREAM_TRY(status);
  MILLSTREAM_TRY(together);
  return store;
}

Status RowStore::fill(comm::Job& job, const RowSource& source, const features::RowPacker& packer,
                      int threads) {
  const std::vector<int64_t>& counts = source.counts();
  std::vector<int64_t> first = {0};
  for (const int64_t rows : counts) first.push_back(first.back() + rows);
  std::atomic<size_t> next{static_cast<size_t>(job.rank())};
  std::mutex mutex;  // of status
  Status status;
  const auto work = [&] {
    TraceSpan span("pack all rows");
    ReaderScratch scratch;
    const auto pack = [&](int entry_point) -> Status {
      ChunkReader reader(source, packer, {entry_point}, &scratch);
      int64_t row = first[entry_point];
      while (row < first[entry_point + 1]) {
        if (job.failed()) return job.failure();
        MILLSTREAM_ASSIGN(const RawRows rows, reader.next());
        MILLSTREAM_TRY(reader.pack(rows, 0, rows.count, data_ + row * packer.row_floats()));
        row += rows.count;
      }
      return Status::OK();
    };
    for (;;) {
      const size_t entry_point = next.fetch_add(static_cast<size_t>(job.size()));
      if (entry_point >= counts.size()) return;
      const Status packed = pack(static_cast<int>(entry_point));
      if (packed.ok()) continue;
      std::lock_guard lock(mutex);
      if (status.ok() || reported_before(packed, 0, status, 0)) status = packed;
      return;
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
  return status;
}

}  // namespace millstream::loader
