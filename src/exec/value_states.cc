#include "exec/value_states.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "exec/exact_sum.h"
#include "expr/kernel.h"
#include "expr/text.h"
#include "expr/type.h"
#include "functions/ordering.h"

namespace millstream::exec {
namespace {

using plan::AggregateKind;
using ArrayPtr = std::shared_ptr<arrow::Array>;

// Calls f(row, group) for the rows that count and where no argument is NULL.
template <class F>
void for_rows(const uint32_t* groups, std::initializer_list<const arrow::Array*> arguments,
              const uint8_t* selected, int64_t rows, F&& f) {
  for (int64_t i = 0; i < rows; ++i) {
    if (selected != nullptr && !selected[i]) continue;
    if (std::ranges::any_of(arguments, [&](const arrow::Array* argument) { return argument->IsNull(i); }))
      continue;
    f(i, groups[i]);
  }
}

// What a value of a column is kept as.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, std::string_view>, std::string,
                                  std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;

template <class T>
bool less_stored(const Stored<T>& a, const Stored<T>& b) {
  return functions::less_value<T>(static_cast<T>(a), static_cast<T>(b));
}

template <class T>
int64_t bytes_of(const Stored<T>& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return static_cast<int64_t>(value.size() + sizeof value);
  } else {
    return sizeof value;
  }
}

template <class V>
void save_values(std::string& out, const std::vector<V>& values) {
  if constexpr (std::is_same_v<V, std::string>) {
    std::vector<uint64_t> lengths;
    for (const auto& value : values) lengths.push_back(value.size());
    save_vector(out, lengths);
    for (const auto& value : values) out += value;
  } else {
    save_vector(out, values);
  }
}
template <class V>
bool load_values(std::string_view& in, std::vector<V>& values, size_t count) {
  if constexpr (std::is_same_v<V, std::string>) {
    std::vector<uint64_t> lengths;
    if (!load_vector(in, lengths, count)) return false;
    values.clear();
    for (const uint64_t length : lengths) {
      if (in.size() < length) return false;
      values.emplace_back(in.substr(0, length));
      in.remove_prefix(length);
    }
    return true;
  } else {
    return load_vector(in, values, count);
  }
}

// Values of a type as an array; null pointers are NULL.
template <class T>
Result<ArrayPtr> array_of(const std::shared_ptr<arrow::DataType>& type,
                          const std::vector<const Stored<T>*>& values) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    std::unique_ptr<arrow::ArrayBuilder> builder;
    MILLSTREAM_TRY(arrow::MakeBuilder(arrow::default_memory_pool(), type, &builder));
    auto& text = static_cast<arrow::BinaryBuilder&>(*builder);
    for (const auto* value : values)
      MILLSTREAM_TRY(value != nullptr ? text.Append(*value) : text.AppendNull());
    return builder->Finish();
  } else {
    const auto count = static_cast<int64_t>(values.size());
    constexpr bool kBits = std::is_same_v<T, bool>;
    MILLSTREAM_ASSIGN(std::shared_ptr<arrow::Buffer> valid, arrow::AllocateEmptyBitmap(count));
    std::shared_ptr<arrow::Buffer> data;
    if constexpr (kBits) {
      MILLSTREAM_ASSIGN(data, arrow::AllocateEmptyBitmap(count));
    } else {
      MILLSTREAM_ASSIGN(data, arrow::AllocateBuffer(count * static_cast<int64_t>(sizeof(T))));
    }
    int64_t nulls = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto* value = values[static_cast<size_t>(i)];
      nulls += value == nullptr;
      arrow::bit_util::SetBitTo(valid->mutable_data(), i, value != nullptr);
      if constexpr (kBits) {
        arrow::bit_util::SetBitTo(data->mutable_data(), i, value != nullptr && *value != 0);
      } else {
        const T none{};
        std::memcpy(data->mutable_data() + i * static_cast<int64_t>(sizeof(T)),
                    value == nullptr ? &none : value, sizeof(T));
      }
    }
    return arrow::MakeArray(arrow::ArrayData::Make(type, count, {valid, data}, nulls));
  }
}

