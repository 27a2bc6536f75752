#include "features/value_counter.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/cpu_share.h"
#include "base/hash.h"

namespace millstream::features {
namespace {

constexpr size_t kHeader = 24;  // count, hash, length
// Rows whose slots and records are asked for together.
constexpr int64_t kTogether = 32;
constexpr size_t kFirstSlots = 1024;
// What a part's reader takes from disk at once.
constexpr int64_t kReadBytes = int64_t{64} << 10;
// Records' places are counted in words of eight bytes, in 32 bits; and a table is never that large.
constexpr size_t kMostTableBytes = size_t{1} << 34;

size_t padded(size_t size) {
  return (size + 7) / 8 * 8;
}

int part_of(uint64_t hash) {
  return static_cast<int>(hash >> 57);
}
static_assert(kCountParts == 1 << 7);

// The header and the first bytes of the value, which may be on the next line of the cache.
void prefetch_record(const char* record) {
  __builtin_prefetch(record, 1);
  __builtin_prefetch(record + kHeader + 16, 1);
}

// Most values are short: no call for those.
bool same_bytes(const char* a, const char* b, size_t size) {
  if (size < 8 || size > 32) return std::memcmp(a, b, size) == 0;
  uint64_t x, y;
  for (size_t at = 0; at + 8 < size; at += 8) {
    std::memcpy(&x, a + at, 8);
    std::memcpy(&y, b + at, 8);
    if (x != y) return false;
  }
  std::memcpy(&x, a + size - 8, 8);
  std::memcpy(&y, b + size - 8, 8);
  return x == y;
}

// What values are ordered by, beside their count.
struct Key {
  uint64_t count = 0;
  bool is_number = false;
  int64_t number = 0;  // of others: the eight bytes behind what all begin with
  std::string_view value;
};

size_t common_length(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// `skip` bytes are the same in all values that this one is compared with.
Key key_of(ValueOrder order, uint64_t count, std::string_view value, size_t skip) {
  Key key{count, false, 0, value};
  if (order == ValueOrder::kDoubles) {
    // Doubles have the order of whole numbers with their bits, the negative ones turned round.
    std::memcpy(&key.number, value.data(), std::min(value.size(), sizeof(key.number)));
    if (key.number < 0) key.number ^= INT64_MAX;
    key.is_number = true;
    return key;
  }
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), key.number);
  key.is_number = error == std::errc{} && end == value.data() + value.size();
  if (!key.is_number) {
    const std::string_view rest = value.substr(std::min(skip, value.size()));
    unsigned char first[8] = {};
    std::memcpy(first, rest.data(), std::min(rest.size(), sizeof(first)));
    uint64_t bytes = 0;
    for (const unsigned char byte : first) bytes = bytes << 8 | byte;
    key.number = static_cast<int64_t>(bytes ^ uint64_t{1} << 63);  // in the order of unsigned numbers
  }
  return key;
}

bool before(const Key& a, const Key& b) {
  if (a.count != b.count) return a.count > b.count;
  if (a.is_number != b.is_number) return a.is_number;
  if (a.number != b.number) return a.number < b.number;
  return a.value < b.value;
}

}  // namespace

double CountedValues::as_double(int64_t i) const {
  double value = 0;
  const std::string_view bytes = (*values)[i];
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(value)));
  return value;
}

void CountRecords::append(std::string& records, const Record& record) {
  const uint64_t numbers[3] = {record.count, record.hash, record.value.size()};
  records.append(reinterpret_cast<const char*>(numbers), kHeader);
  records += record.value;
  records.append(padded(record.value.size()) - record.value.size(), '\0');
}

bool CountRecords::next(std::string_view& records, Record* record) {
  if (records.size() < kHeader) return false;
  uint64_t numbers[3];
  std::memcpy(numbers, records.data(), kHeader);
  if (numbers[2] > records.size() - kHeader) return false;
  const size_t length = static_cast<size_t>(numbers[2]);
  *record = {numbers[0], numbers[1], records.substr(kHeader, length)};
  records.remove_prefix(std::min(records.size(), kHeader + padded(length)));
  return true;
}

CountTable::CountTable() {
  clear();
}

void CountTable::clear() {
  std::string().swap(bytes_);
  std::vector<uint64_t>(kFirstSlots).swap(slots_);
  distinct_ = 0;
}

