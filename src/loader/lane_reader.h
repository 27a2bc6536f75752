#pragma once
// Rows of entry points one after the other as packed float32 rows, and a lane's windows of them. One thread.
//
// A window is permuted when it is filled: rows are packed a few thousand at a time and put in their places while these
// are in the cache of the core; what is taken from it later is one run of memory. A lane can fill its next window ahead
// of need, a chunk at a time.

#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/trace.h"
#include "features/row_packer.h"
#include "loader/row_source.h"
#include "loader/schedule.h"

namespace millstream::loader {

/// Nanoseconds of one feeding thread, read by others while it runs.
struct FeedingTimes {
  std::atomic<int64_t> reading{0}, computing{0}, sending{0}, for_room{0};
};

/// Adds the time of a scope.
class Timed {
 public:
  explicit Timed(std::atomic<int64_t>& into) : into_(into), began_(monotonic_ns()) {}
  ~Timed() { into_.fetch_add(monotonic_ns() - began_, std::memory_order_relaxed); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  std::atomic<int64_t>& into_;
  int64_t began_;
};

/// Uninitialised memory for packed rows that only grows, so that pages are touched for the first time once.
class RowBuffer {
 public:
  RowBuffer() = default;
  RowBuffer(RowBuffer&& other) noexcept
      : memory_(std::move(other.memory_)), capacity_(std::exchange(other.capacity_, 0)) {}
  RowBuffer& operator=(RowBuffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }
  float* reserve(int64_t floats) {
    if (floats > capacity_) {
      memory_.reset(new (std::align_val_t{64}) float[static_cast<size_t>(floats)]);
      capacity_ = floats;
    }
    return memory_.get();
  }
  float* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<float[], Free> memory_;
  int64_t capacity_ = 0;
};

/// What the readers of one thread share.
struct ReaderScratch {
  ReadScratch read;
  RowBuffer tile;  ///< packed rows on their way to their places
  std::vector<int32_t> permutation;
  std::vector<RowBuffer> spare_windows, spare_chunks;  ///< buffers that nobody uses now
  FeedingTimes times;

  static RowBuffer take(std::vector<RowBuffer>* spare) {
    if (spare->empty()) return {};
    RowBuffer buffer = std::move(spare->back());
    spare->pop_back();
    return buffer;
  }
  static void put(RowBuffer* buffer, std::vector<RowBuffer>* spare) {
    if (buffer->data() != nullptr) spare->push_back(std::move(*buffer));
  }
};

/// What a packed row has (features/row_packer.h), in words.
struct RowShape {
  int features = 0, ids = 0;
  bool weight = false;
  int words() const { return features + 1 + ids + (weight ? 1 : 0); }
};
/// Where the parts of rows go: rows one after the other in each.
struct RowPlaces {
  float* features = nullptr;
  float* targets = nullptr;
  int32_t* ids = nullptr;
  float* weights = nullptr;
  /// The places `rows` further on.
  RowPlaces after(int64_t rows, const RowShape& shape) const {
    return {features + rows * shape.features, targets + rows, shape.ids > 0 ? ids + rows * shape.ids : ids,
            shape.weight ? weights + rows : weights};
  }
};

/// Copies `count` packed rows apart: row i to places[i] of each part, or to i without places.
using SplitRows = void (*)(const float* rows, const int32_t* places, int64_t count, const RowShape& shape,
                           const RowPlaces& to);
SplitRows split_rows_for(const RowShape& shape);

/// The rows of a list of entry points, in that order, not yet packed.
class ChunkReader {
 public:
  ChunkReader(const RowSource& source, const features::RowPacker& packer, std::vector<int> entry_points,
              ReaderScratch* scratch)
      : source_(source), packer_(packer), entry_points_(std::move(entry_points)), scratch_(scratch) {}

