#pragma once
// Cuts rows into ranges of their keys: what lets threads and ranks sort and group apart, and put their results one
// behind the other.
//
// 1. Keys become 64-bit codes that never fall where the keys rise. The ranges of a sample of rows decide how many bits
//    each key gets; a sample that is not like the rows costs balance, never order.
// 2. The same sample gives the same codes and cuts, on every rank.

#include <string>
#include <unordered_map>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"
#include "plan/relational.h"

namespace millstream::exec {

class KeyOrder {
 public:
  /// Column k of `sample` has values of key k; it may be empty. `codes_of_sample` (null: not wanted) become its codes.
  static Result<KeyOrder> learn(std::vector<plan::SortKey> keys, const arrow::RecordBatch& sample,
                                std::vector<uint64_t>* codes_of_sample = nullptr);

  /// codes[i] of row i: where row a comes before row b, code(a) <= code(b). Any thread.
  Status codes(const arrow::RecordBatch& rows, std::vector<uint64_t>& codes) const;

 private:
  // values[k]: those of key k.
  Status codes_of(const arrow::ArrayVector& values, size_t count, std::vector<uint64_t>& codes) const;

  struct Column {
    plan::SortKey key;
    bool is_text = false;
    // Numbers: code - low, shifted right by `drop`, and 2 (of 0, NULL, and 1, below) more; above and NULL behind them.
    uint64_t low = 0;
    uint64_t span = 0;
    int drop = 0;
    // Texts that the sample has, in their order: 2 * rank + 1, and what lies between them 2 * rank.
    std::vector<std::string> texts;
    std::unordered_map<std::string_view, uint64_t> text_codes;
    int bits = 0;
    int shift = 0;
  };

  std::vector<std::shared_ptr<Column>> columns_;
};

/// `count` - 1 codes that cut the codes of a sample into parts of about as many rows; part k is
/// upper_bound(cuts, code).
std::vector<uint64_t> cuts_of(std::vector<uint64_t> codes, int count);

}  // namespace millstream::exec
