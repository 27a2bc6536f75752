#pragma once
// Which of a block's surviving rows take part: the limit on rows, nulls and non-finite values in the raw columns
// of features and target, and the split into training, validation and test rows.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/block_source.h"
#include "features/feature_plan.h"
#include "loader/split.h"

namespace millstream::loader {

/// Why a row was left out.
enum class DropReason : uint8_t { kNull, kNan, kInfinite, kCorrupt };
inline constexpr int kValueReasons = 3;  ///< all but kCorrupt
const char* drop_reason_name(DropReason reason);

/// The rows of a block, by index into BlockRows::rows. Reused from block to block.
struct SelectedRows {
  bool all_train = false;  ///< every row trains; `train` is empty then
  std::vector<int32_t> train;
  std::vector<int32_t> valid;
  int64_t train_rows = 0;
  int64_t valid_rows = 0;
  int64_t dropped = 0;  ///< for values that may not be there
  /// Of them by rule (as the rules were given) and reason; a row counts for the first rule that it breaks. Empty: none.
  std::vector<std::array<int64_t, kValueReasons>> dropped_by;
  std::vector<uint8_t> bad;  ///< scratch: 0, or 1 + the reason
  std::vector<Part> parts;   ///< scratch
};

/// Thread-safe once made.
class RowRules {
 public:
  /// `of_bundle`: the rules are a bundle's; errors then give advice for who has no recipe.
  RowRules(const plan::SourceTable& table, std::vector<features::RawColumnRule> rules, Split split,
           bool of_bundle = false);
  /// `fraction` of the rows validate. 0: none.
  RowRules(const plan::SourceTable& table, std::vector<features::RawColumnRule> rules, double fraction,
           bool of_bundle = false)
      : RowRules(table, std::move(rules), Split::of_fraction(fraction), of_bundle) {}

  /// From now on the rows of this part are those that train, and there are no others.
  void take_only(Part part) { only_ = part; }

  /// The first `limit` rows of the block take part. A null, NaN or infinity that the rules forbid is a data error
  /// naming column, file, row group and row; the lowest row is reported.
  Status select(int entry_point, const exec::BlockRows& block, int64_t limit, SelectedRows* selected) const;

 private:
  const plan::SourceTable& table_;
  std::vector<features::RawColumnRule> rules_;
  Split split_;
  std::optional<Part> only_;
  bool of_bundle_ = false;
  std::vector<uint64_t> file_hashes_;
};

/// `status`, whose position's row is a row of the block's batch, with the place in the data in its text and position.
Status locate_error(const Status& status, const plan::SourceTable& table, int entry_point,
                    const exec::BlockRows& block);

}  // namespace millstream::loader
