#include "exec/sort.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <unordered_map>

#include "exec/order_codes.h"
#include "expr/expression.h"
#include "expr/kernel.h"
#include "expr/type.h"
#include "functions/ordering.h"

namespace millstream::exec {
namespace {

constexpr size_t kMostDistinctTexts = 1 << 16;

// A key column as unsigned codes that are ordered as the sort wants them; NULL and direction are in them.
// Where codes alone do not decide (long texts, wide decimals) equal codes are compared by value.
struct KeyCodes {
  std::vector<uint64_t> codes;
  uint64_t least = 0, most = 0;
  bool exact = true;
  bool descending = false;
  std::vector<uint8_t> nulls;  // empty: none
  bool nulls_first = false;
  std::shared_ptr<arrow::Array> array;

  // Fewer than zero: a before b. Only asked where both are not NULL and their codes are equal.
  int compare_values(int32_t a, int32_t b) const {
    int order = 0;
    functions::with_ordered_type(*array->type(), [&]<class T>(std::type_identity<T>) {
      const expr::Column<T> values(*array->data());
      const T x = values[a], y = values[b];
      if (functions::less_value<T>(x, y))
        order = -1;
      else if (functions::less_value<T>(y, x))
        order = 1;
    });
    return descending ? -order : order;
  }
};

// Few distinct texts are numbered in their order, so that codes are exact and small.
bool number_texts(const arrow::Array& array, int64_t rows, std::vector<uint64_t>& codes) {
  const expr::Column<std::string_view> values(*array.data());
  std::vector<std::pair<std::string_view, uint32_t>> distinct;
  std::unordered_map<std::string_view, uint32_t> numbers;
  for (int64_t i = 0; i < rows; ++i) {
    if (array.IsNull(i)) continue;
    const auto [at, added] = numbers.emplace(values[i], static_cast<uint32_t>(numbers.size()));
    if (added) distinct.emplace_back(at->first, at->second);
    codes[static_cast<size_t>(i)] = at->second;
    if (distinct.size() > kMostDistinctTexts || (i == 4096 && distinct.size() > 2048)) return false;
  }
  std::ranges::sort(distinct);
  std::vector<uint64_t> rank(distinct.size());
  for (size_t i = 0; i < distinct.size(); ++i) rank[distinct[i].second] = i;
  for (int64_t i = 0; i < rows; ++i)
    if (array.IsValid(i)) codes[static_cast<size_t>(i)] = rank[codes[static_cast<size_t>(i)]];
  return true;
}

Result<KeyCodes> make_codes(const std::shared_ptr<arrow::Array>& array, const plan::SortKey& key) {
  const int64_t rows = array->length();
  KeyCodes result;
  result.array = array;
  result.descending = key.descending;
  result.nulls_first = key.nulls_first;
  result.codes.assign(static_cast<size_t>(rows), 0);
  uint64_t* codes = result.codes.data();
  bool known = false;
  if (array->type_id() == arrow::Type::STRING || array->type_id() == arrow::Type::BINARY)
    known = number_texts(*array, rows, result.codes);
  if (!known) {
    MILLSTREAM_ASSIGN(result.exact, order_codes(*array, codes));
  }
  if (array->null_count() > 0) {
    result.nulls.resize(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) result.nulls[static_cast<size_t>(i)] = array->IsNull(i);
  }
  if (key.descending)
    for (int64_t i = 0; i < rows; ++i) codes[i] = ~codes[i];
  result.least = UINT64_MAX;
  for (int64_t i = 0; i < rows; ++i) {
    if (!result.nulls.empty() && result.nulls[static_cast<size_t>(i)]) continue;
    result.least = std::min(result.least, codes[i]);
    result.most = std::max(result.most, codes[i]);
  }
  if (result.least > result.most) result.least = result.most = 0;  // NULLs alone
  return result;
}

// All keys in one integer, where they are exact and their ranges small.
bool pack(std::span<const KeyCodes> keys, size_t rows, std::vector<uint64_t>& packed) {
  int bits = 0;
  std::vector<int> widths;
  for (const KeyCodes& key : keys) {
    if (!key.exact) return false;
    // One code more for NULL, on its side.
    const uint64_t span = key.most - key.least;
    if (span >= UINT64_MAX - 2) return false;
    widths.push_back(std::bit_width(span + 1));
    bits += widths.back();
  }
  if (bits > 64) return false;
  packed.assign(rows, 0);
  for (size_t k = 0; k < keys.size(); ++k) {
    const KeyCodes& key = keys[k];
    const uint64_t null = key.nulls_first ? 0 : key.most - key.least + 1;
    const uint64_t base = key.nulls_first ? key.least - 1 : key.least;
    for (size_t i = 0; i < rows; ++i) {
      const uint64_t code = !key.nulls.empty() && key.nulls[i] ? null : key.codes[i] - base;
      packed[i] = (widths[k] == 64 ? 0 : packed[i] << widths[k]) | code;
    }
  }
  return true;
}

}  // namespace

Result<std::vector<int32_t>> sort_order(const arrow::RecordBatch& rows,
                                        const std::vector<plan::SortKey>& keys, int64_t limit) {
  const int64_t count = rows.num_rows();
  if (count > std::numeric_limits<int32_t>::max())
    return failed_error("there are more than 2^31 rows to sort on one rank");
  const int64_t wanted = limit < 0 ? count : std::min(limit, count);
  std::vector<KeyCodes> codes;
  for (const plan::SortKey& key : keys) {
    MILLSTREAM_ASSIGN(auto made, make_codes(rows.column(key.column), key));
    codes.push_back(std::move(made));
  }
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::vector<uint64_t> packed;
  // Sorts items that know their rows; the key of an item is what compares.
  const auto sort_items = [&](auto& items) {
    if (std::ranges::is_sorted(items)) {
      // nothing to do
    } else if (wanted < count) {
      std::partial_sort(items.begin(), items.begin() + wanted, items.end());
    } else {
      std::sort(items.begin(), items.end());
    }
    for (size_t i = 0; i < items.size(); ++i) order[i] = items[i].row;
  };
  const KeyCodes& last = codes.back();
  if (pack(codes, static_cast<size_t>(count), packed)) {
    struct Item {
      uint64_t key;
      int32_t row;
      auto operator<=>(const Item&) const = default;
    };
    std::vector<Item> items(static_cast<size_t>(count));
    for (size_t i = 0; i < items.size(); ++i) items[i] = {packed[i], static_cast<int32_t>(i)};
    sort_items(items);
  } else if (codes.size() > 1 && last.exact && last.nulls.empty() &&
             pack(std::span(codes).first(codes.size() - 1), static_cast<size_t>(count), packed)) {
    // All but a last key that is a number of many bits: a position, say.
    struct Item {
      uint64_t key;
      uint64_t second;
      int32_t row;
      auto operator<=>(const Item&) const = default;
    };
    std::vector<Item> items(static_cast<size_t>(count));
    for (size_t i = 0; i < items.size(); ++i) items[i] = {packed[i], last.codes[i], static_cast<int32_t>(i)};
    sort_items(items);
  } else {
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](int32_t a, int32_t b) {
      for (const KeyCodes& key : codes) {
        const auto x = static_cast<size_t>(a), y = static_cast<size_t>(b);
        if (!key.nulls.empty()) {
          if (key.nulls[x] != key.nulls[y]) return (key.nulls[x] != 0) == key.nulls_first;
          if (key.nulls[x]) continue;
        }
        if (key.codes[x] != key.codes[y]) return key.codes[x] < key.codes[y];
        if (key.exact) continue;
        const int compared = key.compare_values(a, b);
        if (compared != 0) return compared < 0;
      }
      return a < b;
    };
    if (wanted < count) {
      std::partial_sort(order.begin(), order.begin() + wanted, order.end(), before);
    } else {
      std::sort(order.begin(), order.end(), before);
    }
  }
  order.resize(static_cast<size_t>(wanted));
  return order;
}

