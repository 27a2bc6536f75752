#pragma once
// Which rows train, validate and test.
//
// 1. A row has a 64-bit place: a hash of (file name under the glob's root, row in the file); with split_by a hash of
//    that column's value, so that all rows of a value are on one side; with stratify_by places that are spread evenly
//    over the rows of each value within a block, so that each value has its share on every side.
// 2. The last `test` of all places test. Of the others the first `valid` validate, or with folds the fold's part.
//    Predicates decide by themselves: test before validation; NULL is false.
// 3. So a row's side depends on its file, row and values alone: it stays when files are added, on any ranks. (With
//    stratify_by also on which rows of its block pass the filter.)

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/block_source.h"
#include "loader/loader_config.h"

namespace millstream::loader {

enum class Part : uint8_t { kTrain, kValid, kTest };

/// SELECT, WITH or FROM: a query; anything else is a predicate, or a file's name.
bool is_query_text(std::string_view text);

class Split {
 public:
  Split() = default;
  static Split of_fraction(double valid);
  /// `query` is the schema of the training query's outputs. Usage errors: settings that exclude each other, unknown
  /// columns; query errors of the predicates.
  static Result<Split> make(const DataConfig& data, const std::shared_ptr<arrow::Schema>& query);

  /// Whether any row does not train.
  bool any() const { return any_; }
  bool has_test() const { return test_fraction_ > 0 || test_if_ != nullptr; }
  /// Outputs of the query that it reads.
  const std::vector<std::string>& columns() const { return columns_; }
  /// From now on batches have the columns of `input`, among which columns() are.
  Status bind(const arrow::Schema& input);
  /// Equal for splits that are equal.
  const std::string& normal_form() const { return normal_form_; }

  /// The parts of the first `rows` rows of a block. `file_hash`: hash64 of the file's name. Thread-safe.
  Status parts(uint64_t file_hash, const exec::BlockRows& block, int64_t rows,
               std::vector<Part>* parts) const;

 private:
  Status find_key(const arrow::Schema& query, const std::string& name, const char* role, expr::ExprPtr* key);
  void places(uint64_t file_hash, const exec::BlockRows& block, const arrow::Array* keys,
              const arrow::Array* strata, int64_t rows, std::vector<uint64_t>* places) const;

  bool any_ = false;
  double test_fraction_ = 0;
  uint64_t valid_begin_ = 0, valid_end_ = 0;  ///< places that validate
  uint64_t test_begin_ = 0;                   ///< with test_fraction_ > 0: places from there on test
  expr::ExprPtr valid_if_, test_if_;
  expr::ExprPtr key_, stratum_;  ///< of type utf8
  std::shared_ptr<arrow::Schema> query_;
  std::vector<std::string> columns_;
  std::string normal_form_;
};

}  // namespace millstream::loader
