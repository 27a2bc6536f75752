#include "exec/group_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <arrow/buffer_builder.h>
#include <arrow/util/bit_util.h>
#include <xxhash.h>

#include "expr/kernel.h"
#include "expr/type.h"

namespace millstream::exec {
namespace {

constexpr int kDirectBits = 18;
constexpr size_t kFirstSlots = 1024;

uint64_t mixed(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return x ^ x >> 32;
}

bool has_dictionary(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
    case arrow::Type::DECIMAL128:
    case arrow::Type::INTERVAL_MONTH_DAY_NANO:
      return true;
    default:
      return false;
  }
}

template <class T, class U>
void widen_values(const arrow::ArrayData& data, int64_t rows, int64_t* out) {
  const T* values = data.GetValues<T>(1);
  for (int64_t i = 0; i < rows; ++i) out[i] = static_cast<int64_t>(static_cast<U>(values[i]));
}

// One NaN and one zero.
int64_t float_code(double x) {
  if (x != x) return std::bit_cast<int64_t>(std::numeric_limits<double>::quiet_NaN());
  return std::bit_cast<int64_t>(x == 0 ? 0.0 : x);
}

}  // namespace

// ---- dictionary

ByteDictionary::ByteDictionary() : slots_(64) {}

uint32_t ByteDictionary::find_or_add(std::string_view bytes) {
  const auto hash = static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].index != 0) {
    if (slots_[at].hash == hash && this->at(slots_[at].index - 1) == bytes) return slots_[at].index - 1;
    at = (at + 1) & (slots_.size() - 1);
  }
  const uint32_t index = size();
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  offsets_.push_back(bytes_.size());
  slots_[at] = {hash, index + 1};
  if (size() * size_t{2} > slots_.size()) grow();
  return index;
}

int64_t ByteDictionary::find(std::string_view bytes) const {
  const auto hash = static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].index != 0) {
    if (slots_[at].hash == hash && this->at(slots_[at].index - 1) == bytes) return slots_[at].index - 1;
    at = (at + 1) & (slots_.size() - 1);
  }
  return -1;
}

void ByteDictionary::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.index == 0) continue;
    size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].index != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

// ---- columns

struct GroupTable::Column {
  std::shared_ptr<arrow::DataType> type;
  ByteDictionary dictionary;  // where the type has one
  // Of every group.
  std::vector<int64_t> codes;
  std::vector<uint8_t> nulls;
  // Packed: a code is code - low + 1 in `bits` bits at `shift`, NULL is 0.
  bool any = false;
  int64_t low = 0;
  uint64_t span = 0;  // high - low
  int bits = 0;
  int shift = 0;

