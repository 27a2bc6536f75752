#include "features/value_counts.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace millstream::features {
namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Status ValueCounts::add(std::string_view value, int64_t count) {
  const auto found = counts_.find(value);
  if (found != counts_.end()) {
    found->second += count;
    return Status::OK();
  }
  if (distinct() == kMostDistinctValues) {
    return make_error(ErrorCategory::kData,
                      fmt::format("it has more than {} different values", kMostDistinctValues));
  }
  counts_.emplace(value, count);
  return Status::OK();
}

Status ValueCounts::add(const double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i] == 0 ? 0.0 : values[i];
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    MILLSTREAM_TRY(add(std::string_view(bytes, sizeof(bytes))));
  }
  return Status::OK();
}

Status ValueCounts::merge(const ValueCounts& next) {
  for (const auto& [value, count] : next.counts_) MILLSTREAM_TRY(add(value, count));
  return Status::OK();
}

std::vector<std::pair<std::string, int64_t>> ValueCounts::by_count() const {
  struct Item {
    const std::string* value;
    int64_t count;
    std::optional<int64_t> number;
  };
  std::vector<Item> items;
  for (const auto& [value, count] : counts_) items.push_back({&value, count, whole_number(value)});
  // Whole numbers come before other texts, so that the order is one.
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    if (a.count != b.count) return a.count > b.count;
    if (a.number.has_value() != b.number.has_value()) return a.number.has_value();
    if (a.number && *a.number != *b.number) return *a.number < *b.number;
    return *a.value < *b.value;
  });
  std::vector<std::pair<std::string, int64_t>> sorted;
  for (const Item& item : items) sorted.push_back({*item.value, item.count});
  return sorted;
}

double ValueCounts::most_frequent_double() const {
  double best = 0;
  int64_t best_count = 0;
  for (const auto& [bytes, count] : counts_) {
    double value = 0;
    std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(value)));
    if (count > best_count || (count == best_count && value < best)) {
      best = value;
      best_count = count;
    }
  }
  return best;
}

std::string ValueCounts::encode() const {
  std::string bytes;
  for (const auto& [value, count] : counts_) {
    const int64_t numbers[2] = {count, static_cast<int64_t>(value.size())};
    bytes.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
    bytes += value;
  }
  return bytes;
}

Result<ValueCounts> ValueCounts::decode(std::string_view bytes) {
  ValueCounts counts;
  while (!bytes.empty()) {
    int64_t numbers[2] = {};
    if (bytes.size() < sizeof(numbers)) return file_error("counts of values are not readable");
    std::memcpy(numbers, bytes.data(), sizeof(numbers));
    bytes.remove_prefix(sizeof(numbers));
    if (numbers[0] < 1 || numbers[1] < 0 || static_cast<uint64_t>(numbers[1]) > bytes.size())
      return file_error("counts of values are not readable");
    MILLSTREAM_TRY(counts.add(bytes.substr(0, static_cast<size_t>(numbers[1])), numbers[0]));
    bytes.remove_prefix(static_cast<size_t>(numbers[1]));
  }
  return counts;
}

}  // namespace millstream::features
