#pragma once
// The features of a recipe against the query that feeds them: checks, fits pass by pass, and the expressions
// that come out.
//
// The chain of a column starts with the column, cast to double where it is a number; each step makes an expression of
// the one before it, and some make several (datetime, cyclical): the chain then has branches, which later steps treat
// alike. A step that fits (standard_scale, fill_null(mean)) takes aggregates of the expression so far over the
// training rows, so a chain with k fits needs k passes; chains advance side by side, and the passes of the plan are
// those of its longest chain.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "features/fit.h"
#include "features/fitted.h"

namespace millstream::features {

/// What a raw column may hold, for deciding which rows take part.
struct RawColumnRule {
  int column = 0;              ///< index into input()
  bool nulls_allowed = false;  ///< a later fill_null takes care of them
  bool is_target = false;
  OnNull on_null = OnNull::kError;
  bool is_weight = false;
  OnNan on_nan = OnNan::kSame;
};

/// A column that the loader adds to the query's: for each row a 63-bit hash of its place in the data (file name under
/// the glob's root, row in the file), which parts training rows into folds.
inline constexpr const char* kPlaceColumn = "millstream_place";

class FeaturePlan {
 public:
  /// `query` is the schema of the query's outputs. Errors are usage errors, before anything is read: an
  /// unknown column (nearest name), a column twice, the target among the features, no features, a type that
  /// can't become a number (names column, type and what to do), unknown steps.
  /// `also` are outputs that somebody else reads (the split).
  static Result<FeaturePlan> make(const arrow::Schema& query, const std::vector<FeatureSpec>& specs,
                                  const std::string& target, OnNull on_null_target,
                                  const std::string& weight = "", const std::vector<std::string>& also = {});

  /// Of the columns of input() those that the query gives: all but kPlaceColumn, which comes last where a step needs
  /// it.
  std::vector<std::string> query_columns() const;
  bool needs_places() const { return place_ != nullptr; }

  /// The query's outputs that are needed: features in the recipe's order, then the target, then the weight where there
  /// is one (a column of what rows count in training), then the others. All expressions
  /// and rules are over these.
  const std::shared_ptr<arrow::Schema>& input() const { return input_; }
  const std::string& target() const { return target_; }
  const std::vector<RawColumnRule>& rules() const { return rules_; }
  /// Text that is equal for plans that fit and drop the same.
  const std::string& normal_form() const { return normal_form_; }
  /// Passes over the data that the fits need in all; 0: nothing to fit.
  int num_passes() const { return num_passes_; }

  /// The aggregates over the training rows that are wanted next; none: all is fitted.
  std::vector<FitRequest> pending() const;
  /// What pending() asked for, in that order. Errors: a column without one value to take the mean of.
  Status provide(const std::vector<FitState>& fits);
  /// Everything fitted. Only when pending() is empty.
  Fitted fitted() const;

 private:
  struct Branch {
    std::string name;
    expr::ExprPtr expression;
    int64_t categories = 0;  ///< > 0: it is a whole number from 0 to categories - 1
    int64_t embedding_width = 0;
  };
  struct Chain {
    std::string column;
    std::vector<StepSpec> steps;
    size_t next_step = 0;                ///< the first that is not applied yet
    expr::ExprPtr raw;                   ///< the column itself
    std::vector<expr::ExprPtr> crossed;  ///< the columns of its cross() steps to come
    bool changed = false;                ///< by a step; else branches are the raw column
    bool filled = false;
    std::vector<Branch> branches;
    std::vector<FeatureColumn> extra;  ///< null indicators, before the column itself
    std::vector<FittedValue> values;
  };
  Status advance(Chain& chain);
  Status apply(Chain& chain, const StepSpec& step);
  Status apply_fit(Chain& chain, Branch& branch, const StepSpec& step, const FitState& fit);
  Result<std::vector<Branch>> one_hot(Chain& chain, const Branch& branch, const StepSpec& step,
                                      const CountedValues& counted) const;
  Result<expr::ExprPtr> quantile_transformed(const expr::ExprPtr& value, const StepSpec& step,
                                             const QuantileSketch& quantiles) const;
  Result<expr::ExprPtr> target_encoded(const Chain& chain, const Branch& branch, const StepSpec& step,
                                       const TargetSums& targets, double* mean) const;
  /// The fold of a training row, of type int64.
  Result<expr::ExprPtr> fold(int folds) const;
  Status check_names() const;
  /// What the step at hand is a fit of; none where it fits nothing.
  static std::optional<FitKind> fit_kind(const StepSpec& step);

  std::shared_ptr<arrow::Schema> input_;
  std::string target_;
  std::vector<RawColumnRule> rules_;
  std::string normal_form_;
  int num_passes_ = 0;
  std::vector<Chain> chains_;
  expr::ExprPtr place_;         ///< the column of that name
  expr::ExprPtr target_value_;  ///< the target as a double
};

/// Checks that a column of this type can be a feature (as it is, without steps) or target; `role` is "feature",
/// "target" or "weight".
Status check_tensor_type(const std::string& column, const arrow::DataType& type, const char* role);
/// Whether check_tensor_type() passes: a number or a boolean.
bool is_tensor_type(const arrow::DataType& type);

}  // namespace millstream::features