// All values of every group.
template <class T>
class QuantileState final : public AggregateState {
 public:
  QuantileState(const plan::AggregateCall& call, std::shared_ptr<arrow::DataType> type)
      : kind_(call.kind),
        fraction_(call.kind == AggregateKind::kMedian ? 0.5 : call.fraction),
        type_(std::move(type)),
        result_(call.result) {}
  void resize(size_t groups) override { values_.resize(groups); }
  Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
             const Positions&) override {
    const expr::Column<T> values(*argument->data());
    for_rows(groups, {argument}, selected, rows, [&](int64_t i, uint32_t group) {
      values_[group].emplace_back(values[i]);
      bytes_ += bytes_of<T>(values_[group].back());
    });
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const QuantileState&>(other);
    for (size_t i = 0; i < groups.size(); ++i) {
      auto& to = values_[groups[i]];
      to.insert(to.end(), from.values_[from_groups[i]].begin(), from.values_[from_groups[i]].end());
      for (const auto& value : from.values_[from_groups[i]]) bytes_ += bytes_of<T>(value);
    }
  }
  Result<ArrayPtr> finish() const override {
    if constexpr (!std::is_same_v<T, std::string_view> && !std::is_same_v<T, bool> &&
                  !std::is_same_v<T, expr::Interval>) {
      if (kind_ != AggregateKind::kQuantileDiscrete) {
        if constexpr (std::is_arithmetic_v<T>) {
          if (result_->id() == arrow::Type::DOUBLE) return between<double>();
        }
        return between<T>();
      }
    }
    std::vector<Stored<T>> picked(values_.size());
    std::vector<const Stored<T>*> results(values_.size(), nullptr);
    for (size_t g = 0; g < values_.size(); ++g) {
      if (values_[g].empty()) continue;
      auto values = values_[g];
      const size_t at = place(values.size());
      std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at), less_stored<T>);
      picked[g] = std::move(values[at]);
      results[g] = &picked[g];
    }
    return array_of<T>(type_, results);
  }
  void save(std::string& out) const override {
    std::vector<uint64_t> counts;
    for (const auto& values : values_) counts.push_back(values.size());
    save_vector(out, counts);
    for (const auto& values : values_) save_values(out, values);
  }
  bool load(std::string_view& in, size_t groups) override {
    std::vector<uint64_t> counts;
    if (!load_vector(in, counts, groups)) return false;
    values_.resize(groups);
    for (size_t g = 0; g < groups; ++g)
      if (!load_values(in, values_[g], counts[g])) return false;
    return true;
  }
  int64_t memory() const override {
    return bytes_ + static_cast<int64_t>(values_.capacity() * sizeof(values_[0]));
  }

 private:
  // Fractions of few digits are meant exactly: 0.07 of 100 values are 7.
  static constexpr int64_t kUnit = 1'000'000'000;
  bool is_exact() const { return std::abs(fraction_ * kUnit - std::round(fraction_ * kUnit)) < 1e-6; }

  // As DuckDB: the first value that at least the fraction of the values does not exceed.
  size_t place(size_t count) const {
    size_t behind = 0;  // whole values above
    if (is_exact()) {
      const auto parts = static_cast<__int128>(std::llround(fraction_ * kUnit));
      behind = static_cast<size_t>(
          (static_cast<__int128>(count) * kUnit - parts * static_cast<__int128>(count)) / kUnit);
    } else {
      const auto n = static_cast<double>(count);
      behind = static_cast<size_t>(std::floor(n - fraction_ * n));
    }
    return std::max<size_t>(1, count - std::min(behind, count)) - 1;
  }

  template <class R>
  Result<ArrayPtr> between() const {
    std::vector<R> made(values_.size());
    std::vector<const Stored<R>*> results(values_.size(), nullptr);
    for (size_t g = 0; g < values_.size(); ++g) {
      if (values_[g].empty()) continue;
      auto values = values_[g];
      const double at = static_cast<double>(values.size() - 1) * fraction_;
      const auto low = static_cast<size_t>(std::floor(at)), high = static_cast<size_t>(std::ceil(at));
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(low);
      std::ranges::nth_element(values, first, less_stored<T>);
      const T a = *first;
      const T b = high == low ? a : *std::ranges::min_element(first + 1, values.end(), less_stored<T>);
      made[g] = mixed<R>(a, b, at - static_cast<double>(low));
      results[g] = &made[g];
    }
    return array_of<R>(result_, results);
  }

  template <class R>
  static R mixed(const T& a, const T& b, double part) {
    // In doubles, as DuckDB computes it, but for decimals that they do not hold.
    if constexpr (std::is_same_v<T, expr::Decimal>) {
      T result = a;
      const __int128 most = expr::power_of_ten(18);
      const auto is_small = [&](const T& x) { return -most < x.digits && most > x.digits; };
      if (is_small(a) && is_small(b)) {
        const auto low = static_cast<double>(a.digits), high = static_cast<double>(b.digits);
        result.digits = static_cast<__int128>(low + (high - low) * part);
      } else {
        const auto low = static_cast<__float128>(a.digits), high = static_cast<__float128>(b.digits);
        result.digits = static_cast<__int128>(low + (high - low) * static_cast<__float128>(part));
      }
      return result;
    } else {
      if (part == 0) return static_cast<R>(a);
      const auto low = static_cast<double>(a), high = static_cast<double>(b);
      return static_cast<R>(low + (high - low) * part);
    }
  }

  AggregateKind kind_;
  double fraction_;
  std::shared_ptr<arrow::DataType> type_, result_;
  std::vector<std::vector<Stored<T>>> values_;
  int64_t bytes_ = 0;
};