  // The codes of an array; unknown texts become -1 where nothing may be added.
  template <bool add, class Self>
  static Status encode(Self& self, const arrow::Array& array, int64_t rows, std::vector<int64_t>& out,
                       std::vector<uint8_t>& out_nulls) {
    const arrow::ArrayData& data = *array.data();
    out.resize(static_cast<size_t>(rows));
    out_nulls.clear();
    int64_t* codes = out.data();
    switch (self.type->id()) {
      case arrow::Type::BOOL: {
        const expr::Column<bool> values(data);
        for (int64_t i = 0; i < rows; ++i) codes[i] = values[i];
        break;
      }
      case arrow::Type::INT8:
        widen_values<int8_t, int64_t>(data, rows, codes);
        break;
      case arrow::Type::UINT8:
        widen_values<uint8_t, uint64_t>(data, rows, codes);
        break;
      case arrow::Type::INT16:
        widen_values<int16_t, int64_t>(data, rows, codes);
        break;
      case arrow::Type::UINT16:
        widen_values<uint16_t, uint64_t>(data, rows, codes);
        break;
      case arrow::Type::INT32:
      case arrow::Type::DATE32:
        widen_values<int32_t, int64_t>(data, rows, codes);
        break;
      case arrow::Type::UINT32:
        widen_values<uint32_t, uint64_t>(data, rows, codes);
        break;
      case arrow::Type::INT64:
      case arrow::Type::UINT64:
      case arrow::Type::TIME64:
      case arrow::Type::TIMESTAMP:
        if (rows > 0) std::memcpy(codes, data.GetValues<int64_t>(1), static_cast<size_t>(rows) * 8);
        break;
      case arrow::Type::FLOAT: {
        const float* values = data.GetValues<float>(1);
        for (int64_t i = 0; i < rows; ++i) codes[i] = float_code(values[i]);
        break;
      }
      case arrow::Type::DOUBLE: {
        const double* values = data.GetValues<double>(1);
        for (int64_t i = 0; i < rows; ++i) codes[i] = float_code(values[i]);
        break;
      }
      case arrow::Type::STRING:
      case arrow::Type::BINARY: {
        const expr::Column<std::string_view> values(data);
        std::string_view last;
        int64_t last_code = -2;
        for (int64_t i = 0; i < rows; ++i) {
          if (array.IsNull(i)) {
            codes[i] = 0;
            continue;
          }
          const std::string_view value = values[i];
          if (last_code == -2 || value != last) {
            if constexpr (add) {
              last_code = self.dictionary.find_or_add(value);
            } else {
              last_code = self.dictionary.find(value);
            }
            last = value;
          }
          codes[i] = last_code;
        }
        break;
      }
      case arrow::Type::DECIMAL128:
      case arrow::Type::INTERVAL_MONTH_DAY_NANO: {
        const auto* values = data.buffers[1]->data() + data.offset * 16;
        for (int64_t i = 0; i < rows; ++i) {
          if (array.IsNull(i)) {
            codes[i] = 0;
            continue;
          }
          const std::string_view value(reinterpret_cast<const char*>(values + 16 * i), 16);
          if constexpr (add) {
            codes[i] = self.dictionary.find_or_add(value);
          } else {
            codes[i] = self.dictionary.find(value);
          }
        }
        break;
      }
      default:
        return bug_error("{} cannot be a key", self.type->ToString());
    }
    if (array.null_count() > 0) {
      out_nulls.resize(static_cast<size_t>(rows));
      for (int64_t i = 0; i < rows; ++i) {
        const bool null = array.IsNull(i);
        out_nulls[static_cast<size_t>(i)] = null;
        if (null) codes[i] = 0;
      }
    }
    return Status::OK();
  }
};

GroupTable::GroupTable(std::vector<std::shared_ptr<arrow::DataType>> types) {
  for (auto& type : types) {
    columns_.push_back(std::make_unique<Column>());
    columns_.back()->type = std::move(type);
  }
  rebuild();
}
GroupTable::~GroupTable() = default;

// Makes room for the codes in the columns' ranges; true where they changed.
bool GroupTable::widen(const Codes& codes, int64_t rows) {
  bool changed = false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    Column& column = *columns_[c];
    int64_t low = std::numeric_limits<int64_t>::max();
    int64_t high = std::numeric_limits<int64_t>::min();
    if (codes.nulls[c].empty()) {
      for (int64_t i = 0; i < rows; ++i) {
        low = std::min(low, codes.values[c][static_cast<size_t>(i)]);
        high = std::max(high, codes.values[c][static_cast<size_t>(i)]);
      }
    } else {
      for (int64_t i = 0; i < rows; ++i) {
        if (codes.nulls[c][static_cast<size_t>(i)]) continue;
        low = std::min(low, codes.values[c][static_cast<size_t>(i)]);
        high = std::max(high, codes.values[c][static_cast<size_t>(i)]);
      }
    }
    if (low > high) continue;  // NULLs alone
    if (column.any) {
      const int64_t known_high = static_cast<int64_t>(static_cast<uint64_t>(column.low) + column.span);
      if (low >= column.low && high <= known_high) continue;
      low = std::min(low, column.low);
      high = std::max(high, known_high);
    }
    changed = true;
    uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    const int bits = span >= UINT64_MAX - 1 ? 65 : std::bit_width(span + 1);
    if (bits < 63) {
      // All that the bits hold, where more is likely to come.
      const uint64_t all = (uint64_t{1} << bits) - 2;
      const bool up =
          !column.any || high > static_cast<int64_t>(static_cast<uint64_t>(column.low) + column.span);
      const uint64_t slack = all - span;
      if (up &&
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - static_cast<uint64_t>(high) >= slack) {
        span = all;
      } else if (!up &&
                 static_cast<uint64_t>(low) - static_cast<uint64_t>(std::numeric_limits<int64_t>::min()) >=
                     slack) {
        low = static_cast<int64_t>(static_cast<uint64_t>(low) - slack);
        span = all;
      }
    }
    column.any = true;
    column.low = low;
    column.span = span;
    column.bits = bits;
  }
  return changed;
}

