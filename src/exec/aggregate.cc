#include "exec/aggregate.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>

#include "exec/exact_sum.h"
#include "exec/sort.h"
#include "exec/value_states.h"
#include "expr/kernel.h"
#include "expr/text.h"
#include "expr/type.h"
#include "functions/ordering.h"

namespace millstream::exec {
namespace {

using plan::AggregateKind;
using ArrayPtr = std::shared_ptr<arrow::Array>;

// Calls f(row, group) for the rows that count and where the argument is not NULL.
template <class F>
void for_rows(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
              F&& f) {
  const bool nulls = argument != nullptr && argument->null_count() > 0;
  if (selected == nullptr && !nulls) {
    for (int64_t i = 0; i < rows; ++i) f(i, groups[i]);
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    if (selected != nullptr && !selected[i]) continue;
    if (nulls && argument->IsNull(i)) continue;
    f(i, groups[i]);
  }
}

// An array of fixed-width values; valid[i] == 0 is NULL.
template <class T>
Result<ArrayPtr> make_array(const std::shared_ptr<arrow::DataType>& type, const std::vector<T>& values,
                            const std::vector<uint8_t>& valid) {
  const auto rows = static_cast<int64_t>(values.size());
  MILLSTREAM_ASSIGN(auto validity, arrow::AllocateEmptyBitmap(rows));
  int64_t null_count = 0;
  for (int64_t i = 0; i < rows; ++i) {
    arrow::bit_util::SetBitTo(validity->mutable_data(), i, valid[static_cast<size_t>(i)] != 0);
    null_count += valid[static_cast<size_t>(i)] == 0;
  }
  std::shared_ptr<arrow::Buffer> data;
  if constexpr (std::is_same_v<T, bool>) {
    return bug_error("bits are made elsewhere");
  } else if (type->id() == arrow::Type::BOOL) {
    MILLSTREAM_ASSIGN(data, arrow::AllocateEmptyBitmap(rows));
    for (int64_t i = 0; i < rows; ++i) {
      uint8_t byte;
      std::memcpy(&byte, &values[static_cast<size_t>(i)], 1);
      arrow::bit_util::SetBitTo(data->mutable_data(), i, byte != 0);
    }
  } else {
    MILLSTREAM_ASSIGN(data, arrow::AllocateBuffer(rows * static_cast<int64_t>(sizeof(T))));
    if (rows > 0) std::memcpy(data->mutable_data(), values.data(), static_cast<size_t>(rows) * sizeof(T));
  }
  return arrow::MakeArray(
      arrow::ArrayData::Make(type, rows, {null_count > 0 ? validity : nullptr, data}, null_count));
}

class CountState final : public AggregateState {
 public:
  void resize(size_t groups) override { counts_.resize(groups, 0); }
  Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
             const Positions&) override {
    for_rows(groups, argument, selected, rows, [&](int64_t, uint32_t group) { ++counts_[group]; });
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const CountState&>(other);
    for (size_t i = 0; i < groups.size(); ++i) counts_[groups[i]] += from.counts_[from_groups[i]];
  }
  Result<ArrayPtr> finish() const override {
    return make_array(arrow::int64(), counts_, std::vector<uint8_t>(counts_.size(), 1));
  }
  void save(std::string& out) const override { save_vector(out, counts_); }
  bool load(std::string_view& in, size_t groups) override { return load_vector(in, counts_, groups); }
  int64_t memory() const override { return static_cast<int64_t>(counts_.capacity() * 8); }

