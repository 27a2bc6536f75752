#include "exec/window.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

#include "base/progress.h"
#include "exec/aggregate.h"
#include "exec/exact_sum.h"
#include "exec/group_table.h"
#include "exec/sort.h"
#include "expr/kernel.h"
#include "expr/text.h"
#include "expr/type.h"
#include "functions/ordering.h"

namespace millstream::exec {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;
using ArrayPtr = std::shared_ptr<arrow::Array>;
using expr::FrameEdge;
using expr::FrameUnit;
using expr::WindowFunction;
using plan::AggregateKind;
using plan::WindowCall;

// The rows of one PARTITION BY and ORDER BY. A place is a position in `order`.
struct Ordering {
  std::vector<int> partition_by;
  std::vector<plan::SortKey> order_by;
  std::vector<int32_t> order;       // rows
  std::vector<int32_t> partitions;  // places where one begins, and the end
  std::vector<int32_t> peers;       // places where rows begin that are equal in ORDER BY, and the end

  // Calls f(peers' first, behind peers' last, partition's first, behind partition's last, peers' number, the partition's
  // first such number, behind its last).
  template <class F>
  void for_peers(F&& f) const {
    size_t peer = 0;
    for (size_t p = 0; p + 1 < partitions.size(); ++p) {
      const size_t first = peer;
      size_t behind = peer;
      while (peers[behind] < partitions[p + 1]) ++behind;
      for (; peer < behind; ++peer)
        f(peers[peer], peers[peer + 1], partitions[p], partitions[p + 1], peer, first, behind);
    }
  }
};

// The number of each row's combination of columns.
Result<std::vector<uint32_t>> group_rows(const arrow::RecordBatch& rows, const std::vector<int>& columns,
                                         uint32_t* count = nullptr) {
  std::vector<ArrayPtr> keys;
  std::vector<std::shared_ptr<arrow::DataType>> types;
  for (const int column : columns) {
    keys.push_back(rows.column(column));
    types.push_back(keys.back()->type());
  }
  std::vector<uint32_t> groups(static_cast<size_t>(rows.num_rows()), 0);
  if (count != nullptr) *count = 1;
  if (keys.empty()) return groups;
  GroupTable table(std::move(types));
  MILLSTREAM_TRY(table.find_or_add(keys, rows.num_rows(), groups));
  if (count != nullptr) *count = table.size();
  return groups;
}

Result<Ordering> make_ordering(const arrow::RecordBatch& rows, const WindowCall& call) {
  Ordering result;
  result.partition_by = call.partition_by;
  result.order_by = call.order_by;
  std::vector<plan::SortKey> keys;
  for (const int column : call.partition_by) keys.push_back({column, false, false});
  keys.insert(keys.end(), call.order_by.begin(), call.order_by.end());
  const auto count = static_cast<size_t>(rows.num_rows());
  if (keys.empty()) {
    result.order.resize(count);
    std::iota(result.order.begin(), result.order.end(), 0);
  } else {
    MILLSTREAM_ASSIGN(result.order, sort_order(rows, keys, -1));
  }
  std::vector<int> order_columns;
  for (const plan::SortKey& key : call.order_by) order_columns.push_back(key.column);
  MILLSTREAM_ASSIGN(const auto partition_of, group_rows(rows, call.partition_by));
  MILLSTREAM_ASSIGN(const auto peers_of, group_rows(rows, order_columns));
  for (size_t place = 0; place < count; ++place) {
    const auto row = static_cast<size_t>(result.order[place]);
    const auto before = static_cast<size_t>(place == 0 ? 0 : result.order[place - 1]);
    const bool partition = place == 0 || partition_of[row] != partition_of[before];
    if (partition) result.partitions.push_back(static_cast<int32_t>(place));
    if (partition || peers_of[row] != peers_of[before]) result.peers.push_back(static_cast<int32_t>(place));
  }
  result.partitions.push_back(static_cast<int32_t>(count));
  result.peers.push_back(static_cast<int32_t>(count));
  return result;
}

// The frame of each place: [begin, end). Within a partition both only move forward.
struct Frames {
  std::vector<int32_t> begin, end;
};

Frames frames_of(const Ordering& ordering, const expr::WindowFrame& frame) {
  Frames result;
  const size_t count = ordering.order.size();
  result.begin.resize(count);
  result.end.resize(count);
  const int64_t most = static_cast<int64_t>(count) + 1;  // further than that is beyond the partition
  ordering.for_peers([&](int32_t first, int32_t behind, int32_t partition, int32_t partition_end, size_t peer,
                         size_t first_peer, size_t last_peer) {
    const auto edge = [&](const expr::FrameEnd& end, int64_t place, bool is_end) -> int64_t {
      const int64_t count = std::min(end.count, most);
      int64_t distance = 0;
      switch (end.edge) {
        case FrameEdge::kUnboundedPreceding:
          return partition;
        case FrameEdge::kUnboundedFollowing:
          return partition_end;
        case FrameEdge::kCurrentRow:
          break;
        case FrameEdge::kPreceding:
          distance = -count;
          break;
        case FrameEdge::kFollowing:
          distance = count;
          break;
      }
      if (frame.unit == FrameUnit::kRows)
        return std::clamp<int64_t>(place + distance + (is_end ? 1 : 0), partition, partition_end);
      const int64_t group = static_cast<int64_t>(peer) + distance;
      if (group < static_cast<int64_t>(first_peer)) return partition;
      if (group >= static_cast<int64_t>(last_peer)) return partition_end;
      return ordering.peers[static_cast<size_t>(group) + (is_end ? 1 : 0)];
    };
    for (int64_t place = first; place < behind; ++place) {
      const int64_t end = edge(frame.end, place, true);
      const auto at = static_cast<size_t>(place);
      result.end[at] = static_cast<int32_t>(end);
      result.begin[at] = static_cast<int32_t>(std::min(edge(frame.begin, place, false), end));
    }
  });
  return result;
}

// Values by row; row -1 is NULL.
Result<ArrayPtr> gather(const ArrayPtr& values, std::vector<int32_t> rows) {
  MILLSTREAM_ASSIGN(const auto null, arrow::MakeArrayOfNull(values->type(), 1));
  MILLSTREAM_ASSIGN(const auto all, arrow::Concatenate({values, null}));
  for (int32_t& row : rows)
    if (row < 0) row = static_cast<int32_t>(values->length());
  const auto schema = arrow::schema({arrow::field("value", values->type())});
  MILLSTREAM_ASSIGN(const auto taken,
                    expr::take_rows(*arrow::RecordBatch::Make(schema, all->length(), {all}), rows));
  return taken->column(0);
}

template <class Builder, class T>
Result<ArrayPtr> array_of(Builder& builder, const std::vector<T>& values, const std::vector<uint8_t>& valid) {
  MILLSTREAM_TRY(builder.Reserve(static_cast<int64_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    if (valid.empty() || valid[i]) {
      builder.UnsafeAppend(values[i]);
    } else {
      builder.UnsafeAppendNull();
    }
  }
  return builder.Finish();
}
Result<ArrayPtr> integers(const std::vector<int64_t>& values) {
  arrow::Int64Builder builder;
  return array_of(builder, values, {});
}
Result<ArrayPtr> doubles(const std::vector<double>& values, const std::vector<uint8_t>& valid) {
  arrow::DoubleBuilder builder;
  return array_of(builder, values, valid);
}

class Windows {
 public:
  explicit Windows(Batch rows) : rows_(std::move(rows)), count_(static_cast<size_t>(rows_->num_rows())) {}

  Result<ArrayPtr> compute(const WindowCall& call) {
    beat();
    if (call.function == WindowFunction::kAggregate && call.frame.is_whole_partition()) return whole(call);
    MILLSTREAM_ASSIGN(const Ordering* ordering, ordering_of(call));
    switch (call.function) {
      case WindowFunction::kRowNumber:
      case WindowFunction::kRank:
      case WindowFunction::kDenseRank:
      case WindowFunction::kNtile:
        return numbers(call, *ordering);
      case WindowFunction::kPercentRank:
      case WindowFunction::kCumeDist:
        return fractions(call, *ordering);
      case WindowFunction::kLag:
      case WindowFunction::kLead:
        return neighbours(call, *ordering);
      case WindowFunction::kFirstValue:
      case WindowFunction::kLastValue:
      case WindowFunction::kNthValue:
        return of_frame(call, *ordering);
      case WindowFunction::kAggregate:
        break;
    }
    const Frames frames = frames_of(*ordering, call.frame);
    const auto selected = rows_that_count(call);
    switch (call.aggregate) {
      case AggregateKind::kCount:
      case AggregateKind::kCountStar:
        return counts(*ordering, frames, selected);
      case AggregateKind::kMin:
      case AggregateKind::kMax:
        return extremes(call, *ordering, frames, selected);
      case AggregateKind::kSum:
      case AggregateKind::kAverage:
        if (expr::is_floating_type(*rows_->column(call.argument)->type()))
          return float_sums(call, *ordering, frames, selected);
        return integer_sums(call, *ordering, frames, selected);
      default:
        return any_aggregate(call, *ordering, frames);
    }
  }

 private:
  Result<const Ordering*> ordering_of(const WindowCall& call) {
    for (const auto& known : orderings_)
      if (known->partition_by == call.partition_by && known->order_by == call.order_by) return known.get();
    MILLSTREAM_ASSIGN(auto made, make_ordering(*rows_, call));
    orderings_.push_back(std::make_unique<Ordering>(std::move(made)));
    return orderings_.back().get();
  }

  Result<std::unique_ptr<AggregateState>> make_state(const WindowCall& call) const {
    plan::AggregateCall aggregate;
    aggregate.kind = call.aggregate;
    aggregate.result = call.result;
    aggregate.fraction = call.fraction;
    return make_aggregate_state(aggregate,
                                call.argument < 0 ? nullptr : rows_->column(call.argument)->type());
  }

  // By row: does it count for the aggregate?
  std::vector<uint8_t> rows_that_count(const WindowCall& call) const {
    std::vector<uint8_t> selected(count_, 1);
    if (call.filter >= 0) {
      const auto& filter = static_cast<const arrow::BooleanArray&>(*rows_->column(call.filter));
      for (size_t i = 0; i < count_; ++i) {
        const auto row = static_cast<int64_t>(i);
        selected[i] = filter.IsValid(row) && filter.Value(row);
      }
    }
    if (call.argument >= 0 && rows_->column(call.argument)->null_count() > 0) {
      for (size_t i = 0; i < count_; ++i)
        if (rows_->column(call.argument)->IsNull(static_cast<int64_t>(i))) selected[i] = 0;
    }
    return selected;
  }

  // The same for all rows of a partition: grouping.
  Result<ArrayPtr> whole(const WindowCall& call) const {
    uint32_t size = 0;
    MILLSTREAM_ASSIGN(const auto groups, group_rows(*rows_, call.partition_by, &size));
    const ArrayPtr argument = call.argument < 0 ? nullptr : rows_->column(call.argument);
    MILLSTREAM_ASSIGN(auto state, make_state(call));
    state->resize(size);
    std::vector<uint8_t> selected;
    if (call.filter >= 0) selected = rows_that_count(call);
    const uint8_t* counted = selected.empty() ? nullptr : selected.data();
    if (call.second >= 0) {
      MILLSTREAM_TRY(state->add_pairs(groups.data(), *argument, *rows_->column(call.second), counted,
                                      rows_->num_rows()));
    } else {
      MILLSTREAM_TRY(state->add(groups.data(), argument.get(), counted, rows_->num_rows(), {}));
    }
    MILLSTREAM_ASSIGN(const auto values, state->finish());
    return gather(values, std::vector<int32_t>(groups.begin(), groups.end()));
  }

  Result<ArrayPtr> numbers(const WindowCall& call, const Ordering& ordering) const {
    std::vector<int64_t> values(count_);
    ordering.for_peers([&](int32_t first, int32_t behind, int32_t partition, int32_t partition_end,
                           size_t peer, size_t first_peer, size_t) {
      for (int32_t place = first; place < behind; ++place) {
        int64_t& value = values[static_cast<size_t>(ordering.order[static_cast<size_t>(place)])];
        const int64_t index = place - partition;
        switch (call.function) {
          case WindowFunction::kRowNumber:
            value = index + 1;
            break;
          case WindowFunction::kRank:
            value = first - partition + 1;
            break;
          case WindowFunction::kDenseRank:
            value = static_cast<int64_t>(peer - first_peer) + 1;
            break;
          default: {  // ntile: the first parts have one row more
            const int64_t rows = partition_end - partition;
            const int64_t least = rows / call.number, longer = rows % call.number;
            const int64_t in_longer = longer * (least + 1);
            value = index < in_longer ? index / (least + 1) + 1 : longer + (index - in_longer) / least + 1;
          }
        }
      }
    });
    return integers(values);
  }

  Result<ArrayPtr> fractions(const WindowCall& call, const Ordering& ordering) const {
    std::vector<double> values(count_);
    ordering.for_peers(
        [&](int32_t first, int32_t behind, int32_t partition, int32_t partition_end, size_t, size_t, size_t) {
          const double rows = partition_end - partition;
          double value = (behind - partition) / rows;
          if (call.function == WindowFunction::kPercentRank)
            value = rows > 1 ? (first - partition) / (rows - 1) : 0;
          for (int32_t place = first; place < behind; ++place)
            values[static_cast<size_t>(ordering.order[static_cast<size_t>(place)])] = value;
        });
    return doubles(values, {});
  }

  Result<ArrayPtr> neighbours(const WindowCall& call, const Ordering& ordering) const {
    const ArrayPtr& argument = rows_->column(call.argument);
    ArrayPtr values = argument;
    // Rows of the default stand behind those of the argument.
    if (call.otherwise >= 0) {
      if (count_ > static_cast<size_t>(std::numeric_limits<int32_t>::max() / 2))
        return failed_error("there are more than 2^30 rows for lag or lead with a default");
      MILLSTREAM_ASSIGN(values, arrow::Concatenate({argument, rows_->column(call.otherwise)}));
    }
    const auto most = static_cast<int64_t>(count_);
    int64_t distance = std::clamp(call.number, -most, most);
    if (call.function == WindowFunction::kLag) distance = -distance;
    std::vector<int32_t> rows(count_);
    for (size_t p = 0; p + 1 < ordering.partitions.size(); ++p) {
      const int64_t begin = ordering.partitions[p], end = ordering.partitions[p + 1];
      for (int64_t place = begin; place < end; ++place) {
        const int32_t row = ordering.order[static_cast<size_t>(place)];
        const int64_t other = place + distance;
        int32_t from = call.otherwise >= 0 ? static_cast<int32_t>(count_) + row : -1;
        if (other >= begin && other < end) from = ordering.order[static_cast<size_t>(other)];
        rows[static_cast<size_t>(row)] = from;
      }
    }
    return gather(values, std::move(rows));
  }

  Result<ArrayPtr> of_frame(const WindowCall& call, const Ordering& ordering) const {
    const Frames frames = frames_of(ordering, call.frame);
    std::vector<int32_t> rows(count_, -1);
    for (size_t place = 0; place < count_; ++place) {
      const int64_t begin = frames.begin[place], end = frames.end[place];
      int64_t from = begin;
      if (call.function == WindowFunction::kLastValue) from = end - 1;
      if (call.function == WindowFunction::kNthValue)
        from = call.number < 1 || call.number > end - begin ? end : begin + call.number - 1;
      if (from < begin || from >= end) continue;
      rows[static_cast<size_t>(ordering.order[place])] = ordering.order[static_cast<size_t>(from)];
    }
    return gather(rows_->column(call.argument), std::move(rows));
  }

  // Rows enter and leave as the frame moves: enter(row), leave(row), and then tell(row) of the row whose frame it is.
  // Frames of a new partition begin with none.
  template <class Enter, class Leave, class Tell>
  void slide(const Ordering& ordering, const Frames& frames, Enter&& enter, Leave&& leave,
             Tell&& tell) const {
    int32_t first = 0, behind = 0;
    for (size_t place = 0; place < count_; ++place) {
      const int32_t begin = frames.begin[place], end = frames.end[place];
      for (; behind < end; ++behind) enter(ordering.order[static_cast<size_t>(behind)]);
      for (; first < begin; ++first) leave(ordering.order[static_cast<size_t>(first)]);
      tell(ordering.order[place]);
    }
  }

  Result<ArrayPtr> counts(const Ordering& ordering, const Frames& frames,
                          const std::vector<uint8_t>& selected) const {
    std::vector<int64_t> values(count_);
    int64_t count = 0;
    slide(
        ordering, frames, [&](int32_t row) { count += selected[static_cast<size_t>(row)]; },
        [&](int32_t row) { count -= selected[static_cast<size_t>(row)]; },
        [&](int32_t row) { values[static_cast<size_t>(row)] = count; });
    return integers(values);
  }

  // Candidates for the least value, by their ranks, in a queue: one that is followed by a better one is none.
  Result<ArrayPtr> extremes(const WindowCall& call, const Ordering& ordering, const Frames& frames,
                            const std::vector<uint8_t>& selected) const {
    const bool descending = call.aggregate == AggregateKind::kMax;
    MILLSTREAM_ASSIGN(const auto sorted, sort_order(*rows_, {{call.argument, descending, false}}, -1));
    std::vector<int32_t> ranks(count_);
    for (size_t i = 0; i < count_; ++i) ranks[static_cast<size_t>(sorted[i])] = static_cast<int32_t>(i);
    const auto rank = [&](int32_t row) { return ranks[static_cast<size_t>(row)]; };
    std::deque<int32_t> candidates;
    std::vector<int32_t> rows(count_);
    slide(
        ordering, frames,
        [&](int32_t row) {
          if (!selected[static_cast<size_t>(row)]) return;
          while (!candidates.empty() && rank(candidates.back()) > rank(row)) candidates.pop_back();
          candidates.push_back(row);
        },
        [&](int32_t row) {
          if (!candidates.empty() && candidates.front() == row) candidates.pop_front();
        },
        [&](int32_t row) { rows[static_cast<size_t>(row)] = candidates.empty() ? -1 : candidates.front(); });
    return gather(rows_->column(call.argument), std::move(rows));
  }

  Result<ArrayPtr> integer_sums(const WindowCall& call, const Ordering& ordering, const Frames& frames,
                                const std::vector<uint8_t>& selected) const {
    const arrow::Array& argument = *rows_->column(call.argument);
    const bool average = call.aggregate == AggregateKind::kAverage;
    const int scale = expr::is_decimal_type(*argument.type()) ? expr::decimal_scale(*argument.type()) : 0;
    const auto unit = static_cast<__float128>(expr::power_of_ten(scale));
    const __int128 most = expr::power_of_ten(38);
    std::vector<__int128> sums(average ? 0 : count_);
    std::vector<double> averages(average ? count_ : 0);
    std::vector<uint8_t> valid(count_);
    __int128 sum = 0;
    int64_t count = 0;
    bool overflow = false;
    functions::with_ordered_type(*argument.type(), [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_integral_v<T> || std::is_same_v<T, expr::Decimal>) {
        const expr::Column<T> values(*argument.data());
        const auto value = [&](int32_t row) -> __int128 {
          if constexpr (std::is_same_v<T, expr::Decimal>) {
            return values[row].digits;
          } else {
            return values[row];
          }
        };
        slide(
            ordering, frames,
            [&](int32_t row) {
              if (!selected[static_cast<size_t>(row)]) return;
              overflow |= __builtin_add_overflow(sum, value(row), &sum);
              ++count;
            },
            [&](int32_t row) {
              if (!selected[static_cast<size_t>(row)]) return;
              overflow |= __builtin_sub_overflow(sum, value(row), &sum);
              --count;
            },
            [&](int32_t row) {
              const auto at = static_cast<size_t>(row);
              valid[at] = count > 0;
              if (average) {
                if (count > 0)
                  averages[at] = static_cast<double>(static_cast<__float128>(sum) /
                                                     static_cast<__float128>(count) / unit);
              } else {
                sums[at] = sum;
                overflow |= sum >= most || sum <= -most;
              }
            });
      }
    });
    if (overflow)
      return data_error("a sum of {} has more than 38 digits", expr::sql_type_name(*argument.type()));
    if (average) return doubles(averages, valid);
    arrow::Decimal128Builder builder(call.result);
    MILLSTREAM_TRY(builder.Reserve(static_cast<int64_t>(count_)));
    for (size_t i = 0; i < count_; ++i) {
      if (valid[i]) {
        builder.UnsafeAppend(
            arrow::Decimal128(static_cast<int64_t>(sums[i] >> 64), static_cast<uint64_t>(sums[i])));
      } else {
        builder.UnsafeAppendNull();
      }
    }
    return builder.Finish();
  }

  Result<ArrayPtr> float_sums(const WindowCall& call, const Ordering& ordering, const Frames& frames,
                              const std::vector<uint8_t>& selected) const {
    const arrow::Array& argument = *rows_->column(call.argument);
    const bool average = call.aggregate == AggregateKind::kAverage;
    std::vector<double> results(count_);
    std::vector<uint8_t> valid(count_);
    // What is not finite cannot be subtracted, and is counted.
    ExactSums sum;
    sum.resize(1);
    int64_t count = 0, nans = 0, positive = 0, negative = 0;
    const auto run = [&](const auto* values) {
      const auto change = [&](int32_t row, int64_t sign) {
        if (!selected[static_cast<size_t>(row)]) return;
        const auto value = static_cast<double>(values[row]);
        count += sign;
        if (std::isfinite(value)) {
          sum.add(0, sign > 0 ? value : -value);
        } else if (std::isnan(value)) {
          nans += sign;
        } else {
          (value > 0 ? positive : negative) += sign;
        }
      };
      slide(
          ordering, frames, [&](int32_t row) { change(row, 1); }, [&](int32_t row) { change(row, -1); },
          [&](int32_t row) {
            const auto at = static_cast<size_t>(row);
            valid[at] = count > 0;
            if (count == 0) return;
            constexpr double kInfinity = std::numeric_limits<double>::infinity();
            double value = 0;
            if (nans > 0 || (positive > 0 && negative > 0)) {
              value = std::numeric_limits<double>::quiet_NaN();
            } else if (positive > 0 || negative > 0) {
              value = positive > 0 ? kInfinity : -kInfinity;
            } else {
              value = sum.value(0);
            }
            results[at] = average ? value / static_cast<double>(count) : value;
          });
    };
    if (argument.type_id() == arrow::Type::FLOAT) {
      run(argument.data()->GetValues<float>(1));
    } else {
      run(argument.data()->GetValues<double>(1));
    }
    return doubles(results, valid);
  }

  // An aggregate that cannot forget rows: what a frame has more than the last one is added where both begin together,
  // else it is computed anew.
  Result<ArrayPtr> any_aggregate(const WindowCall& call, const Ordering& ordering,
                                 const Frames& frames) const {
    arrow::ArrayVector arguments = {rows_->column(call.argument)};
    arrow::FieldVector fields = {arrow::field("first", arguments[0]->type())};
    if (call.second >= 0) {
      arguments.push_back(rows_->column(call.second));
      fields.push_back(arrow::field("second", arguments[1]->type()));
    }
    MILLSTREAM_ASSIGN(
        const auto taken,
        expr::take_rows(*arrow::RecordBatch::Make(arrow::schema(fields), rows_->num_rows(), arguments),
                        ordering.order));
    const ArrayPtr& argument = taken->column(0);
    std::vector<uint8_t> selected(count_);
    const auto by_row = rows_that_count(call);
    for (size_t place = 0; place < count_; ++place)
      selected[place] = by_row[static_cast<size_t>(ordering.order[place])];
    const std::vector<uint32_t> group(count_, 0);
    std::unique_ptr<AggregateState> state;
    arrow::ArrayVector values;
    std::vector<int32_t> value_of(count_);
    int32_t first = -1, behind = -1;
    for (size_t place = 0; place < count_; ++place) {
      const int32_t begin = frames.begin[place], end = frames.end[place];
      if (state == nullptr || begin != first || end < behind) {
        MILLSTREAM_ASSIGN(state, make_state(call));
        state->resize(1);
        first = behind = begin;
      } else if (end == behind) {
        value_of[static_cast<size_t>(ordering.order[place])] = static_cast<int32_t>(values.size() - 1);
        continue;
      }
      const uint8_t* counted = selected.data() + behind;
      const int64_t rows = end - behind;
      if (call.second >= 0) {
        MILLSTREAM_TRY(state->add_pairs(group.data(), *argument->Slice(behind, rows),
                                        *taken->column(1)->Slice(behind, rows), counted, rows));
      } else {
        MILLSTREAM_TRY(state->add(group.data(), argument->Slice(behind, rows).get(), counted, rows,
                                  {static_cast<uint64_t>(behind)}));
      }
      behind = end;
      MILLSTREAM_ASSIGN(auto value, state->finish());
      values.push_back(std::move(value));
      value_of[static_cast<size_t>(ordering.order[place])] = static_cast<int32_t>(values.size() - 1);
      beat();
    }
    if (values.empty()) return arrow::MakeArrayOfNull(call.result, 0);
    MILLSTREAM_ASSIGN(const auto all, arrow::Concatenate(values));
    return gather(all, std::move(value_of));
  }

  Batch rows_;
  size_t count_;
  std::vector<std::unique_ptr<Ordering>> orderings_;
};

}  // namespace

Result<Batch> compute_windows(const plan::Node& node, const Batch& rows) {
  if (rows->num_rows() >= std::numeric_limits<int32_t>::max())
    return failed_error("there are more than 2^31 rows for a window function on one rank");
  Windows windows(rows);
  arrow::ArrayVector columns = rows->columns();
  for (const WindowCall& call : node.windows) {
    MILLSTREAM_ASSIGN(auto column, windows.compute(call));
    columns.push_back(std::move(column));
  }
  return arrow::RecordBatch::Make(node.schema, rows->num_rows(), std::move(columns));
}

}  // namespace millstream::exec