void GroupTable::pack(const Codes& codes, int64_t rows, std::vector<uint64_t>& packed) const {
  packed.assign(static_cast<size_t>(rows), 0);
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = *columns_[c];
    if (column.bits == 0) continue;
    const int64_t* values = codes.values[c].data();
    const uint64_t base = static_cast<uint64_t>(column.low) - 1;
    const int shift = column.shift;
    if (codes.nulls[c].empty()) {
      for (int64_t i = 0; i < rows; ++i)
        packed[static_cast<size_t>(i)] |= (static_cast<uint64_t>(values[i]) - base) << shift;
    } else {
      const uint8_t* nulls = codes.nulls[c].data();
      for (int64_t i = 0; i < rows; ++i)
        packed[static_cast<size_t>(i)] |= nulls[i] ? 0 : (static_cast<uint64_t>(values[i]) - base) << shift;
    }
  }
}

uint64_t GroupTable::packed_of_group(uint32_t group) const {
  uint64_t packed = 0;
  for (const auto& column : columns_) {
    if (column->nulls[group]) continue;
    packed |= (static_cast<uint64_t>(column->codes[group]) - static_cast<uint64_t>(column->low) + 1)
              << column->shift;
  }
  return packed;
}

uint64_t GroupTable::hash_of_row(const Codes& codes, int64_t row) const {
  uint64_t hash = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const bool null = !codes.nulls[c].empty() && codes.nulls[c][static_cast<size_t>(row)];
    hash = mixed(hash * 31 + static_cast<uint64_t>(codes.values[c][static_cast<size_t>(row)]) +
                 (null ? 0x51ED27u : 0));
  }
  return hash;
}

uint64_t GroupTable::hash_of_group(uint32_t group) const {
  uint64_t hash = 0;
  for (const auto& column : columns_)
    hash = mixed(hash * 31 + static_cast<uint64_t>(column->codes[group]) +
                 (column->nulls[group] ? 0x51ED27u : 0));
  return hash;
}

bool GroupTable::equal(uint32_t group, const Codes& codes, int64_t row) const {
  for (size_t c = 0; c < columns_.size(); ++c) {
    const bool null = !codes.nulls[c].empty() && codes.nulls[c][static_cast<size_t>(row)];
    if (columns_[c]->codes[group] != codes.values[c][static_cast<size_t>(row)] ||
        (columns_[c]->nulls[group] != 0) != null)
      return false;
  }
  return true;
}

uint32_t GroupTable::append(const Codes& codes, int64_t row) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    columns_[c]->codes.push_back(codes.values[c][static_cast<size_t>(row)]);
    columns_[c]->nulls.push_back(!codes.nulls[c].empty() && codes.nulls[c][static_cast<size_t>(row)]);
  }
  return size_++;
}

// Decides how keys are looked up, and enters all groups anew.
void GroupTable::rebuild() {
  bits_ = 0;
  for (const auto& column : columns_) {
    column->shift = bits_;
    bits_ += column->bits;
  }
  is_packed_ = is_packed_ && bits_ <= 64;
  direct_.clear();
  packed_slots_.clear();
  hashed_slots_.clear();
  const size_t slots = std::max(kFirstSlots, std::bit_ceil(size_t{size_} * 2 + 1));
  if (!is_packed_) {
    hashed_slots_.resize(slots);
    for (uint32_t group = 0; group < size_; ++group) {
      const uint64_t hash = hash_of_group(group);
      size_t at = hash & (slots - 1);
      while (hashed_slots_[at].group != 0) at = (at + 1) & (slots - 1);
      hashed_slots_[at] = {hash, group + 1};
    }
  } else if (bits_ <= kDirectBits) {
    direct_.resize(size_t{1} << bits_);
    for (uint32_t group = 0; group < size_; ++group) direct_[packed_of_group(group)] = group + 1;
  } else {
    packed_slots_.resize(slots);
    for (uint32_t group = 0; group < size_; ++group) {
      const uint64_t key = packed_of_group(group);
      size_t at = mixed(key) & (slots - 1);
      while (packed_slots_[at].group != 0) at = (at + 1) & (slots - 1);
      packed_slots_[at] = {key, group + 1};
    }
  }
}