 private:
  std::vector<int64_t> counts_;
};

// Sums and averages of integers and decimals.
class IntegerSumState final : public AggregateState {
 public:
  IntegerSumState(bool average, std::shared_ptr<arrow::DataType> argument,
                  std::shared_ptr<arrow::DataType> result)
      : average_(average), argument_(std::move(argument)), result_(std::move(result)) {}
  void resize(size_t groups) override {
    sums_.resize(groups, 0);
    counts_.resize(groups, 0);
  }
  Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
             const Positions&) override {
    bool overflow = false;
    functions::with_ordered_type(*argument_, [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_integral_v<T> || std::is_same_v<T, expr::Decimal>) {
        const expr::Column<T> values(*argument->data());
        for_rows(groups, argument, selected, rows, [&](int64_t i, uint32_t group) {
          __int128 value;
          if constexpr (std::is_same_v<T, expr::Decimal>) {
            value = values[i].digits;
          } else {
            value = values[i];
          }
          overflow |= __builtin_add_overflow(sums_[group], value, &sums_[group]);
          ++counts_[group];
        });
      }
    });
    overflow_ |= overflow;
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const IntegerSumState&>(other);
    for (size_t i = 0; i < groups.size(); ++i) {
      overflow_ |= __builtin_add_overflow(sums_[groups[i]], from.sums_[from_groups[i]], &sums_[groups[i]]);
      counts_[groups[i]] += from.counts_[from_groups[i]];
    }
    overflow_ |= from.overflow_;
  }
  Result<ArrayPtr> finish() const override {
    std::vector<uint8_t> valid;
    for (const int64_t count : counts_) valid.push_back(count > 0);
    if (average_) {
      std::vector<double> averages(sums_.size(), 0);
      const int scale = expr::is_decimal_type(*argument_) ? expr::decimal_scale(*argument_) : 0;
      const auto unit = static_cast<__float128>(expr::power_of_ten(scale));
      for (size_t i = 0; i < sums_.size(); ++i)
        if (counts_[i] > 0)
          averages[i] = static_cast<double>(static_cast<__float128>(sums_[i]) /
                                            static_cast<__float128>(counts_[i]) / unit);
      if (overflow_) return overflow_error();
      return make_array(result_, averages, valid);
    }
    const __int128 most = expr::power_of_ten(38);
    for (const __int128 sum : sums_)
      if (sum >= most || sum <= -most) return overflow_error();
    if (overflow_) return overflow_error();
    return make_array(result_, sums_, valid);
  }
  void save(std::string& out) const override {
    save_vector(out, sums_);
    save_vector(out, counts_);
    out += overflow_ ? '1' : '0';
  }
  bool load(std::string_view& in, size_t groups) override {
    if (!load_vector(in, sums_, groups) || !load_vector(in, counts_, groups) || in.empty()) return false;
    overflow_ = in[0] == '1';
    in.remove_prefix(1);
    return true;
  }
  int64_t memory() const override { return static_cast<int64_t>(sums_.capacity() * 24); }

 private:
  Status overflow_error() const {
    return data_error("a sum of {} has more than 38 digits", expr::sql_type_name(*argument_));
  }

  bool average_;
  std::shared_ptr<arrow::DataType> argument_, result_;
  std::vector<__int128> sums_;
  std::vector<int64_t> counts_;
  bool overflow_ = false;
};

