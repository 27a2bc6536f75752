#pragma once
// Counts the different values of a column: on every rank by threads, in as much memory as they are given and on disk
// beyond it, and then together, part by part (loader/count_values.h makes the ranks meet).
//
// Values are bytes: a text, or the eight of a double. A value belongs to one of kCountParts parts by its hash. A thread
// counts in a table of its own; where that gets too large its content goes to a file, ordered by part, and it begins
// anew. What all threads and ranks have of a part is then put together by one of them. Counts add up, and what comes
// out is ordered by count and value: it depends neither on who counted nor on what was written to disk.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/api.h>

#include "base/spill_file.h"
#include "base/status.h"
#include "expr/text_table.h"

namespace millstream::features {

inline constexpr int kCountParts = 128;

/// What orders equally frequent values.
enum class ValueOrder : uint8_t {
  kTexts,    ///< whole numbers first, as numbers; then texts bytewise
  kDoubles,  ///< as numbers
};

/// The values that a step keeps, the most frequent first.
struct CountedValues {
  int64_t distinct = 0;  ///< of all, also those that are not kept
  std::shared_ptr<const expr::TextList> values;

  bool empty() const { return values == nullptr || values->size() == 0; }
  double as_double(int64_t i) const;  ///< of ValueOrder::kDoubles
};

/// Counted values one after another: count, hash, length and bytes of each, padded to eight. Ranks exchange these. In
/// a part that is put together the place of the hash has the length of what all its values begin with.
class CountRecords {
 public:
  struct Record {
    uint64_t count = 0;
    uint64_t hash = 0;
    std::string_view value;
  };
  static void append(std::string& records, const Record& record);
  /// The first record; `records` goes on behind it. False at the end, and where the bytes are damaged.
  static bool next(std::string_view& records, Record* record);
};

/// Counts of one thread, or of one part. Not thread-safe.
class CountTable {
 public:
  CountTable();
  Status add(std::string_view value, uint64_t count, uint64_t hash);
  /// Texts; nulls are left out. −0 counts as 0.
  Status add(const arrow::StringArray& texts);
  Status add(const double* values, int64_t count);

  int64_t distinct() const { return distinct_; }
  /// Bytes, and those it would have with twice the slots where it is about to take them.
  int64_t memory() const {
    return static_cast<int64_t>(bytes_.capacity() + slots_.capacity() * sizeof(uint64_t));
  }
  void clear();
  /// All records by part: part p's are those from starts[p] to starts[p + 1].
  std::vector<uint32_t> by_part(std::vector<size_t>* starts) const;
  CountRecords::Record record(uint32_t place) const;
  std::string_view bytes() const { return bytes_; }

 private:
  void count_at(std::string_view value, uint64_t count, uint64_t hash);
  void grow();

  std::string bytes_;  // records
  std::vector<uint64_t>
      slots_;  // upper half: the hash's lower; lower: 1 + place of the record in words; 0: empty
  int64_t distinct_ = 0;
};

/// One column on one rank.
class ValueCounter {
 public:
  /// `memory` bytes for all `threads` together, of which each has its share.
  ValueCounter(ValueOrder order, int threads, int64_t memory, std::string spill_directory);

  ValueOrder order() const { return order_; }
  /// By thread number `thread`, each in one thread at a time.
  Status add(int thread, const arrow::StringArray& texts);
  Status add(int thread, const double* values, int64_t count);
  Status add(int thread, const CountTable& counts);

  /// When all is added: this rank's records of a part. Thread-safe.
  Status part(int part, std::string* records) const;
  /// Written to disk so far.
  int64_t spilled_bytes() const { return spill_.bytes(); }
  SpillFile& spill() { return spill_; }
  int64_t memory() const { return memory_; }
  /// Sorts what is in memory by part; before the first part().
  void finish();
  /// Gives up what is in memory, after the last part().
  void clear();

 private:
  struct Segment {
    int64_t offset = 0, size = 0;
  };
  struct Thread {
    CountTable table;
    std::vector<uint32_t> records;  // after finish()
    std::vector<size_t> starts;
  };
  Status spill_if_large(Thread& thread);

  ValueOrder order_;
  int64_t memory_;
  SpillFile spill_;
  std::vector<Thread> threads_;
  std::mutex mutex_;
  std::vector<std::vector<Segment>> segments_;  // by part
};

/// Puts the records of one part together: those with at least `min_count`, and of them the `max_size` most frequent,
/// as records in order. `distinct` is of all.
Status combine_part(const std::vector<std::string_view>& records, ValueOrder order, int64_t min_count,
                    int64_t max_size, std::string* combined, int64_t* distinct);

/// Parts as combine_part() made them, in memory or on disk, that are merged to one list.
class PartMerge {
 public:
  PartMerge(ValueOrder order, SpillFile* spill, int64_t memory)
      : order_(order), spill_(spill), memory_(memory) {}
  Status add(std::string records);  ///< all before merged()
  /// The `max_size` most frequent values. A data error beyond 4 GiB of them.
  Result<std::shared_ptr<const expr::TextList>> merged(int64_t max_size);

 private:
  struct Part;
  ValueOrder order_;
  SpillFile* spill_;
  int64_t memory_, in_memory_ = 0;
  std::vector<std::shared_ptr<Part>> parts_;
  size_t values_ = 0, bytes_ = 0;  // of all parts
  std::string first_;              // value of the first part
  size_t skip_ = SIZE_MAX;         // what all values begin with
};

}  // namespace millstream::features