// All values of every group, with their places in the source.
template <class T>
class ModeState final : public AggregateState {
 public:
  explicit ModeState(std::shared_ptr<arrow::DataType> type) : type_(std::move(type)) {}
  void resize(size_t groups) override { groups_.resize(groups); }
  Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
             const Positions& positions) override {
    const expr::Column<T> values(*argument->data());
    for_rows(groups, {argument}, selected, rows, [&](int64_t i, uint32_t group) {
      groups_[group].values.emplace_back(values[i]);
      groups_[group].positions.push_back(positions[i]);
      bytes_ += bytes_of<T>(groups_[group].values.back()) + 8;
    });
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const ModeState&>(other);
    for (size_t i = 0; i < groups.size(); ++i) {
      Group& to = groups_[groups[i]];
      const Group& more = from.groups_[from_groups[i]];
      to.values.insert(to.values.end(), more.values.begin(), more.values.end());
      to.positions.insert(to.positions.end(), more.positions.begin(), more.positions.end());
      for (const auto& value : more.values) bytes_ += bytes_of<T>(value) + 8;
    }
  }
  Result<ArrayPtr> finish() const override {
    std::vector<const Stored<T>*> results(groups_.size(), nullptr);
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      std::vector<size_t> order(group.values.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::ranges::sort(order, [&](size_t a, size_t b) {
        if (less_stored<T>(group.values[a], group.values[b])) return true;
        if (less_stored<T>(group.values[b], group.values[a])) return false;
        return group.positions[a] < group.positions[b];
      });
      size_t most = 0;
      uint64_t first = 0;
      for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
        while (end < order.size() && !less_stored<T>(group.values[order[begin]], group.values[order[end]]))
          ++end;
        const uint64_t position = group.positions[order[begin]];
        if (end - begin < most || (end - begin == most && position > first)) continue;
        most = end - begin;
        first = position;
        results[g] = &group.values[order[begin]];
      }
    }
    return array_of<T>(type_, results);
  }
  void save(std::string& out) const override {
    std::vector<uint64_t> counts;
    for (const Group& group : groups_) counts.push_back(group.values.size());
    save_vector(out, counts);
    for (const Group& group : groups_) {
      save_values(out, group.values);
      save_vector(out, group.positions);
    }
  }
  bool load(std::string_view& in, size_t groups) override {
    std::vector<uint64_t> counts;
    if (!load_vector(in, counts, groups)) return false;
    groups_.resize(groups);
    for (size_t g = 0; g < groups; ++g) {
      if (!load_values(in, groups_[g].values, counts[g])) return false;
      if (!load_vector(in, groups_[g].positions, counts[g])) return false;
    }
    return true;
  }
  int64_t memory() const override {
    return bytes_ + static_cast<int64_t>(groups_.capacity() * sizeof(Group));
  }

 private:
  struct Group {
    std::vector<Stored<T>> values;
    std::vector<uint64_t> positions;
  };
  std::shared_ptr<arrow::DataType> type_;
  std::vector<Group> groups_;
  int64_t bytes_ = 0;
};