// Sums, averages, variances and deviations of floating point numbers.
class FloatState final : public AggregateState {
 public:
  FloatState(AggregateKind kind, std::shared_ptr<arrow::DataType> argument)
      : kind_(kind), argument_(std::move(argument)) {}
  void resize(size_t groups) override {
    sums_.resize(groups);
    if (squares()) squares_.resize(groups);
    counts_.resize(groups, 0);
  }
  Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
             const Positions&) override {
    const auto add_values = [&](const auto* values) {
      if (squares()) {
        for_rows(groups, argument, selected, rows, [&](int64_t i, uint32_t group) {
          const auto value = static_cast<double>(values[i]);
          ++counts_[group];
          sums_.add(group, value);
          squares_.add_square(group, value);
        });
      } else {
        for_rows(groups, argument, selected, rows, [&](int64_t i, uint32_t group) {
          ++counts_[group];
          sums_.add(group, static_cast<double>(values[i]));
        });
      }
    };
    if (argument_->id() == arrow::Type::FLOAT) {
      add_values(argument->data()->GetValues<float>(1));
    } else {
      add_values(argument->data()->GetValues<double>(1));
    }
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const FloatState&>(other);
    for (size_t i = 0; i < groups.size(); ++i) {
      sums_.merge(groups[i], from.sums_, from_groups[i]);
      if (squares()) squares_.merge(groups[i], from.squares_, from_groups[i]);
      counts_[groups[i]] += from.counts_[from_groups[i]];
    }
  }
  Result<ArrayPtr> finish() const override {
    std::vector<double> values(counts_.size(), 0);
    std::vector<uint8_t> valid(counts_.size(), 1);
    const bool sample = kind_ == AggregateKind::kVarianceSample || kind_ == AggregateKind::kDeviationSample;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const int64_t n = counts_[i];
      valid[i] = n > (sample ? 1 : 0);
      if (!valid[i]) continue;
      const double sum = sums_.value(i);
      if (!squares()) {
        values[i] = kind_ == AggregateKind::kAverage ? sum / static_cast<double>(n) : sum;
        continue;
      }
      if (!std::isfinite(sum) || !std::isfinite(squares_.value(i)))
        return data_error(
            "a variance or deviation is out of range: its values have NaN, infinities or numbers beyond "
            "1e154");
      // From exact sums, with 113 bits: what cancels was exact.
      const __float128 total = sums_.wide_value(i);
      const auto count = static_cast<__float128>(n);
      __float128 around = squares_.wide_value(i) - total * total / count;
      if (around < 0 || n == 1) around = 0;
      const auto variance = static_cast<double>(around / (sample ? count - 1 : count));
      const bool deviation =
          kind_ == AggregateKind::kDeviationSample || kind_ == AggregateKind::kDeviationPopulation;
      values[i] = deviation ? std::sqrt(variance) : variance;
    }
    return make_array(arrow::float64(), values, valid);
  }
  void save(std::string& out) const override {
    sums_.save(out);
    if (squares()) squares_.save(out);
    save_vector(out, counts_);
  }
  bool load(std::string_view& in, size_t groups) override {
    return sums_.load(in, groups) && (!squares() || squares_.load(in, groups)) &&
           load_vector(in, counts_, groups);
  }
  int64_t memory() const override {
    return sums_.bytes() + squares_.bytes() + static_cast<int64_t>(counts_.capacity() * 8);
  }

 private:
  bool squares() const { return kind_ != AggregateKind::kSum && kind_ != AggregateKind::kAverage; }

  AggregateKind kind_;
  std::shared_ptr<arrow::DataType> argument_;
  ExactSums sums_, squares_;
  std::vector<int64_t> counts_;
};

// The value of one row: of the least or greatest value, or of the first or last position.
template <class T>
class PickState final : public AggregateState {
 public:
  static constexpr bool kText = std::is_same_v<T, std::string_view>;
  using Stored =
      std::conditional_t<kText, std::string, std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;