void GroupTable::grow_slots() {
  const size_t slots = is_packed_ ? packed_slots_.size() : hashed_slots_.size();
  if (direct_.empty() && size_t{size_} * 2 > slots) rebuild();
}

void GroupTable::add_packed(const Codes& codes, int64_t rows, std::vector<uint32_t>& groups) {
  std::vector<uint64_t> packed;
  pack(codes, rows, packed);
  if (!direct_.empty()) {
    for (int64_t i = 0; i < rows; ++i) {
      uint32_t& group = direct_[packed[static_cast<size_t>(i)]];
      if (group == 0) group = append(codes, i) + 1;
      groups[static_cast<size_t>(i)] = group - 1;
    }
    return;
  }
  constexpr int64_t kAhead = 12;
  for (int64_t i = 0; i < rows; ++i) {
    const size_t mask = packed_slots_.size() - 1;
    if (i + kAhead < rows)
      __builtin_prefetch(&packed_slots_[mixed(packed[static_cast<size_t>(i + kAhead)]) & mask]);
    const uint64_t key = packed[static_cast<size_t>(i)];
    size_t at = mixed(key) & mask;
    while (packed_slots_[at].group != 0 && packed_slots_[at].key != key) at = (at + 1) & mask;
    if (packed_slots_[at].group == 0) {
      packed_slots_[at] = {key, append(codes, i) + 1};
      groups[static_cast<size_t>(i)] = size_ - 1;
      grow_slots();
    } else {
      groups[static_cast<size_t>(i)] = packed_slots_[at].group - 1;
    }
  }
}

void GroupTable::add_hashed(const Codes& codes, int64_t rows, std::vector<uint32_t>& groups) {
  for (int64_t i = 0; i < rows; ++i) {
    const uint64_t hash = hash_of_row(codes, i);
    const size_t mask = hashed_slots_.size() - 1;
    size_t at = hash & mask;
    while (hashed_slots_[at].group != 0 &&
           !(hashed_slots_[at].hash == hash && equal(hashed_slots_[at].group - 1, codes, i))) {
      at = (at + 1) & mask;
    }
    if (hashed_slots_[at].group == 0) {
      hashed_slots_[at] = {hash, append(codes, i) + 1};
      groups[static_cast<size_t>(i)] = size_ - 1;
      grow_slots();
    } else {
      groups[static_cast<size_t>(i)] = hashed_slots_[at].group - 1;
    }
  }
}

Status GroupTable::find_or_add(const std::vector<std::shared_ptr<arrow::Array>>& keys, int64_t rows,
                               std::vector<uint32_t>& groups) {
  groups.resize(static_cast<size_t>(rows));
  if (columns_.empty()) {
    if (rows > 0) size_ = 1;
    std::fill(groups.begin(), groups.end(), 0);
    return Status::OK();
  }
  if (size_ > kNone - 2 - rows) return failed_error("there are more than {} groups", kNone - 2 - rows);
  Codes codes;
  codes.values.resize(columns_.size());
  codes.nulls.resize(columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c)
    MILLSTREAM_TRY(Column::encode<true>(*columns_[c], *keys[c], rows, codes.values[c], codes.nulls[c]));
  if (is_packed_ && widen(codes, rows)) rebuild();
  if (is_packed_) {
    add_packed(codes, rows, groups);
  } else {
    add_hashed(codes, rows, groups);
  }
  return Status::OK();
}