// HyperLogLog: of 2^12 kinds of hashes, the longest run of zeros that one began with. Few entries are kept as a list.
class DistinctSketch {
 public:
  static constexpr int kBits = 12;
  static constexpr size_t kRegisters = size_t{1} << kBits;
  static constexpr size_t kMostListed = 512;

  void add(uint64_t hash) {
    const auto index = static_cast<uint32_t>(hash >> (64 - kBits));
    const uint64_t rest = hash << kBits | uint64_t{1} << (kBits - 1);
    put(index, static_cast<uint8_t>(std::countl_zero(rest) + 1));
  }
  void merge(const DistinctSketch& other) {
    for (const uint32_t entry : other.list_) put(entry >> 8, static_cast<uint8_t>(entry));
    for (size_t i = 0; i < other.registers_.size(); ++i)
      if (other.registers_[i] != 0) put(static_cast<uint32_t>(i), other.registers_[i]);
  }
  int64_t estimate() const {
    std::array<uint8_t, kRegisters> registers = {};
    for (const uint32_t entry : list_)
      registers[entry >> 8] = std::max(registers[entry >> 8], static_cast<uint8_t>(entry));
    std::ranges::copy(registers_, registers.begin());
    double sum = 0;
    int64_t zeros = 0;
    for (const uint8_t run : registers) {
      sum += std::ldexp(1.0, -run);
      zeros += run == 0;
    }
    constexpr double kCount = kRegisters;
    const double raw = 0.7213 / (1 + 1.079 / kCount) * kCount * kCount / sum;
    if (raw > 2.5 * kCount || zeros == 0) return std::llround(raw);
    return std::llround(kCount * std::log(kCount / static_cast<double>(zeros)));
  }
  int64_t memory() const { return static_cast<int64_t>(list_.capacity() * 4 + registers_.capacity()); }

  void save(std::string& out) const {
    const uint64_t listed = registers_.empty() ? list_.size() : UINT64_MAX;
    out.append(reinterpret_cast<const char*>(&listed), sizeof listed);
    save_vector(out, list_);
    save_vector(out, registers_);
  }
  bool load(std::string_view& in) {
    std::vector<uint64_t> listed;
    if (!load_vector(in, listed, 1)) return false;
    if (listed[0] == UINT64_MAX) return load_vector(in, registers_, kRegisters);
    return listed[0] <= kMostListed && load_vector(in, list_, listed[0]);
  }

 private:
  void put(uint32_t index, uint8_t run) {
    if (registers_.empty()) {
      const auto at = std::ranges::lower_bound(list_, index << 8);
      if (at != list_.end() && *at >> 8 == index) {
        if (static_cast<uint8_t>(*at) < run) *at = index << 8 | run;
        return;
      }
      if (list_.size() < kMostListed) {
        list_.insert(at, index << 8 | run);
        return;
      }
      registers_.resize(kRegisters, 0);
      for (const uint32_t entry : list_) registers_[entry >> 8] = static_cast<uint8_t>(entry);
      list_ = {};
    }
    registers_[index] = std::max(registers_[index], run);
  }

