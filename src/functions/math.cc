// Functions of floating point numbers; what is not one becomes a DOUBLE. Outside their domain they give NaN or an
// infinity, as the C library does.

#include <cmath>
#include <limits>
#include <numbers>

#include "expr/bound_rules.h"
#include "expr/calendar.h"
#include "expr/kernel.h"
#include "functions/definition.h"

namespace millstream::functions {

using namespace expr;

namespace {

/// A struct whose body is one call of the C library.
#define MILLSTREAM_MATH_BODY(Name, expression)                          \
  struct Name {                                                         \
    MILLSTREAM_BODY static double body(double x) { return expression; } \
  };
MILLSTREAM_MATH_BODY(Sin, std::sin(x))
MILLSTREAM_MATH_BODY(Cos, std::cos(x))
MILLSTREAM_MATH_BODY(Tan, std::tan(x))
MILLSTREAM_MATH_BODY(Asin, std::asin(x))
MILLSTREAM_MATH_BODY(Acos, std::acos(x))
MILLSTREAM_MATH_BODY(Atan, std::atan(x))
MILLSTREAM_MATH_BODY(Ln, std::log(x))
MILLSTREAM_MATH_BODY(Log10, std::log10(x))
MILLSTREAM_MATH_BODY(Log2, std::log2(x))
MILLSTREAM_MATH_BODY(Log1p, std::log1p(x))
MILLSTREAM_MATH_BODY(Exp, std::exp(x))
MILLSTREAM_MATH_BODY(Sqrt, std::sqrt(x))
MILLSTREAM_MATH_BODY(Cbrt, std::cbrt(x))
MILLSTREAM_MATH_BODY(Degrees, x*(180.0 / std::numbers::pi))
MILLSTREAM_MATH_BODY(Radians, x*(std::numbers::pi / 180.0))
MILLSTREAM_MATH_BODY(Cot, 1.0 / std::tan(x))
MILLSTREAM_MATH_BODY(Sinh, std::sinh(x))
MILLSTREAM_MATH_BODY(Cosh, std::cosh(x))
MILLSTREAM_MATH_BODY(Tanh, std::tanh(x))
MILLSTREAM_MATH_BODY(Asinh, std::asinh(x))
MILLSTREAM_MATH_BODY(Acosh, std::acosh(x))
MILLSTREAM_MATH_BODY(Atanh, std::atanh(x))
MILLSTREAM_MATH_BODY(Gamma, std::tgamma(x))
#undef MILLSTREAM_MATH_BODY

struct LogGamma {
  MILLSTREAM_BODY static double body(double x) {
    int sign;  // lgamma() would put it in a global variable
    return ::lgamma_r(x, &sign);
  }
};

/// Away from zero to the next even number.
struct Even {
  MILLSTREAM_BODY static double body(double x) {
    const double whole = std::ceil(std::abs(x));
    const double even = std::floor(whole / 2) * 2;
    return std::copysign(even == whole ? whole : whole + 1, x);
  }
};

struct NextAfter {
  template <class T>
  MILLSTREAM_BODY static T body(T x, T towards) {
    return std::nextafter(x, towards);
  }
};
struct SignBit {
  template <class T>
  MILLSTREAM_BODY static bool body(T x) {
    return std::signbit(x);
  }
};
struct FloatingRemainder {
  template <class T>
  MILLSTREAM_BODY static T body(T x, T y) {
    const T rest = std::fmod(x, y);
    return rest == T{0} ? T{0} : (rest < T{0}) != (y < T{0}) ? rest + y : rest;
  }
};

MILLSTREAM_BODY Checked<int64_t> absolute(int64_t x) {
  const bool overflow = x == std::numeric_limits<int64_t>::min();
  return checked(overflow ? x : x < 0 ? -x : x, overflow, Failure::kOverflow);
}

struct GreatestCommonDivisor {
  static Checked<int64_t> body(int64_t a, int64_t b) {
    if (a == -1 || b == -1) return {1};  // the least number has no remainder by -1
    while (a != 0) {
      b %= a;
      if (b == 0) return absolute(a);
      a %= b;
    }
    return absolute(b);
  }
};
struct LeastCommonMultiple {
  static Checked<int64_t> body(int64_t a, int64_t b) {
    if (a == 0 || b == 0) return {0};
    const Checked<int64_t> divisor = GreatestCommonDivisor::body(a, b);
    if (divisor.failure != Failure::kNone) return divisor;
    int64_t product;
    if (__builtin_mul_overflow(a, b / divisor.value, &product)) return {0, Failure::kOverflow};
    return absolute(product);
  }
};

Status factorial(KernelCall& call) {
  return loop_over<Checked<Decimal>, int32_t>(call, [](int32_t n) -> Checked<Decimal> {
    constexpr int32_t kLast = 33;  // the next is beyond HUGEINT
    if (n < 0) return {Decimal{0}, Failure::kInvalid};
    if (n > kLast) return {Decimal{0}, Failure::kOverflow};
    __int128 product = 1;
    for (int32_t i = 2; i <= n; ++i) product *= i;
    return {Decimal{product}};
  });
}

struct Pi {
  MILLSTREAM_BODY static double body() { return std::numbers::pi; }
};
struct Atan2 {
  MILLSTREAM_BODY static double body(double y, double x) { return std::atan2(y, x); }
};
struct Power {
  MILLSTREAM_BODY static double body(double x, double y) { return std::pow(x, y); }
};
struct LogOfBase {
  MILLSTREAM_BODY static double body(double base, double x) { return std::log10(x) / std::log10(base); }
};

struct IsNan {
  template <class T>
  MILLSTREAM_BODY static bool body(T x) {
    return x != x;
  }
};
struct IsInfinite {
  template <class T>
  MILLSTREAM_BODY static bool body(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::isinf(x);
    } else if constexpr (std::is_same_v<T, Date>) {
      return !is_finite_date(x.days);
    } else {
      return !is_finite_timestamp(x.micros);
    }
  }
};
struct IsFinite {
  template <class T>
  MILLSTREAM_BODY static bool body(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::isfinite(x);
    } else {
      return !IsInfinite::body(x);
    }
  }
};