Status GroupTable::find(const std::vector<std::shared_ptr<arrow::Array>>& keys, int64_t rows,
                        std::vector<uint32_t>& groups) const {
  groups.assign(static_cast<size_t>(rows), size_ > 0 ? 0 : kNone);
  if (columns_.empty() || size_ == 0) return Status::OK();
  Codes codes;
  codes.values.resize(columns_.size());
  codes.nulls.resize(columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c)
    MILLSTREAM_TRY(Column::encode<false>(static_cast<const Column&>(*columns_[c]), *keys[c], rows,
                                         codes.values[c], codes.nulls[c]));
  // Codes that no group has, put to 0 so that they pack.
  std::vector<uint8_t> absent(static_cast<size_t>(rows), 0);
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = *columns_[c];
    int64_t* values = codes.values[c].data();
    const bool nulls = !codes.nulls[c].empty();
    const bool dictionary = has_dictionary(*column.type);
    for (int64_t i = 0; i < rows; ++i) {
      if (nulls && codes.nulls[c][static_cast<size_t>(i)]) continue;
      const bool unknown = (dictionary && values[i] < 0) ||
                           (is_packed_ && (!column.any || static_cast<uint64_t>(values[i]) -
                                                                  static_cast<uint64_t>(column.low) >
                                                              column.span));
      if (unknown) {
        absent[static_cast<size_t>(i)] = 1;
        values[i] = column.low;
      }
    }
  }
  std::vector<uint64_t> packed;
  if (is_packed_) pack(codes, rows, packed);
  for (int64_t i = 0; i < rows; ++i) {
    uint32_t& group = groups[static_cast<size_t>(i)];
    group = kNone;
    if (absent[static_cast<size_t>(i)]) continue;
    if (is_packed_ && !direct_.empty()) {
      const uint64_t key = packed[static_cast<size_t>(i)];
      group = key < direct_.size() ? direct_[key] - 1 : kNone;
    } else if (is_packed_) {
      const uint64_t key = packed[static_cast<size_t>(i)];
      const size_t mask = packed_slots_.size() - 1;
      size_t at = mixed(key) & mask;
      while (packed_slots_[at].group != 0 && packed_slots_[at].key != key) at = (at + 1) & mask;
      group = packed_slots_[at].group - 1;
    } else {
      const uint64_t hash = hash_of_row(codes, i);
      const size_t mask = hashed_slots_.size() - 1;
      size_t at = hash & mask;
      while (hashed_slots_[at].group != 0 &&
             !(hashed_slots_[at].hash == hash && equal(hashed_slots_[at].group - 1, codes, i))) {
        at = (at + 1) & mask;
      }
      group = hashed_slots_[at].group - 1;
    }
  }
  return Status::OK();
}

namespace {

// Codes as values of a fixed width.
template <class T>
Result<std::shared_ptr<arrow::Buffer>> narrowed(const std::vector<int64_t>& codes) {
  MILLSTREAM_ASSIGN(auto buffer, arrow::AllocateBuffer(static_cast<int64_t>(codes.size() * sizeof(T))));
  auto* const values = reinterpret_cast<T*>(buffer->mutable_data());
  for (size_t i = 0; i < codes.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      values[i] = static_cast<T>(std::bit_cast<double>(codes[i]));
    } else {
      values[i] = static_cast<T>(codes[i]);
    }
  }
  return std::shared_ptr<arrow::Buffer>(std::move(buffer));
}

Result<std::shared_ptr<arrow::Buffer>> bits_of(size_t count, auto&& bit) {
  MILLSTREAM_ASSIGN(auto buffer, arrow::AllocateEmptyBitmap(static_cast<int64_t>(count)));
  for (size_t i = 0; i < count; ++i)
    if (bit(i)) arrow::bit_util::SetBit(buffer->mutable_data(), static_cast<int64_t>(i));
  return buffer;
}

}  // namespace

