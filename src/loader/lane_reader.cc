#include "loader/lane_reader.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "base/progress.h"
#include "base/trace.h"

namespace millstream::loader {
namespace {

// Rows ahead that a gather asks the cache for.
constexpr int64_t kPrefetchDistance = 12;

// With the number of features known to the compiler a row is a few vector moves.
template <int kFeatures>
void split_rows(const float* rows, const int32_t* order, int64_t count, const RowShape& shape,
                const RowPlaces& to) {
  float* const features = to.features;
  float* const targets = to.targets;
  const int64_t width = kFeatures ? kFeatures : shape.features;
  const int64_t stride = width + 1;
  const size_t bytes = width * sizeof(float);
  if (order == nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      const float* row = rows + i * stride;
      std::memcpy(features + i * width, row, kFeatures ? kFeatures * sizeof(float) : bytes);
      targets[i] = row[width];
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchDistance < count) {
      const float* ahead = rows + order[i + kPrefetchDistance] * stride;
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + width);
    }
    const float* row = rows + order[i] * stride;
    std::memcpy(features + i * width, row, kFeatures ? kFeatures * sizeof(float) : bytes);
    targets[i] = row[width];
  }
}

// Rows with ids or a weight.
void split_mixed(const float* rows, const int32_t* order, int64_t count, const RowShape& shape,
                 const RowPlaces& to) {
  const int64_t stride = shape.words();
  const size_t width = static_cast<size_t>(shape.features), ids = static_cast<size_t>(shape.ids);
  for (int64_t i = 0; i < count; ++i) {
    if (order != nullptr && i + kPrefetchDistance < count) {
      const float* ahead = rows + order[i + kPrefetchDistance] * stride;
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + stride - 1);
    }
    const float* row = rows + (order != nullptr ? order[i] : i) * stride;
    if (width > 0) std::memcpy(to.features + static_cast<size_t>(i) * width, row, width * sizeof(float));
    to.targets[i] = row[width];
    if (ids > 0) std::memcpy(to.ids + static_cast<size_t>(i) * ids, row + width + 1, ids * sizeof(int32_t));
    if (shape.weight) to.weights[i] = row[stride - 1];
  }
}

template <int... kFeatures>
SplitRows pick(int num_features, std::integer_sequence<int, kFeatures...>) {
  constexpr std::array<SplitRows, sizeof...(kFeatures)> kTable = {split_rows<kFeatures>...};
  return num_features < static_cast<int>(kTable.size()) ? kTable[num_features] : split_rows<0>;
}

}  // namespace

SplitRows split_rows_for(const RowShape& shape) {
  if (shape.ids > 0 || shape.weight) return split_mixed;
  return pick(shape.features, std::make_integer_sequence<int, 33>());
}

Result<int64_t> SequentialReader::next_chunk(int64_t room, float* out) {
  for (;;) {
    int64_t began = monotonic_ns();
    if (stream_ == nullptr) {
      MILLSTREAM_CHECK(next_entry_point_ < entry_points_.size(), "a lane has fewer rows than its schedule");
      MILLSTREAM_ASSIGN(stream_, source_.open(entry_points_[next_entry_point_++], scratch_));
    }
    MILLSTREAM_ASSIGN(auto rows, stream_->next());
    const int64_t read = monotonic_ns();
    times_->reading.fetch_add(read - began, std::memory_order_relaxed);
    beat();
    if (!rows) {
      stream_.reset();
      continue;
    }
    float* to = out;
    if (rows->count > room) {
      to = pending_.reserve(rows->count * packer_.row_floats());
      pending_begin_ = 0;
      pending_end_ = rows->count;
    }
    const Status status = packer_.pack(*rows->batch, rows->rows, rows->count, to);
    times_->computing.fetch_add(monotonic_ns() - read, std::memory_order_relaxed);
    if (!status.ok()) return stream_->locate(status);
    return to == out ? rows->count : 0;
  }
}

