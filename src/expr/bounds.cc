// Inference of bounds: bottom-up over an expression, with assumptions about columns on the way.

#include "expr/bounds.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <arrow/util/bit_util.h>

#include "expr/bound_rules.h"
#include "expr/calendar.h"
#include "expr/function.h"
#include "expr/text.h"
#include "expr/type.h"

namespace millstream::expr {
namespace {

using Whole = __int128;

// Beyond so many operations of one expression the rest is known by its type alone: shared subexpressions are
// walked once for each use.
constexpr int64_t kMaxVisits = 100'000;
// Combinations of known values that a function is tried on.
constexpr int64_t kMaxCombinations = 256;
// Every whole number up to here is a double.
constexpr double kExactDouble = 9007199254740992.0;

int byte_width(const arrow::DataType& type) {
  return static_cast<const arrow::FixedWidthType&>(type).bit_width() / 8;
}

bool is_unsigned(const arrow::DataType& type) {
  return is_integer_type(type) && !is_signed_integer_type(type);
}

/// One value as an array; null where the type has no such value.
std::shared_ptr<arrow::Array> one_value(const TypePtr& type, Whole value) {
  auto allocated = arrow::AllocateBuffer(16);
  if (!allocated.ok()) return nullptr;
  std::shared_ptr<arrow::Buffer> buffer = *std::move(allocated);
  std::memset(buffer->mutable_data(), 0, 16);
  if (type->id() == arrow::Type::BOOL) {
    buffer->mutable_data()[0] = value != 0;
  } else {
    const int width = byte_width(*type);
    if (width < 16) {
      const Whole size = Whole{1} << (8 * width);
      const Whole low = is_unsigned(*type) ? 0 : -size / 2,
                  high = is_unsigned(*type) ? size - 1 : size / 2 - 1;
      if (value < low || value > high) return nullptr;
    }
    std::memcpy(buffer->mutable_data(), &value, static_cast<size_t>(width));
  }
  return arrow::MakeArray(arrow::ArrayData::Make(type, 1, {nullptr, std::move(buffer)}, 0));
}

/// A floating point number that is not above (`down`) or not below `value`, as near as the type has one.
std::shared_ptr<arrow::Array> one_value(const TypePtr& type, double value, bool down) {
  auto allocated = arrow::AllocateBuffer(8);
  if (!allocated.ok()) return nullptr;
  std::shared_ptr<arrow::Buffer> buffer = *std::move(allocated);
  if (type->id() == arrow::Type::DOUBLE) {
    std::memcpy(buffer->mutable_data(), &value, sizeof value);
  } else {
    auto narrow = static_cast<float>(value);
    if (down && narrow > value) narrow = std::nextafter(narrow, -INFINITY);
    if (!down && narrow < value) narrow = std::nextafter(narrow, INFINITY);
    std::memcpy(buffer->mutable_data(), &narrow, sizeof narrow);
  }
  return arrow::MakeArray(arrow::ArrayData::Make(type, 1, {nullptr, std::move(buffer)}, 0));
}

Whole whole_at(const arrow::ArrayData& data, int64_t row) {
  const uint8_t* values = data.buffers[1]->data();
  if (data.type->id() == arrow::Type::BOOL) return arrow::bit_util::GetBit(values, data.offset + row);
  const int width = byte_width(*data.type);
  const uint8_t* at = values + (data.offset + row) * width;
  Whole value = 0;
  std::memcpy(&value, at, static_cast<size_t>(width));
  if (width < 16 && !is_unsigned(*data.type)) {
    const Whole size = Whole{1} << (8 * width);
    if (value >= size / 2) value -= size;
  }
  return value;
}

double real_at(const arrow::ArrayData& data, int64_t row) {
  return data.type->id() == arrow::Type::DOUBLE ? data.GetValues<double>(1)[row]
                                                : static_cast<double>(data.GetValues<float>(1)[row]);
}

template <class T>
void raise_low(Range<T>& range, const Limit<T>& limit) {
  if (!range.low || limit.value > range.low->value ||
      (limit.value == range.low->value && limit.origin < range.low->origin)) {
    range.low = limit;
  }
}
template <class T>
void lower_high(Range<T>& range, const Limit<T>& limit) {
  if (!range.high || limit.value < range.high->value ||
      (limit.value == range.high->value && limit.origin < range.high->origin)) {
    range.high = limit;
  }
}
template <class T>
void intersect(Range<T>& range, const Range<T>& other) {
  if (other.low) raise_low(range, *other.low);
  if (other.high) lower_high(range, *other.high);
}
template <class T>
void unite(Range<T>& range, const Range<T>& other) {
  const auto either = [](std::optional<Limit<T>>& a, const std::optional<Limit<T>>& b, bool low) {
    if (!a || !b) {
      a.reset();
      return;
    }
    a = Limit<T>{low ? std::min(a->value, b->value) : std::max(a->value, b->value),
                 less_certain(a->origin, b->origin)};
  };
  either(range.low, other.low, true);
  either(range.high, other.high, false);
}
template <class T>
std::optional<BoundOrigin> contradiction(const Range<T>& range) {
  if (!range.low || !range.high || range.low->value <= range.high->value) return {};
  return less_certain(range.low->origin, range.high->origin);
}

/// Where none of the known values lies within the limits there is no value; as certain as what says so.
std::optional<BoundOrigin> values_outside(const Bounds& bounds) {
  if (!bounds.values || !has_whole_bounds(*bounds.values->type())) return std::nullopt;
  BoundOrigin origin = bounds.values_origin;
  for (int64_t row = 0; row < bounds.values->length(); ++row) {
    const Whole value = whole_at(*bounds.values->data(), row);
    if (bounds.whole.low && value < bounds.whole.low->value) {
      origin = less_certain(origin, bounds.whole.low->origin);
    } else if (bounds.whole.high && value > bounds.whole.high->value) {
      origin = less_certain(origin, bounds.whole.high->origin);
    } else {
      return std::nullopt;
    }
  }
  return origin;
}

std::shared_ptr<arrow::RecordBatch> batch_of(arrow::ArrayVector columns, int64_t rows) {
  arrow::FieldVector fields;
  for (size_t i = 0; i < columns.size(); ++i)
    fields.push_back(arrow::field(std::to_string(i), columns[i]->type()));
  return arrow::RecordBatch::Make(arrow::schema(std::move(fields)), rows, std::move(columns));
}

/// Values by their text, each once; null where they are too many.
class ValueSet {
 public:
  void add(const arrow::Array& values) {
    for (int64_t row = 0; row < values.length() && !full_; ++row) {
      if (values.IsNull(row)) continue;
      places_.try_emplace(text(values, row), values.Slice(row, 1));
      full_ = static_cast<int64_t>(places_.size()) > Bounds::kMaxKnownValues;
    }
  }
  bool contains(const arrow::Array& values, int64_t row) const { return places_.contains(text(values, row)); }
  /// In ascending order where they have one.
  std::shared_ptr<arrow::Array> finish() const {
    if (full_ || places_.empty()) return nullptr;
    std::vector<std::shared_ptr<arrow::Array>> pieces;
    for (const auto& [text, piece] : places_) pieces.push_back(piece);
    const TypePtr type = pieces[0]->type();
    if (has_whole_bounds(*type)) {
      std::ranges::stable_sort(pieces, {}, [](const auto& x) { return whole_at(*x->data(), 0); });
    } else if (has_real_bounds(*type)) {
      std::ranges::stable_sort(pieces, [](const auto& x, const auto& y) {
        const double a = real_at(*x->data(), 0), b = real_at(*y->data(), 0);
        return a < b || (std::isnan(b) && !std::isnan(a));
      });
    }
    auto whole = arrow::Concatenate(pieces);
    return whole.ok() ? *whole : nullptr;
  }
  bool empty() const { return places_.empty(); }