  PickState(AggregateKind kind, std::shared_ptr<arrow::DataType> type)
      : kind_(kind), type_(std::move(type)) {}
  void resize(size_t groups) override {
    values_.resize(groups);
    states_.resize(groups, kEmpty);
    if (by_position()) positions_.resize(groups, 0);
  }
  Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
             const Positions& positions) override {
    const expr::Column<T> values(*argument->data());
    if (!by_position()) {
      const bool least = kind_ == AggregateKind::kMin;
      for_rows(groups, argument, selected, rows, [&](int64_t i, uint32_t group) {
        const T value = values[i];
        if (states_[group] != kEmpty) {
          const T known = static_cast<T>(values_[group]);
          if (least ? !functions::less_value<T>(value, known) : !functions::less_value<T>(known, value))
            return;
        }
        store(group, value);
      });
      return Status::OK();
    }
    const bool nulls_count = kind_ != AggregateKind::kAnyValue;
    for (int64_t i = 0; i < rows; ++i) {
      if (selected != nullptr && !selected[i]) continue;
      const bool null = argument->IsNull(i);
      if (null && !nulls_count) continue;
      const uint32_t group = groups[i];
      if (!wins(group, positions[i])) continue;
      positions_[group] = positions[i];
      if (null) {
        states_[group] = kNull;
      } else {
        store(group, values[i]);
      }
    }
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const PickState&>(other);
    for (size_t i = 0; i < groups.size(); ++i) {
      if (from.states_[from_groups[i]] == kEmpty) continue;
      const uint32_t group = groups[i];
      if (by_position()) {
        if (!wins(group, from.positions_[from_groups[i]])) continue;
        positions_[group] = from.positions_[from_groups[i]];
      } else if (states_[group] != kEmpty) {
        const T a = static_cast<T>(from.values_[from_groups[i]]), b = static_cast<T>(values_[group]);
        const bool better =
            kind_ == AggregateKind::kMin ? functions::less_value<T>(a, b) : functions::less_value<T>(b, a);
        if (!better) continue;
      }
      states_[group] = from.states_[from_groups[i]];
      values_[group] = from.values_[from_groups[i]];
    }
  }
  Result<ArrayPtr> finish() const override {
    if constexpr (kText) {
      std::unique_ptr<arrow::ArrayBuilder> builder;
      MILLSTREAM_TRY(arrow::MakeBuilder(arrow::default_memory_pool(), type_, &builder));
      auto& text = static_cast<arrow::BinaryBuilder&>(*builder);
      for (size_t i = 0; i < values_.size(); ++i)
        MILLSTREAM_TRY(states_[i] == kValue ? text.Append(values_[i]) : text.AppendNull());
      return builder->Finish();
    } else {
      std::vector<uint8_t> valid;
      for (const uint8_t state : states_) valid.push_back(state == kValue);
      return make_array(type_, values_, valid);
    }
  }
  void save(std::string& out) const override {
    save_vector(out, states_);
    if (by_position()) save_vector(out, positions_);
    if constexpr (kText) {
      std::vector<uint64_t> lengths;
      for (const auto& value : values_) lengths.push_back(value.size());
      save_vector(out, lengths);
      for (const auto& value : values_) out += value;
    } else {
      save_vector(out, values_);
    }
  }
  bool load(std::string_view& in, size_t groups) override {
    if (!load_vector(in, states_, groups)) return false;
    if (by_position() && !load_vector(in, positions_, groups)) return false;
    if constexpr (kText) {
      std::vector<uint64_t> lengths;
      if (!load_vector(in, lengths, groups)) return false;
      values_.resize(groups);
      for (size_t i = 0; i < groups; ++i) {
        if (in.size() < lengths[i]) return false;
        values_[i] = in.substr(0, lengths[i]);
        in.remove_prefix(lengths[i]);
      }
      return true;
    } else {
      return load_vector(in, values_, groups);
    }
  }
  int64_t memory() const override {
    int64_t bytes = static_cast<int64_t>(values_.capacity() * sizeof(Stored) + states_.capacity() +
                                         positions_.capacity() * 8);
    return bytes + text_bytes_;
  }

 private:
  static constexpr uint8_t kEmpty = 0, kNull = 1, kValue = 2;
  bool by_position() const { return kind_ != AggregateKind::kMin && kind_ != AggregateKind::kMax; }
  bool wins(uint32_t group, uint64_t position) const {
    if (states_[group] == kEmpty) return true;
    return kind_ == AggregateKind::kLast ? position > positions_[group] : position < positions_[group];
  }
  void store(uint32_t group, T value) {
    states_[group] = kValue;
    if constexpr (kText) {
      text_bytes_ += static_cast<int64_t>(value.size()) - static_cast<int64_t>(values_[group].size());
      values_[group].assign(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      values_[group] = value == 0 && !by_position() ? T{0} : value;  // of two zeros, the positive one
    } else {
      values_[group] = value;
    }
  }

  AggregateKind kind_;
  std::shared_ptr<arrow::DataType> type_;
  std::vector<Stored> values_;
  std::vector<uint8_t> states_;
  std::vector<uint64_t> positions_;
  int64_t text_bytes_ = 0;
};

class BoolState final : public AggregateState {
 public:
  explicit BoolState(bool conjunction) : and_(conjunction) {}
  void resize(size_t groups) override { states_.resize(groups, 0); }
  Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
             const Positions&) override {
    const expr::Column<bool> values(*argument->data());
    for_rows(groups, argument, selected, rows,
             [&](int64_t i, uint32_t group) { states_[group] |= values[i] ? kTrue : kFalse; });
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const BoolState&>(other);
    for (size_t i = 0; i < groups.size(); ++i) states_[groups[i]] |= from.states_[from_groups[i]];
  }
  Result<ArrayPtr> finish() const override {
    std::vector<uint8_t> values, valid;
    for (const uint8_t state : states_) {
      valid.push_back(state != 0);
      values.push_back(and_ ? (state & kFalse) == 0 : (state & kTrue) != 0);
    }
    return make_array(arrow::boolean(), values, valid);
  }
  void save(std::string& out) const override { save_vector(out, states_); }
  bool load(std::string_view& in, size_t groups) override { return load_vector(in, states_, groups); }
  int64_t memory() const override { return static_cast<int64_t>(states_.capacity()); }

 private:
  static constexpr uint8_t kTrue = 1, kFalse = 2;
  bool and_;
  std::vector<uint8_t> states_;
};

