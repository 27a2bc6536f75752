#include "loader/lane_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/progress.h"

namespace millstream::loader {
namespace {

// Rows packed at a time on their way to their places: few enough to stay in the cache of the core beside a window of
// a lane and the columns they are made of.
constexpr int64_t kTileRows = 4096;
// Rows ahead that a scatter asks the cache for.
constexpr int64_t kPrefetchDistance = 24;

// With the number of features known to the compiler a row is a few vector moves.
template <int kFeatures>
void split_rows(const float* rows, const int32_t* places, int64_t count, const RowShape& shape,
                const RowPlaces& to) {
  float* const features = to.features;
  float* const targets = to.targets;
  const int64_t width = kFeatures ? kFeatures : shape.features;
  const int64_t stride = width + 1;
  const size_t bytes = width * sizeof(float);
  if (places == nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      const float* row = rows + i * stride;
      std::memcpy(features + i * width, row, kFeatures ? kFeatures * sizeof(float) : bytes);
      targets[i] = row[width];
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchDistance < count) {
      // Places of a window that was filled long ago: its lines come from afar, and a store waits for its line.
      const int64_t ahead = places[i + kPrefetchDistance];
      __builtin_prefetch(features + ahead * width, 1);
      if (kFeatures == 0 || kFeatures > 16) __builtin_prefetch(features + (ahead + 1) * width - 1, 1);
      __builtin_prefetch(targets + ahead, 1);
    }
    const float* row = rows + i * stride;
    const int64_t place = places[i];
    std::memcpy(features + place * width, row, kFeatures ? kFeatures * sizeof(float) : bytes);
    targets[place] = row[width];
  }
}

// Rows with ids or a weight.
void split_mixed(const float* rows, const int32_t* places, int64_t count, const RowShape& shape,
                 const RowPlaces& to) {
  const int64_t stride = shape.words();
  const size_t width = static_cast<size_t>(shape.features), ids = static_cast<size_t>(shape.ids);
  for (int64_t i = 0; i < count; ++i) {
    const float* row = rows + i * stride;
    const auto place = static_cast<size_t>(places != nullptr ? places[i] : i);
    if (width > 0) std::memcpy(to.features + place * width, row, width * sizeof(float));
    to.targets[place] = row[width];
    if (ids > 0) std::memcpy(to.ids + place * ids, row + width + 1, ids * sizeof(int32_t));
    if (shape.weight) to.weights[place] = row[stride - 1];
  }
}

template <int... kFeatures>
SplitRows pick(int num_features, std::integer_sequence<int, kFeatures...>) {
  constexpr std::array<SplitRows, sizeof...(kFeatures)> kTable = {split_rows<kFeatures>...};
  return num_features < static_cast<int>(kTable.size()) ? kTable[num_features] : split_rows<0>;
}

int64_t whole_lines(int64_t words) {
  return (words + 15) / 16 * 16;
}

// The words of a window of so many rows, its parts apart.
int64_t window_words(int64_t rows, const RowShape& shape) {
  return whole_lines(rows * shape.features) + whole_lines(rows) + whole_lines(rows * shape.ids) +
         (shape.weight ? rows : 0);
}

RowPlaces places_in(float* memory, int64_t rows, const RowShape& shape) {
  RowPlaces places;
  places.features = memory;
  places.targets = memory + whole_lines(rows * shape.features);
  places.ids = reinterpret_cast<int32_t*>(places.targets + whole_lines(rows));
  places.weights = reinterpret_cast<float*>(places.ids + whole_lines(rows * shape.ids));
  return places;
}

}  // namespace

SplitRows split_rows_for(const RowShape& shape) {
  if (shape.ids > 0 || shape.weight) return split_mixed;
  return pick(shape.features, std::make_integer_sequence<int, 33>());
}

Result<RawRows> ChunkReader::next() {
  Timed timed(scratch_->times.reading);
  for (;;) {
    if (stream_ == nullptr) {
      MILLSTREAM_CHECK(next_entry_point_ < entry_points_.size(), "a lane has fewer rows than its schedule");
      MILLSTREAM_ASSIGN(stream_, source_.open(entry_points_[next_entry_point_++], &scratch_->read));
    }
    MILLSTREAM_ASSIGN(auto rows, stream_->next());
    beat();
    if (rows) return std::move(*rows);
    stream_.reset();
  }
}

