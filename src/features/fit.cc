#include "features/fit.h"

#include <algorithm>

#include "base/bytes.h"

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
      return bug_error("values are counted by a ValueCounter");
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
  return Status::OK();
}

std::string FitState::encode() const {
  ByteWriter out;
  out.value(moments);
  out.value(least);
  out.value(greatest);
  out.text(quantiles.encode());
  out.value<uint64_t>(targets.size());
  for (const auto& [category, sums] : targets) {
    out.text(category);
    out.values(sums.counts);
    out.values(sums.sums);
  }
  return out.take();
}

Result<FitState> FitState::decode(std::string_view bytes) {
  FitState state;
  ByteReader in(bytes);
  const auto bad = [] { return file_error("a fit's state is not readable"); };
  state.moments = in.value<Moments>();
  state.least = in.value<double>();
  state.greatest = in.value<double>();
  const std::string_view sketch = in.text();
  if (!in.ok()) return bad();
  MILLSTREAM_ASSIGN(state.quantiles, QuantileSketch::decode(sketch));
  const auto categories = in.value<uint64_t>();
  for (uint64_t i = 0; i < categories && in.ok(); ++i) {
    std::string category(in.text());
    FoldSums sums{in.values<int64_t>(), in.values<double>()};
    if (sums.counts.size() != sums.sums.size()) return bad();
    state.targets.emplace(std::move(category), std::move(sums));
  }
  if (!in.done()) return bad();
  return state;
}

}  // namespace millstream::features