Result<std::shared_ptr<arrow::RecordBatch>> batch_of(
    const std::vector<std::shared_ptr<arrow::Array>>& columns, int64_t rows) {
  arrow::FieldVector fields;
  for (size_t i = 0; i < columns.size(); ++i)
    fields.push_back(arrow::field(fmt::format("c{}", i), columns[i]->type()));
  return arrow::RecordBatch::Make(arrow::schema(std::move(fields)), rows, columns);
}

// Length-prefixed pieces.
void put_piece(std::string& out, std::string_view piece) {
  const uint64_t size = piece.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += piece;
}
std::string_view take_piece(std::string_view& in) {
  uint64_t size = 0;
  if (in.size() < sizeof size) return {};
  std::memcpy(&size, in.data(), sizeof size);
  in.remove_prefix(sizeof size);
  const std::string_view piece = in.substr(0, size);
  in.remove_prefix(piece.size());
  return piece;
}

Status put_columns(std::string& out, const std::vector<std::shared_ptr<arrow::Array>>& columns,
                   int64_t rows) {
  MILLSTREAM_ASSIGN(auto batch, batch_of(columns, rows));
  MILLSTREAM_ASSIGN(auto stream, arrow::io::BufferOutputStream::Create());
  MILLSTREAM_ASSIGN(auto writer, arrow::ipc::MakeStreamWriter(stream, batch->schema()));
  MILLSTREAM_TRY(writer->WriteRecordBatch(*batch));
  MILLSTREAM_TRY(writer->Close());
  MILLSTREAM_ASSIGN(auto buffer, stream->Finish());
  put_piece(out, std::string_view(reinterpret_cast<const char*>(buffer->data()),
                                  static_cast<size_t>(buffer->size())));
  return Status::OK();
}
Result<std::shared_ptr<arrow::RecordBatch>> take_columns(std::string_view& in) {
  const std::string_view piece = take_piece(in);
  MILLSTREAM_ASSIGN(auto buffer, arrow::AllocateBuffer(static_cast<int64_t>(piece.size())));
  if (!piece.empty()) std::memcpy(buffer->mutable_data(), piece.data(), piece.size());
  auto reader = std::make_shared<arrow::io::BufferReader>(std::shared_ptr<arrow::Buffer>(std::move(buffer)));
  MILLSTREAM_ASSIGN(auto batches, arrow::ipc::RecordBatchStreamReader::Open(reader));
  MILLSTREAM_ASSIGN(auto batch, batches->Next());
  if (batch == nullptr) return bug_error("a rank sent no groups");
  return batch;
}

}  // namespace

Status AggregateState::add_pairs(const uint32_t*, const arrow::Array&, const arrow::Array&, const uint8_t*,
                                 int64_t) {
  return bug_error("an aggregate of one argument was given two");
}

Result<std::unique_ptr<AggregateState>> make_aggregate_state(
    const plan::AggregateCall& call, const std::shared_ptr<arrow::DataType>& argument) {
  const AggregateKind kind = call.kind;
  const auto& result = call.result;
  std::unique_ptr<AggregateState> state;
  switch (kind) {
    case AggregateKind::kCountStar:
    case AggregateKind::kCount:
      return std::make_unique<CountState>();
    case AggregateKind::kSum:
    case AggregateKind::kAverage:
      if (!expr::is_floating_type(*argument))
        return std::make_unique<IntegerSumState>(kind == AggregateKind::kAverage, argument, result);
      return std::make_unique<FloatState>(kind, argument);
    case AggregateKind::kVarianceSample:
    case AggregateKind::kVariancePopulation:
    case AggregateKind::kDeviationSample:
    case AggregateKind::kDeviationPopulation:
      return std::make_unique<FloatState>(kind, argument);
    case AggregateKind::kBoolAnd:
    case AggregateKind::kBoolOr:
      return std::make_unique<BoolState>(kind == AggregateKind::kBoolAnd);
    case AggregateKind::kMin:
    case AggregateKind::kMax:
    case AggregateKind::kAnyValue:
    case AggregateKind::kFirst:
    case AggregateKind::kLast:
      functions::with_ordered_type(*argument, [&]<class T>(std::type_identity<T>) {
        state = std::make_unique<PickState<T>>(kind, argument);
      });
      break;
    default:
      return make_value_state(call, argument);
  }
  if (state == nullptr) return bug_error("no such aggregate of {}", argument->ToString());
  return state;
}

