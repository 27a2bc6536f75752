#pragma once
// Groups rows and computes aggregates of the groups. Every thread fills an Aggregator of its own; they are merged, and
// over ranks sent as bytes and merged again. States are exact (integer sums, exact sums of doubles, positions in the
// source), so the result does not depend on who saw which rows.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/group_table.h"
#include "exec/row_partitions.h"
#include "plan/logical_plan.h"

namespace millstream::exec {

/// Where rows stand in the source: one after another, or each at a place of its own.
struct Positions {
  uint64_t first = 0;
  const uint64_t* of_row = nullptr;
  uint64_t operator[](int64_t row) const {
    return of_row != nullptr ? of_row[row] : first + static_cast<uint64_t>(row);
  }
};

/// The state of one aggregate in all groups.
class AggregateState {
 public:
  virtual ~AggregateState() = default;
  /// Groups [size, groups) begin empty.
  virtual void resize(size_t groups) = 0;
  /// Row i belongs to groups[i]; `argument` null: count(*). Rows where selected[i] is 0 don't count (null: all do).
  virtual Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected,
                     int64_t rows, const Positions& positions) = 0;
  /// The same of an aggregate of two arguments.
  virtual Status add_pairs(const uint32_t* groups, const arrow::Array& first, const arrow::Array& second,
                           const uint8_t* selected, int64_t rows);
  /// Group from[i] of `other`, a state of the same aggregate, goes to to[i].
  virtual void merge(const AggregateState& other, const std::vector<uint32_t>& from,
                     const std::vector<uint32_t>& to) = 0;
  virtual Result<std::shared_ptr<arrow::Array>> finish() const = 0;
  virtual void save(std::string& out) const = 0;
  virtual bool load(std::string_view& in, size_t groups) = 0;
  virtual int64_t memory() const = 0;
};

/// A query error where there is no such aggregate of that type (exec's part; the planner checks before).
Result<std::unique_ptr<AggregateState>> make_aggregate_state(
    const plan::AggregateCall& call, const std::shared_ptr<arrow::DataType>& argument);

/// Whether an aggregate of that kind looks at its rows' positions.
bool uses_positions(plan::AggregateKind kind);

class Aggregator {
 public:
  /// Groups of an aggregator, dealt to parts by their keys.
  struct Split {
    const Aggregator* from = nullptr;
    std::shared_ptr<arrow::RecordBatch> keys;
    Buckets groups;
    struct Values {
      std::shared_ptr<arrow::RecordBatch> rows;  ///< keys and value; null: the call is not distinct
      Buckets buckets;
    };
    std::vector<Values> values;  ///< by call
  };
  using PlaceRows = std::function<Status(const arrow::RecordBatch& keys, std::vector<uint32_t>& places)>;

  /// For a node of kind kAggregate.
  static Result<std::unique_ptr<Aggregator>> make(const plan::Node& node);

  /// Rows of the node's input.
  Status add(const arrow::RecordBatch& batch, const Positions& positions);
  /// Adds those rows whose group is there; `others` are the rest. No call may be distinct.
  Status add_known(const arrow::RecordBatch& batch, const Positions& positions, std::vector<int32_t>& others);
  Status merge(const Aggregator& other);
  /// `place` gives rows of keys one of `parts` parts each.
  Result<Split> split(int parts, const PlaceRows& place) const;
  Status merge(const Split& split, int part);
  /// All of it as bytes, and such bytes merged.
  Result<std::string> save() const;
  Status merge_saved(const std::string& bytes);
  /// One row a group, in the order of the keys.
  Result<std::shared_ptr<arrow::RecordBatch>> finish();
  int64_t memory() const;
  int64_t groups() const { return table_->size(); }
  bool has_distinct() const;

 private:
  struct Call {
    plan::AggregateCall call;
    std::unique_ptr<AggregateState> state;
    std::unique_ptr<GroupTable> values;  ///< distinct: keys and value
  };
  explicit Aggregator(const plan::Node& node) : node_(node) {}
  std::vector<std::shared_ptr<arrow::DataType>> key_types(bool with_value,
                                                          const plan::AggregateCall* call) const;
  Status add_states(const arrow::RecordBatch& batch, const Positions& positions, const uint8_t* counted);
  Status merge_groups(const std::vector<std::shared_ptr<arrow::Array>>& keys,
                      const std::vector<uint32_t>& from, const std::vector<const AggregateState*>& states);

  const plan::Node& node_;
  std::unique_ptr<GroupTable> table_;
  std::vector<Call> calls_;
  std::vector<uint32_t> groups_;
};

}  // namespace millstream::exec