Status ChunkReader::pack(const RawRows& rows, int64_t begin, int64_t count, float* out) {
  Timed timed(scratch_->times.computing);
  Status status;
  const int64_t first = rows.rows == nullptr ? rows.first + begin : 0;
  if (rows.rows != nullptr) {
    status = packer_.pack(*rows.batch, rows.rows + begin, count, out);
  } else if (count == rows.batch->num_rows()) {
    status = packer_.pack(*rows.batch, nullptr, count, out);
  } else {
    status = packer_.pack(*rows.batch->Slice(first, count), nullptr, count, out);
  }
  if (status.ok()) return status;
  if (const auto position = error_position(status)) {
    status =
        with_category(status, error_category(status), SourcePosition{position->file, position->row + first});
  }
  return stream_->locate(status);
}

Result<std::optional<RawRows>> ChunkReader::skip(int64_t count) {
  while (count > 0) {
    if (stream_ == nullptr) {
      MILLSTREAM_CHECK(next_entry_point_ < entry_points_.size(), "a lane has fewer rows than its schedule");
      const int64_t rows = source_.counts()[entry_points_[next_entry_point_]];
      if (rows <= count) {
        count -= rows;
        ++next_entry_point_;
        continue;
      }
    }
    MILLSTREAM_ASSIGN(RawRows rows, next());
    if (rows.count <= count) {
      count -= rows.count;
      continue;
    }
    const int64_t left = rows.count - count;
    if (stream_->give_again(left)) return std::nullopt;
    if (rows.rows != nullptr) {
      rows.rows += count;
    } else {
      rows.first += count;
    }
    rows.count = left;
    return rows;
  }
  return std::nullopt;
}

Status SequentialReader::skip(int64_t count) {
  MILLSTREAM_ASSIGN(const std::optional<RawRows> beyond, chunks_.skip(count));
  if (!beyond) return Status::OK();
  pending_ = ReaderScratch::take(&scratch_->spare_chunks);
  pending_end_ = beyond->count;
  return chunks_.pack(*beyond, 0, beyond->count, pending_.reserve(beyond->count * packer_.row_floats()));
}

Status SequentialReader::take(int64_t count, SplitRows split, const RowShape& shape, RowPlaces to) {
  while (count > 0) {
    if (pending_begin_ == pending_end_) {
      MILLSTREAM_ASSIGN(const RawRows rows, chunks_.next());
      if (pending_.data() == nullptr) pending_ = ReaderScratch::take(&scratch_->spare_chunks);
      MILLSTREAM_TRY(chunks_.pack(rows, 0, rows.count, pending_.reserve(rows.count * packer_.row_floats())));
      pending_begin_ = 0;
      pending_end_ = rows.count;
    }
    const int64_t got = std::min(count, pending_end_ - pending_begin_);
    split(pending_.data() + pending_begin_ * packer_.row_floats(), nullptr, got, shape, to);
    pending_begin_ += got;
    to = to.after(got, shape);
    count -= got;
  }
  return Status::OK();
}

LaneReader::~LaneReader() {
  for (Window* window : {&current_, &next_}) ReaderScratch::put(&window->buffer, &scratch_->spare_windows);
  ReaderScratch::put(&pending_, &scratch_->spare_chunks);
}

Status LaneReader::seek(int64_t count) {
  if (count >= schedule_.lanes()[lane_].rows) {  // nothing is going to be taken
    while (!all_windows_begun()) ++next_window_;
    return Status::OK();
  }
  while (schedule_.window_range(lane_, next_window_).end <= count) ++next_window_;
  const int64_t begin = schedule_.window_range(lane_, next_window_).begin;
  left_out_ = count - begin;
  MILLSTREAM_ASSIGN(const std::optional<RawRows> beyond, chunks_.skip(begin));
  return beyond ? keep(*beyond, 0) : Status::OK();
}

Status LaneReader::keep(const RawRows& rows, int64_t begin) {
  pending_ = ReaderScratch::take(&scratch_->spare_chunks);
  pending_begin_ = 0;
  pending_end_ = rows.count - begin;
  return chunks_.pack(rows, begin, pending_end_, pending_.reserve(pending_end_ * packer_.row_floats()));
}

