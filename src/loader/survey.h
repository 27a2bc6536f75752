#pragma once
// The first pass over the data: fits all statistics and counts, for every block, the rows that take part.
//
// 1. Entry points are dealt to ranks by bytes and to threads by a queue; what each block gave is gathered to every
//    rank and put together in block order, so that nothing depends on who read what.
// 2. The rows that take part can be kept on the way, as pieces on disk or in memory (loader/pieces.h). With few entry
//    points and shuffle = window they always are: the pieces are the entry points of training then.
// 3. The result is kept in the cache under a key of everything it depends on (loader/survey_cache.h).
// 4. A phase ends with its first agreement that is an error (PhaseAgreement): however a rank came to fail, in a thread
//    or by a peer, all ranks take part in the same number of agreements.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/job.h"
#include "exec/block_source.h"
#include "features/feature_plan.h"
#include "loader/loader_config.h"
#include "loader/pieces.h"
#include "loader/row_rules.h"

namespace millstream::loader {

/// What the survey knows of one block.
struct BlockCounts {
  int32_t entry_point = 0;
  int32_t block = 0;  ///< within the entry point
  int64_t rows_read = 0;
  int64_t survived = 0;  ///< the WHERE
  int64_t used = 0;      ///< of them, within the limit on rows; decided before drop and split
  int64_t dropped = 0;
  int64_t train = 0;
  int64_t valid = 0;
};

/// Rows that were left out for one reason.
struct LedgerEntry {
  int32_t file = 0;
  int32_t rule = -1;   ///< of features::FeaturePlan::rules(); -1: a whole row group
  int32_t reason = 0;  ///< DropReason
  int32_t row_groups = 0;
  int64_t rows = 0;  ///< of a row group what the footer claims
};

/// One table: the training query's or the validation query's.
struct TableCounts {
  std::vector<BlockCounts> blocks;    ///< by (entry point, block); entry points beyond the limit have none
  std::vector<int64_t> first_block;   ///< by entry point, and one more: its blocks are [e, e + 1)
  std::vector<int64_t> train, valid;  ///< rows by entry point
  int64_t rows_read = 0, survived = 0, used = 0, dropped = 0, rows_train = 0, rows_valid = 0;
  std::vector<LedgerEntry> ledger;   ///< by file, rule and reason
  void index(int num_entry_points);  ///< fills all but `blocks`
};

struct Survey {
  TableCounts train;
  std::optional<TableCounts> valid;                   ///< of the validation query
  std::vector<std::vector<features::FitState>> fits;  ///< by pass, for features::FeaturePlan::provide
  bool has_pieces = false;
  /// In block order, none of zero rows. Validation's are those of the validation query where there is one.
  std::vector<Piece> train_pieces, valid_pieces;
  int64_t num_piece_files = 0;
  std::vector<int64_t> piece_file_bytes;
  int64_t spilled_bytes = 0;  ///< that the ranks wrote to disk while they counted values; of this run alone
};

/// The agreements of one phase that all ranks go through. After one that ended in an error there are no more: it is
/// the answer to all further ones. So a rank that heard of a failure in the middle of the phase, and skips to its end,
/// agrees as often as one that heard of it in the next agreement. Main thread.
class PhaseAgreement {
 public:
  explicit PhaseAgreement(comm::Job& job) : job_(job) {}
  Status agree(const Status& mine) {
    if (ended_.ok()) ended_ = job_.agree(mine);
    return ended_;
  }

 private:
  comm::Job& job_;
  Status ended_;
};

/// Where the survey keeps the rows that take part.
enum class KeepRows : uint8_t { kNo, kOnDisk, kInMemory };

struct SurveyRequest {
  comm::Job* job = nullptr;
  PhaseAgreement* phase = nullptr;
  const exec::BlockSource* train = nullptr;
  const exec::BlockSource* valid = nullptr;  ///< or null
  features::FeaturePlan* plan = nullptr;     ///< is fitted on return
  const Split* split = nullptr;              ///< bound to the plan's input
  bool skip_corrupt = false;
  int64_t limit_rows = 0;
  KeepRows keep = KeepRows::kNo;
  int64_t memory_limit = 0;       ///< in memory: bytes that this rank may keep
  int64_t counting_memory = 0;    ///< for counting values; what does not fit goes to the cache directory
  bool keep_if_possible = false;  ///< else that there is no room is an error
  bool read_again = true;         ///< in memory: reads the data for it also where the survey is known
  std::string cache_directory;    ///< see LoaderConfig; empty: the default
  int threads = 1;
};

struct SurveyOutcome {
  Survey survey;
  std::vector<std::shared_ptr<PieceFile>> piece_files;  ///< empty where no rows are kept
  bool from_cache = false;
  std::string key;  ///< see DataLoader::survey_key
};

/// Collective over the world, main threads; the caller ends the phase with an agreement.
Result<SurveyOutcome> run_survey(const SurveyRequest& request);

/// Whether the rows shall be rewritten: a rule on data and recipe alone.
bool wants_pieces(const plan::SourceTable& table, const LoaderConfig& config);

/// As bytes and back, for the cache and between ranks; without counted values, which have a file of their own.
std::string encode_survey(const Survey& survey);
Result<Survey> decode_survey(std::string_view bytes);

}  // namespace millstream::loader