 private:
  static std::string text(const arrow::Array& values, int64_t row) {
    return value_text({values.data(), false}, row);
  }
  std::map<std::string, std::shared_ptr<arrow::Array>> places_;
  bool full_ = false;
};

Bounds bounds_of_values(const std::shared_ptr<arrow::Array>& values, BoundOrigin origin) {
  Bounds result = observed_bounds(*values);
  for (auto* limit : {&result.whole.low, &result.whole.high})
    if (*limit) (*limit)->origin = origin;
  for (auto* limit : {&result.real.low, &result.real.high})
    if (*limit) (*limit)->origin = origin;
  if (result.none) result.none = origin;
  ValueSet set;
  set.add(*values);
  result.values = set.finish();
  result.values_origin = origin;
  return result;
}

/// The expression with the arguments that `columns` gives replaced by columns of a batch, evaluated.
Result<std::shared_ptr<arrow::Array>> evaluate_on(const Expression& call,
                                                  const std::vector<std::shared_ptr<arrow::Array>>& columns,
                                                  int64_t rows) {
  Expression copy = call;
  arrow::ArrayVector used;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!columns[i]) continue;
    copy.arguments[i] = make_column(static_cast<int>(used.size()), arrow::Field("", columns[i]->type()));
    used.push_back(columns[i]);
  }
  return evaluate(copy, *batch_of(std::move(used), rows));
}

/// What the call gives for every combination of its arguments' known values.
std::shared_ptr<arrow::Array> combinations(const Expression& call, std::span<const Bounds> arguments,
                                           BoundOrigin* origin) {
  int64_t rows = 1;
  *origin = BoundOrigin::kTyped;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (call.arguments[i]->kind == Kind::kLiteral) continue;
    if (!arguments[i].values) return nullptr;
    rows *= arguments[i].values->length() + 1;
    if (rows > kMaxCombinations) return nullptr;
    *origin = less_certain(*origin, arguments[i].values_origin);
  }
  if (arguments.empty()) return nullptr;
  const bool propagates = call.binding && call.binding->nulls == NullPolicy::kPropagate;
  std::vector<std::shared_ptr<arrow::Array>> columns(arguments.size());
  rows = 1;
  std::vector<std::shared_ptr<arrow::Array>> candidates(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (call.arguments[i]->kind == Kind::kLiteral) continue;
    candidates[i] = arguments[i].values;
    if (!propagates && call.arguments[i]->nullable) {
      auto null = arrow::MakeArrayOfNull(candidates[i]->type(), 1);
      if (!null.ok()) return nullptr;
      auto both = arrow::Concatenate({candidates[i], *null});
      if (!both.ok()) return nullptr;
      candidates[i] = *both;
    }
    rows *= candidates[i]->length();
  }
  int64_t repeat = 1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!candidates[i]) continue;
    const int64_t count = candidates[i]->length();
    std::vector<std::shared_ptr<arrow::Array>> pieces;
    for (int64_t row = 0; row < rows; ++row) pieces.push_back(candidates[i]->Slice(row / repeat % count, 1));
    auto column = arrow::Concatenate(pieces);
    if (!column.ok()) return nullptr;
    columns[i] = *column;
    repeat *= count;
  }
  auto values = evaluate_on(call, columns, rows);
  return values.ok() ? *values : nullptr;
}

bool is_comparison(const Expression& e) {
  return e.kind == Kind::kCall && (e.name == "=" || e.name == "<>" || e.name == "<" || e.name == "<=" ||
                                   e.name == ">" || e.name == ">=");
}

std::string negated(const std::string& comparison) {
  if (comparison == "=") return "<>";
  if (comparison == "<>") return "=";
  if (comparison == "<") return ">=";
  if (comparison == "<=") return ">";
  if (comparison == ">") return "<=";
  return "<";
}

/// Bounds of what equals a value with these bounds. Equal intervals and zeros may be written differently: their values
/// are not known from what they equal.
Bounds bounds_of_equals(Bounds bounds) {
  bounds.none.reset();
  if (bounds.values && (is_interval_type(*bounds.values->type()) || is_floating_type(*bounds.values->type())))
    bounds.values = nullptr;
  return bounds;
}

