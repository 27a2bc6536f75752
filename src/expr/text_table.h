#pragma once
// Long lists of different texts, and the function that says where in such a list a text is: what categorify fits may
// have millions of them, too many for a CASE.
//
// A list takes part in expressions as a literal, a text (the list's key, a digest of what is in it) that carries the
// list along. So expressions are copied, compared and written to bundles as any other: category_id(x, '3f…'). Text
// that names a list by its key is bound to the list as long as somebody holds it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "expr/expression.h"

namespace millstream::expr {

/// Texts one after another. Immutable once shared.
struct TextList {
  std::string bytes;
  std::vector<uint32_t> ends;  ///< where each text ends in `bytes`

  int64_t size() const { return static_cast<int64_t>(ends.size()); }
  std::string_view operator[](int64_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends[static_cast<size_t>(i) - 1];
    return std::string_view(bytes).substr(begin, ends[static_cast<size_t>(i)] - begin);
  }
};

/// Finds texts in a list by hashing. Beside the list it takes 8 bytes for each of at most 2.5 slots a text.
class TextTable {
 public:
  /// A data error where a text is there twice or an end is out of place; `list` may come from a stranger.
  static Result<std::shared_ptr<const TextTable>> make(std::shared_ptr<const TextList> list);
  /// The living table of that key, null where there is none. The empty table has the key "" and always lives.
  static std::shared_ptr<const TextTable> of_key(const std::string& key);
  ~TextTable();
  TextTable(const TextTable&) = delete;
  TextTable& operator=(const TextTable&) = delete;

  const TextList& list() const { return *list_; }
  const std::string& key() const { return key_; }

  /// ids[i] = 2 + the place of text i of `count`, whose bytes lie between offsets[i] and offsets[i + 1]; 0 where it is
  /// not in the list.
  void ids(const char* bytes, const int32_t* offsets, int64_t count, double* ids) const;

 private:
  explicit TextTable(std::shared_ptr<const TextList> list) : list_(std::move(list)) {}
  uint64_t* slot_of(uint64_t hash, std::string_view text);

  std::shared_ptr<const TextList> list_;
  std::string key_;
  std::vector<uint64_t> slots_;  // upper half: bits of the hash; lower: 1 + the place; 0: empty
  uint64_t mask_ = 0;
};

/// A literal of type utf8 that carries the table.
ExprPtr make_table_literal(std::shared_ptr<const TextTable> table);
/// The table that a literal carries; null for any other expression.
std::shared_ptr<const TextTable> table_of(const Expression& expression);
/// The tables in an expression, in the order in which they are met, each once.
void collect_tables(const Expression& expression, std::vector<std::shared_ptr<const TextTable>>& tables);

}  // namespace millstream::expr
