// abs, sign, round, floor, ceil, trunc. Halves are rounded away from zero. Of decimals the result is a decimal of
// the same width.

#include <cmath>
#include <limits>

#include "expr/bound_rules.h"
#include "expr/kernel.h"
#include "expr/text.h"

namespace millstream::functions {

using namespace expr;

namespace {

struct Abs {
  template <class T>
  MILLSTREAM_BODY static auto body(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::abs(x);
    } else if constexpr (std::is_unsigned_v<T>) {
      return x;
    } else {
      bool overflow = x == std::numeric_limits<T>::min();
      return checked(overflow ? x : static_cast<T>(x < 0 ? -x : x), overflow, Failure::kOverflow);
    }
  }
};

struct Sign {
  template <class T>
  MILLSTREAM_BODY static int8_t body(T x) {
    return static_cast<int8_t>((x > T{0}) - (x < T{0}));
  }
};

struct Round {
  template <class T>
  MILLSTREAM_BODY static T body(T x) {
    if constexpr (std::is_integral_v<T>) {
      return x;
    } else {
      return std::round(x);
    }
  }
};
struct Truncate {
  template <class T>
  MILLSTREAM_BODY static T body(T x) {
    if constexpr (std::is_integral_v<T>) {
      return x;
    } else {
      return std::trunc(x);
    }
  }
};
struct Floor {
  template <class T>
  MILLSTREAM_BODY static T body(T x) {
    return std::floor(x);
  }
};
struct Ceil {
  template <class T>
  MILLSTREAM_BODY static T body(T x) {
    return std::ceil(x);
  }
};

enum class Direction : uint8_t { kNearest, kDown, kUp, kToZero, kNearestEven };

/// To a number of digits behind the point; negative: before it. Of kNearest, kToZero and kNearestEven.
template <Direction kDirection>
struct ToDigits {
  template <class T>
  MILLSTREAM_BODY static auto body(T x, int32_t digits) {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(x)) return x;
      auto whole = [](double v) {
        if constexpr (kDirection == Direction::kToZero) return std::trunc(v);
        if constexpr (kDirection == Direction::kNearestEven) return std::nearbyint(v);
        return std::round(v);
      };
      if (digits < 0) {
        double power = std::pow(10.0, -static_cast<double>(digits));
        double rounded = whole(static_cast<double>(x) / power) * power;
        if (!std::isfinite(rounded)) rounded = std::isfinite(x) ? 0.0 : x;
        return static_cast<T>(rounded);
      }
      double power = std::pow(10.0, digits);
      double rounded = whole(static_cast<double>(x) * power) / power;
      return std::isfinite(rounded) ? static_cast<T>(rounded) : x;
    } else {
      if (digits >= 0) return Checked<T>{x};
      if (digits < -18) return Checked<T>{T{0}};
      auto power = static_cast<int64_t>(power_of_ten(-digits));
      __int128 wide = x;
      if constexpr (kDirection == Direction::kNearest) wide += x < 0 ? -(power / 2) : power / 2;
      __int128 quotient = wide / power;
      if constexpr (kDirection == Direction::kNearestEven) {
        const __int128 rest = wide % power < 0 ? -(wide % power) : wide % power;
        const bool up = rest > power / 2 || (rest == power / 2 && quotient % 2 != 0);
        quotient += up ? (x < 0 ? -1 : 1) : 0;
      }
      wide = quotient * power;
      bool overflow = wide > std::numeric_limits<T>::max() || wide < std::numeric_limits<T>::min();
      return checked(static_cast<T>(wide), overflow, Failure::kOverflow);
    }
  }
};

/// digits / power in the given direction.
template <Direction kDirection>
MILLSTREAM_BODY __int128 divided(__int128 digits, __int128 power) {
  if constexpr (kDirection == Direction::kNearest) {
    const __int128 half = power / 2;
    return (digits < 0 ? digits - half : digits + half) / power;
  } else if constexpr (kDirection == Direction::kNearestEven) {
    const __int128 quotient = digits / power;
    const __int128 rest = digits % power < 0 ? -(digits % power) : digits % power;
    const __int128 half = power / 2;  // a power of ten is even, or 1 without a rest
    const bool up = rest > half || (rest == half && rest != 0 && quotient % 2 != 0);
    return quotient + (up ? (digits < 0 ? -1 : 1) : 0);
  } else {
    __int128 quotient = digits / power;
    if constexpr (kDirection == Direction::kDown) return quotient - (digits % power < 0);
    if constexpr (kDirection == Direction::kUp) return quotient + (digits % power > 0);
    return quotient;
  }
}