/// The values of the left side for which the comparison with some value of `right` holds.
Bounds allowed_by(const std::string& comparison, const Bounds& right) {
  Bounds result;
  const bool strict = comparison == "<" || comparison == ">";
  if (comparison == "=") {
    result = bounds_of_equals(right);
  } else if (comparison == "<" || comparison == "<=") {
    result.whole.high = right.whole.high;
    if (strict && result.whole.high) --result.whole.high->value;
    result.real.high = right.real.high;
  } else if (comparison == ">" || comparison == ">=") {
    result.whole.low = right.whole.low;
    if (strict && result.whole.low) ++result.whole.low->value;
    result.real.low = right.real.low;
  }
  return result;
}

std::string mirrored(const std::string& comparison) {
  if (comparison == "<") return ">";
  if (comparison == "<=") return ">=";
  if (comparison == ">") return "<";
  if (comparison == ">=") return "<=";
  return comparison;
}

bool is_rising_cast(const arrow::DataType& from, const arrow::DataType& to) {
  const auto has_bounds = [](const arrow::DataType& type) {
    return has_whole_bounds(type) || has_real_bounds(type);
  };
  if (!has_bounds(from) || !has_bounds(to) || to.id() == arrow::Type::BOOL) return false;
  const bool from_time = from.id() == arrow::Type::TIME64, to_time = to.id() == arrow::Type::TIME64;
  return from_time == to_time;
}

/// How many units of `to` a unit of `from` has, where the cast between them multiplies; 0 where it does not.
Whole units_of_cast(const arrow::DataType& from, const arrow::DataType& to) {
  const auto ticks = [](const arrow::DataType& type) {
    return Whole{ticks_per_second(static_cast<const arrow::TimestampType&>(type).unit())};
  };
  if (is_integer_type(from) && is_integer_type(to)) return 1;
  if (is_integer_type(from) && is_decimal_type(to)) return power_of_ten(decimal_scale(to));
  if (is_decimal_type(from) && is_decimal_type(to) && decimal_scale(to) >= decimal_scale(from))
    return power_of_ten(decimal_scale(to) - decimal_scale(from));
  if (is_date_type(from) && is_timestamp_type(to)) return ticks(to) * 86400;
  if (is_timestamp_type(from) && is_timestamp_type(to) && ticks(to) >= ticks(from))
    return ticks(to) / ticks(from);
  return 0;
}

Whole divide_down(Whole a, Whole b) {
  const Whole q = a / b;
  return q - (a % b < 0);
}
Whole divide_up(Whole a, Whole b) {
  return -divide_down(-a, b);
}

/// What `bounds` of a cast's result say of its argument.
Bounds before_cast(const Bounds& bounds, const arrow::DataType& from, const arrow::DataType& to) {
  Bounds result;
  // Infinities of dates and timestamps become infinities, not multiples.
  const auto is_infinite = [](Whole value) {
    return value >= kTimestampInfinity || value <= -Whole{kTimestampInfinity};
  };
  const bool times = is_date_type(from) || is_timestamp_type(from);
  if (const Whole units = units_of_cast(from, to); units > 0) {
    const auto &low = bounds.whole.low, &high = bounds.whole.high;
    if (low && !(times && is_infinite(low->value)))
      result.whole.low = {divide_up(low->value, units), low->origin};
    if (high && !(times && is_infinite(high->value)))
      result.whole.high = {divide_down(high->value, units), high->origin};
  } else if (is_timestamp_type(from) && is_date_type(to)) {
    const Whole day = Whole{ticks_per_second(static_cast<const arrow::TimestampType&>(from).unit())} * 86400;
    const auto &low = bounds.whole.low, &high = bounds.whole.high;
    const auto is_finite = [](Whole days) { return days < kDateInfinity && days > -Whole{kDateInfinity}; };
    if (low && is_finite(low->value)) result.whole.low = {low->value * day, low->origin};
    if (high && is_finite(high->value)) result.whole.high = {(high->value + 1) * day - 1, high->origin};
  } else if (is_integer_type(from) && is_floating_type(to)) {
    const double exact = to.id() == arrow::Type::FLOAT ? 16777216.0 : kExactDouble;
    const auto &low = bounds.real.low, &high = bounds.real.high;
    if (low && std::abs(low->value) <= exact)
      result.whole.low = {static_cast<Whole>(std::ceil(low->value)), low->origin};
    if (high && std::abs(high->value) <= exact)
      result.whole.high = {static_cast<Whole>(std::floor(high->value)), high->origin};
  } else if (from.id() == arrow::Type::FLOAT && to.id() == arrow::Type::DOUBLE) {
    result.real = bounds.real;
  }
  return result;
}

}  // namespace

const char* bound_origin_name(BoundOrigin origin) {
  switch (origin) {
    case BoundOrigin::kTyped:
      return "typed";
    case BoundOrigin::kObserved:
      return "observed";
    case BoundOrigin::kClaimed:
      break;
  }
  return "claimed";
}

bool has_whole_bounds(const arrow::DataType& type) {
  return type.id() == arrow::Type::BOOL || is_integer_type(type) || is_decimal_type(type) ||
         is_date_type(type) || is_timestamp_type(type) || type.id() == arrow::Type::TIME64;
}

bool has_real_bounds(const arrow::DataType& type) {
  return is_floating_type(type);
}

Bounds bounds_of_type(const arrow::DataType& type) {
  if (type.id() == arrow::Type::BOOL) return whole_bounds(0, 1);
  if (!is_integer_type(type)) return {};
  const Whole size = Whole{1} << (8 * byte_width(type));
  return is_unsigned(type) ? whole_bounds(0, size - 1) : whole_bounds(-size / 2, size / 2 - 1);
}

void close_bounds(Bounds& bounds) {
  if (bounds.none) return;
  bounds.none = contradiction(bounds.whole);
  if (!bounds.none) bounds.none = contradiction(bounds.real);
}