void CountTable::grow() {
  std::vector<uint64_t> old(slots_.size() * 2);
  old.swap(slots_);
  const uint64_t mask = slots_.size() - 1;
  for (const uint64_t slot : old) {
    if (slot == 0) continue;
    uint64_t at = (slot >> 32) & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

void CountTable::count_at(std::string_view value, uint64_t count, uint64_t hash) {
  const uint64_t mask = slots_.size() - 1;
  const uint64_t tag = hash & UINT32_MAX;
  uint64_t at = tag & mask;
  for (; slots_[at] != 0; at = (at + 1) & mask) {
    if (slots_[at] >> 32 != tag) continue;
    char* const record = bytes_.data() + ((slots_[at] & UINT32_MAX) - 1) * 8;
    uint64_t numbers[3];
    std::memcpy(numbers, record, kHeader);
    if (numbers[1] != hash || numbers[2] != value.size() ||
        !same_bytes(record + kHeader, value.data(), value.size()))
      continue;
    numbers[0] += count;
    std::memcpy(record, numbers, sizeof(uint64_t));
    return;
  }
  slots_[at] = tag << 32 | (bytes_.size() / 8 + 1);
  CountRecords::append(bytes_, {count, hash, value});
  ++distinct_;
  if (static_cast<size_t>(distinct_) * 10 > slots_.size() * 7) grow();
}

Status CountTable::add(std::string_view value, uint64_t count, uint64_t hash) {
  if (bytes_.size() + value.size() > kMostTableBytes)
    return make_error(ErrorCategory::kData, "its different values take more than 16 GiB of memory");
  count_at(value, count, hash);
  return Status::OK();
}

Status CountTable::add(const arrow::StringArray& texts) {
  if (bytes_.size() + static_cast<size_t>(texts.total_values_length()) > kMostTableBytes)
    return make_error(ErrorCategory::kData, "its different values take more than 16 GiB of memory");
  uint64_t hashes[kTogether];
  for (int64_t first = 0; first < texts.length(); first += kTogether) {
    const int64_t here = std::min(kTogether, texts.length() - first);
    const uint64_t mask = slots_.size() - 1;
    for (int64_t k = 0; k < here; ++k) {
      hashes[k] = hash64(texts.GetView(first + k));
      __builtin_prefetch(&slots_[hashes[k] & UINT32_MAX & mask], 1);
    }
    for (int64_t k = 0; k < here; ++k) {
      const uint64_t slot = slots_[hashes[k] & UINT32_MAX & mask];
      if (slot != 0 && slot >> 32 == (hashes[k] & UINT32_MAX))
        prefetch_record(bytes_.data() + ((slot & UINT32_MAX) - 1) * 8);
    }
    for (int64_t k = 0; k < here; ++k) {
      if (texts.IsValid(first + k)) count_at(texts.GetView(first + k), 1, hashes[k]);
    }
  }
  return Status::OK();
}

Status CountTable::add(const double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i] == 0 ? 0.0 : values[i];
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    const std::string_view text(bytes, sizeof(bytes));
    MILLSTREAM_TRY(add(text, 1, hash64(text)));
  }
  return Status::OK();
}

CountRecords::Record CountTable::record(uint32_t place) const {
  std::string_view rest = std::string_view(bytes_).substr(size_t{place} * 8);
  CountRecords::Record record;
  CountRecords::next(rest, &record);
  return record;
}

std::vector<uint32_t> CountTable::by_part(std::vector<size_t>* starts) const {
  std::vector<size_t>& next = *starts;
  next.assign(kCountParts + 1, 0);
  const auto for_each = [&](const auto& visit) {
    std::string_view rest = bytes_;
    CountRecords::Record record;
    for (uint32_t place = 0; CountRecords::next(rest, &record);
         place = static_cast<uint32_t>((bytes_.size() - rest.size()) / 8))
      visit(place, part_of(record.hash));
  };
  for_each([&](uint32_t, int part) { ++next[static_cast<size_t>(part) + 1]; });
  for (size_t part = 0; part < kCountParts; ++part) next[part + 1] += next[part];
  std::vector<uint32_t> places(static_cast<size_t>(distinct_));
  std::vector<size_t> at(next.begin(), next.end() - 1);
  for_each([&](uint32_t place, int part) { places[at[static_cast<size_t>(part)]++] = place; });
  return places;
}

