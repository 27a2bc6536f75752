// + - * / // % and negation of numbers. Integers overflow with an error, decimals grow (DuckDB's widths), /
// is always a floating point division.

#include "functions/arithmetic.h"

#include <cmath>
#include <limits>

#include "expr/bound_rules.h"
#include "expr/kernel.h"
#include "expr/text.h"

namespace millstream::functions {

using namespace expr;

namespace {

struct Add {
  template <class T>
  MILLSTREAM_BODY static auto body(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      using U = std::make_unsigned_t<T>;
      T r = static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
      bool overflow = std::is_signed_v<T> ? static_cast<T>((a ^ r) & (b ^ r)) < 0 : r < a;
      return checked(r, overflow, Failure::kOverflow);
    }
  }
};

struct Subtract {
  template <class T>
  MILLSTREAM_BODY static auto body(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a - b;
    } else {
      using U = std::make_unsigned_t<T>;
      T r = static_cast<T>(static_cast<U>(static_cast<U>(a) - static_cast<U>(b)));
      bool overflow = std::is_signed_v<T> ? static_cast<T>((a ^ b) & (a ^ r)) < 0 : a < b;
      return checked(r, overflow, Failure::kOverflow);
    }
  }
};

struct Multiply {
  template <class T>
  MILLSTREAM_BODY static auto body(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a * b;
    } else if constexpr (sizeof(T) < 8) {
      using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
      Wide product = static_cast<Wide>(a) * static_cast<Wide>(b);
      T r = static_cast<T>(product);
      return checked(r, static_cast<Wide>(r) != product, Failure::kOverflow);
    } else {
      T r;
      bool overflow = __builtin_mul_overflow(a, b, &r);
      return checked(r, overflow, Failure::kOverflow);
    }
  }
};

struct Divide {
  template <class T>
  MILLSTREAM_BODY static T body(T a, T b) {
    return a / b;
  }
};

struct IntegerDivide {
  template <class T>
  MILLSTREAM_BODY static Checked<T> body(T a, T b) {
    if (b == 0) return {T{}, Failure::kDivisionByZero};
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      if (b == -1 && a == std::numeric_limits<T>::min()) return {T{}, Failure::kOverflow};
    }
    return {static_cast<T>(a / b)};
  }
};

struct Modulo {
  template <class T>
  MILLSTREAM_BODY static auto body(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      if (b == 0) return Checked<T>{T{}, Failure::kDivisionByZero};
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return Checked<T>{T{}};
      }
      return Checked<T>{static_cast<T>(a % b)};
    }
  }
};

struct Negate {
  template <class T>
  MILLSTREAM_BODY static auto body(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return -x;
    } else if constexpr (std::is_unsigned_v<T>) {
      return checked(T{}, x != 0, Failure::kOverflow);
    } else {
      bool overflow = x == std::numeric_limits<T>::min();
      return checked(overflow ? x : static_cast<T>(-x), overflow, Failure::kOverflow);
    }
  }
};

// ---- decimals
// ------------------------------------------------------------------------------------------------

constexpr int kMaxWidth = 38;

/// The decimal type of an argument of a decimal operation; null where it is no such.
TypePtr as_decimal(const ExprPtr& argument, const TypePtr& other) {
  if (is_decimal_type(*argument->type)) return argument->type;
  if (is_integer_type(*argument->type)) return decimal_of_integer(*argument->type);
  if (is_null_type(*argument->type)) return other;
  return nullptr;
}

struct DecimalPair {
  TypePtr left, right;
};

/// Both types where this is an operation on decimals: one is a decimal, or the integers have no common
/// integer.
std::optional<DecimalPair> decimal_pair(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 2) return {};
  const TypePtr &a = arguments[0]->type, &b = arguments[1]->type;
  bool decimals = is_decimal_type(*a) || is_decimal_type(*b);
  if (!decimals && is_integer_type(*a) && is_integer_type(*b)) {
    TypePtr common = common_type(arguments);
    decimals = common && is_decimal_type(*common);
  }
  if (!decimals) return {};
  DecimalPair pair{as_decimal(arguments[0], b), as_decimal(arguments[1], a)};
  if (!pair.left || !pair.right) return {};
  // Integers without a common integer type meet in HUGEINT.
  if (is_integer_type(*a) && is_integer_type(*b)) pair.left = pair.right = decimal_type(kMaxWidth, 0);
  return pair;
}