Status SequentialReader::skip(int64_t count) {
  while (count > 0) {
    if (pending_begin_ < pending_end_) {
      const int64_t got = std::min(count, pending_end_ - pending_begin_);
      pending_begin_ += got;
      count -= got;
      continue;
    }
    if (stream_ == nullptr) {
      MILLSTREAM_CHECK(next_entry_point_ < entry_points_.size(), "a lane has fewer rows than its schedule");
      const int64_t rows = source_.counts()[entry_points_[next_entry_point_]];
      if (rows <= count) {
        count -= rows;
        ++next_entry_point_;
        continue;
      }
      MILLSTREAM_ASSIGN(stream_, source_.open(entry_points_[next_entry_point_++], scratch_));
    }
    const int64_t began = monotonic_ns();
    MILLSTREAM_ASSIGN(auto rows, stream_->next());
    times_->reading.fetch_add(monotonic_ns() - began, std::memory_order_relaxed);
    beat();
    MILLSTREAM_CHECK(rows, "an entry point has fewer rows than its count");
    if (rows->count > count) {
      const Status status = packer_.pack(*rows->batch, rows->rows, rows->count,
                                         pending_.reserve(rows->count * packer_.row_floats()));
      if (!status.ok()) return stream_->locate(status);
      pending_begin_ = 0;
      pending_end_ = rows->count;
    } else {
      count -= rows->count;
    }
  }
  return Status::OK();
}

Status SequentialReader::fill(int64_t count, float* out) {
  const int row_floats = packer_.row_floats();
  while (count > 0) {
    int64_t got = 0;
    if (pending_begin_ < pending_end_) {
      got = std::min(count, pending_end_ - pending_begin_);
      std::memcpy(out, pending_.data() + pending_begin_ * row_floats, got * packer_.row_bytes());
      pending_begin_ += got;
    } else {
      MILLSTREAM_ASSIGN(got, next_chunk(count, out));
    }
    out += got * row_floats;
    count -= got;
  }
  return Status::OK();
}

Status SequentialReader::split(int64_t count, SplitRows split, const RowShape& shape, RowPlaces to) {
  while (count > 0) {
    if (pending_begin_ == pending_end_) {
      MILLSTREAM_ASSIGN(const int64_t direct, next_chunk(0, nullptr));
      MILLSTREAM_CHECK(direct == 0);
    }
    const int64_t got = std::min(count, pending_end_ - pending_begin_);
    const int64_t began = monotonic_ns();
    split(pending_.data() + pending_begin_ * packer_.row_floats(), nullptr, got, shape, to);
    times_->sending.fetch_add(monotonic_ns() - began, std::memory_order_relaxed);
    pending_begin_ += got;
    to = to.after(got, shape);
    count -= got;
  }
  return Status::OK();
}

Status LaneReader::seek(int64_t count) {
  if (count >= schedule_.lanes()[lane_].rows) return Status::OK();  // nothing is going to be taken
  while (schedule_.window_range(lane_, next_window_).end <= count) ++next_window_;
  const int64_t begin = schedule_.window_range(lane_, next_window_).begin;
  left_out_ = count - begin;
  return reader_.skip(begin);
}

Status LaneReader::take(int64_t count, SplitRows split, const RowShape& shape, RowPlaces to) {
  while (count > 0) {
    if (used_ == filled_) {
      const int64_t rows = schedule_.window_range(lane_, next_window_).rows();
      MILLSTREAM_CHECK(rows > 0, "a lane has fewer windows than its schedule");
      const int64_t began = monotonic_ns();
      schedule_.window_permutation(lane_, next_window_++, &permutation_);
      times_->computing.fetch_add(monotonic_ns() - began, std::memory_order_relaxed);
      MILLSTREAM_TRY(reader_.fill(rows, window_.reserve(rows * packer_.row_floats())));
      used_ = std::exchange(left_out_, 0);
      filled_ = rows;
    }
    const int64_t got = std::min(count, filled_ - used_);
    const int64_t began = monotonic_ns();
    split(window_.data(), permutation_.data() + used_, got, shape, to);
    times_->sending.fetch_add(monotonic_ns() - began, std::memory_order_relaxed);
    used_ += got;
    to = to.after(got, shape);
    count -= got;
  }
  return Status::OK();
}

void LaneReader::set_buffers(Buffers buffers) {
  window_ = std::move(buffers.window);
  permutation_ = std::move(buffers.permutation);
  reader_.set_pending(std::move(buffers.pending));
}

LaneReader::Buffers LaneReader::take_buffers() {
  return {std::move(window_), std::move(reader_.pending()), std::move(permutation_)};
}

}  // namespace millstream::loader