Bounds intersect_bounds(const Bounds& a, const Bounds& b) {
  Bounds result = a;
  intersect(result.whole, b.whole);
  intersect(result.real, b.real);
  if (b.none && (!result.none || *b.none < *result.none)) result.none = b.none;
  if (b.values && (!a.values || b.values->length() < a.values->length())) {
    result.values = b.values;
    result.values_origin = b.values_origin;
  }
  close_bounds(result);
  if (!result.none) result.none = values_outside(result);
  return result;
}

Bounds unite_bounds(const Bounds& a, const Bounds& b) {
  if (a.none && b.none) {
    Bounds result;
    result.none = less_certain(*a.none, *b.none);
    return result;
  }
  if (a.none || b.none) {
    // The other's, as certain as that this side has no value.
    Bounds result = a.none ? b : a;
    const BoundOrigin origin = a.none ? *a.none : *b.none;
    for (auto* limit : {&result.whole.low, &result.whole.high})
      if (*limit) (*limit)->origin = less_certain((*limit)->origin, origin);
    for (auto* limit : {&result.real.low, &result.real.high})
      if (*limit) (*limit)->origin = less_certain((*limit)->origin, origin);
    result.values_origin = less_certain(result.values_origin, origin);
    return result;
  }
  Bounds result = a;
  unite(result.whole, b.whole);
  unite(result.real, b.real);
  result.values = nullptr;
  if (a.values && b.values) {
    ValueSet set;
    set.add(*a.values);
    set.add(*b.values);
    result.values = set.finish();
    result.values_origin = less_certain(a.values_origin, b.values_origin);
  }
  return result;
}

Bounds cast_bounds(const Bounds& bounds, const TypePtr& from, const TypePtr& to) {
  if (from->Equals(*to)) return bounds;
  const auto cast = make_cast(make_column(0, arrow::Field("", from)), to);
  if (!cast.ok()) return bounds_of_type(*to);
  Bounds result = bounds_of_type(*to);
  if (bounds.none) result.none = bounds.none;
  if (is_rising_cast(*from, *to))
    result = intersect_bounds(result, bounds_at_limits(**cast, {&bounds, 1}, 0));
  return result;
}

Bounds observed_bounds(const arrow::Array& values) {
  Bounds result;
  const arrow::ArrayData& data = *values.data();
  constexpr auto kOrigin = BoundOrigin::kObserved;
  if (values.null_count() == values.length()) {
    result.none = kOrigin;
  } else if (has_whole_bounds(*values.type())) {
    for (int64_t row = 0; row < values.length(); ++row) {
      if (values.IsNull(row)) continue;
      const Whole value = whole_at(data, row);
      if (!result.whole.low || value < result.whole.low->value) result.whole.low = {value, kOrigin};
      if (!result.whole.high || value > result.whole.high->value) result.whole.high = {value, kOrigin};
    }
  } else if (has_real_bounds(*values.type())) {
    bool nan = false;
    for (int64_t row = 0; row < values.length(); ++row) {
      if (values.IsNull(row)) continue;
      const double value = real_at(data, row);
      if (std::isnan(value)) {
        nan = true;
        continue;
      }
      if (!result.real.low || value < result.real.low->value) result.real.low = {value, kOrigin};
      if (!result.real.high || value > result.real.high->value) result.real.high = {value, kOrigin};
    }
    if (nan) result.real.high.reset();
  }
  return result;
}

std::string limit_text(__int128 value, const arrow::DataType& type) {
  std::string text;
  switch (type.id()) {
    case arrow::Type::BOOL:
      return value != 0 ? "true" : "false";
    case arrow::Type::DATE32:
      append_date(text, static_cast<int64_t>(value));
      return text;
    case arrow::Type::TIME64:
      append_time(text, static_cast<int64_t>(value));
      return text;
    case arrow::Type::TIMESTAMP: {
      const auto& timestamp = static_cast<const arrow::TimestampType&>(type);
      append_timestamp(text, static_cast<int64_t>(value), ticks_per_second(timestamp.unit()),
                       !timestamp.timezone().empty());
      return text;
    }
    default:
      append_decimal(text, value, is_decimal_type(type) ? decimal_scale(type) : 0);
      return text;
  }
}

std::string limit_text(double value) {
  std::string text;
  append_double(text, value);
  return text;
}

std::string bounds_text(const Bounds& bounds, const TypePtr& type) {
  const auto origin_text = [](BoundOrigin origin) { return fmt::format(" ({})", bound_origin_name(origin)); };
  if (bounds.none) return "only NULL" + origin_text(*bounds.none);
  if (bounds.values) {
    std::string text;
    for (int64_t row = 0; row < bounds.values->length(); ++row) {
      text += (row ? ", " : "") + value_text({bounds.values->data(), false}, row);
    }
    return "{" + text + "}" + origin_text(bounds.values_origin);
  }
  std::string low, high;
  std::optional<BoundOrigin> low_origin, high_origin;
  if (has_whole_bounds(*type)) {
    const Bounds of_type = bounds_of_type(*type);
    const auto says_more = [](const auto& limit, const auto& types) {
      return limit && !(types && types->value == limit->value);
    };
    const bool more_low = says_more(bounds.whole.low, of_type.whole.low);
    const bool more_high = says_more(bounds.whole.high, of_type.whole.high);
    if (more_low || (more_high && bounds.whole.low)) {
      low = limit_text(bounds.whole.low->value, *type);
      low_origin = bounds.whole.low->origin;
    }
    if (more_high || (more_low && bounds.whole.high)) {
      high = limit_text(bounds.whole.high->value, *type);
      high_origin = bounds.whole.high->origin;
    }
  } else if (has_real_bounds(*type)) {
    if (bounds.real.low) low = limit_text(bounds.real.low->value), low_origin = bounds.real.low->origin;
    if (bounds.real.high) high = limit_text(bounds.real.high->value), high_origin = bounds.real.high->origin;
  }
  if (low_origin && high_origin) {
    if (*low_origin == *high_origin) return low + " … " + high + origin_text(*low_origin);
    return low + origin_text(*low_origin) + " … " + high + origin_text(*high_origin);
  }
  if (low_origin) return "at least " + low + origin_text(*low_origin);
  if (high_origin) return "at most " + high + origin_text(*high_origin);
  return "";
}