ValueCounter::ValueCounter(ValueOrder order, int threads, int64_t memory, std::string spill_directory)
    : order_(order),
      memory_(memory),
      spill_(std::move(spill_directory)),
      threads_(static_cast<size_t>(threads)),
      segments_(kCountParts) {}

Status ValueCounter::spill_if_large(Thread& thread) {
  if (thread.table.memory() <= memory_ / static_cast<int64_t>(threads_.size())) return Status::OK();
  std::vector<size_t> starts;
  const std::vector<uint32_t> places = thread.table.by_part(&starts);
  std::string records;
  for (size_t part = 0; part < kCountParts; ++part) {
    records.clear();
    for (size_t i = starts[part]; i < starts[part + 1]; ++i)
      CountRecords::append(records, thread.table.record(places[i]));
    if (records.empty()) continue;
    MILLSTREAM_ASSIGN(const int64_t offset, spill_.append(records));
    const std::lock_guard lock(mutex_);
    segments_[part].push_back({offset, static_cast<int64_t>(records.size())});
  }
  thread.table.clear();
  return Status::OK();
}

Status ValueCounter::add(int thread, const arrow::StringArray& texts) {
  Thread& mine = threads_[static_cast<size_t>(thread)];
  MILLSTREAM_TRY(mine.table.add(texts));
  return spill_if_large(mine);
}

Status ValueCounter::add(int thread, const double* values, int64_t count) {
  Thread& mine = threads_[static_cast<size_t>(thread)];
  MILLSTREAM_TRY(mine.table.add(values, count));
  return spill_if_large(mine);
}

Status ValueCounter::add(int thread, const CountTable& counts) {
  Thread& mine = threads_[static_cast<size_t>(thread)];
  std::string_view rest = counts.bytes();
  CountRecords::Record record;
  while (CountRecords::next(rest, &record))
    MILLSTREAM_TRY(mine.table.add(record.value, record.count, record.hash));
  return spill_if_large(mine);
}

void ValueCounter::finish() {
  for (Thread& thread : threads_) thread.records = thread.table.by_part(&thread.starts);
}

void ValueCounter::clear() {
  threads_.clear();
}

Status ValueCounter::part(int part, std::string* records) const {
  const auto p = static_cast<size_t>(part);
  int64_t size = 0;
  for (const Segment& segment : segments_[p]) size += segment.size;
  records->resize(static_cast<size_t>(size));
  char* out = records->data();
  for (const Segment& segment : segments_[p]) {
    MILLSTREAM_TRY(spill_.read(segment.offset, segment.size, out));
    out += segment.size;
  }
  for (const Thread& thread : threads_) {
    for (size_t i = thread.starts[p]; i < thread.starts[p + 1]; ++i)
      CountRecords::append(*records, thread.table.record(thread.records[i]));
  }
  return Status::OK();
}

Status combine_part(const std::vector<std::string_view>& records, ValueOrder order, int64_t min_count,
                    int64_t max_size, std::string* combined, int64_t* distinct) {
  CountTable table;
  CountRecords::Record record;
  for (std::string_view rest : records) {
    while (CountRecords::next(rest, &record))
      MILLSTREAM_TRY(table.add(record.value, record.count, record.hash));
    if (!rest.empty()) return bug_error("counts of another rank are not readable");
  }
  *distinct = table.distinct();
  std::vector<Key> kept;
  size_t common = 0;
  std::string_view rest = table.bytes();
  while (CountRecords::next(rest, &record)) {
    if (static_cast<int64_t>(record.count) >= min_count)
      kept.push_back(key_of(order, record.count, record.value, 0));
  }
  if (order == ValueOrder::kTexts) {
    size_t skip = kept.empty() ? 0 : kept[0].value.size();
    for (const Key& key : kept)
      skip = std::min(skip, common_length(key.value.substr(0, skip), kept[0].value));
    for (Key& key : kept) key = key_of(order, key.count, key.value, skip);
    common = skip;
  }
  const size_t wanted = static_cast<size_t>(std::min<int64_t>(max_size, static_cast<int64_t>(kept.size())));
  if (wanted < kept.size())
    std::nth_element(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(wanted), kept.end(), before);
  kept.resize(wanted);
  std::sort(kept.begin(), kept.end(), before);
  combined->clear();
  for (const Key& key : kept) CountRecords::append(*combined, {key.count, common, key.value});
  return Status::OK();
}