/// To the scale of the result; of negative places more digits go, which come back as zeros.
template <Direction kDirection>
struct RoundDecimal {
  auto operator()(const Expression& call) const {
    const int gone = decimal_scale(*call.arguments[0]->type) - decimal_scale(*call.type);
    int zeros = 0;
    if (call.arguments.size() == 2 && decimal_scale(*call.type) == 0) {
      const auto wide = call.arguments[1]->literal->CastTo(arrow::int64()).ValueOrDie();
      zeros =
          static_cast<int>(std::clamp<int64_t>(-static_cast<const arrow::Int64Scalar&>(*wide).value, 0, 38));
    }
    return [power = power_of_ten(std::min(gone + zeros, 38)), back = power_of_ten(zeros),
            limit = power_of_ten(decimal_width(*call.type))](Decimal x) {
      __int128 y;
      bool overflow = __builtin_mul_overflow(divided<kDirection>(x.digits, power), back, &y);
      return checked(Decimal{y}, overflow || y >= limit || y <= -limit, Failure::kOverflow);
    };
  }
};
struct Unchanged {
  auto operator()(const Expression&) const {
    return [](Decimal x) { return x; };
  }
};
struct AbsDecimal {
  auto operator()(const Expression&) const {
    return [](Decimal x) { return Decimal{x.digits < 0 ? -x.digits : x.digits}; };
  }
};
struct SignDecimal {
  auto operator()(const Expression&) const {
    return [](Decimal x) { return static_cast<int8_t>((x.digits > 0) - (x.digits < 0)); };
  }
};

/// A decimal to `places` digits behind the point; the type keeps the width.
template <Direction kDirection>
Result<std::optional<Binding>> bind_decimal(const std::vector<ExprPtr>& arguments, const char* name) {
  if (arguments.empty() || arguments.size() > 2) return std::nullopt;
  // UBIGINT has no signed integer above it but HUGEINT.
  const bool nearest = kDirection == Direction::kNearest || kDirection == Direction::kNearestEven;
  const bool huge = nearest && arguments[0]->type->id() == arrow::Type::UINT64;
  if (!huge && !is_decimal_type(*arguments[0]->type)) return std::nullopt;
  const TypePtr of = huge ? decimal_type(38, 0) : arguments[0]->type;
  const arrow::DataType& type = *of;
  Binding binding;
  binding.parameters = {of};
  int64_t places = 0;
  if (arguments.size() == 2) {
    const Expression& digits = *arguments[1];
    if (!is_integer_type(*digits.type)) return std::nullopt;
    if (digits.kind != Kind::kLiteral || !digits.literal->is_valid) {
      return query_error(
          "{} of a DECIMAL needs a constant number of digits, for the result's type; cast the DECIMAL "
          "to DOUBLE",
          name);
    }
    MILLSTREAM_ASSIGN(auto wide, digits.literal->CastTo(arrow::int64()));
    places = static_cast<const arrow::Int64Scalar&>(*wide).value;
    binding.parameters.push_back(digits.type);
  }
  const int scale = decimal_scale(type);
  if (places >= scale) {
    binding.result = of;
    prepared<Unchanged, Decimal>(binding);
    return binding;
  }
  binding.result = decimal_type(decimal_width(type), static_cast<int>(std::max<int64_t>(places, 0)));
  binding.can_fail = true;
  prepared<RoundDecimal<kDirection>, Decimal>(binding);
  return binding;
}

template <Direction kDirection>
Result<std::optional<Binding>> bind_rounding(const std::vector<ExprPtr>& arguments) {
  if (kDirection == Direction::kNearestEven && arguments.size() != 2) return std::nullopt;
  return bind_decimal<kDirection>(arguments, kDirection == Direction::kNearest  ? "round"
                                             : kDirection == Direction::kToZero ? "trunc"
                                                                                : "round_even");
}

template <Direction kDirection>
Result<std::optional<Binding>> bind_whole(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 1) return std::nullopt;
  return bind_decimal<kDirection>(arguments, "");
}

Result<std::optional<Binding>> bind_abs(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 1 || !is_decimal_type(*arguments[0]->type)) return std::nullopt;
  Binding binding;
  binding.parameters = {arguments[0]->type};
  binding.result = arguments[0]->type;
  prepared<AbsDecimal, Decimal>(binding);
  return binding;
}

