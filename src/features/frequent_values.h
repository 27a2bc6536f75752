#pragma once
// The most frequent values of a column, in little memory (Misra and Gries 1982; merged as Agarwal et al., "Mergeable
// summaries", 2012).
//
// 1. While a column has at most 2 * kKeptValues different values, all of them are there with their exact counts.
// 2. Beyond that counts are too low by at most lost(), which is at most rows / kKeptValues; a value that is more
//    frequent than that is there.
// 3. The state depends on the order in which values come and are merged.
//
// A value is a 64-bit key: a whole number, the bits of a double, or the hash of a text, which stands beside it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace millstream::features {

inline constexpr int64_t kKeptValues = 1024;

class FrequentValues {
 public:
  struct Entry {
    uint64_t key = 0;
    int64_t count = 0;  ///< 0: free
    std::string text;
  };

  FrequentValues() : slots_(kSlots) {}
  /// True where the value was not there.
  bool add(uint64_t key, std::string_view text = {}, int64_t count = 1) {
    for (size_t slot = mix64(key) % kSlots;; slot = (slot + 1) % kSlots) {
      Entry& entry = slots_[slot];
      if (entry.count != 0 && entry.key == key) {
        entry.count += count;
        return false;
      }
      if (entry.count != 0) continue;
      entry.key = key;
      entry.count = count;
      if (!text.empty()) entry.text = text;
      if (++size_ > 2 * kKeptValues) prune();
      return true;
    }
  }
  void merge(const FrequentValues& next);

  /// Whether all values are there with exact counts.
  bool exact() const { return lost_ == 0; }
  int64_t lost() const { return lost_; }
  int64_t size() const { return size_; }
  /// The most frequent first; of equally frequent ones by key, of texts by text.
  std::vector<Entry> by_count() const;

  std::string encode() const;
  static Result<FrequentValues> decode(std::string_view bytes);

 private:
  static constexpr size_t kSlots = 4 * kKeptValues;
  /// Leaves at most kKeptValues values.
  void prune();

  std::vector<Entry> slots_;
  int64_t size_ = 0;
  int64_t lost_ = 0;
};

}  // namespace millstream::features