// ---- rules -----------------------------------------------------------------------------------------------------

Bounds whole_bounds(__int128 low, __int128 high) {
  Bounds result;
  result.whole.low = {low, BoundOrigin::kTyped};
  result.whole.high = {high, BoundOrigin::kTyped};
  return result;
}

Bounds bounds_at_limits(const Expression& call, std::span<const Bounds> arguments, size_t argument) {
  Bounds result;
  const Bounds& risen = arguments[argument];
  const TypePtr& from = call.arguments[argument]->type;
  const TypePtr& to = call.type;
  if (risen.none || !(has_whole_bounds(*to) || has_real_bounds(*to))) return result;
  std::vector<std::shared_ptr<arrow::Array>> columns(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i == argument || call.arguments[i]->kind == Kind::kLiteral) continue;
    if (!arguments[i].values || arguments[i].values->length() != 1) return result;
    columns[i] = arguments[i].values;
  }
  BoundOrigin others = BoundOrigin::kTyped;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (columns[i]) others = less_certain(others, arguments[i].values_origin);
  }
  const auto at = [&](std::shared_ptr<arrow::Array> value, BoundOrigin origin, bool low) {
    if (!value) return;
    columns[argument] = std::move(value);
    const auto given = evaluate_on(call, columns, 1);
    if (!given.ok() || (*given)->IsNull(0)) return;
    origin = less_certain(origin, others);
    if (has_whole_bounds(*to)) {
      (low ? result.whole.low : result.whole.high) = {whole_at(*(*given)->data(), 0), origin};
    } else if (const double real = real_at(*(*given)->data(), 0); !std::isnan(real)) {
      (low ? result.real.low : result.real.high) = {real, origin};
    }
  };
  if (has_whole_bounds(*from)) {
    if (const auto& low = risen.whole.low) at(one_value(from, low->value), low->origin, true);
    if (const auto& high = risen.whole.high) at(one_value(from, high->value), high->origin, false);
  } else if (has_real_bounds(*from)) {
    if (const auto& low = risen.real.low) at(one_value(from, low->value, true), low->origin, true);
    if (const auto& high = risen.real.high) at(one_value(from, high->value, false), high->origin, false);
  }
  return result;
}

namespace {

template <class T>
using MaybeLimit = std::optional<Limit<T>>;

/// f of two limits, where both are known and it has a value.
template <class T, class F>
MaybeLimit<T> combine(const MaybeLimit<T>& a, const MaybeLimit<T>& b, F f) {
  if (!a || !b) return {};
  T value{};
  if (!f(a->value, b->value, &value)) return {};
  return Limit<T>{value, less_certain(a->origin, b->origin)};
}

bool add(Whole a, Whole b, Whole* r) {
  return !__builtin_add_overflow(a, b, r);
}
bool subtract(Whole a, Whole b, Whole* r) {
  return !__builtin_sub_overflow(a, b, r);
}
bool multiply(Whole a, Whole b, Whole* r) {
  return !__builtin_mul_overflow(a, b, r);
}
/// Limits of floating point numbers are computed in double: of floats the nearest float may lie outside, by one.
bool real(double value, double* r) {
  *r = value;
  return !std::isnan(value);
}
bool add(double a, double b, double* r) {
  return real(a + b, r);
}
bool subtract(double a, double b, double* r) {
  return real(a - b, r);
}
bool multiply(double a, double b, double* r) {
  return real(a * b, r);
}
bool divide(double a, double b, double* r) {
  return real(a / b, r);
}

bool is_finite(const Range<double>& range) {
  return range.low && range.high && std::isfinite(range.low->value) && std::isfinite(range.high->value);
}

/// Arithmetic of FLOAT rounds to floats: the limits are widened to the next ones.
void round_outwards(Range<double>& range, const arrow::DataType& type) {
  if (type.id() != arrow::Type::FLOAT) return;
  if (range.low) range.low->value = std::nextafter(static_cast<float>(range.low->value), -INFINITY);
  if (range.high) range.high->value = std::nextafter(static_cast<float>(range.high->value), INFINITY);
}

/// The smallest and greatest of f over the corners of two ranges.
template <class T, class F>
Range<T> corners(const Range<T>& a, const Range<T>& b, F f) {
  Range<T> result;
  bool first = true;
  for (const MaybeLimit<T>& x : {a.low, a.high}) {
    for (const MaybeLimit<T>& y : {b.low, b.high}) {
      const MaybeLimit<T> corner = combine(x, y, f);
      if (!corner) return {};
      if (first) {
        result.low = result.high = corner;
        first = false;
        continue;
      }
      const BoundOrigin origin = less_certain(result.low->origin, corner->origin);
      result.low = Limit<T>{std::min(result.low->value, corner->value), origin};
      result.high = Limit<T>{std::max(result.high->value, corner->value), origin};
    }
  }
  return result;
}

/// Are the arguments and the result numbers of one kind?
bool is_arithmetic(const Expression& call) {
  const auto whole = [](const arrow::DataType& type) {
    return is_integer_type(type) || is_decimal_type(type);
  };
  bool all_whole = whole(*call.type), all_real = is_floating_type(*call.type);
  for (const ExprPtr& argument : call.arguments) {
    all_whole = all_whole && whole(*argument->type);
    all_real = all_real && is_floating_type(*argument->type);
  }
  return all_whole || all_real;
}

bool is_moment(const Expression& e) {
  return is_date_type(*e.type) || is_timestamp_type(*e.type);
}

}  // namespace