std::vector<std::shared_ptr<arrow::DataType>> Aggregator::key_types(bool with_value,
                                                                    const plan::AggregateCall* call) const {
  std::vector<std::shared_ptr<arrow::DataType>> types;
  for (int i = 0; i < node_.num_keys; ++i) types.push_back(node_.input->schema->field(i)->type());
  if (with_value) types.push_back(node_.input->schema->field(call->argument)->type());
  return types;
}

Result<std::unique_ptr<Aggregator>> Aggregator::make(const plan::Node& node) {
  std::unique_ptr<Aggregator> result(new Aggregator(node));
  result->table_ = std::make_unique<GroupTable>(result->key_types(false, nullptr));
  for (const plan::AggregateCall& call : node.aggregates) {
    Call made;
    made.call = call;
    std::shared_ptr<arrow::DataType> argument;
    if (call.argument >= 0) argument = node.input->schema->field(call.argument)->type();
    MILLSTREAM_ASSIGN(made.state, make_aggregate_state(call, argument));
    if (call.distinct) made.values = std::make_unique<GroupTable>(result->key_types(true, &call));
    result->calls_.push_back(std::move(made));
  }
  return result;
}

bool uses_positions(AggregateKind kind) {
  switch (kind) {
    case AggregateKind::kCountStar:
    case AggregateKind::kCount:
    case AggregateKind::kSum:
    case AggregateKind::kAverage:
    case AggregateKind::kMin:
    case AggregateKind::kMax:
    case AggregateKind::kVarianceSample:
    case AggregateKind::kVariancePopulation:
    case AggregateKind::kDeviationSample:
    case AggregateKind::kDeviationPopulation:
    case AggregateKind::kBoolAnd:
    case AggregateKind::kBoolOr:
    case AggregateKind::kMedian:
    case AggregateKind::kQuantileContinuous:
    case AggregateKind::kQuantileDiscrete:
    case AggregateKind::kApproximateCountDistinct:
    case AggregateKind::kCorrelation:
    case AggregateKind::kCovariancePopulation:
    case AggregateKind::kCovarianceSample:
      return false;
    case AggregateKind::kAnyValue:
    case AggregateKind::kFirst:
    case AggregateKind::kLast:
    case AggregateKind::kMode:
      return true;
  }
  return true;
}

bool Aggregator::has_distinct() const {
  return std::ranges::any_of(calls_, [](const Call& call) { return call.values != nullptr; });
}

Status Aggregator::add(const arrow::RecordBatch& batch, const Positions& positions) {
  const int64_t rows = batch.num_rows();
  if (rows == 0) return Status::OK();
  std::vector<ArrayPtr> keys;
  for (int i = 0; i < node_.num_keys; ++i) keys.push_back(batch.column(i));
  MILLSTREAM_TRY(table_->find_or_add(keys, rows, groups_));
  return add_states(batch, positions, nullptr);
}

Status Aggregator::add_known(const arrow::RecordBatch& batch, const Positions& positions,
                             std::vector<int32_t>& others) {
  const int64_t rows = batch.num_rows();
  std::vector<ArrayPtr> keys;
  for (int i = 0; i < node_.num_keys; ++i) keys.push_back(batch.column(i));
  MILLSTREAM_TRY(table_->find(keys, rows, groups_));
  others.clear();
  std::vector<uint8_t> known(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    known[static_cast<size_t>(i)] = groups_[static_cast<size_t>(i)] != GroupTable::kNone;
    if (!known[static_cast<size_t>(i)]) others.push_back(static_cast<int32_t>(i));
  }
  if (static_cast<int64_t>(others.size()) == rows) return Status::OK();
  return add_states(batch, positions, others.empty() ? nullptr : known.data());
}

