#include "features/fit.h"

#include <algorithm>
#include <cstring>

namespace millstream::features {

namespace {

// What target_encode looks up are expressions, a branch a category.
constexpr int64_t kMostEncodedCategories = int64_t{1} << 16;

}  // namespace

Status FitState::add(FitKind kind, const double* values, int64_t count) {
  switch (kind) {
    case FitKind::kMoments:
      moments = moments_of(values, count);
      break;
    case FitKind::kRange:
      for (int64_t i = 0; i < count; ++i) {
        least = std::min(least, values[i]);
        greatest = std::max(greatest, values[i]);
      }
      break;
    case FitKind::kQuantiles:
      quantiles.add(values, count);
      break;
    case FitKind::kCounts:
      MILLSTREAM_TRY(counts.add(values, count));
      break;
    case FitKind::kTargets:
      return bug_error("targets are added with their categories");
  }
  return Status::OK();
}

Status FitState::add_targets(const arrow::Array& texts, const arrow::Array& target_array,
                             const arrow::Array& folds, int num_folds) {
  const auto& categories = static_cast<const arrow::StringArray&>(texts);
  const auto& values = static_cast<const arrow::DoubleArray&>(target_array);
  const auto& fold_of = static_cast<const arrow::Int64Array&>(folds);
  std::string key;
  for (int64_t i = 0; i < categories.length(); ++i) {
    key = categories.IsNull(i) ? "n" : "v";
    if (categories.IsValid(i)) key += categories.GetView(i);
    auto found = targets.find(key);
    if (found == targets.end()) {
      if (static_cast<int64_t>(targets.size()) == kMostEncodedCategories) {
        return make_error(
            ErrorCategory::kData,
            fmt::format("it has more than {} different values; hash_bucket(N) before it makes fewer",
                        kMostEncodedCategories));
      }
      const auto size = static_cast<size_t>(num_folds);
      found =
          targets.emplace(key, FoldSums{std::vector<int64_t>(size, 0), std::vector<double>(size, 0)}).first;
    }
    const auto fold = static_cast<size_t>(fold_of.Value(i));
    ++found->second.counts[fold];
    found->second.sums[fold] += values.Value(i);
  }
  return Status::OK();
}

Status FitState::add_texts(const arrow::Array& array) {
  const auto& texts = static_cast<const arrow::StringArray&>(array);
  for (int64_t i = 0; i < texts.length(); ++i) {
    if (!texts.IsNull(i)) MILLSTREAM_TRY(counts.add(texts.GetView(i)));
  }
  return Status::OK();
}

Status FitState::merge(const FitState& next) {
  least = std::min(least, next.least);
  greatest = std::max(greatest, next.greatest);
  quantiles.merge(next.quantiles);
  for (const auto& [category, sums] : next.targets) {
    const auto [mine, added] = targets.try_emplace(category, sums);
    if (added) continue;
    for (size_t fold = 0; fold < sums.counts.size(); ++fold) {
      mine->second.counts[fold] += sums.counts[fold];
      mine->second.sums[fold] += sums.sums[fold];
    }
  }
  if (static_cast<int64_t>(targets.size()) > kMostEncodedCategories) {
    return make_error(
        ErrorCategory::kData,
        fmt::format("it has more than {} different values; hash_bucket(N) before it makes fewer",
                    kMostEncodedCategories));
  }
  return counts.merge(next.counts);
}

std::string FitState::encode() const {
  std::string bytes;
  const auto put = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  put(moments);
  put(least);
  put(greatest);
  const std::string sketch = quantiles.encode();
  put(static_cast<uint64_t>(sketch.size()));
  bytes += sketch;
  put(static_cast<uint64_t>(targets.size()));
  for (const auto& [category, sums] : targets) {
    put(static_cast<uint64_t>(category.size()));
    bytes += category;
    put(static_cast<uint64_t>(sums.counts.size()));
    for (const int64_t count : sums.counts) put(count);
    for (const double sum : sums.sums) put(sum);
  }
  return bytes + counts.encode();
}

Result<FitState> FitState::decode(std::string_view bytes) {
  FitState state;
  bool whole = true;
  const auto get = [&](auto* value) {
    whole = whole && bytes.size() >= sizeof(*value);
    if (!whole) return;
    std::memcpy(value, bytes.data(), sizeof(*value));
    bytes.remove_prefix(sizeof(*value));
  };
  uint64_t size = 0;
  get(&state.moments);
  get(&state.least);
  get(&state.greatest);
  get(&size);
  if (!whole || size > bytes.size()) return file_error("a fit's state is not readable");
  MILLSTREAM_ASSIGN(state.quantiles, QuantileSketch::decode(bytes.substr(0, size)));
  bytes.remove_prefix(size);
  uint64_t categories = 0;
  get(&categories);
  for (uint64_t i = 0; i < categories && whole; ++i) {
    uint64_t length = 0, folds = 0;
    get(&length);
    whole = whole && length <= bytes.size();
    if (!whole) break;
    std::string category(bytes.substr(0, length));
    bytes.remove_prefix(length);
    get(&folds);
    whole = whole && folds <= bytes.size() / 16;
    if (!whole) break;
    FoldSums sums{std::vector<int64_t>(folds), std::vector<double>(folds)};
    for (int64_t& count : sums.counts) get(&count);
    for (double& sum : sums.sums) get(&sum);
    state.targets.emplace(std::move(category), std::move(sums));
  }
  if (!whole) return file_error("a fit's state is not readable");
  MILLSTREAM_ASSIGN(state.counts, ValueCounts::decode(bytes));
  return state;
}

}  // namespace millstream::features