Bounds sum_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result;
  if (arguments.size() != 2) return result;
  // A date or timestamp moved by a constant keeps its order.
  if (is_moment(*call.arguments[0])) return bounds_at_limits(call, arguments, 0);
  if (is_moment(*call.arguments[1])) return bounds_at_limits(call, arguments, 1);
  if (!is_arithmetic(call)) return result;
  const Bounds &a = arguments[0], &b = arguments[1];
  const auto sum = [](auto x, auto y, auto* r) { return add(x, y, r); };
  result.whole = {combine(a.whole.low, b.whole.low, sum), combine(a.whole.high, b.whole.high, sum)};
  result.real.low = combine(a.real.low, b.real.low, sum);
  // Infinities of both signs make a NaN, which is above every limit.
  if (is_finite(a.real) && is_finite(b.real)) result.real.high = combine(a.real.high, b.real.high, sum);
  round_outwards(result.real, *call.type);
  return result;
}

Bounds difference_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result;
  const auto difference = [](auto x, auto y, auto* r) { return subtract(x, y, r); };
  if (arguments.size() == 1) {
    if (!is_arithmetic(call)) return result;
    const Bounds zero = [] {
      Bounds bounds = whole_bounds(0, 0);
      bounds.real = {Limit<double>{0}, Limit<double>{0}};
      return bounds;
    }();
    const Bounds& x = arguments[0];
    result.whole = {combine(zero.whole.low, x.whole.high, difference),
                    combine(zero.whole.low, x.whole.low, difference)};
    // A value that has an upper limit is not NaN.
    result.real.low = combine(zero.real.low, x.real.high, difference);
    if (x.real.high) result.real.high = combine(zero.real.low, x.real.low, difference);
    return result;
  }
  if (arguments.size() != 2) return result;
  if (is_moment(*call.arguments[0])) return bounds_at_limits(call, arguments, 0);
  if (!is_arithmetic(call)) return result;
  const Bounds &a = arguments[0], &b = arguments[1];
  result.whole = {combine(a.whole.low, b.whole.high, difference),
                  combine(a.whole.high, b.whole.low, difference)};
  result.real.low = combine(a.real.low, b.real.high, difference);
  if (is_finite(a.real) && is_finite(b.real)) result.real.high = combine(a.real.high, b.real.low, difference);
  round_outwards(result.real, *call.type);
  return result;
}

Bounds product_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result;
  if (arguments.size() != 2 || !is_arithmetic(call)) return result;
  const Bounds &a = arguments[0], &b = arguments[1];
  const auto product = [](auto x, auto y, auto* r) { return multiply(x, y, r); };
  result.whole = corners(a.whole, b.whole, product);
  if (is_finite(a.real) && is_finite(b.real)) {
    result.real = corners(a.real, b.real, product);
  } else if (a.real.low && b.real.low && a.real.low->value >= 0 && b.real.low->value >= 0) {
    result.real.low = combine(a.real.low, b.real.low, product);
  }
  round_outwards(result.real, *call.type);
  return result;
}

Bounds quotient_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result;
  if (arguments.size() != 2 || !is_arithmetic(call) || !is_floating_type(*call.type)) return result;
  const Bounds &a = arguments[0], &b = arguments[1];
  if (!b.real.low || b.real.low->value <= 0) return result;
  const auto quotient = [](double x, double y, double* r) { return divide(x, y, r); };
  if (is_finite(a.real) && is_finite(b.real)) {
    result.real = corners(a.real, b.real, quotient);
  } else if (a.real.low && a.real.low->value >= 0) {
    result.real.low = Limit<double>{0, less_certain(a.real.low->origin, b.real.low->origin)};
  }
  round_outwards(result.real, *call.type);
  return result;
}

Bounds whole_quotient_bounds(const Expression& call, std::span<const Bounds> arguments) {
  if (is_floating_type(*call.type)) return quotient_bounds(call, arguments);
  Bounds result;
  const Bounds &a = arguments[0], &b = arguments[1];
  if (!is_arithmetic(call) || !b.whole.low || b.whole.low->value <= 0) return result;
  result.whole = corners(a.whole, b.whole, [](Whole x, Whole y, Whole* r) {
    *r = x / y;
    return true;
  });
  return result;
}

Bounds remainder_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result;
  if (!is_arithmetic(call) || is_floating_type(*call.type)) return result;
  const Range<Whole>&a = arguments[0].whole, &b = arguments[1].whole;
  // Not greater than the dividend, less than the divisor, with the sign of the dividend.
  std::optional<Limit<Whole>> most;
  if (b.low && b.high) {
    const auto size = [](Whole x) { return x < 0 ? -x : x; };
    most = Limit<Whole>{std::max<Whole>(std::max(size(b.low->value), size(b.high->value)) - 1, 0),
                        less_certain(b.low->origin, b.high->origin)};
  }
  Range<Whole> range;
  if (most) {
    range.low = Limit<Whole>{-most->value, most->origin};
    range.high = most;
  }
  if (a.low) raise_low(range, {std::min<Whole>(a.low->value, 0), a.low->origin});
  if (a.high) lower_high(range, {std::max<Whole>(a.high->value, 0), a.high->origin});
  result.whole = range;
  return result;
}

namespace {

/// The larger size of two limits.
template <class T>
MaybeLimit<T> largest_size(const Range<T>& x) {
  return combine(x.low, x.high, [](T low, T high, T* r) {
    *r = std::max(low < 0 ? -low : low, high < 0 ? -high : high);
    return true;
  });
}

template <class T>
Range<T> absolute(const Range<T>& x) {
  Range<T> result;
  result.low = Limit<T>{0, BoundOrigin::kTyped};
  if (x.low && x.low->value > 0) result.low = x.low;
  if (x.high && x.high->value < 0) raise_low(result, {-x.high->value, x.high->origin});
  result.high = largest_size(x);
  return result;
}

}  // namespace

Bounds absolute_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result;
  if (is_floating_type(*call.type)) {
    result.real = absolute(arguments[0].real);
  } else {
    result.whole = absolute(arguments[0].whole);
  }
  return result;
}

namespace {

template <bool kGreatest, class T>
void tighten(Range<T>& range, const Range<T>& argument) {
  if (kGreatest && argument.low) raise_low(range, *argument.low);
  if (!kGreatest && argument.high) lower_high(range, *argument.high);
}

/// One of the arguments; not more (not less) than each that is not NULL.
template <bool kGreatest>
Bounds extreme_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result = arguments[0];
  for (size_t i = 1; i < arguments.size(); ++i) result = unite_bounds(result, arguments[i]);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (call.arguments[i]->nullable) continue;
    tighten<kGreatest>(result.whole, arguments[i].whole);
    tighten<kGreatest>(result.real, arguments[i].real);
  }
  return result;
}

}  // namespace