/// Digits before the point of the wider, and behind it of the finer.
std::pair<int, int> whole_and_scale(const DecimalPair& pair) {
  auto whole = [](const TypePtr& t) { return decimal_width(*t) - decimal_scale(*t); };
  return {std::max(whole(pair.left), whole(pair.right)),
          std::max(decimal_scale(*pair.left), decimal_scale(*pair.right))};
}

enum class Operation : uint8_t { kAdd, kSubtract, kMultiply };

/// The result must fit 128 bits, and the width of its type.
template <Operation kOperation>
struct DecimalOperation {
  auto operator()(const Expression& call) const {
    return [limit = power_of_ten(decimal_width(*call.type))](Decimal a, Decimal b) {
      __int128 r = 0;
      bool overflow = kOperation == Operation::kAdd        ? __builtin_add_overflow(a.digits, b.digits, &r)
                      : kOperation == Operation::kSubtract ? __builtin_sub_overflow(a.digits, b.digits, &r)
                                                           : __builtin_mul_overflow(a.digits, b.digits, &r);
      return checked(Decimal{r}, overflow || r >= limit || r <= -limit, Failure::kOverflow);
    };
  }
};

template <bool kRemainder>
struct DecimalDivision {
  auto operator()(const Expression&) const {
    return [](Decimal a, Decimal b) -> Checked<Decimal> {
      if (b.digits == 0) return {Decimal{0}, Failure::kDivisionByZero};
      return {Decimal{kRemainder ? a.digits % b.digits : a.digits / b.digits}};
    };
  }
};

struct NegateDecimal {
  auto operator()(const Expression&) const {
    return [](Decimal x) { return Decimal{-x.digits}; };
  }
};

template <bool kSubtract>
Result<std::optional<Binding>> bind_sum(const std::vector<ExprPtr>& arguments) {
  auto pair = decimal_pair(arguments);
  if (!pair) return std::nullopt;
  auto [whole, scale] = whole_and_scale(*pair);
  Binding binding;
  int width = std::min(whole + scale + 1, kMaxWidth);
  binding.result = decimal_type(width, scale);
  binding.parameters = {binding.result, binding.result};
  binding.can_fail = whole + scale + 1 > kMaxWidth;
  prepared<DecimalOperation<kSubtract ? Operation::kSubtract : Operation::kAdd>, Decimal, Decimal>(binding);
  return binding;
}

Result<std::optional<Binding>> bind_product(const std::vector<ExprPtr>& arguments) {
  auto pair = decimal_pair(arguments);
  if (!pair) return std::nullopt;
  int scale = decimal_scale(*pair->left) + decimal_scale(*pair->right);
  int width = decimal_width(*pair->left) + decimal_width(*pair->right);
  if (scale > kMaxWidth) {
    return query_error(
        "{} * {} would have {} digits behind the point, and a DECIMAL has at most {}; cast one to a "
        "DECIMAL of a smaller scale, or to DOUBLE",
        sql_type_name(*arguments[0]->type), sql_type_name(*arguments[1]->type), scale, kMaxWidth);
  }
  // As DuckDB, which does not leave 64 bits for a product of two decimals that fit them unless it must.
  constexpr int kMaxWidth64 = 18;
  int widest = std::max(decimal_width(*pair->left), decimal_width(*pair->right));
  int most = widest <= kMaxWidth64 && scale < kMaxWidth64 ? kMaxWidth64 : kMaxWidth;
  Binding binding;
  binding.result = decimal_type(std::min(width, most), scale);
  binding.parameters = {pair->left, pair->right};
  binding.can_fail = width > most;
  prepared<DecimalOperation<Operation::kMultiply>, Decimal, Decimal>(binding);
  return binding;
}

Result<std::optional<Binding>> bind_modulo(const std::vector<ExprPtr>& arguments) {
  auto pair = decimal_pair(arguments);
  if (!pair) return std::nullopt;
  auto [whole, scale] = whole_and_scale(*pair);
  Binding binding;
  binding.result = decimal_type(std::min(whole + scale, kMaxWidth), scale);
  binding.parameters = {binding.result, binding.result};
  binding.can_fail = true;
  prepared<DecimalDivision<true>, Decimal, Decimal>(binding);
  return binding;
}

/// Integers without a common integer type are divided as DECIMAL(38,0).
Result<std::optional<Binding>> bind_integer_division(const std::vector<ExprPtr>& arguments) {
  auto pair = decimal_pair(arguments);
  if (!pair || !is_integer_type(*arguments[0]->type) || !is_integer_type(*arguments[1]->type))
    return std::nullopt;
  Binding binding;
  binding.result = decimal_type(kMaxWidth, 0);
  binding.parameters = {binding.result, binding.result};
  binding.can_fail = true;
  prepared<DecimalDivision<false>, Decimal, Decimal>(binding);
  return binding;
}

