#include "features/fit.h"

#include <algorithm>
#include <cstring>

namespace millstream::features {

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
  return bytes + sketch + counts.encode();
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
  MILLSTREAM_ASSIGN(state.counts, ValueCounts::decode(bytes.substr(size)));
  return state;
}

}  // namespace millstream::features