void LaneReader::begin(Window* window) {
  window->rows = schedule_.window_range(lane_, next_window_).rows();
  MILLSTREAM_CHECK(window->rows > 0, "a lane has fewer windows than its schedule");
  {
    Timed timed(scratch_->times.computing);
    schedule_.window_permutation(lane_, next_window_++, &scratch_->permutation);
    places_.resize(static_cast<size_t>(window->rows));
    const int32_t* const permutation = scratch_->permutation.data();
    for (int64_t k = 0; k < window->rows; ++k) places_[permutation[k]] = static_cast<int32_t>(k);
  }
  if (window->buffer.data() == nullptr) window->buffer = ReaderScratch::take(&scratch_->spare_windows);
  // For the longest window of the lane at once: memory that is not written to costs nothing.
  const int64_t most = std::max(
      {window->rows, schedule_.window_range(lane_, 0).rows(), schedule_.window_range(lane_, 1).rows()});
  window->buffer.reserve(
      window_words(most, {packer_.num_features(), packer_.num_ids(), packer_.has_weight()}));
  window->filled = 0;
  window->used = std::exchange(left_out_, 0);
}

Status LaneReader::fill(Window* window, SplitRows split, const RowShape& shape) {
  const int row_floats = packer_.row_floats();
  const RowPlaces to = places_in(window->buffer.data(), window->rows, shape);
  const auto place = [&](const float* rows, int64_t count) {
    Timed timed(scratch_->times.computing);
    split(rows, places_.data() + window->filled, count, shape, to);
    window->filled += count;
  };
  const int64_t wanted = window->rows - window->filled;
  if (pending_begin_ < pending_end_) {
    const int64_t count = std::min(wanted, pending_end_ - pending_begin_);
    place(pending_.data() + pending_begin_ * row_floats, count);
    pending_begin_ += count;
    if (pending_begin_ == pending_end_) ReaderScratch::put(&pending_, &scratch_->spare_chunks);
    return Status::OK();
  }
  MILLSTREAM_ASSIGN(const RawRows rows, chunks_.next());
  const int64_t count = std::min(wanted, rows.count);
  float* const tile = scratch_->tile.reserve(kTileRows * row_floats);
  for (int64_t begin = 0; begin < count; begin += kTileRows) {
    const int64_t n = std::min(kTileRows, count - begin);
    MILLSTREAM_TRY(chunks_.pack(rows, begin, n, tile));
    place(tile, n);
  }
  const int64_t left = rows.count - count;
  if (left > 0 && !chunks_.give_again(left)) MILLSTREAM_TRY(keep(rows, count));
  if (window->filled == window->rows && all_windows_begun()) chunks_.close();
  return Status::OK();
}

Status LaneReader::prepare(SplitRows split, const RowShape& shape) {
  if (next_.rows == 0) begin(&next_);
  return fill(&next_, split, shape);
}

Status LaneReader::take(int64_t count, SplitRows split, const RowShape& shape, RowPlaces to) {
  while (count > 0) {
    if (current_.used == current_.rows) {
      if (next_.rows == 0) {
        begin(&current_);
      } else {
        ReaderScratch::put(&current_.buffer, &scratch_->spare_windows);
        current_ = std::exchange(next_, {});
      }
      while (current_.filled < current_.rows) MILLSTREAM_TRY(fill(&current_, split, shape));
    }
    const int64_t got = std::min(count, current_.rows - current_.used);
    const RowPlaces from =
        places_in(current_.buffer.data(), current_.rows, shape).after(current_.used, shape);
    const auto n = static_cast<size_t>(got);
    const auto copy = [](auto* out, const auto* in, size_t words) {
      if (words > 0) std::memcpy(out, in, 4 * words);
    };
    copy(to.features, from.features, n * static_cast<size_t>(shape.features));
    copy(to.targets, from.targets, n);
    copy(to.ids, from.ids, n * static_cast<size_t>(shape.ids));
    copy(to.weights, from.weights, shape.weight ? n : 0);
    current_.used += got;
    to = to.after(got, shape);
    count -= got;
    if (current_.used == current_.rows && is_read())
      ReaderScratch::put(&current_.buffer, &scratch_->spare_windows);
  }
  return Status::OK();
}

}  // namespace millstream::loader