template <class Body>
Function of_double(const char* name, const char* doc, std::vector<Example> examples,
                   std::vector<std::string> aliases = {}) {
  Function f;
  f.name = name;
  f.aliases = std::move(aliases);
  f.doc = doc;
  f.examples = std::move(examples);
  f.overloads = {overload<Body, double>()};
  return f;
}

// NaN, which these give for NaN, is above every number: there is no upper limit.
Bounds from_zero(const Expression&, std::span<const Bounds>) {
  Bounds result;
  result.real.low = Limit<double>{0};
  return result;
}
Bounds unit_bounds(const Expression&, std::span<const Bounds>) {
  Bounds result;
  result.real.low = Limit<double>{-1};
  return result;
}

Function with_bound(Function f, Bounds (*bound)(const Expression&, std::span<const Bounds>)) {
  f.bound = bound;
  return f;
}

using FloatsAndTimes = Types<float, double, Date, Timestamp, ZonedTimestamp>;

}  // namespace

MILLSTREAM_FUNCTION(math) {
  Function log = of_double<Log10>("log", "Logarithm of base 10, or of the base given first.",
                                  {{"log(100)", "2.0"}, {"log(2, 8)", "3.0"}});
  log.overloads.push_back(overload<LogOfBase, double, double>());

  Function atan2;
  atan2.name = "atan2";
  atan2.doc = "Angle of the point (x, y), given as atan2(y, x).";
  atan2.examples = {{"atan2(0, 1)", "0.0"}};
  atan2.overloads = {overload<Atan2, double, double>()};

  Function power;
  power.name = "power";
  power.aliases = {"pow", "**", "^"};
  power.doc = "The first number to the power of the second.";
  power.examples = {{"power(2, 10)", "1024.0"}};
  power.overloads = {overload<Power, double, double>()};

  Function pi;
  pi.name = "pi";
  pi.doc = "The number pi.";
  pi.examples = {{"pi()", "3.141592653589793"}};
  pi.overloads = {overload<Pi>()};

  Function isnan;
  isnan.name = "isnan";
  isnan.doc = "True for NaN.";
  isnan.examples = {{"isnan('nan'::DOUBLE)", "true"}};
  isnan.overloads = same_type<IsNan, 1>(Floats{});

  Function isinf;
  isinf.name = "isinf";
  isinf.doc = "True for infinities, also of dates and timestamps.";
  isinf.examples = {{"isinf('-inf'::DOUBLE)", "true"}};
  isinf.overloads = same_type<IsInfinite, 1>(FloatsAndTimes{});

  Function isfinite;
  isfinite.name = "isfinite";
  isfinite.doc = "False for NaN and infinities, also of dates and timestamps.";
  isfinite.examples = {{"isfinite(1.5)", "true"}, {"isfinite('infinity'::DATE)", "false"}};
  isfinite.overloads = same_type<IsFinite, 1>(FloatsAndTimes{});

  const auto of_numbers = [](const char* name, const char* doc, std::vector<Example> examples,
                             std::vector<Binding> overloads, std::vector<std::string> aliases = {}) {
    return overloaded_function(name, std::move(aliases), doc, std::move(examples), std::move(overloads));
  };
  Binding product;
  product.parameters = {arrow::int32()};
  product.result = decimal_type(38, 0);
  product.can_fail = true;
  product.kernel = factorial;

  return define(
      of_double<Cot>("cot", "Cotangent.", {{"round(cot(1), 6)", "0.642093"}}),
      of_double<Sinh>("sinh", "Hyperbolic sine.", {{"sinh(0)", "0.0"}}),
      of_double<Cosh>("cosh", "Hyperbolic cosine.", {{"cosh(0)", "1.0"}}),
      of_double<Tanh>("tanh", "Hyperbolic tangent.", {{"tanh(0)", "0.0"}}),
      of_double<Asinh>("asinh", "Inverse hyperbolic sine.", {{"asinh(0)", "0.0"}}),
      of_double<Acosh>("acosh", "Inverse hyperbolic cosine.", {{"acosh(1)", "0.0"}}),
      of_double<Atanh>("atanh", "Inverse hyperbolic tangent.", {{"atanh(0)", "0.0"}}),
      of_double<Gamma>("gamma", "The gamma function: (n - 1)! of whole numbers.", {{"gamma(5)", "24.0"}}),
      of_double<LogGamma>("lgamma", "Logarithm of the absolute value of the gamma function.",
                          {{"lgamma(2)", "0.0"}}),
      of_double<Even>("even", "The next even number, away from zero.",
                      {{"even(2.9)", "4.0"}, {"even(-3)", "-4.0"}}),
      of_numbers("nextafter", "The floating point number that comes next in the direction of the second.",
                 {{"nextafter(1e0, 2e0)", "1.0000000000000002"}}, same_type<NextAfter, 2>(Floats{})),
      of_numbers("signbit", "Is the sign of the floating point number minus? It is for -0.",
                 {{"signbit(-0.5)", "true"}}, same_type<SignBit, 1>(Floats{})),
      of_numbers("fmod", "Remainder of a floating point division, with the sign of the divisor.",
                 {{"fmod(7.5e0, 2e0)", "1.5"}, {"fmod(-7.5e0, 2e0)", "0.5"}},
                 same_type<FloatingRemainder, 2>(Floats{})),
      of_numbers("gcd", "Greatest common divisor.", {{"gcd(42, 57)", "3"}},
                 {overload<GreatestCommonDivisor, int64_t, int64_t>()}, {"greatest_common_divisor"}),
      of_numbers("lcm", "Least common multiple.", {{"lcm(42, 57)", "798"}},
                 {overload<LeastCommonMultiple, int64_t, int64_t>()}, {"least_common_multiple"}),
      of_numbers("factorial", "The product of the whole numbers up to n, which is at most 33.",
                 {{"factorial(4)", "24"}}, {product}),
      with_bound(of_double<Sin>("sin", "Sine.", {{"sin(0)", "0.0"}}), unit_bounds),
      with_bound(of_double<Cos>("cos", "Cosine.", {{"cos(0)", "1.0"}}), unit_bounds),
      of_double<Tan>("tan", "Tangent.", {{"tan(0)", "0.0"}}),
      of_double<Asin>("asin", "Inverse sine.", {{"asin(0)", "0.0"}}),
      of_double<Acos>("acos", "Inverse cosine.", {{"acos(1)", "0.0"}}),
      of_double<Atan>("atan", "Inverse tangent.", {{"atan(0)", "0.0"}}),
      of_double<Ln>("ln", "Natural logarithm.", {{"ln(1)", "0.0"}, {"ln(0)", "-inf"}}),
      of_double<Log10>("log10", "Logarithm of base 10.", {{"log10(1000)", "3.0"}}),
      of_double<Log2>("log2", "Logarithm of base 2.", {{"log2(8)", "3.0"}}),
      of_double<Log1p>("log1p", "Natural logarithm of 1 + x, exact near zero.", {{"log1p(0)", "0.0"}}),
      with_bound(of_double<Exp>("exp", "e to the power of x.", {{"exp(0)", "1.0"}}), from_zero),
      with_bound(of_double<Sqrt>("sqrt", "Square root.", {{"sqrt(16)", "4.0"}}), from_zero),
      of_double<Cbrt>("cbrt", "Cube root.", {{"cbrt(8)", "2.0"}}),
      of_double<Degrees>("degrees", "Radians as degrees.", {{"degrees(pi())", "180.0"}}),
      of_double<Radians>("radians", "Degrees as radians.", {{"radians(0)", "0.0"}}), std::move(log),
      std::move(atan2), std::move(power), std::move(pi), std::move(isnan), std::move(isinf),
      std::move(isfinite));
}

}  // namespace millstream::functions