  std::vector<uint32_t> list_;      // index << 8 | run, ascending
  std::vector<uint8_t> registers_;  // empty: the list is what there is
};

template <class T>
uint64_t hash_of(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return hash64(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    const double x = value == 0 ? 0 : value != value ? std::numeric_limits<double>::quiet_NaN() : value;
    return hash64(&x, sizeof x);
  } else if constexpr (std::is_same_v<T, expr::Decimal>) {
    return hash64(&value.digits, sizeof value.digits);
  } else if constexpr (std::is_same_v<T, expr::Interval>) {
    const __int128 length = functions::interval_length(value);
    return hash64(&length, sizeof length);
  } else {
    const auto x = static_cast<int64_t>(value);
    return hash64(&x, sizeof x);
  }
}

class DistinctState final : public AggregateState {
 public:
  void resize(size_t groups) override { sketches_.resize(groups); }
  Status add(const uint32_t* groups, const arrow::Array* argument, const uint8_t* selected, int64_t rows,
             const Positions&) override {
    functions::with_ordered_type(*argument->type(), [&]<class T>(std::type_identity<T>) {
      const expr::Column<T> values(*argument->data());
      for_rows(groups, {argument}, selected, rows,
               [&](int64_t i, uint32_t group) { sketches_[group].add(hash_of<T>(values[i])); });
    });
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const DistinctState&>(other);
    for (size_t i = 0; i < groups.size(); ++i) sketches_[groups[i]].merge(from.sketches_[from_groups[i]]);
  }
  Result<ArrayPtr> finish() const override {
    arrow::Int64Builder builder;
    for (const auto& sketch : sketches_) MILLSTREAM_TRY(builder.Append(sketch.estimate()));
    return builder.Finish();
  }
  void save(std::string& out) const override {
    for (const auto& sketch : sketches_) sketch.save(out);
  }
  bool load(std::string_view& in, size_t groups) override {
    sketches_.resize(groups);
    return std::ranges::all_of(sketches_, [&](auto& sketch) { return sketch.load(in); });
  }
  int64_t memory() const override {
    int64_t bytes = static_cast<int64_t>(sketches_.capacity() * sizeof(DistinctSketch));
    for (const auto& sketch : sketches_) bytes += sketch.memory();
    return bytes;
  }

 private:
  std::vector<DistinctSketch> sketches_;
};

// Correlation and covariance, from exact sums.
class PairState final : public AggregateState {
 public:
  explicit PairState(AggregateKind kind) : kind_(kind) {}
  void resize(size_t groups) override {
    for (ExactSums* sum : sums()) sum->resize(groups);
    counts_.resize(groups, 0);
  }
  Status add(const uint32_t*, const arrow::Array*, const uint8_t*, int64_t, const Positions&) override {
    return bug_error("an aggregate of two arguments was given one");
  }
  Status add_pairs(const uint32_t* groups, const arrow::Array& first, const arrow::Array& second,
                   const uint8_t* selected, int64_t rows) override {
    const auto* xs = first.data()->GetValues<double>(1);
    const auto* ys = second.data()->GetValues<double>(1);
    for_rows(groups, {&first, &second}, selected, rows, [&](int64_t i, uint32_t group) {
      const double x = xs[i], y = ys[i];
      ++counts_[group];
      x_.add(group, x);
      y_.add(group, y);
      xy_.add_product(group, x, y);
      if (kind_ != AggregateKind::kCorrelation) return;
      xx_.add_square(group, x);
      yy_.add_square(group, y);
    });
    return Status::OK();
  }
  void merge(const AggregateState& other, const std::vector<uint32_t>& from_groups,
             const std::vector<uint32_t>& groups) override {
    const auto& from = static_cast<const PairState&>(other);
    const auto ours = sums();
    const auto theirs = from.sums();
    for (size_t i = 0; i < groups.size(); ++i) {
      counts_[groups[i]] += from.counts_[from_groups[i]];
      for (size_t s = 0; s < ours.size(); ++s) ours[s]->merge(groups[i], *theirs[s], from_groups[i]);
    }
  }
  Result<ArrayPtr> finish() const override {
    arrow::DoubleBuilder builder;
    for (size_t g = 0; g < counts_.size(); ++g) {
      if (counts_[g] <= (kind_ == AggregateKind::kCovarianceSample ? 1 : 0)) {
        MILLSTREAM_TRY(builder.AppendNull());
      } else {
        MILLSTREAM_TRY(builder.Append(value(g)));
      }
    }
    return builder.Finish();
  }
  void save(std::string& out) const override {
    for (const ExactSums* sum : sums()) sum->save(out);
    save_vector(out, counts_);
  }
  bool load(std::string_view& in, size_t groups) override {
    for (ExactSums* sum : sums())
      if (!sum->load(in, groups)) return false;
    return load_vector(in, counts_, groups);
  }
  int64_t memory() const override {
    int64_t bytes = static_cast<int64_t>(counts_.capacity() * 8);
    for (const ExactSums* sum : sums()) bytes += sum->bytes();
    return bytes;
  }

