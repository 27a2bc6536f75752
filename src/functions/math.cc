// Functions of floating point numbers; what is not one becomes a DOUBLE. Outside their domain they give NaN or an
// infinity, as the C library does.

#include <cmath>
#include <numbers>

#include "expr/bound_rules.h"
#include "expr/calendar.h"
#include "expr/kernel.h"

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
#undef MILLSTREAM_MATH_BODY

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
  Binding constant;
  constant.result = arrow::float64();
  constant.kernel = [](KernelCall& call) -> Status {
    return loop_over<double>(call, [] { return std::numbers::pi; });
  };
  pi.overloads = {constant};

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

  return define(
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