  /// Leaves out the next `count` rows: whole entry points unread. There are so many. What it gives are rows read beyond
  /// them that don't come again, to be used at once.
  Result<std::optional<RawRows>> skip(int64_t count);
  /// The next rows, to be used at once. There are some.
  Result<RawRows> next();
  /// The last `count` rows of those last given come again, where the source can do that.
  bool give_again(int64_t count) { return stream_->give_again(count); }
  /// Rows begin … begin + count - 1 of those given, packed to `out`.
  Status pack(const RawRows& rows, int64_t begin, int64_t count, float* out);
  /// No more rows are wanted.
  void close() { stream_.reset(); }

 private:
  const RowSource& source_;
  const features::RowPacker& packer_;
  const std::vector<int> entry_points_;
  ReaderScratch* scratch_;
  size_t next_entry_point_ = 0;
  std::unique_ptr<RowStream> stream_;
};

/// The packed rows of a list of entry points, in that order.
class SequentialReader {
 public:
  SequentialReader(const RowSource& source, const features::RowPacker& packer, std::vector<int> entry_points,
                   ReaderScratch* scratch)
      : packer_(packer), scratch_(scratch), chunks_(source, packer, std::move(entry_points), scratch) {}
  ~SequentialReader() { ReaderScratch::put(&pending_, &scratch_->spare_chunks); }

  /// Leaves out the next `count` rows. There are so many.
  Status skip(int64_t count);
  /// The next `count` rows. There are so many.
  Status take(int64_t count, SplitRows split, const RowShape& shape, RowPlaces to);

 private:
  const features::RowPacker& packer_;
  ReaderScratch* scratch_;
  ChunkReader chunks_;
  RowBuffer pending_;
  int64_t pending_begin_ = 0;
  int64_t pending_end_ = 0;
};

/// A lane of a shuffled pass.
class LaneReader {
 public:
  LaneReader(const RowSource& source, const features::RowPacker& packer, const PassSchedule& schedule,
             int lane, ReaderScratch* scratch)
      : packer_(packer),
        schedule_(schedule),
        lane_(lane),
        scratch_(scratch),
        chunks_(source, packer, schedule.lanes()[lane].entry_points, scratch) {}
  ~LaneReader();

  /// Leaves out the lane's first `count` rows, where nothing is taken yet: whole windows are not packed.
  Status seek(int64_t count);
  /// The lane's next `count` rows in its permuted order.
  Status take(int64_t count, SplitRows split, const RowShape& shape, RowPlaces to);

  /// Whether the window after the one in use can be filled further.
  bool can_prepare() const { return next_.rows == 0 ? !all_windows_begun() : next_.filled < next_.rows; }
  /// Fills it further by a chunk.
  Status prepare(SplitRows split, const RowShape& shape);
  /// Rows that can be taken before another has to be read.
  int64_t ready_rows() const {
    return current_.rows - current_.used + (next_.filled == next_.rows ? next_.rows - next_.used : 0);
  }
  /// No window is left to be filled: a second buffer is no longer needed.
  bool is_read() const { return next_.rows == 0 && all_windows_begun(); }

 private:
  struct Window {
    RowBuffer buffer;  // features of all rows, then targets, ids, weights
    int64_t rows = 0;
    int64_t filled = 0;
    int64_t used = 0;
  };
  bool all_windows_begun() const { return schedule_.window_range(lane_, next_window_).rows() == 0; }
  // Room for the next window of the lane, and where its rows go.
  void begin(Window* window);
  // Packs rows read beyond a window.
  Status keep(const RawRows& rows, int64_t begin);
  // Packs a chunk of rows into it.
  Status fill(Window* window, SplitRows split, const RowShape& shape);
  const features::RowPacker& packer_;
  const PassSchedule& schedule_;
  const int lane_;
  ReaderScratch* scratch_;
  ChunkReader chunks_;
  int64_t next_window_ = 0;  // that begin() takes
  int64_t left_out_ = 0;     // of it
  std::vector<int32_t>
      places_;  // of the window that is being filled: its k-th row read is its row places_[k]
  Window current_, next_;
  RowBuffer pending_;  // packed rows of a chunk that reached into the next window
  int64_t pending_begin_ = 0;
  int64_t pending_end_ = 0;
};

}  // namespace millstream::loader
