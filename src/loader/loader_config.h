#pragma once
// What the user asked of the data and the loader: the [data] and [loader] tables of a recipe.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "features/feature_spec.h"

namespace millstream::loader {

/// What a row group that can't be decoded does.
enum class OnCorrupt : uint8_t {
  kError,  ///< ends the run
  kSkip,   ///< is left out, counted and named
};

struct DataConfig {
  std::string train;                 ///< SQL
  std::string base_directory;        ///< of relative file names
  std::string valid_base_directory;  ///< of those in `valid`; empty: base_directory
  double valid_fraction = 0;  ///< [0, 1): rows whose hash of (file name under the glob's root, row) is below
  std::optional<std::string> valid;     ///< or a query of its own
  std::optional<std::string> valid_if;  ///< or a condition on the training query's outputs
  double test_fraction = 0;             ///< likewise the rows that test: neither train nor validate
  std::optional<std::string> test, test_if;
  int folds = 0;  ///< > 0: the rows are parted in so many, of which `fold` validates
  int fold = 0;
  std::string split_by;     ///< all rows with one value of this output are on one side
  std::string stratify_by;  ///< each value of this output has its share on each side
  OnCorrupt on_corrupt = OnCorrupt::kError;
  std::string target;  ///< a column of the query
  std::string weight;  ///< a column of what rows count in training; empty: all count 1
  std::vector<features::FeatureSpec> features;
  features::OnNull on_null = features::OnNull::kError;  ///< of features that don't say it themselves
  features::OnNan on_nan = features::OnNan::kSame;      ///< likewise
  features::OnNull on_null_target = features::OnNull::kError;
  int64_t limit_rows = 0;  ///< > 0: only the first so many rows of each query (--limit-rows)
};

enum class Shuffle : uint8_t { kNone, kWindow, kFull };
/// Where prepared rows are kept, so that files are decoded once: see docs/architecture.md.
enum class Cache : uint8_t { kNone, kMemory, kDisk, kAuto };
enum class Transport : uint8_t { kAuto, kShared, kMessages };

struct LoaderConfig {
  int64_t batch_size = 16384;  ///< rows, of all trainers together
  Shuffle shuffle = Shuffle::kWindow;
  int64_t window = int64_t{1} << 20;  ///< rows shuffled among each other, of all lanes together
  int lanes = 64;
  int prefetch = 0;  ///< slots a trainer's ring has; 0: by the size of batches and the budget
  uint64_t seed = 0;
  Transport transport = Transport::kAuto;
  Cache cache = Cache::kAuto;  ///< changes no batch
  std::string
      cache_directory;       ///< empty: $MILLSTREAM_CACHE, $XDG_CACHE_HOME/millstream or ~/.cache/millstream
  int64_t memory_bytes = 0;  ///< budget of this rank; 0: 70 % of its share
  int threads = 0;           ///< of this rank; 0: its share of the cores
  /// Whoever calls next() computes between the calls: a trainer's process leaves it one of its threads. False: all
  /// of them feed.
  bool consumer_computes = true;
  bool validation_passes = true;  ///< false: epochs of training alone, as `batches` draws them
  /// Where the stream begins: epoch `start_epoch`, `start_step` of whose training batches are left out. All of them
  /// (start_step = steps_per_epoch()) leaves the epoch's validation to come first.
  int64_t start_epoch = 0;
  int64_t start_step = 0;
};

}  // namespace millstream::loader
