#pragma once
// Rows of entry points one after the other as packed float32 rows, and a lane's windows of them. One thread.

#include <cstring>
#include <memory>
#include <vector>

#include "features/row_packer.h"
#include "loader/row_source.h"
#include "loader/schedule.h"

namespace millstream::loader {

/// Nanoseconds of one feeding thread, read by others while it runs.
struct FeedingTimes {
  std::atomic<int64_t> reading{0}, computing{0}, sending{0}, for_room{0};
};

/// Uninitialised memory for packed rows that only grows, so that pages are touched for the first time once.
class RowBuffer {
 public:
  float* reserve(int64_t floats) {
    if (floats > capacity_) {
      memory_.reset(new float[floats]);
      capacity_ = floats;
    }
    return memory_.get();
  }
  float* data() const { return memory_.get(); }

 private:
  std::unique_ptr<float[]> memory_;
  int64_t capacity_ = 0;
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

/// Copies `count` packed rows apart; row i is rows[order[i]], or rows[i] without order.
using SplitRows = void (*)(const float* rows, const int32_t* order, int64_t count, const RowShape& shape,
                           const RowPlaces& to);
SplitRows split_rows_for(const RowShape& shape);

/// The packed rows of a list of entry points, in that order.
class SequentialReader {
 public:
  SequentialReader(const RowSource& source, const features::RowPacker& packer, std::vector<int> entry_points,
                   ReadScratch* scratch, FeedingTimes* times)
      : source_(source),
        packer_(packer),
        entry_points_(std::move(entry_points)),
        scratch_(scratch),
        times_(times) {}

  /// Leaves out the next `count` rows: whole entry points unread. There are so many.
  Status skip(int64_t count);
  /// The next `count` rows, to out. There are so many.
  Status fill(int64_t count, float* out);
  /// The same, apart.
  Status split(int64_t count, SplitRows split, const RowShape& shape, RowPlaces to);
  /// The buffer that is kept from one pass to the next.
  RowBuffer& pending() { return pending_; }
  void set_pending(RowBuffer buffer) { pending_ = std::move(buffer); }

 private:
  // Reads the next chunk: into `out` where it has at most `room` rows, else into the pending rows.
  Result<int64_t> next_chunk(int64_t room, float* out);

  const RowSource& source_;
  const features::RowPacker& packer_;
  std::vector<int> entry_points_;
  ReadScratch* scratch_;
  FeedingTimes* times_;
  size_t next_entry_point_ = 0;
  std::unique_ptr<RowStream> stream_;
  RowBuffer pending_;
  int64_t pending_begin_ = 0;
  int64_t pending_end_ = 0;
};

/// A lane of a shuffled pass.
class LaneReader {
 public:
  LaneReader(const RowSource& source, const features::RowPacker& packer, const PassSchedule& schedule,
             int lane, ReadScratch* scratch, FeedingTimes* times)
      : reader_(source, packer, schedule.lanes()[lane].entry_points, scratch, times),
        packer_(packer),
        schedule_(schedule),
        lane_(lane),
        times_(times) {}

  /// Leaves out the lane's first `count` rows, where nothing is taken yet: whole windows are not packed.
  Status seek(int64_t count);
  /// The lane's next `count` rows in its permuted order.
  Status take(int64_t count, SplitRows split, const RowShape& shape, RowPlaces to);

  /// The buffers, kept from one pass to the next.
  struct Buffers {
    RowBuffer window, pending;
    std::vector<int32_t> permutation;
  };
  void set_buffers(Buffers buffers);
  Buffers take_buffers();

 private:
  SequentialReader reader_;
  const features::RowPacker& packer_;
  const PassSchedule& schedule_;
  int lane_;
  FeedingTimes* times_;
  int64_t next_window_ = 0;
  RowBuffer window_;
  std::vector<int32_t> permutation_;
  int64_t used_ = 0;
  int64_t filled_ = 0;
  int64_t left_out_ = 0;  // of the next window
};

}  // namespace millstream::loader
