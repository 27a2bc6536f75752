// CAST and TRY_CAST between all types. A cast is a Checked body; TRY_CAST makes a NULL of its failure.

#include <cmath>
#include <limits>

#include "expr/calendar.h"
#include "expr/function.h"
#include "expr/kernel.h"
#include "expr/text.h"

namespace millstream::expr {

namespace {

/// R as TRY_CAST returns it.
template <bool kTry, class R>
using Tried = std::conditional_t<kTry && IsChecked<R>::value, Maybe<typename ValueOf<R>::type>, R>;

template <bool kTry, class R>
MILLSTREAM_BODY Tried<kTry, R> tried(R r) {
  if constexpr (kTry && IsChecked<R>::value) {
    return {r.value, r.failure == Failure::kNone};
  } else {
    return r;
  }
}

/// A kernel from `prepare(from type, to type)`, which returns the body to run on every value.
template <bool kTry, class From, class Prepare>
Status cast_kernel(KernelCall& call) {
  auto body = Prepare{}(*call.arguments[0].data->type, *call.out.type);
  using R = decltype(body(std::declval<From>()));
  return loop_over<Tried<kTry, R>, From>(call, [&](From x) { return tried<kTry>(body(x)); });
}

struct Cast {
  Kernel kernel = nullptr;
  bool can_fail = false;
  void (*fuse)(Binding& binding) = nullptr;
};

/// The body that a cast between two types has.
template <bool kTry, class From, class Prepare>
struct PreparedCast {
  auto operator()(const Expression& cast) const {
    auto body = Prepare{}(*cast.arguments[0]->type, *cast.type);
    if constexpr (std::is_empty_v<decltype(body)> && std::is_default_constructible_v<decltype(body)>) {
      return [](From x) { return tried<kTry>(decltype(body){}(x)); };
    } else {
      return [body](From x) { return tried<kTry>(body(x)); };
    }
  }
};

template <class From, class Prepare>
Cast cast(bool try_cast) {
  using Body = decltype(Prepare{}(std::declval<arrow::DataType>(), std::declval<arrow::DataType>()));
  using R = decltype(std::declval<Body>()(std::declval<From>()));
#ifdef MILLSTREAM_BITCODE
  Kernel kernel = nullptr;
#else
  Kernel kernel = try_cast ? cast_kernel<true, From, Prepare> : cast_kernel<false, From, Prepare>;
#endif
  return {kernel, IsChecked<R>::value,
          try_cast ? fuse_prepared<PreparedCast<true, From, Prepare>, From>
                   : fuse_prepared<PreparedCast<false, From, Prepare>, From>};
}

template <class From, class To>
struct NumberCast {
  auto operator()(const arrow::DataType&, const arrow::DataType&) const {
    if constexpr (std::is_same_v<To, bool>) {
      return [](From x) { return x != From{0}; };
    } else if constexpr (std::is_same_v<From, bool>) {
      return [](From x) { return static_cast<To>(x ? 1 : 0); };
    } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
      constexpr bool kFits = std::numeric_limits<From>::digits <= std::numeric_limits<To>::digits &&
                             (std::is_signed_v<To> || !std::is_signed_v<From>);
      if constexpr (kFits) {
        return [](From x) { return static_cast<To>(x); };
      } else {
        return [](From x) {
          To y = static_cast<To>(x);
          bool changed = static_cast<From>(y) != x || (y < To{0}) != (x < From{0});
          return checked(y, changed, Failure::kOutOfRange);
        };
      }
    } else if constexpr (std::is_integral_v<From>) {
      return [](From x) { return static_cast<To>(x); };
    } else if constexpr (std::is_integral_v<To>) {
      return [](From x) {
        // Half to even. The bounds are powers of two, which floats hold exactly.
        From rounded = std::nearbyint(x);
        constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
        constexpr From kBegin = std::is_signed_v<To> ? -kEnd : From{0};
        bool inside = rounded >= kBegin && rounded < kEnd;
        return checked(static_cast<To>(inside ? rounded : From{0}), !inside, Failure::kOutOfRange);
      };
    } else if constexpr (std::is_same_v<From, double> && std::is_same_v<To, float>) {
      return [](double x) {
        auto y = static_cast<float>(x);
        return checked(y, std::isinf(y) && !std::isinf(x), Failure::kOutOfRange);
      };
    } else {
      return [](From x) { return static_cast<To>(x); };
    }
  }
};

template <class From>
struct ToDecimal {
  auto operator()(const arrow::DataType& from, const arrow::DataType& to) const {
    const int width = decimal_width(to), scale = decimal_scale(to);
    if constexpr (std::is_floating_point_v<From>) {
      return [factor = std::pow(10.0, scale), limit = std::pow(10.0, width)](From x) {
        double rounded = std::round(static_cast<double>(x) * factor);
        bool inside = rounded > -limit && rounded < limit;
        return checked(Decimal{inside ? static_cast<__int128>(rounded) : 0}, !inside, Failure::kOutOfRange);
      };
    } else if constexpr (std::is_same_v<From, Decimal>) {
      const int shift = scale - decimal_scale(from);
      // Either factor or divisor is one.
      return [factor = power_of_ten(std::max(shift, 0)), divisor = power_of_ten(std::max(-shift, 0)),
              limit = power_of_ten(width)](Decimal x) {
        __int128 y;
        bool overflow = __builtin_mul_overflow(x.digits, factor, &y);
        if (divisor != 1) {
          __int128 half = divisor / 2;
          y = (y < 0 ? y - half : y + half) / divisor;
        }
        return checked(Decimal{y}, overflow || y >= limit || y <= -limit, Failure::kOutOfRange);
      };
    } else {
      return [factor = power_of_ten(scale), limit = power_of_ten(width)](From x) {
        __int128 y;
        bool overflow = __builtin_mul_overflow(static_cast<__int128>(x), factor, &y);
        return checked(Decimal{y}, overflow || y >= limit || y <= -limit, Failure::kOutOfRange);
      };
    }
  }
};

template <class To>
struct FromDecimal {
  auto operator()(const arrow::DataType& from, const arrow::DataType&) const {
    const int scale = decimal_scale(from);
    if constexpr (std::is_same_v<To, bool>) {
      return [](Decimal x) { return x.digits != 0; };
    } else if constexpr (std::is_floating_point_v<To>) {
      return [power = power_of_ten(scale), factor = std::pow(10.0, scale), whole = scale == 0](Decimal x) {
        // Exact digits up to 2^53; beyond, the whole part and the rest are converted apart, as DuckDB does.
        constexpr __int128 kExact = __int128{1} << 53;
        if (whole || (x.digits <= kExact && x.digits >= -kExact)) {
          return static_cast<To>(static_cast<double>(x.digits) / factor);
        }
        return static_cast<To>(static_cast<double>(x.digits / power) +
                               static_cast<double>(x.digits % power) / factor);
      };
    } else {
      return [power = power_of_ten(scale), half = scale ? power_of_ten(scale) / 2 : 0](Decimal x) {
        __int128 y = (x.digits < 0 ? x.digits - half : x.digits + half) / power;
        bool outside = y < std::numeric_limits<To>::min() || y > std::numeric_limits<To>::max();
        return checked(static_cast<To>(y), outside, Failure::kOutOfRange);
      };
    }
  }
};

template <class To>
Checked<To> from_optional(const std::optional<To>& value) {
  if (!value) return {To{}, Failure::kInvalid};
  return {*value};
}

template <class To>
struct FromString {
  auto operator()(const arrow::DataType&, const arrow::DataType& to) const {
    if constexpr (std::is_same_v<To, bool>) {
      return [](std::string_view x) { return from_optional(parse_boolean(x)); };
    } else if constexpr (std::is_same_v<To, float>) {
      return [](std::string_view x) { return from_optional(parse_float(x)); };
    } else if constexpr (std::is_same_v<To, double>) {
      return [](std::string_view x) { return from_optional(parse_double(x)); };
    } else if constexpr (std::is_integral_v<To>) {
      return [](std::string_view x) -> Checked<To> {
        auto value = parse_integer(x);
        if (!value) return {To{}, Failure::kInvalid};
        bool outside = *value < std::numeric_limits<To>::min() || *value > std::numeric_limits<To>::max();
        return checked(static_cast<To>(*value), outside, Failure::kOutOfRange);
      };
    } else if constexpr (std::is_same_v<To, Decimal>) {
      return [scale = decimal_scale(to),
              limit = power_of_ten(decimal_width(to))](std::string_view x) -> Checked<To> {
        auto value = parse_scaled(x, scale);
        if (!value) return {To{}, Failure::kInvalid};
        return checked(Decimal{*value}, *value >= limit || *value <= -limit, Failure::kOutOfRange);
      };
    } else if constexpr (std::is_same_v<To, Date>) {
      return [](std::string_view x) -> Checked<Date> {
        auto value = parse_date(x);
        return {Date{value.value_or(0)}, value ? Failure::kNone : Failure::kInvalid};
      };
    } else if constexpr (std::is_same_v<To, Time>) {
      return [](std::string_view x) -> Checked<Time> {
        auto value = parse_time(x);
        return {Time{value.value_or(0)}, value ? Failure::kNone : Failure::kInvalid};
      };
    } else {
      return [](std::string_view x) { return from_optional(parse_interval(x)); };
    }
  }
};

/// Between ticks of two lengths, to the nearest, halves away from zero; infinities stay.
struct Rescale {
  int64_t multiply;
  int64_t divide;
  Checked<int64_t> operator()(int64_t x) const {
    if (!is_finite_timestamp(x)) return {x};
    if (divide > 1) {
      int64_t rest = x % divide;
      return {x / divide + (rest >= divide / 2) - (rest <= -(divide / 2))};
    }
    int64_t y;
    bool overflow = __builtin_mul_overflow(x, multiply, &y);
    return checked(y, overflow || y < kTimestampMin || y > kTimestampMax, Failure::kOutOfRange);
  }
};

int64_t ticks_of(const arrow::DataType& type) {
  return ticks_per_second(static_cast<const arrow::TimestampType&>(type).unit());
}

Rescale rescale(int64_t from_ticks, int64_t to_ticks) {
  return {to_ticks > from_ticks ? to_ticks / from_ticks : 1,
          from_ticks > to_ticks ? from_ticks / to_ticks : 1};
}

struct TimestampToTimestamp {
  auto operator()(const arrow::DataType& from, const arrow::DataType& to) const {
    return rescale(ticks_of(from), ticks_of(to));
  }
};

struct DateToTimestamp {
  auto operator()(const arrow::DataType&, const arrow::DataType& to) const {
    return [per_day = ticks_of(to) * 86400](int32_t days) -> Checked<int64_t> {
      if (!is_finite_date(days)) return {days > 0 ? kTimestampInfinity : -kTimestampInfinity};
      return Rescale{per_day, 1}(days);
    };
  }
};

struct TimestampToDate {
  auto operator()(const arrow::DataType& from, const arrow::DataType&) const {
    return [per_day = ticks_of(from) * 86400](int64_t ticks) {
      if (!is_finite_timestamp(ticks)) return ticks > 0 ? kDateInfinity : -kDateInfinity;
      return static_cast<int32_t>(floor_div(ticks, per_day));
    };
  }
};

struct TimestampToTime {
  auto operator()(const arrow::DataType& from, const arrow::DataType&) const {
    const int64_t ticks = ticks_of(from);
    return
        [per_day = ticks * 86400, scale = rescale(ticks, kMicrosPerSecond)](int64_t x) -> Checked<int64_t> {
          if (!is_finite_timestamp(x)) return {0, Failure::kOutOfRange};
          return scale(floor_mod(x, per_day));
        };
  }
};

struct StringToTimestamp {
  auto operator()(const arrow::DataType&, const arrow::DataType& to) const {
    return [zone = is_timestamp_with_zone_type(to),
            scale = rescale(kMicrosPerSecond, ticks_of(to))](std::string_view x) -> Checked<int64_t> {
      int64_t nanos = 0;
      auto micros = parse_timestamp(x, zone, &nanos);
      if (!micros) return {0, Failure::kInvalid};
      Checked<int64_t> ticks = scale(*micros);
      if (scale.multiply == 1000 && is_finite_timestamp(ticks.value)) ticks.value += nanos;
      return ticks;
    };
  }
};

/// A kernel that writes text with `append(scratch, value)`.
template <class From, class Append>
Cast to_text() {
  return {[](KernelCall& call) -> Status {
            std::string scratch;
            auto append = Append{};
            append.prepare(*call.arguments[0].data->type);
            return loop_over<void, From>(call, [&](StringWriter& out, From x) {
              scratch.clear();
              append(scratch, x);
              out.append(scratch);
            });
          },
          false};
}

struct AppendNumber {
  void prepare(const arrow::DataType&) {}
  template <class T>
  void operator()(std::string& out, T x) const {
    if constexpr (std::is_same_v<T, bool>) {
      out += x ? "true" : "false";
    } else if constexpr (std::is_same_v<T, double>) {
      append_double(out, x);
    } else if constexpr (std::is_same_v<T, float>) {
      append_float(out, x);
    } else if constexpr (std::is_unsigned_v<T>) {
      append_unsigned(out, x);
    } else {
      append_integer(out, x);
    }
  }
};
struct AppendDecimal {
  int scale = 0;
  void prepare(const arrow::DataType& type) { scale = decimal_scale(type); }
  void operator()(std::string& out, Decimal x) const { append_decimal(out, x.digits, scale); }
};
struct AppendDate {
  void prepare(const arrow::DataType&) {}
  void operator()(std::string& out, Date x) const { append_date(out, x.days); }
};
struct AppendTime {
  void prepare(const arrow::DataType&) {}
  void operator()(std::string& out, Time x) const { append_time(out, x.micros); }
};
struct AppendTimestamp {
  int64_t ticks = 1;
  bool zone = false;
  void prepare(const arrow::DataType& type) {
    ticks = ticks_of(type);
    zone = is_timestamp_with_zone_type(type);
  }
  void operator()(std::string& out, Timestamp x) const { append_timestamp(out, x.micros, ticks, zone); }
};
struct AppendInterval {
  void prepare(const arrow::DataType&) {}
  void operator()(std::string& out, Interval x) const { append_interval(out, x); }
};

/// Calls f with the C++ type of a bool, integer or float type; an empty Cast for others.
template <class F>
Cast with_number(const arrow::DataType& type, F&& f) {
  switch (type.id()) {
    case arrow::Type::BOOL:
      return f(std::type_identity<bool>{});
    case arrow::Type::INT8:
      return f(std::type_identity<int8_t>{});
    case arrow::Type::INT16:
      return f(std::type_identity<int16_t>{});
    case arrow::Type::INT32:
      return f(std::type_identity<int32_t>{});
    case arrow::Type::INT64:
      return f(std::type_identity<int64_t>{});
    case arrow::Type::UINT8:
      return f(std::type_identity<uint8_t>{});
    case arrow::Type::UINT16:
      return f(std::type_identity<uint16_t>{});
    case arrow::Type::UINT32:
      return f(std::type_identity<uint32_t>{});
    case arrow::Type::UINT64:
      return f(std::type_identity<uint64_t>{});
    case arrow::Type::FLOAT:
      return f(std::type_identity<float>{});
    case arrow::Type::DOUBLE:
      return f(std::type_identity<double>{});
    default:
      return {};
  }
}

Cast cast_to_string(const arrow::DataType& from) {
  if (is_decimal_type(from)) return to_text<Decimal, AppendDecimal>();
  if (is_date_type(from)) return to_text<Date, AppendDate>();
  if (is_timestamp_type(from)) return to_text<Timestamp, AppendTimestamp>();
  if (is_interval_type(from)) return to_text<Interval, AppendInterval>();
  if (from.id() == arrow::Type::TIME64) return to_text<Time, AppendTime>();
  return with_number(from, [&]<class T>(std::type_identity<T>) { return to_text<T, AppendNumber>(); });
}

Cast cast_from_string(const arrow::DataType& to, bool try_cast) {
  using S = std::string_view;
  if (is_decimal_type(to)) return cast<S, FromString<Decimal>>(try_cast);
  if (is_date_type(to)) return cast<S, FromString<Date>>(try_cast);
  if (is_timestamp_type(to)) return cast<S, StringToTimestamp>(try_cast);
  if (is_interval_type(to)) return cast<S, FromString<Interval>>(try_cast);
  if (to.id() == arrow::Type::TIME64) return cast<S, FromString<Time>>(try_cast);
  return with_number(to, [&]<class T>(std::type_identity<T>) { return cast<S, FromString<T>>(try_cast); });
}

Cast choose(const arrow::DataType& from, const arrow::DataType& to, bool try_cast) {
  if (is_string_type(to)) return cast_to_string(from);
  if (is_string_type(from)) return cast_from_string(to, try_cast);
  if (is_decimal_type(to)) {
    if (is_decimal_type(from)) return cast<Decimal, ToDecimal<Decimal>>(try_cast);
    return with_number(from, [&]<class T>(std::type_identity<T>) { return cast<T, ToDecimal<T>>(try_cast); });
  }
  if (is_decimal_type(from)) {
    return with_number(
        to, [&]<class T>(std::type_identity<T>) { return cast<Decimal, FromDecimal<T>>(try_cast); });
  }
  if (is_date_type(from) && is_timestamp_type(to)) return cast<int32_t, DateToTimestamp>(try_cast);
  if (is_timestamp_type(from) && is_date_type(to)) return cast<int64_t, TimestampToDate>(try_cast);
  if (is_timestamp_type(from) && !is_timestamp_with_zone_type(from) && to.id() == arrow::Type::TIME64)
    return cast<int64_t, TimestampToTime>(try_cast);
  if (is_timestamp_type(from) && is_timestamp_type(to)) return cast<int64_t, TimestampToTimestamp>(try_cast);
  return with_number(from, [&]<class From>(std::type_identity<From>) {
    return with_number(
        to, [&]<class To>(std::type_identity<To>) { return cast<From, NumberCast<From, To>>(try_cast); });
  });
}

/// The values are the same bytes.
bool same_representation(const arrow::DataType& from, const arrow::DataType& to) {
  if (from.Equals(to)) return true;
  if (is_timestamp_type(from) && is_timestamp_type(to)) return ticks_of(from) == ticks_of(to);
  return is_string_type(from) && to.id() == arrow::Type::BINARY;
}

}  // namespace

std::shared_ptr<const Binding> find_cast(const TypePtr& from, const TypePtr& to, bool try_cast) {
  Binding binding;
  binding.parameters = {from};
  binding.result = to;
  if (!same_representation(*from, *to)) {
    Cast found = choose(*from, *to, try_cast);
    if (!found.kernel) return nullptr;
    binding.kernel = found.kernel;
    if (found.fuse) found.fuse(binding);
    binding.can_fail = found.can_fail && !try_cast;
    binding.gives_null = found.can_fail && try_cast;
  }
  return std::make_shared<const Binding>(std::move(binding));
}

}  // namespace millstream::expr
