#pragma once
// Which of a block's surviving rows take part: the limit on rows, nulls and non-finite values in the raw columns
// of features and target, and the split into training and validation rows.

#include <cstdint>
#include <string>
#include <vector>

#include "exec/block_source.h"
#include "features/feature_plan.h"

namespace millstream::loader {

/// The rows of a block, by index into BlockRows::rows. Reused from block to block.
struct SelectedRows {
  bool all_train = false;  ///< every row trains; `train` is empty then
  std::vector<int32_t> train;
  std::vector<int32_t> valid;
  int64_t train_rows = 0;
  int64_t valid_rows = 0;
  int64_t dropped = 0;       ///< by on_null = drop
  std::vector<uint8_t> bad;  ///< scratch
};

/// Thread-safe once made.
class RowRules {
 public:
  /// `fraction` of the rows validate: those whose hash of (file name under the glob's root, row in the file) is
  /// below it. 0: none.
  /// `of_bundle`: the rules are a bundle's; errors then give advice for who has no recipe.
  RowRules(const plan::SourceTable& table, std::vector<features::RawColumnRule> rules, double fraction,
           bool of_bundle = false);

  /// The first `limit` rows of the block take part. A null, NaN or infinity that the rules forbid is a data error
  /// naming column, file, row group and row; the lowest row is reported.
  Status select(int entry_point, const exec::BlockRows& block, int64_t limit, SelectedRows* selected) const;

 private:
  const plan::SourceTable& table_;
  std::vector<features::RawColumnRule> rules_;
  double fraction_ = 0;
  bool of_bundle_ = false;
  uint64_t threshold_ = 0;
  std::vector<uint64_t> file_hashes_;
};

/// `status`, whose position's row is a row of the block's batch, with the place in the data in its text and position.
Status locate_error(const Status& status, const plan::SourceTable& table, int entry_point,
                    const exec::BlockRows& block);

}  // namespace millstream::loader