 private:
  std::array<ExactSums*, 5> sums() { return {&x_, &y_, &xy_, &xx_, &yy_}; }
  std::array<const ExactSums*, 5> sums() const { return {&x_, &y_, &xy_, &xx_, &yy_}; }

  double value(size_t g) const {
    for (const ExactSums* sum : sums())
      if (!std::isfinite(sum->value(g))) return std::numeric_limits<double>::quiet_NaN();
    const auto n = static_cast<__float128>(counts_[g]);
    const __float128 x = x_.wide_value(g), y = y_.wide_value(g);
    const __float128 together = xy_.wide_value(g) - x * y / n;
    if (kind_ == AggregateKind::kCovariancePopulation) return static_cast<double>(together / n);
    if (kind_ == AggregateKind::kCovarianceSample) return static_cast<double>(together / (n - 1));
    const __float128 of_x = xx_.wide_value(g) - x * x / n, of_y = yy_.wide_value(g) - y * y / n;
    // Of numbers that are all the same there is no correlation.
    if (counts_[g] == 1 || of_x <= 0 || of_y <= 0) return std::numeric_limits<double>::quiet_NaN();
    const double both = std::sqrt(static_cast<double>(of_x)) * std::sqrt(static_cast<double>(of_y));
    return std::clamp(static_cast<double>(together) / both, -1.0, 1.0);
  }

  AggregateKind kind_;
  ExactSums x_, y_, xy_, xx_, yy_;
  std::vector<int64_t> counts_;
};

}  // namespace

Result<std::unique_ptr<AggregateState>> make_value_state(const plan::AggregateCall& call,
                                                         const std::shared_ptr<arrow::DataType>& argument) {
  std::unique_ptr<AggregateState> state;
  switch (call.kind) {
    case AggregateKind::kMedian:
    case AggregateKind::kQuantileContinuous:
    case AggregateKind::kQuantileDiscrete:
      functions::with_ordered_type(*argument, [&]<class T>(std::type_identity<T>) {
        state = std::make_unique<QuantileState<T>>(call, argument);
      });
      break;
    case AggregateKind::kMode:
      functions::with_ordered_type(*argument, [&]<class T>(std::type_identity<T>) {
        state = std::make_unique<ModeState<T>>(argument);
      });
      break;
    case AggregateKind::kApproximateCountDistinct:
      return std::make_unique<DistinctState>();
    case AggregateKind::kCorrelation:
    case AggregateKind::kCovariancePopulation:
    case AggregateKind::kCovarianceSample:
      return std::make_unique<PairState>(call.kind);
    default:
      break;
  }
  if (state == nullptr) return bug_error("no such aggregate of kind {}", static_cast<int>(call.kind));
  return state;
}

}  // namespace millstream::exec
