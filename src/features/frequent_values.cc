#include "features/frequent_values.h"

#include <algorithm>
#include <cstring>

namespace millstream::features {

void FrequentValues::prune() {
  if (size_ <= kKeptValues) return;
  std::vector<int64_t> counts;
  for (const Entry& entry : slots_) {
    if (entry.count > 0) counts.push_back(entry.count);
  }
  std::nth_element(counts.begin(), counts.begin() + kKeptValues, counts.end(), std::greater<>());
  const int64_t taken = counts[kKeptValues];
  lost_ += taken;
  std::vector<Entry> old(kSlots);
  old.swap(slots_);
  size_ = 0;
  for (Entry& entry : old) {
    if (entry.count <= taken) continue;
    size_t slot = mix64(entry.key) % kSlots;
    while (slots_[slot].count != 0) slot = (slot + 1) % kSlots;
    entry.count -= taken;
    slots_[slot] = std::move(entry);
    ++size_;
  }
}

void FrequentValues::merge(const FrequentValues& next) {
  lost_ += next.lost_;
  for (const Entry& entry : next.slots_) {
    if (entry.count > 0) add(entry.key, entry.text, entry.count);
  }
}

std::vector<FrequentValues::Entry> FrequentValues::by_count() const {
  std::vector<Entry> entries;
  for (const Entry& entry : slots_) {
    if (entry.count > 0) entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.count != b.count) return a.count > b.count;
    if (a.text != b.text) return a.text < b.text;
    return a.key < b.key;
  });
  return entries;
}

std::string FrequentValues::encode() const {
  std::string bytes;
  const auto put = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  put(lost_);
  for (const Entry& entry : slots_) {
    if (entry.count == 0) continue;
    put(entry.key);
    put(entry.count);
    put(static_cast<uint64_t>(entry.text.size()));
    bytes += entry.text;
  }
  return bytes;
}

Result<FrequentValues> FrequentValues::decode(std::string_view bytes) {
  const auto bad = [] { return file_error("a summary of frequent values is not readable"); };
  FrequentValues values;
  const auto get = [&](auto* value) {
    if (bytes.size() < sizeof(*value)) return false;
    std::memcpy(value, bytes.data(), sizeof(*value));
    bytes.remove_prefix(sizeof(*value));
    return true;
  };
  int64_t lost = 0;
  if (!get(&lost) || lost < 0) return bad();
  while (!bytes.empty()) {
    uint64_t key = 0, size = 0;
    int64_t count = 0;
    if (!get(&key) || !get(&count) || !get(&size) || count < 1 || size > bytes.size()) return bad();
    if (values.size_ > 2 * kKeptValues - 1) return bad();
    values.add(key, bytes.substr(0, size), count);
    bytes.remove_prefix(size);
  }
  values.lost_ = lost;
  return values;
}

}  // namespace millstream::features
