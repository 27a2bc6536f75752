#include "exec/key_order.h"

#include <algorithm>
#include <bit>

#include "exec/order_codes.h"
#include "expr/kernel.h"

namespace millstream::exec {
namespace {

constexpr int kBits = 64;
constexpr size_t kMostTexts = 4096;
// Codes beside those of values: NULL and what is out of the sample's range, on both sides.
constexpr uint64_t kBelow = 1, kFirst = 2;
constexpr int kFewestBits = 3;  // those codes, one of a value, and the one above

bool is_text(const arrow::DataType& type) {
  return type.id() == arrow::Type::STRING || type.id() == arrow::Type::BINARY;
}

}  // namespace

Result<KeyOrder> KeyOrder::learn(std::vector<plan::SortKey> keys, const arrow::RecordBatch& sample,
                                 std::vector<uint64_t>* codes_of_sample) {
  KeyOrder result;
  int left = kBits;
  const int64_t rows = sample.num_rows();
  std::vector<uint64_t> codes(static_cast<size_t>(rows));
  for (size_t k = 0; k < keys.size(); ++k) {
    const plan::SortKey& key = keys[k];
    if (left < kFewestBits) break;
    auto column = std::make_shared<Column>();
    column->key = key;
    const arrow::Array& values = *sample.column(static_cast<int>(k));
    bool complete = true;  // rows with equal codes have equal keys
    uint64_t most = 0;
    if (is_text(*values.type())) {
      std::vector<std::string> texts;
      const expr::Column<std::string_view> views(*values.data());
      for (int64_t i = 0; i < rows; ++i)
        if (values.IsValid(i)) texts.emplace_back(views[i]);
      std::ranges::sort(texts);
      texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
      if (key.descending) std::ranges::reverse(texts);
      if (texts.size() <= kMostTexts) {
        column->is_text = true;
        column->texts = std::move(texts);
        for (size_t i = 0; i < column->texts.size(); ++i) column->text_codes[column->texts[i]] = 2 * i + 1;
        most = 2 * column->texts.size() + kFirst;
      }
    }
    if (!column->is_text) {
      MILLSTREAM_ASSIGN(complete, order_codes(values, codes.data()));
      uint64_t low = UINT64_MAX, high = 0;
      for (int64_t i = 0; i < rows; ++i) {
        if (values.IsNull(i)) continue;
        const uint64_t code = key.descending ? ~codes[static_cast<size_t>(i)] : codes[static_cast<size_t>(i)];
        low = std::min(low, code);
        high = std::max(high, code);
      }
      if (low > high) low = high = uint64_t{1} << 63;  // NULLs alone
      column->low = low;
      column->span = high - low;
      while (static_cast<int>(std::bit_width((column->span >> column->drop) + kFirst + 2)) > left ||
             (column->span >> column->drop) > UINT64_MAX - kFirst - 2) {
        ++column->drop;
        complete = false;
      }
      most = (column->span >> column->drop) + kFirst;
    }
    column->bits = static_cast<int>(std::bit_width(most + 2));
    if (column->bits > left) break;  // texts, of which there is no half
    left -= column->bits;
    column->shift = left;
    result.columns_.push_back(std::move(column));
    if (!complete) break;
  }
  if (codes_of_sample != nullptr)
    MILLSTREAM_TRY(result.codes_of(sample.columns(), static_cast<size_t>(rows), *codes_of_sample));
  return result;
}

Status KeyOrder::codes(const arrow::RecordBatch& rows, std::vector<uint64_t>& codes) const {
  arrow::ArrayVector values;
  for (const auto& column : columns_) values.push_back(rows.column(column->key.column));
  return codes_of(values, static_cast<size_t>(rows.num_rows()), codes);
}

Status KeyOrder::codes_of(const arrow::ArrayVector& arrays, size_t count, std::vector<uint64_t>& out) const {
  out.assign(count, 0);
  std::vector<uint64_t> values(count);
  // Rows whose code says no more than "out of the range of the sample": what follows must not count.
  std::vector<uint8_t> closed;
  for (size_t k = 0; k < columns_.size(); ++k) {
    const auto& column = columns_[k];
    const arrow::Array& array = *arrays[k];
    const bool nulls = array.null_count() > 0;
    const int shift = column->shift;
    uint64_t above;
    bool outside = false;
    std::vector<uint8_t> closes;
    if (column->is_text) {
      above = 2 * column->texts.size() + kFirst + 1;
      const expr::Column<std::string_view> views(*array.data());
      std::string_view last;
      uint64_t last_code = UINT64_MAX;
      for (size_t i = 0; i < count; ++i) {
        if (nulls && array.IsNull(static_cast<int64_t>(i))) continue;
        const std::string_view text = views[static_cast<int64_t>(i)];
        if (last_code == UINT64_MAX || text != last) {
          last = text;
          const auto known = column->text_codes.find(text);
          if (known != column->text_codes.end()) {
            last_code = known->second;
          } else {
            const auto at =
                column->key.descending
                    ? std::lower_bound(column->texts.begin(), column->texts.end(), text, std::greater<>())
                    : std::lower_bound(column->texts.begin(), column->texts.end(), text);
            last_code = 2 * static_cast<uint64_t>(at - column->texts.begin());
          }
        }
        values[i] = last_code + kFirst - 1;
        if (last_code % 2 == 0) {
          if (closes.empty()) closes.resize(count, 0);
          closes[i] = 1;
          outside = true;
        }
      }
    } else {
      above = (column->span >> column->drop) + kFirst + 1;
      MILLSTREAM_TRY(order_codes(array, values.data()).status());
      const uint64_t flip = column->key.descending ? UINT64_MAX : 0;
      const uint64_t low = column->low, span = column->span;
      const int drop = column->drop;
      for (size_t i = 0; i < count; ++i) {
        const uint64_t distance = (values[i] ^ flip) - low;
        outside |= distance > span;
      }
      if (!outside) {
        for (size_t i = 0; i < count; ++i) values[i] = (((values[i] ^ flip) - low) >> drop) + kFirst;
      } else {
        closes.resize(count, 0);
        for (size_t i = 0; i < count; ++i) {
          const uint64_t code = values[i] ^ flip;
          closes[i] = code - low > span;
          values[i] = code < low ? kBelow : code - low > span ? above : ((code - low) >> drop) + kFirst;
        }
      }
    }
    if (nulls) {
      const uint64_t null = column->key.nulls_first ? 0 : above + 1;
      for (size_t i = 0; i < count; ++i) {
        if (array.IsValid(static_cast<int64_t>(i))) continue;
        values[i] = null;
        if (!closes.empty()) closes[i] = 0;
      }
    }
    if (closed.empty()) {
      for (size_t i = 0; i < count; ++i) out[i] |= values[i] << shift;
    } else {
      for (size_t i = 0; i < count; ++i) out[i] |= closed[i] ? 0 : values[i] << shift;
    }
    if (outside) {
      if (closed.empty()) closed.resize(count, 0);
      for (size_t i = 0; i < count; ++i) closed[i] |= closes[i];
    }
  }
  return Status::OK();
}

std::vector<uint64_t> cuts_of(std::vector<uint64_t> codes, int count) {
  std::ranges::sort(codes);
  std::vector<uint64_t> cuts;
  for (int k = 1; k < count && !codes.empty(); ++k)
    cuts.push_back(codes[codes.size() * static_cast<size_t>(k) / static_cast<size_t>(count)]);
  return cuts;
}

}  // namespace millstream::exec