// Records in order, of which a stretch is in memory at a time where they are on disk.
struct PartMerge::Part {
  SpillFile* spill = nullptr;
  std::string bytes;
  int64_t offset = 0, size = 0;  // what is still on disk
  std::string_view rest;
  Key key;

  // The next record's key; false at the end.
  Result<bool> advance(ValueOrder order, size_t skip) {
    CountRecords::Record record;
    for (;;) {
      std::string_view ahead = rest;
      if (CountRecords::next(ahead, &record)) {
        rest = ahead;
        key = key_of(order, record.count, record.value, skip);
        return true;
      }
      if (size == 0) {
        if (!rest.empty()) return bug_error("counts of another rank are not readable");
        return false;
      }
      const int64_t more = std::min(size, std::max<int64_t>(kReadBytes, static_cast<int64_t>(rest.size())));
      std::string next(rest);
      next.resize(rest.size() + static_cast<size_t>(more));
      MILLSTREAM_TRY(spill->read(offset, more, next.data() + rest.size()));
      offset += more;
      size -= more;
      bytes.swap(next);
      rest = bytes;
    }
  }
};

Status PartMerge::add(std::string records) {
  CountRecords::Record first;
  std::string_view begin = records;
  if (!CountRecords::next(begin, &first)) return Status::OK();
  if (parts_.empty()) first_ = first.value;
  skip_ = std::min({skip_, static_cast<size_t>(first.hash), common_length(first_, first.value)});
  for (begin = records; CountRecords::next(begin, &first); ++values_) bytes_ += first.value.size();
  auto part = std::make_shared<Part>();
  part->spill = spill_;
  in_memory_ += static_cast<int64_t>(records.size());
  if (in_memory_ > memory_) {
    in_memory_ -= static_cast<int64_t>(records.size());
    part->size = static_cast<int64_t>(records.size());
    MILLSTREAM_ASSIGN(part->offset, spill_->append(records));
  } else {
    part->bytes = std::move(records);
    part->rest = part->bytes;
  }
  parts_.push_back(std::move(part));
  return Status::OK();
}

Result<std::shared_ptr<const expr::TextList>> PartMerge::merged(int64_t max_size) {
  auto list = std::make_shared<expr::TextList>();
  std::vector<Part*> heads;
  for (const auto& part : parts_) {
    MILLSTREAM_ASSIGN(const bool any, part->advance(order_, skip_));
    if (any) heads.push_back(part.get());
  }
  // Growing step by step would take the list's memory twice.
  list->ends.reserve(std::min(values_, static_cast<size_t>(max_size)));
  list->bytes.reserve(bytes_);
  // A heap whose first is the next. The first is replaced by its successor, which sinks.
  const auto sink = [&](size_t at) {
    Part* const sinking = heads[at];
    for (;;) {
      size_t child = 2 * at + 1;
      if (child >= heads.size()) break;
      if (child + 1 < heads.size() && before(heads[child + 1]->key, heads[child]->key)) ++child;
      if (!before(heads[child]->key, sinking->key)) break;
      heads[at] = heads[child];
      at = child;
    }
    heads[at] = sinking;
  };
  for (size_t i = heads.size() / 2; i-- > 0;) sink(i);
  while (!heads.empty() && list->size() < max_size) {
    const std::string_view value = heads[0]->key.value;
    if (list->bytes.size() + value.size() > UINT32_MAX || list->size() == INT32_MAX - 2) {
      return make_error(
          ErrorCategory::kData,
          fmt::format("it has too many different values: after {} of them the list has {}; keep fewer, "
                      "with max_size=N or min_count=N",
                      list->size(), format_bytes(static_cast<int64_t>(list->bytes.size()))));
    }
    list->bytes += value;
    list->ends.push_back(static_cast<uint32_t>(list->bytes.size()));
    MILLSTREAM_ASSIGN(const bool any, heads[0]->advance(order_, skip_));
    if (!any) {
      heads[0] = heads.back();
      heads.pop_back();
    }
    if (!heads.empty()) sink(0);
  }
  parts_.clear();
  return list;
}

}  // namespace millstream::features