Result<std::optional<Binding>> bind_difference_or_negation(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 1) return bind_sum<true>(arguments);
  if (!is_decimal_type(*arguments[0]->type)) return std::nullopt;
  Binding binding;
  binding.result = arguments[0]->type;
  binding.parameters = {binding.result};
  prepared<NegateDecimal, Decimal>(binding);
  return binding;
}

}  // namespace

MILLSTREAM_FUNCTION(arithmetic) {
  Function add;
  add.name = "+";
  add.notation = Notation::kInfix;
  add.doc = "Sum. Of a date and a number of days, of a date or timestamp and an interval, too.";
  add.examples = {{"1 + 2", "3"}, {"0.1 + 2", "2.1"}, {"DATE '2024-01-31' + 1", "2024-02-01"}};
  add.bind = bind_sum<false>;
  add.bound = sum_bounds;
  add.overloads = join(same_type<Add, 2>(Integers{}), same_type<Add, 2>(Floats{}), time_additions());
  add.forms = {"+(DECIMAL, DECIMAL)"};

  Function subtract;
  subtract.name = "-";
  subtract.notation = Notation::kInfix;
  subtract.doc = "Difference, and with one argument the negative. Dates give days, timestamps an interval.";
  subtract.examples = {{"1 - 2", "-1"}, {"-(2.5)", "-2.5"}, {"DATE '2024-03-01' - DATE '2024-02-01'", "29"}};
  subtract.bind = bind_difference_or_negation;
  subtract.bound = difference_bounds;
  subtract.overloads = join(same_type<Subtract, 2>(Integers{}), same_type<Subtract, 2>(Floats{}),
                            same_type<Negate, 1>(Integers{}), same_type<Negate, 1>(Floats{}),
                            time_subtractions(), std::vector<Binding>{interval_negation()});
  subtract.forms = {"-(DECIMAL, DECIMAL)", "-(DECIMAL)"};

  Function multiply;
  multiply.name = "*";
  multiply.notation = Notation::kInfix;
  multiply.doc = "Product; a decimal product keeps all digits.";
  multiply.examples = {{"6 * 7", "42"}, {"3 * 0.1", "0.3"}};
  multiply.bind = bind_product;
  multiply.bound = product_bounds;
  multiply.overloads =
      join(same_type<Multiply, 2>(Integers{}), same_type<Multiply, 2>(Floats{}), interval_products());
  multiply.forms = {"*(DECIMAL, DECIMAL)"};

  Function divide;
  divide.name = "/";
  divide.notation = Notation::kInfix;
  divide.doc = "Quotient as a floating point number; division by zero gives an infinity or NaN.";
  divide.examples = {{"7 / 2", "3.5"}, {"1 / 0", "inf"}};
  divide.bound = quotient_bounds;
  divide.overloads = join(same_type<Divide, 2>(Floats{}), interval_quotients());

  Function integer_divide;
  integer_divide.name = "//";
  integer_divide.notation = Notation::kInfix;
  integer_divide.aliases = {"divide"};
  integer_divide.doc =
      "Quotient of integers, cut towards zero; of other numbers as /. Division by zero is an error.";
  integer_divide.examples = {{"-7 // 2", "-3"}, {"-7e0 // 2", "-3.5"}};
  integer_divide.bind = bind_integer_division;
  integer_divide.bound = whole_quotient_bounds;
  integer_divide.overloads =
      join(same_type<IntegerDivide, 2>(Integers{}), same_type<IntegerDivide, 2>(Floats{}));

  Function modulo;
  modulo.name = "%";
  modulo.notation = Notation::kInfix;
  modulo.aliases = {"mod"};
  modulo.doc =
      "Remainder, with the sign of the dividend. By zero it is an error, of floating point numbers NaN.";
  modulo.examples = {{"-7 % 3", "-1"}, {"7.5 % 2", "1.5"}};
  modulo.bind = bind_modulo;
  modulo.bound = remainder_bounds;
  modulo.overloads = join(same_type<Modulo, 2>(Integers{}), same_type<Modulo, 2>(Floats{}));
  modulo.forms = {"%(DECIMAL, DECIMAL)"};

  return define(std::move(add), std::move(subtract), std::move(multiply), std::move(divide),
                std::move(integer_divide), std::move(modulo));
}

}  // namespace millstream::functions
