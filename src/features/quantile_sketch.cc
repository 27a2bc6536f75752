#include "features/quantile_sketch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace millstream::features {

void QuantileSketch::compact(size_t level) {
  if (levels_.size() == level + 1) {
    levels_.emplace_back();
    take_second_.push_back(0);
  }
  std::vector<double>& values = levels_[level];
  std::sort(values.begin(), values.end());
  const size_t pairs = values.size() / 2;
  std::vector<double>& up = levels_[level + 1];
  for (size_t i = 0; i < pairs; ++i) up.push_back(values[2 * i + take_second_[level]]);
  take_second_[level] ^= 1;
  // An odd one out stays.
  values.erase(values.begin(), values.begin() + static_cast<int64_t>(2 * pairs));
  error_ += int64_t{1} << level;
}

void QuantileSketch::compact_full() {
  for (size_t level = 0; level < levels_.size(); ++level) {
    if (static_cast<int64_t>(levels_[level].size()) > capacity_) compact(level);
  }
}

void QuantileSketch::add(const double* values, int64_t count) {
  if (count == 0) return;
  if (levels_.empty()) {
    levels_.emplace_back();
    take_second_.push_back(0);
  }
  levels_[0].insert(levels_[0].end(), values, values + count);
  count_ += count;
  compact_full();
}

void QuantileSketch::merge(const QuantileSketch& next) {
  while (levels_.size() < next.levels_.size()) {
    levels_.emplace_back();
    take_second_.push_back(0);
  }
  for (size_t level = 0; level < next.levels_.size(); ++level) {
    levels_[level].insert(levels_[level].end(), next.levels_[level].begin(), next.levels_[level].end());
  }
  count_ += next.count_;
  error_ += next.error_;
  compact_full();
}

void QuantileSketch::shrink() {
  const auto held = [&] {
    int64_t values = 0;
    for (const auto& level : levels_) values += static_cast<int64_t>(level.size());
    return values;
  };
  for (size_t level = 0; level < levels_.size() && held() > 2 * capacity_; ++level) {
    if (levels_[level].size() > 1) compact(level);
  }
}

int64_t QuantileSketch::rank_error() const {
  // The heaviest value stands for a run of so many; which of them is meant is not known either.
  return error_ == 0 ? 0 : error_ + (int64_t{1} << (levels_.size() - 1)) - 1;
}

std::vector<std::pair<double, int64_t>> QuantileSketch::weighted() const {
  std::vector<std::pair<double, int64_t>> weighted;
  for (size_t level = 0; level < levels_.size(); ++level) {
    for (const double value : levels_[level]) weighted.push_back({value, int64_t{1} << level});
  }
  std::sort(weighted.begin(), weighted.end());
  return weighted;
}

std::vector<double> QuantileSketch::quantiles(const std::vector<double>& fractions) const {
  return weighted_quantiles(weighted(), fractions);
}

std::vector<double> weighted_quantiles(const std::vector<std::pair<double, int64_t>>& weighted,
                                       const std::vector<double>& fractions) {
  if (weighted.empty()) return std::vector<double>(fractions.size(), 0);
  int64_t total = 0;
  std::vector<int64_t> ends;  // the ranks below ends[i] are those of values up to i
  for (const auto& [value, weight] : weighted) ends.push_back(total += weight);
  const auto at = [&](int64_t rank) {
    const auto end = std::upper_bound(ends.begin(), ends.end(), std::min(rank, total - 1));
    return weighted[static_cast<size_t>(end - ends.begin())].first;
  };
  std::vector<double> result;
  for (const double fraction : fractions) {
    const double position = static_cast<double>(total - 1) * fraction;
    const double below = std::floor(position);
    const double part = position - below;
    const double low = at(static_cast<int64_t>(below));
    const double high = at(static_cast<int64_t>(below) + 1);
    // As numpy's _lerp, which is exact at both ends.
    result.push_back(part >= 0.5 ? high - (high - low) * (1 - part) : low + (high - low) * part);
  }
  return result;
}

std::string QuantileSketch::encode() const {
  std::string bytes;
  const auto put = [&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); };
  const auto put_number = [&](int64_t number) { put(&number, sizeof(number)); };
  put_number(capacity_);
  put_number(count_);
  put_number(error_);
  put_number(static_cast<int64_t>(levels_.size()));
  for (size_t level = 0; level < levels_.size(); ++level) {
    put_number(take_second_[level]);
    put_number(static_cast<int64_t>(levels_[level].size()));
    put(levels_[level].data(), levels_[level].size() * sizeof(double));
  }
  return bytes;
}

Result<QuantileSketch> QuantileSketch::decode(std::string_view bytes) {
  const auto bad = [] { return file_error("a summary for quantiles is not readable"); };
  const auto number = [&](int64_t* out) {
    if (bytes.size() < sizeof(*out)) return false;
    std::memcpy(out, bytes.data(), sizeof(*out));
    bytes.remove_prefix(sizeof(*out));
    return true;
  };
  QuantileSketch sketch;
  int64_t levels = 0;
  if (!number(&sketch.capacity_) || !number(&sketch.count_) || !number(&sketch.error_) || !number(&levels) ||
      levels < 0 || levels > 62) {
    return bad();
  }
  for (int64_t level = 0; level < levels; ++level) {
    int64_t second = 0;
    int64_t size = 0;
    if (!number(&second) || !number(&size) || size < 0 ||
        static_cast<uint64_t>(size) > bytes.size() / sizeof(double)) {
      return bad();
    }
    std::vector<double> values(static_cast<size_t>(size));
    if (size > 0) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(double));
    bytes.remove_prefix(values.size() * sizeof(double));
    sketch.levels_.push_back(std::move(values));
    sketch.take_second_.push_back(static_cast<uint8_t>(second & 1));
  }
  if (!bytes.empty()) return bad();
  return sketch;
}

}  // namespace millstream::features
