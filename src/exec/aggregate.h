#pragma once
// Groups rows and computes aggregates of the groups. Every thread fills an Aggregator of its own; they are merged, and
// over ranks sent as bytes and merged again. States are exact (integer sums, exact sums of doubles, positions in the
// source), so the result does not depend on who saw which rows.

#include <memory>
#include <string>
#include <vector>

#include "exec/group_table.h"
#include "plan/logical_plan.h"

namespace millstream::exec {

/// The state of one aggregate in all groups.
class AggregateState {
 public:
  virtual ~AggregateState() = default;
  /// Groups [size, groups) begin empty.
  virtual void resize(size_t groups) = 0;
  /// Row i belongs to groups[i]; `argument` null: count(*). Rows where selected[i] is 0 don't count (null: all do).
  /// Row i's position in the source is position + i.
  virtual Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected,
                     int64_t rows, uint64_t position) = 0;
  /// The same of an aggregate of two arguments.
  virtual Status add_pairs(const uint32_t* groups, const arrow::Array& first, const arrow::Array& second,
                           const uint8_t* selected, int64_t rows);
  /// Group i of `other`, a state of the same aggregate, goes to groups[i].
  virtual void merge(const AggregateState& other, const std::vector<uint32_t>& groups) = 0;
  virtual Result<std::shared_ptr<arrow::Array>> finish() const = 0;
  virtual void save(std::string& out) const = 0;
  virtual bool load(std::string_view& in, size_t groups) = 0;
  virtual int64_t memory() const = 0;
};

/// A query error where there is no such aggregate of that type (exec's part; the planner checks before).
Result<std::unique_ptr<AggregateState>> make_aggregate_state(
    const plan::AggregateCall& call, const std::shared_ptr<arrow::DataType>& argument);

class Aggregator {
 public:
  /// For a node of kind kAggregate.
  static Result<std::unique_ptr<Aggregator>> make(const plan::Node& node);

  /// Rows of the node's input; the first row's position in the source.
  Status add(const arrow::RecordBatch& batch, uint64_t position);
  Status merge(const Aggregator& other);
  /// All of it as bytes, and such bytes merged.
  Result<std::string> save() const;
  Status merge_saved(const std::string& bytes);
  /// One row a group, in the order of the keys.
  Result<std::shared_ptr<arrow::RecordBatch>> finish();
  int64_t memory() const;

 private:
  struct Call {
    plan::AggregateCall call;
    std::unique_ptr<AggregateState> state;
    std::unique_ptr<GroupTable> values;  ///< distinct: keys and value
  };
  explicit Aggregator(const plan::Node& node) : node_(node) {}
  std::vector<std::shared_ptr<arrow::DataType>> key_types(bool with_value,
                                                          const plan::AggregateCall* call) const;
  Status merge_groups(const std::vector<std::shared_ptr<arrow::Array>>& keys, int64_t rows,
                      const std::vector<const AggregateState*>& states);

  const plan::Node& node_;
  std::unique_ptr<GroupTable> table_;
  std::vector<Call> calls_;
  std::vector<uint32_t> groups_;
};

}  // namespace millstream::exec