// To the groups of groups_; rows where counted[i] is 0 are left out.
Status Aggregator::add_states(const arrow::RecordBatch& batch, const Positions& positions,
                              const uint8_t* counted) {
  const int64_t rows = batch.num_rows();
  std::vector<uint8_t> selected;
  for (Call& call : calls_) {
    const uint8_t* rows_that_count = counted;
    if (call.call.filter >= 0) {
      const arrow::Array& filter = *batch.column(call.call.filter);
      const expr::Column<bool> values(*filter.data());
      selected.resize(static_cast<size_t>(rows));
      for (int64_t i = 0; i < rows; ++i)
        selected[static_cast<size_t>(i)] =
            (counted == nullptr || counted[i]) && filter.IsValid(i) && values[i];
      rows_that_count = selected.data();
    }
    if (call.values != nullptr) {
      std::vector<int32_t> chosen;
      const arrow::Array& argument = *batch.column(call.call.argument);
      for (int64_t i = 0; i < rows; ++i)
        if ((rows_that_count == nullptr || rows_that_count[i]) && argument.IsValid(i))
          chosen.push_back(static_cast<int32_t>(i));
      MILLSTREAM_ASSIGN(const auto taken, expr::take_rows(batch, chosen));
      std::vector<ArrayPtr> columns;
      for (int i = 0; i < node_.num_keys; ++i) columns.push_back(taken->column(i));
      columns.push_back(taken->column(call.call.argument));
      std::vector<uint32_t> ignored;
      MILLSTREAM_TRY(call.values->find_or_add(columns, taken->num_rows(), ignored));
      continue;
    }
    call.state->resize(table_->size());
    const arrow::Array* argument = call.call.argument >= 0 ? batch.column(call.call.argument).get() : nullptr;
    if (call.call.second >= 0) {
      MILLSTREAM_TRY(call.state->add_pairs(groups_.data(), *argument, *batch.column(call.call.second),
                                           rows_that_count, rows));
      continue;
    }
    MILLSTREAM_TRY(call.state->add(groups_.data(), argument, rows_that_count, rows, positions));
  }
  return Status::OK();
}

// Keys i belong to group from[i] of the states.
Status Aggregator::merge_groups(const std::vector<ArrayPtr>& keys, const std::vector<uint32_t>& from,
                                const std::vector<const AggregateState*>& states) {
  std::vector<uint32_t> groups;
  MILLSTREAM_TRY(table_->find_or_add(keys, static_cast<int64_t>(from.size()), groups));
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].values != nullptr) continue;
    calls_[i].state->resize(table_->size());
    calls_[i].state->merge(*states[i], from, groups);
  }
  return Status::OK();
}

Status Aggregator::merge(const Aggregator& other) {
  // All in one part.
  MILLSTREAM_ASSIGN(const Split split, other.split(1, [](const arrow::RecordBatch& keys, auto& places) {
    places.assign(static_cast<size_t>(keys.num_rows()), 0);
    return Status::OK();
  }));
  return merge(split, 0);
}

Result<Aggregator::Split> Aggregator::split(int parts, const PlaceRows& place) const {
  Split split;
  split.from = this;
  std::vector<uint32_t> places;
  MILLSTREAM_ASSIGN(const auto keys, table_->keys());
  MILLSTREAM_ASSIGN(split.keys, batch_of(keys, table_->size()));
  MILLSTREAM_TRY(place(*split.keys, places));
  split.groups = bucket(places, parts);
  for (const Call& call : calls_) {
    call.state->resize(table_->size());
    split.values.emplace_back();
    if (call.values == nullptr) continue;
    MILLSTREAM_ASSIGN(const auto values, call.values->keys());
    MILLSTREAM_ASSIGN(split.values.back().rows, batch_of(values, call.values->size()));
    MILLSTREAM_TRY(place(*split.values.back().rows, places));
    split.values.back().buckets = bucket(places, parts);
  }
  return split;
}