Result<std::optional<Binding>> bind_sign(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 1 || !is_decimal_type(*arguments[0]->type)) return std::nullopt;
  Binding binding;
  binding.parameters = {arguments[0]->type};
  binding.result = arrow::int8();
  prepared<SignDecimal, Decimal>(binding);
  return binding;
}

template <class Body, class... T>
std::vector<Binding> with_digits(Types<T...>) {
  return {overload<Body, T, int32_t>()...};
}

}  // namespace

MILLSTREAM_FUNCTION(rounding) {
  Function abs;
  abs.name = "abs";
  abs.aliases = {"@"};
  abs.doc = "Absolute value.";
  abs.examples = {{"abs(-3)", "3"}, {"abs(-2.5)", "2.5"}};
  abs.bind = bind_abs;
  abs.bound = absolute_bounds;
  abs.overloads = join(same_type<Abs, 1>(Integers{}), same_type<Abs, 1>(Floats{}));
  abs.forms = {"abs(DECIMAL)"};

  Function sign;
  sign.name = "sign";
  sign.doc = "-1, 0 or 1; 0 for NaN.";
  sign.examples = {{"sign(-3.5)", "-1"}};
  sign.bind = bind_sign;
  sign.bound = always_between<-1, 1>;
  sign.overloads = join(same_type<Sign, 1>(Integers{}), same_type<Sign, 1>(Floats{}));
  sign.forms = {"sign(DECIMAL)"};

  Function round;
  round.name = "round";
  round.doc =
      "To the nearest whole number, or to a number of digits behind the point; halves go away from zero.";
  round.examples = {{"round(2.5)", "3"}, {"round(1234.5678e0, 2)", "1234.57"}, {"round(1250, -2)", "1300"}};
  round.bind = bind_rounding<Direction::kNearest>;
  round.bound = rising_bounds<0>;
  round.overloads = join(same_type<Round, 1>(SignedIntegers{}), same_type<Round, 1>(Floats{}),
                         with_digits<ToDigits<Direction::kNearest>>(SignedIntegers{}),
                         with_digits<ToDigits<Direction::kNearest>>(Floats{}));
  round.forms = {"round(DECIMAL)", "round(DECIMAL, INTEGER)"};

  Function trunc;
  trunc.name = "trunc";
  trunc.doc = "Towards zero, to a whole number or to a number of digits behind the point.";
  trunc.examples = {{"trunc(-1.7)", "-1"}};
  trunc.bind = bind_rounding<Direction::kToZero>;
  trunc.bound = rising_bounds<0>;
  trunc.overloads = join(same_type<Truncate, 1>(Integers{}), same_type<Truncate, 1>(Floats{}),
                         with_digits<ToDigits<Direction::kToZero>>(Integers{}),
                         with_digits<ToDigits<Direction::kToZero>>(Floats{}));
  trunc.forms = {"trunc(DECIMAL)", "trunc(DECIMAL, INTEGER)"};

  Function floor;
  floor.name = "floor";
  floor.doc = "The greatest whole number that is not greater.";
  floor.examples = {{"floor(-1.5)", "-2"}, {"floor(1.5e0)", "1.0"}};
  floor.bind = bind_whole<Direction::kDown>;
  floor.bound = rising_bounds<0>;
  floor.overloads = same_type<Floor, 1>(Floats{});
  floor.forms = {"floor(DECIMAL)"};

  Function ceil;
  ceil.name = "ceil";
  ceil.aliases = {"ceiling"};
  ceil.doc = "The smallest whole number that is not smaller.";
  ceil.examples = {{"ceil(1.2)", "2"}};
  ceil.bind = bind_whole<Direction::kUp>;
  ceil.bound = rising_bounds<0>;
  ceil.overloads = same_type<Ceil, 1>(Floats{});
  ceil.forms = {"ceil(DECIMAL)"};

  Function even;
  even.name = "round_even";
  even.aliases = {"roundbankers"};
  even.doc = "To a number of digits behind the point; halves go to the even neighbour.";
  even.examples = {{"round_even(2.5, 0)", "2"}, {"round_even(35, -1)", "40"}};
  even.bind = bind_rounding<Direction::kNearestEven>;
  even.bound = rising_bounds<0>;
  even.overloads = join(with_digits<ToDigits<Direction::kNearestEven>>(SignedIntegers{}),
                        with_digits<ToDigits<Direction::kNearestEven>>(Floats{}));
  even.forms = {"round_even(DECIMAL, INTEGER)"};

  return define(std::move(abs), std::move(sign), std::move(round), std::move(trunc), std::move(floor),
                std::move(ceil), std::move(even));
}

}  // namespace millstream::functions
