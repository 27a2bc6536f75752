#pragma once
// Text comes from files as dictionaries: few entries, and a number a row. Parts of expressions that read one column of
// text alone, and cannot fail, are computed once for each entry, not for each row, and their values given to the rows
// by number: `zone = 'Queens'`, `upper(zone)`, `length(zone) > 3`. The values are the same.
//
// What cannot fail only: an entry need not stand in any row that is wanted.

#include <memory>
#include <vector>

#include "expr/expression.h"

namespace millstream::exec {

/// The same expressions over an input to which values of entries are added; made once a query, immutable.
class EntryExpressions {
 public:
  EntryExpressions() = default;
  /// Over columns of `input`.
  EntryExpressions(const std::vector<expr::ExprPtr>& expressions,
                   const std::shared_ptr<arrow::Schema>& input);

  /// Over what Values::extend() gives.
  const std::vector<expr::ExprPtr>& expressions() const { return expressions_; }
  /// Of what Values::extend() gives.
  const std::shared_ptr<arrow::Schema>& schema() const { return schema_; }
  /// Would it help to have the column as a dictionary?
  bool wants_dictionary(int column) const { return wants_dictionary_[static_cast<size_t>(column)]; }

  /// For one stream of batches: remembers the values of the entries of the dictionaries that it met last.
  class Values {
   public:
    /// `input`: the columns, those of text as they are or as dictionaries of 32-bit numbers.
    Result<std::shared_ptr<arrow::RecordBatch>> extend(const EntryExpressions& of,
                                                       const std::shared_ptr<arrow::RecordBatch>& input);

   private:
    struct Known {
      std::shared_ptr<arrow::Array> dictionary;
      std::shared_ptr<arrow::Array> values;  // of its entries, and then of NULL
    };
    std::vector<Known> known_;  // of each part
  };

 private:
  struct Part {
    int column = 0;
    expr::ExprPtr expression;  // over an input of that column alone
  };
  expr::ExprPtr take_apart(const expr::ExprPtr& expression, const std::shared_ptr<arrow::Schema>& input);

  std::vector<expr::ExprPtr> expressions_;
  std::vector<Part> parts_;
  std::vector<bool> wants_dictionary_;
  std::vector<int> kept_;                  // columns that are read by rows too
  std::shared_ptr<arrow::Schema> schema_;  // of what extend() gives: kept_, then parts_
};

/// Rows of an array that may be a dictionary's.
Result<std::shared_ptr<arrow::Array>> take_array(const std::shared_ptr<arrow::Array>& array,
                                                 const std::vector<int32_t>& rows);
/// The same values without a dictionary.
Result<std::shared_ptr<arrow::Array>> without_dictionary(const std::shared_ptr<arrow::Array>& array);

}  // namespace millstream::exec
