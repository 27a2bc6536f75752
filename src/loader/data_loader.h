#pragma once
// Batches of a query for the trainers of a job: shuffled, exact, filled ahead by the feeders.
//
// 1. The sequence of global batches is a function of data, recipe and seed alone: the same bits for every
//    number of ranks, threads and trainers, whichever transport.
// 2. make() and finish() are called by every rank, main thread. Feeding runs in threads of its own from
// make() on
//    a rank that feeds. next() and release() are called by one thread of a trainer rank.
// 3. The job's stream is a fixed list of passes (training epochs, each followed by a validation pass where
// there
//    is validation data), known to all ranks; feeders run ahead across passes until a trainer's ring is full.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/job.h"
#include "features/fitted.h"
#include "loader/loader_config.h"
#include "plan/catalog.h"

namespace millstream::loader {

enum class PassKind : uint8_t { kTrain, kValid };

/// One pass over rows: an epoch of training, or a validation of all validation rows in file order.
struct Pass {
  PassKind kind = PassKind::kTrain;
  int64_t epoch = 0;
};

/// Where a stream stands, as a checkpoint keeps it: of epoch `epoch` so many training batches are done. A loader of
/// the same survey key, seed and [loader] table that starts there goes on with exactly the batch that would have come
/// next, whatever the ranks, threads, trainers and transport.
struct StreamPosition {
  int64_t epoch = 0;
  int64_t step = 0;
};

/// A part of a slot: row-major values of one type for the rows of this trainer's share.
enum class SegmentType : uint8_t { kFloat32, kInt32 };
struct Segment {
  std::string name;  ///< "features", "target", "ids", "weight"
  SegmentType type = SegmentType::kFloat32;
  std::vector<std::string> columns;
  int64_t offset = 0;  ///< in the slot, bytes; 64-byte aligned
  int64_t row_bytes = 0;
};
struct SlotLayout {
  std::vector<Segment> segments;  ///< features, then target, then ids and weight where there are any
  int ids = -1, weight = -1;      ///< the segments of these; -1: none
  int64_t rows = 0;               ///< room for so many rows
  int64_t bytes = 0;
};

/// This trainer's share of one global batch. Views into the ring, valid until release().
struct Batch {
  Pass pass;
  int64_t step = 0;         ///< within the pass
  int64_t global_rows = 0;  ///< rows of the whole batch, all trainers
  int64_t first_row = 0;    ///< of this share within the batch
  int64_t rows = 0;         ///< of this share; may be 0
  const uint8_t* slot = nullptr;
  const SlotLayout* layout = nullptr;
  const float* floats(int segment) const {
    return reinterpret_cast<const float*>(slot + layout->segments[segment].offset);
  }
  const int32_t* ints(int segment) const {
    return reinterpret_cast<const int32_t*>(slot + layout->segments[segment].offset);
  }
};

/// Seconds of this rank, for the accounting of waits: of all its feeding threads together, and of the trainer's.
struct LoaderCounters {
  double seconds_waiting = 0;    ///< trainer: in next(), for rows
  double seconds_reading = 0;    ///< feeder: reading and decoding
  double seconds_computing = 0;  ///< feeder: filter, projection, transforms, packing
  double seconds_sending = 0;    ///< feeder: gathering into slots, messages
  double seconds_for_room = 0;   ///< feeder: waiting for a free slot
  double seconds_survey = 0;
  double seconds_to_first_batch = 0;  ///< from make() to the first next() that returned
  int feeding_threads = 0;
};

/// Rows that were left out, of one file for one reason.
struct DroppedRows {
  std::string file;    ///< its path
  std::string column;  ///< of the query; empty: whole row groups
  std::string reason;  ///< "null", "NaN", "infinite", "corrupt"
  int64_t row_groups = 0;
  int64_t rows = 0;
  bool validation = false;  ///< of the validation query
};

struct SurveyResult {
  int64_t rows_train = 0;  ///< that take part in an epoch
  int64_t rows_valid = 0;
  int64_t rows_filtered = 0;  ///< that the WHERE left out
  int64_t rows_dropped = 0;   ///< by on_null = "drop"
  std::vector<DroppedRows>
      dropped;  ///< the ledger: of both queries, corrupt row groups too; by file and column
  features::Fitted fitted;
  Cache cache = Cache::kNone;  ///< where the rows are read from: files, memory or disk
  int64_t cache_bytes = 0;     ///< that the prepared rows have there, of all ranks
  int64_t spilled_bytes = 0;   ///< that counting values wrote to disk, of all ranks
};

class DataLoader {
 public:
  /// Plans, surveys, fits and starts feeding at the start that the config names; `epochs` counts from the very first.
  /// Collective. All errors are agreed: every rank returns the same.
  static Result<std::unique_ptr<DataLoader>> make(comm::Job& job, const comm::Roles& roles,
                                                  plan::Catalog& catalog, const DataConfig& data,
                                                  const LoaderConfig& config, int64_t epochs);
  virtual ~DataLoader() = default;

  virtual const SurveyResult& survey() const = 0;
  /// Names everything that the rows and their values depend on: files (name, size, time, footer), queries, features,
  /// split, limit on rows. 32 hexadecimal digits, the same on all ranks; seed and schedule are not in it.
  virtual const std::string& survey_key() const = 0;
  virtual const SlotLayout& layout() const = 0;
  /// What an epoch's rows come from side by side: lanes, entry points in file order, stretches of a batch.
  virtual int64_t sources() const = 0;
  virtual int64_t steps_per_epoch() const = 0;
  virtual int64_t steps_per_validation() const = 0;
  virtual const std::vector<Pass>& passes() const = 0;
  /// How well an epoch is shuffled, 1 for as well as a uniform shuffle: see loader/shuffle_quality.h. Takes some
  /// hundredths of a second.
  virtual double shuffle_quality() const = 0;

  /// The next batch of the stream for this trainer, nothing at the end. Blocks until its rows are there.
  virtual Result<std::optional<Batch>> next() = 0;
  /// Where a loader would have to start to give what next() has not given yet. A validation pass that has begun is
  /// given anew from its first batch.
  virtual StreamPosition position() const = 0;
  /// position() in words, with what decides the batches: for load_state() of a loader of any ranks, threads, trainers,
  /// transport and cache. The same on all trainers where they have drawn equally many batches.
  virtual std::string state() const = 0;
  /// Goes on from where the loader was that gave `state`. Collective, main thread, the same state on all ranks, no
  /// trainer still waiting for a batch (feeding stops when the first rank comes here); errors are agreed. A state of other data, query, features or schedule
  /// is an error that names what is different, and leaves the loader of no use.
  virtual Status load_state(const std::string& state) = 0;
  /// The oldest batch not yet released may be filled again.
  virtual void release() = 0;

  /// Waits until this rank's feeding is done (it is when every trainer's ring has everything), or the job
  /// failed. Returns this rank's status; the caller agrees.
  virtual Status finish() = 0;
  virtual LoaderCounters counters() const = 0;
  /// The same by epoch, with its validation; those that this rank has begun. Work done ahead counts where it is done.
  virtual std::vector<LoaderCounters> counters_by_epoch() const = 0;
};

}  // namespace millstream::loader

namespace millstream {
using loader::DataLoader;
}
