#pragma once
// Numbers the distinct combinations of key columns: what grouping, DISTINCT and joins look rows up in.
//
// Each key column becomes 64-bit codes: integers, dates and times are their values, floats their bits (with one NaN
// and one zero), texts and decimals the numbers of a dictionary. While the ranges of the codes seen so far fit into 64
// bits together, a row's key is one packed integer; it indexes a table directly where it has few bits, and is hashed
// otherwise. Ranges widen as rows come, and where they no longer fit, rows of codes are hashed and compared.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"

namespace millstream::exec {

/// Texts, each once, numbered in the order of their arrival.
class ByteDictionary {
 public:
  ByteDictionary();
  uint32_t find_or_add(std::string_view bytes);
  /// -1 where it is not there.
  int64_t find(std::string_view bytes) const;
  std::string_view at(uint32_t index) const {
    return {bytes_.data() + offsets_[index], static_cast<size_t>(offsets_[index + 1] - offsets_[index])};
  }
  uint32_t size() const { return static_cast<uint32_t>(offsets_.size() - 1); }
  int64_t memory() const {
    return static_cast<int64_t>(bytes_.capacity() + offsets_.capacity() * 8 +
                                slots_.capacity() * sizeof(Slot));
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t index = 0;  // + 1; 0: free
  };
  void grow();

  std::vector<char> bytes_;
  std::vector<uint64_t> offsets_ = {0};
  std::vector<Slot> slots_;
};

class GroupTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit GroupTable(std::vector<std::shared_ptr<arrow::DataType>> types);
  ~GroupTable();

  /// groups[i] becomes the number of row i's combination; new ones get the next numbers. NULL is a value.
  Status find_or_add(const std::vector<std::shared_ptr<arrow::Array>>& keys, int64_t rows,
                     std::vector<uint32_t>& groups);
  /// The same without adding: kNone for combinations that are not there. May be called by several threads at once.
  Status find(const std::vector<std::shared_ptr<arrow::Array>>& keys, int64_t rows,
              std::vector<uint32_t>& groups) const;

  uint32_t size() const { return size_; }
  /// The keys of all groups, in the order of their numbers.
  Result<std::vector<std::shared_ptr<arrow::Array>>> keys() const;
  int64_t memory() const;

 private:
  struct Column;
  struct Codes {
    std::vector<std::vector<int64_t>> values;
    std::vector<std::vector<uint8_t>> nulls;  // empty: none
  };
  struct Packed {
    uint64_t key = 0;
    uint32_t group = 0;  // + 1
  };
  struct Hashed {
    uint64_t hash = 0;
    uint32_t group = 0;
  };

  void add_packed(const Codes& codes, int64_t rows, std::vector<uint32_t>& groups);
  void add_hashed(const Codes& codes, int64_t rows, std::vector<uint32_t>& groups);
  bool widen(const Codes& codes, int64_t rows);
  void rebuild();
  void pack(const Codes& codes, int64_t rows, std::vector<uint64_t>& packed) const;
  uint64_t packed_of_group(uint32_t group) const;
  uint64_t hash_of_row(const Codes& codes, int64_t row) const;
  uint64_t hash_of_group(uint32_t group) const;
  bool equal(uint32_t group, const Codes& codes, int64_t row) const;
  uint32_t append(const Codes& codes, int64_t row);
  void grow_slots();

  std::vector<std::unique_ptr<Column>> columns_;
  uint32_t size_ = 0;
  bool is_packed_ = true;
  int bits_ = 0;
  std::vector<uint32_t> direct_;  // by packed key: group + 1
  std::vector<Packed> packed_slots_;
  std::vector<Hashed> hashed_slots_;
};

}  // namespace millstream::exec
