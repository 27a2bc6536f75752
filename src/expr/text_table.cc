#include "expr/text_table.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/hash.h"

namespace millstream::expr {
namespace {

// Rows whose slots and texts are asked for together, so that the cache misses of one overlap with those of the others.
constexpr int64_t kTogether = 32;

struct TableScalar final : arrow::StringScalar {
  explicit TableScalar(std::shared_ptr<const TextTable> its)
      : arrow::StringScalar(its->key()), table(std::move(its)) {}
  std::shared_ptr<const TextTable> table;
};

// The tables that live, by key. Equal keys mean equal tables, so it does not matter whose is found.
struct Living {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<const TextTable>> tables;
  static Living& instance() {
    static Living* living = new Living;  // tables may outlive static objects
    return *living;
  }
};

std::string key_of(const TextList& list) {
  if (list.size() == 0) return "";
  Digest digest;
  digest.add(list.ends.data(), list.ends.size() * sizeof(uint32_t));
  digest.add(list.bytes);
  return digest.hex();
}

}  // namespace

Result<std::shared_ptr<const TextTable>> TextTable::make(std::shared_ptr<const TextList> list) {
  uint32_t end = 0;
  for (const uint32_t next : list->ends) {
    if (next < end) return data_error("a list of categories is damaged: its texts overlap");
    end = next;
  }
  if (end != list->bytes.size() || list->size() > INT32_MAX)
    return data_error("a list of categories is damaged: its texts have not the length that it says");
  const std::string key = key_of(*list);
  if (auto living = of_key(key)) return living;
  std::shared_ptr<TextTable> table(new TextTable(std::move(list)));
  table->key_ = key;
  uint64_t size = 16;
  while (size * 4 < static_cast<uint64_t>(table->list_->size()) * 5) size *= 2;
  table->slots_.assign(size, 0);
  table->mask_ = size - 1;
  for (int64_t i = 0; i < table->list_->size(); ++i) {
    const std::string_view text = (*table->list_)[i];
    const uint64_t hash = hash64(text);
    uint64_t* const slot = table->slot_of(hash, text);
    if (slot == nullptr) return data_error("a list of categories is damaged: '{}' is in it twice", text);
    *slot = (hash >> 32 << 32) | static_cast<uint64_t>(i + 1);
  }
  Living& living = Living::instance();
  const std::lock_guard lock(living.mutex);
  living.tables[key] = table;
  return table;
}

// Where the text goes; null where it is there already.
uint64_t* TextTable::slot_of(uint64_t hash, std::string_view text) {
  for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
    const uint64_t slot = slots_[at];
    if (slot == 0) return &slots_[at];
    if (slot >> 32 == hash >> 32 && (*list_)[static_cast<int64_t>(slot & UINT32_MAX) - 1] == text)
      return nullptr;
  }
}

TextTable::~TextTable() {
  Living& living = Living::instance();
  const std::lock_guard lock(living.mutex);
  const auto found = living.tables.find(key_);
  if (found != living.tables.end() && found->second.expired()) living.tables.erase(found);
}

std::shared_ptr<const TextTable> TextTable::of_key(const std::string& key) {
  if (key.empty()) {
    static const auto* const empty = [] {
      auto* table = new std::shared_ptr<TextTable>(new TextTable(std::make_shared<const TextList>()));
      (*table)->slots_.assign(1, 0);
      return table;
    }();
    return *empty;
  }
  Living& living = Living::instance();
  const std::lock_guard lock(living.mutex);
  const auto found = living.tables.find(key);
  return found == living.tables.end() ? nullptr : found->second.lock();
}

void TextTable::ids(const char* bytes, const int32_t* offsets, int64_t count, double* ids) const {
  uint64_t hashes[kTogether];
  int64_t places[kTogether];
  const auto text = [&](int64_t i) {
    return std::string_view(bytes + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
  };
  for (int64_t first = 0; first < count; first += kTogether) {
    const int64_t here = std::min(kTogether, count - first);
    for (int64_t k = 0; k < here; ++k) {
      hashes[k] = hash64(text(first + k));
      __builtin_prefetch(&slots_[hashes[k] & mask_]);
      places[k] = -1;
    }
    for (int64_t k = 0; k < here; ++k) {
      const uint64_t slot = slots_[hashes[k] & mask_];
      if (slot == 0 || slot >> 32 != hashes[k] >> 32) continue;
      const int64_t place = static_cast<int64_t>(slot & UINT32_MAX) - 1;
      __builtin_prefetch(&list_->ends[static_cast<size_t>(place)]);
      places[k] = place;
    }
    for (int64_t k = 0; k < here; ++k) {
      if (places[k] >= 0) __builtin_prefetch((*list_)[places[k]].data());
    }
    for (int64_t k = 0; k < here; ++k) {
      const std::string_view wanted = text(first + k);
      const uint64_t hash = hashes[k];
      double id = 0;
      for (uint64_t at = hash & mask_; slots_[at] != 0; at = (at + 1) & mask_) {
        const uint64_t slot = slots_[at];
        const int64_t place = static_cast<int64_t>(slot & UINT32_MAX) - 1;
        if (slot >> 32 != hash >> 32 || (*list_)[place] != wanted) continue;
        id = static_cast<double>(place) + 2;
        break;
      }
      ids[first + k] = id;
    }
  }
}

ExprPtr make_table_literal(std::shared_ptr<const TextTable> table) {
  return make_literal(std::make_shared<TableScalar>(std::move(table)));
}

std::shared_ptr<const TextTable> table_of(const Expression& expression) {
  if (expression.kind != Kind::kLiteral) return nullptr;
  const auto* scalar = dynamic_cast<const TableScalar*>(expression.literal.get());
  return scalar == nullptr ? nullptr : scalar->table;
}

void collect_tables(const Expression& expression, std::vector<std::shared_ptr<const TextTable>>& tables) {
  if (auto table = table_of(expression)) {
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) tables.push_back(std::move(table));
  }
  for (const ExprPtr& argument : expression.arguments) collect_tables(*argument, tables);
}

}  // namespace millstream::expr
