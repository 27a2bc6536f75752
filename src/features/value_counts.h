#pragma once
// The different values of a column with their counts. Values are bytes: a text, or the eight of a double. Counts add
// up, so the order of blocks does not matter, and results are sorted before they are used.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"

namespace millstream::features {

/// More different values than that are an error.
inline constexpr int64_t kMostDistinctValues = int64_t{1} << 20;

class ValueCounts {
 public:
  /// A data error beyond kMostDistinctValues different values.
  Status add(std::string_view value, int64_t count = 1);
  /// −0 counts as 0.
  Status add(const double* values, int64_t count);
  Status merge(const ValueCounts& next);

  bool empty() const { return counts_.empty(); }
  int64_t distinct() const { return static_cast<int64_t>(counts_.size()); }
  /// The most frequent first; of equally frequent ones the smaller, as bytes, or as whole numbers where both are
  /// such.
  std::vector<std::pair<std::string, int64_t>> by_count() const;
  /// The most frequent of doubles, the smallest of several. Only when not empty().
  double most_frequent_double() const;

  std::string encode() const;
  static Result<ValueCounts> decode(std::string_view bytes);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view value) const { return std::hash<std::string_view>{}(value); }
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
};

}  // namespace millstream::features