Status Aggregator::merge(const Split& split, int part) {
  const auto of_part = [&](const Buckets& buckets) {
    return std::vector<int32_t>(buckets.items.begin() + buckets.begin[static_cast<size_t>(part)],
                                buckets.items.begin() + buckets.begin[static_cast<size_t>(part) + 1]);
  };
  const std::vector<int32_t> rows = of_part(split.groups);
  MILLSTREAM_ASSIGN(const auto keys, expr::take_rows(*split.keys, rows));
  std::vector<const AggregateState*> states;
  for (const Call& call : split.from->calls_) states.push_back(call.state.get());
  MILLSTREAM_TRY(merge_groups(keys->columns(), {rows.begin(), rows.end()}, states));
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].values == nullptr) continue;
    const Split::Values& values = split.values[i];
    MILLSTREAM_ASSIGN(const auto taken, expr::take_rows(*values.rows, of_part(values.buckets)));
    std::vector<uint32_t> ignored;
    MILLSTREAM_TRY(calls_[i].values->find_or_add(taken->columns(), taken->num_rows(), ignored));
  }
  return Status::OK();
}

Result<std::string> Aggregator::save() const {
  std::string out;
  MILLSTREAM_ASSIGN(const auto keys, table_->keys());
  MILLSTREAM_TRY(put_columns(out, keys, table_->size()));
  for (const Call& call : calls_) {
    if (call.values != nullptr) {
      MILLSTREAM_ASSIGN(const auto values, call.values->keys());
      MILLSTREAM_TRY(put_columns(out, values, call.values->size()));
      continue;
    }
    call.state->resize(table_->size());
    std::string state;
    call.state->save(state);
    put_piece(out, state);
  }
  return out;
}

Status Aggregator::merge_saved(const std::string& bytes) {
  std::string_view in = bytes;
  MILLSTREAM_ASSIGN(const auto groups, take_columns(in));
  std::vector<std::unique_ptr<AggregateState>> loaded;
  std::vector<const AggregateState*> states;
  for (Call& call : calls_) {
    if (call.values != nullptr) {
      MILLSTREAM_ASSIGN(const auto values, take_columns(in));
      std::vector<uint32_t> ignored;
      MILLSTREAM_TRY(call.values->find_or_add(values->columns(), values->num_rows(), ignored));
      states.push_back(nullptr);
      continue;
    }
    std::shared_ptr<arrow::DataType> argument;
    if (call.call.argument >= 0) argument = node_.input->schema->field(call.call.argument)->type();
    MILLSTREAM_ASSIGN(auto state, make_aggregate_state(call.call, argument));
    std::string_view piece = take_piece(in);
    if (!state->load(piece, static_cast<size_t>(groups->num_rows())))
      return bug_error("a rank sent half a state");
    states.push_back(state.get());
    loaded.push_back(std::move(state));
  }
  std::vector<uint32_t> from(static_cast<size_t>(groups->num_rows()));
  std::iota(from.begin(), from.end(), 0U);
  return merge_groups(groups->columns(), from, states);
}

Result<std::shared_ptr<arrow::RecordBatch>> Aggregator::finish() {
  // Without keys there is one group, also of no rows.
  if (node_.num_keys == 0) MILLSTREAM_TRY(table_->find_or_add({}, 1, groups_));
  MILLSTREAM_ASSIGN(std::vector<ArrayPtr> columns, table_->keys());
  for (Call& call : calls_) {
    call.state->resize(table_->size());
    if (call.values != nullptr) {
      // Each distinct value once, to the group of its keys.
      MILLSTREAM_ASSIGN(auto values, call.values->keys());
      const int64_t rows = call.values->size();
      const ArrayPtr value = values.back();
      values.pop_back();
      MILLSTREAM_TRY(table_->find_or_add(values, rows, groups_));
      call.state->resize(table_->size());
      MILLSTREAM_TRY(call.state->add(groups_.data(), value.get(), nullptr, rows, {}));
    }
    MILLSTREAM_ASSIGN(auto column, call.state->finish());
    columns.push_back(std::move(column));
  }
  auto batch = arrow::RecordBatch::Make(node_.schema, table_->size(), std::move(columns));
  std::vector<plan::SortKey> order;
  for (int i = 0; i < node_.num_keys; ++i) order.push_back({i, false, false});
  return sort_rows(batch, order, -1);
}

int64_t Aggregator::memory() const {
  int64_t bytes = table_->memory();
  for (const Call& call : calls_) {
    bytes += call.state->memory();
    if (call.values != nullptr) bytes += call.values->memory();
  }
  return bytes;
}

}  // namespace millstream::exec