Result<std::vector<std::shared_ptr<arrow::Array>>> GroupTable::keys() const {
  std::vector<std::shared_ptr<arrow::Array>> out;
  for (const auto& column : columns_) {
    const std::vector<int64_t>& codes = column->codes;
    std::vector<std::shared_ptr<arrow::Buffer>> buffers(2);
    const int64_t nulls = std::ranges::count_if(column->nulls, [](uint8_t null) { return null != 0; });
    if (nulls > 0) {
      MILLSTREAM_ASSIGN(buffers[0], bits_of(size_, [&](size_t i) { return column->nulls[i] == 0; }));
    }
    switch (column->type->id()) {
      case arrow::Type::BOOL: {
        MILLSTREAM_ASSIGN(buffers[1], bits_of(size_, [&](size_t i) { return codes[i] != 0; }));
        break;
      }
      case arrow::Type::INT8:
      case arrow::Type::UINT8: {
        MILLSTREAM_ASSIGN(buffers[1], narrowed<int8_t>(codes));
        break;
      }
      case arrow::Type::INT16:
      case arrow::Type::UINT16: {
        MILLSTREAM_ASSIGN(buffers[1], narrowed<int16_t>(codes));
        break;
      }
      case arrow::Type::INT32:
      case arrow::Type::DATE32:
      case arrow::Type::UINT32: {
        MILLSTREAM_ASSIGN(buffers[1], narrowed<int32_t>(codes));
        break;
      }
      case arrow::Type::INT64:
      case arrow::Type::UINT64:
      case arrow::Type::TIME64:
      case arrow::Type::TIMESTAMP: {
        MILLSTREAM_ASSIGN(buffers[1], narrowed<int64_t>(codes));
        break;
      }
      case arrow::Type::FLOAT: {
        MILLSTREAM_ASSIGN(buffers[1], narrowed<float>(codes));
        break;
      }
      case arrow::Type::DOUBLE: {
        MILLSTREAM_ASSIGN(buffers[1], narrowed<double>(codes));
        break;
      }
      case arrow::Type::STRING:
      case arrow::Type::BINARY: {
        arrow::BufferBuilder bytes;
        arrow::TypedBufferBuilder<int32_t> offsets;
        MILLSTREAM_TRY(offsets.Append(0));
        for (uint32_t group = 0; group < size_; ++group) {
          if (column->nulls[group] == 0) {
            const std::string_view text = column->dictionary.at(static_cast<uint32_t>(codes[group]));
            MILLSTREAM_TRY(bytes.Append(text));
            if (bytes.length() > std::numeric_limits<int32_t>::max())
              return failed_error("the texts of {} groups need more than 2 GiB in one column", size_);
          }
          MILLSTREAM_TRY(offsets.Append(static_cast<int32_t>(bytes.length())));
        }
        buffers.resize(3);
        MILLSTREAM_ASSIGN(buffers[1], offsets.Finish());
        MILLSTREAM_ASSIGN(buffers[2], bytes.Finish());
        break;
      }
      case arrow::Type::DECIMAL128:
      case arrow::Type::INTERVAL_MONTH_DAY_NANO: {
        MILLSTREAM_ASSIGN(auto values, arrow::AllocateBuffer(int64_t{16} * size_));
        for (uint32_t group = 0; group < size_; ++group) {
          uint8_t* const value = values->mutable_data() + int64_t{16} * group;
          if (column->nulls[group] != 0) {
            std::memset(value, 0, 16);
          } else {
            std::memcpy(value, column->dictionary.at(static_cast<uint32_t>(codes[group])).data(), 16);
          }
        }
        buffers[1] = std::move(values);
        break;
      }
      default:
        return bug_error("{} cannot be a key", column->type->ToString());
    }
    out.push_back(arrow::MakeArray(arrow::ArrayData::Make(column->type, size_, std::move(buffers), nulls)));
  }
  return out;
}

int64_t GroupTable::memory() const {
  int64_t bytes = static_cast<int64_t>(direct_.capacity() * 4 + packed_slots_.capacity() * sizeof(Packed) +
                                       hashed_slots_.capacity() * sizeof(Hashed));
  for (const auto& column : columns_)
    bytes += static_cast<int64_t>(column->codes.capacity() * 8 + column->nulls.capacity()) +
             column->dictionary.memory();
  return bytes;
}

}  // namespace millstream::exec