Result<std::shared_ptr<arrow::RecordBatch>> sort_rows(const std::shared_ptr<arrow::RecordBatch>& rows,
                                                      const std::vector<plan::SortKey>& keys, int64_t limit) {
  const int64_t wanted = limit < 0 ? rows->num_rows() : std::min(limit, rows->num_rows());
  if (keys.empty() || rows->num_rows() <= 1)
    return wanted == rows->num_rows() ? rows : rows->Slice(0, wanted);
  MILLSTREAM_ASSIGN(const auto order, sort_order(*rows, keys, limit));
  return expr::take_rows(*rows, order);
}

Result<std::shared_ptr<arrow::RecordBatch>> concatenate(
    const std::shared_ptr<arrow::Schema>& schema,
    const std::vector<std::shared_ptr<arrow::RecordBatch>>& batches) {
  if (batches.size() == 1) return batches[0];
  if (batches.empty()) return arrow::RecordBatch::MakeEmpty(schema);
  std::vector<std::shared_ptr<arrow::RecordBatch>> same;
  for (const auto& batch : batches)
    same.push_back(arrow::RecordBatch::Make(schema, batch->num_rows(), batch->columns()));
  auto result = arrow::ConcatenateRecordBatches(same);
  if (result.ok()) return result;
  return failed_error("the rows to be held do not fit into one table: {}", result.status().message());
}

}  // namespace millstream::exec