Bounds least_bounds(const Expression& call, std::span<const Bounds> arguments) {
  return extreme_bounds<false>(call, arguments);
}
Bounds greatest_bounds(const Expression& call, std::span<const Bounds> arguments) {
  return extreme_bounds<true>(call, arguments);
}

Bounds comparison_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result;
  if (!is_comparison(call)) return result;
  const auto never = [&](const std::string& comparison) {
    return intersect_bounds(arguments[0], allowed_by(comparison, arguments[1])).none;
  };
  if (const auto origin = never(call.name)) {
    result.whole.high = Limit<Whole>{0, *origin};
  } else if (const auto always = never(negated(call.name))) {
    result.whole.low = Limit<Whole>{1, *always};
  }
  return result;
}

// ---- inference -------------------------------------------------------------------------------------------------

BoundInference::BoundInference(std::vector<Bounds> columns)
    : columns_(std::make_shared<const std::vector<Bounds>>(std::move(columns))),
      visits_(std::make_shared<int64_t>(0)) {}

Bounds BoundInference::column(int index, const arrow::DataType& type) const {
  for (const auto& [column, bounds] : assumed_) {
    if (column == index) return bounds;
  }
  Bounds result = bounds_of_type(type);
  if (static_cast<size_t>(index) < columns_->size())
    result = intersect_bounds(result, (*columns_)[static_cast<size_t>(index)]);
  return result;
}

Bounds BoundInference::infer(const Expression& e) {
  if (depth_ == 0) *visits_ = 0;
  if (++*visits_ > kMaxVisits) return bounds_of_type(*e.type);
  ++depth_;
  Bounds result;
  switch (e.kind) {
    case Kind::kLiteral:
      if (!e.literal->is_valid) {
        result.none = BoundOrigin::kTyped;
      } else if (const auto value = arrow::MakeArrayFromScalar(*e.literal, 1); value.ok()) {
        result = bounds_of_values(*value, BoundOrigin::kTyped);
      }
      break;
    case Kind::kColumn:
      result = column(e.column, *e.type);
      break;
    case Kind::kCase:
      result = infer_case(e);
      break;
    case Kind::kCoalesce: {
      bool first = true;
      for (const ExprPtr& argument : e.arguments) {
        Bounds bounds = infer(*argument);
        result = first ? std::move(bounds) : unite_bounds(result, bounds);
        first = false;
        if (!argument->nullable) break;  // what follows is never reached
      }
      break;
    }
    case Kind::kAnd:
    case Kind::kOr: {
      // Never true when one side is never true; always when all are. OR the other way round.
      const bool conjunction = e.kind == Kind::kAnd;
      result = bounds_of_type(*e.type);
      std::optional<Limit<Whole>> all;
      bool all_hold = true;
      for (const ExprPtr& argument : e.arguments) {
        const Bounds side = infer(*argument);
        const auto& decides = conjunction ? side.whole.high : side.whole.low;
        const auto& agrees = conjunction ? side.whole.low : side.whole.high;
        const Whole decided = conjunction ? 0 : 1;
        if (side.none && conjunction) lower_high(result.whole, {0, *side.none});
        if (decides && decides->value == decided) {
          if (conjunction) {
            lower_high(result.whole, *decides);
          } else {
            raise_low(result.whole, *decides);
          }
        }
        if (agrees && agrees->value == 1 - decided) {
          all = Limit<Whole>{agrees->value, all ? less_certain(all->origin, agrees->origin) : agrees->origin};
        } else {
          all_hold = false;
        }
      }
      if (all_hold && all) {
        if (conjunction) {
          raise_low(result.whole, *all);
        } else {
          lower_high(result.whole, *all);
        }
      }
      break;
    }
    case Kind::kCast:
    case Kind::kCall:
    case Kind::kIn: {
      std::vector<Bounds> arguments;
      arguments.reserve(e.arguments.size());
      for (const ExprPtr& argument : e.arguments) arguments.push_back(infer(*argument));
      result = infer_call(e, std::move(arguments));
      break;
    }
  }
  --depth_;
  close_bounds(result);
  return result;
}

Bounds BoundInference::infer_call(const Expression& e, std::vector<Bounds> arguments) {
  Bounds result = bounds_of_type(*e.type);
  const bool strict = e.kind == Kind::kCast || (e.binding && e.binding->nulls == NullPolicy::kPropagate);
  if (strict) {
    for (const Bounds& argument : arguments) {
      if (argument.none) result.none = result.none ? std::min(*result.none, *argument.none) : *argument.none;
    }
    if (result.none) return result;
  }
  if (e.kind == Kind::kCast) {
    if (is_rising_cast(*e.arguments[0]->type, *e.type))
      result = intersect_bounds(result, bounds_at_limits(e, arguments, 0));
  } else if (e.kind == Kind::kIn) {
    Bounds listed = arguments[1];
    for (size_t i = 2; i < arguments.size(); ++i) listed = unite_bounds(listed, arguments[i]);
    if (const auto never = intersect_bounds(arguments[0], listed).none)
      result.whole.high = Limit<Whole>{0, *never};
  } else if (e.function != nullptr && e.function->bound != nullptr) {
    result = intersect_bounds(result, e.function->bound(e, arguments));
  }
  BoundOrigin origin;
  if (const auto values = combinations(e, arguments, &origin))
    result = intersect_bounds(result, bounds_of_values(values, origin));
  return result;
}

Bounds BoundInference::infer_case(const Expression& e) {
  Bounds result;
  bool first = true;
  const auto add = [&](BoundInference& where, const Expression& value) {
    if (where.impossible_) {
      // Not reached; as certain as what says so.
      Bounds nothing;
      nothing.none = where.impossible_;
      result = first ? nothing : unite_bounds(result, nothing);
    } else {
      Bounds bounds = where.infer(value);
      result = first ? std::move(bounds) : unite_bounds(result, bounds);
    }
    first = false;
  };
  for (size_t i = 0; i + 1 < e.arguments.size(); i += 2) {
    BoundInference taken = *this;
    taken.assume(*e.arguments[i]);
    add(taken, *e.arguments[i + 1]);
  }
  // That no arm was taken says nothing that is worth its price: a condition may also have been NULL.
  BoundInference rest = *this;
  add(rest, *e.arguments.back());
  return result;
}

void BoundInference::contradict(BoundOrigin origin) {
  if (!impossible_ || origin < *impossible_) impossible_ = origin;
}

void BoundInference::restrict(const Expression& e, const Bounds& bounds) {
  if (e.kind == Kind::kColumn) {
    Bounds refined = intersect_bounds(column(e.column, *e.type), bounds);
    if (refined.none) contradict(*refined.none);
    for (auto& [column, known] : assumed_) {
      if (column == e.column) {
        known = std::move(refined);
        return;
      }
    }
    assumed_.emplace_back(e.column, std::move(refined));
  } else if (e.kind == Kind::kCast) {
    restrict(*e.arguments[0], before_cast(bounds, *e.arguments[0]->type, *e.type));
  }
}

void BoundInference::assume_comparison(const Expression& e, bool outcome) {
  const std::string comparison = outcome ? e.name : negated(e.name);
  const ExprPtr &a = e.arguments[0], &b = e.arguments[1];
  const Bounds left = infer(*a), right = infer(*b);
  if (left.none) contradict(*left.none);
  if (right.none) contradict(*right.none);
  const Bounds left_allowed = allowed_by(comparison, right),
               right_allowed = allowed_by(mirrored(comparison), left);
  if (const auto none = intersect_bounds(left, left_allowed).none) contradict(*none);
  if (const auto none = intersect_bounds(right, right_allowed).none) contradict(*none);
  const Bounds decided = infer_call(e, {left, right});
  const auto& limit = outcome ? decided.whole.high : decided.whole.low;
  if (limit && limit->value == (outcome ? 0 : 1)) contradict(limit->origin);
  restrict(*a, left_allowed);
  restrict(*b, right_allowed);
}

void BoundInference::assume_either(const std::vector<ExprPtr>& sides, bool outcome) {
  std::vector<BoundInference> branches;
  std::optional<BoundOrigin> impossible = BoundOrigin::kTyped;
  for (const ExprPtr& side : sides) {
    BoundInference branch = *this;
    branch.assume_outcome(*side, outcome);
    if (branch.impossible_) {
      if (impossible) impossible = less_certain(*impossible, *branch.impossible_);
    } else {
      impossible.reset();
    }
    branches.push_back(std::move(branch));
  }
  if (impossible) {
    contradict(*impossible);
    return;
  }
  // A column that every branch knows more of: what either says.
  for (const auto& [column, first] : branches[0].assumed_) {
    std::optional<Bounds> united;
    for (const BoundInference& branch : branches) {
      const auto known = std::ranges::find(branch.assumed_, column, &std::pair<int, Bounds>::first);
      if (known == branch.assumed_.end()) {
        united.reset();
        break;
      }
      Bounds bounds = known->second;
      if (branch.impossible_ && !bounds.none) bounds.none = branch.impossible_;
      united = united ? unite_bounds(*united, bounds) : bounds;
    }
    if (!united) continue;
    const auto own = std::ranges::find(assumed_, column, &std::pair<int, Bounds>::first);
    if (own != assumed_.end()) {
      own->second = *united;
    } else {
      assumed_.emplace_back(column, *united);
    }
  }
}

void BoundInference::assume_outcome(const Expression& e, bool outcome) {
  if (depth_ == 0) *visits_ = 0;
  if (++*visits_ > kMaxVisits) return;
  ++depth_;
  const bool null_test = e.kind == Kind::kCall && (e.name == "is_null" || e.name == "is_not_null");
  if (e.kind == Kind::kAnd || e.kind == Kind::kOr) {
    if ((e.kind == Kind::kAnd) == outcome) {
      for (const ExprPtr& argument : e.arguments) assume_outcome(*argument, outcome);
    } else {
      assume_either(e.arguments, outcome);
    }
  } else if (e.kind == Kind::kCall && e.name == "not") {
    assume_outcome(*e.arguments[0], !outcome);
  } else if (is_comparison(e)) {
    assume_comparison(e, outcome);
  } else if (null_test && (e.name == "is_null") == outcome) {
    if (!e.arguments[0]->nullable) {
      contradict(BoundOrigin::kTyped);
    } else if (e.arguments[0]->kind == Kind::kColumn) {
      Bounds nothing = column(e.arguments[0]->column, *e.arguments[0]->type);
      nothing.none = BoundOrigin::kTyped;
      std::erase_if(assumed_, [&](const auto& known) { return known.first == e.arguments[0]->column; });
      assumed_.emplace_back(e.arguments[0]->column, std::move(nothing));
    }
  } else if (null_test) {
    if (const auto none = infer(*e.arguments[0]).none) contradict(*none);
  } else if (e.kind == Kind::kIn && outcome) {
    Bounds listed = infer(*e.arguments[1]);
    for (size_t i = 2; i < e.arguments.size(); ++i) listed = unite_bounds(listed, infer(*e.arguments[i]));
    const Bounds value = infer(*e.arguments[0]);
    if (const auto none = intersect_bounds(value, listed).none) contradict(*none);
    restrict(*e.arguments[0], bounds_of_equals(std::move(listed)));
  } else {
    const Bounds value = infer(e);
    const auto& limit = outcome ? value.whole.high : value.whole.low;
    if (value.none) contradict(*value.none);
    if (limit && limit->value == (outcome ? 0 : 1)) contradict(limit->origin);
    if (e.kind == Kind::kColumn) restrict(e, whole_bounds(outcome, outcome));
  }
  --depth_;
}

}  // namespace millstream::expr
