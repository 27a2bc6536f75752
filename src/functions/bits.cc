// & | ~ << >>, xor and bit_count, of integers.

#include <bit>
#include <limits>

#include "expr/bound_rules.h"
#include "expr/kernel.h"

namespace millstream::functions {

using namespace expr;

namespace {

struct And {
  template <class T>
  MILLSTREAM_BODY static T body(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  MILLSTREAM_BODY static T body(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  MILLSTREAM_BODY static T body(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  MILLSTREAM_BODY static T body(T x) {
    return static_cast<T>(~x);
  }
};

template <class T>
constexpr int kBits = static_cast<int>(sizeof(T)) * 8;

/// No bit may be lost, and negative numbers are not shifted; zero is zero, however far.
struct ShiftLeft {
  template <class T>
  MILLSTREAM_BODY static Checked<T> body(T x, T by) {
    using U = std::make_unsigned_t<T>;
    const bool inside = by >= T{0} && by < T{kBits<T>};
    const int shift = inside ? static_cast<int>(by) : 0;
    const U most = static_cast<U>(static_cast<U>(std::numeric_limits<T>::max()) >> shift);
    const bool fits = inside && x >= T{0} && static_cast<U>(x) <= most;
    const bool zero = x == T{0} && by >= T{0};
    const T shifted = static_cast<T>(static_cast<uint64_t>(static_cast<U>(x)) << shift);
    return checked(fits ? shifted : T{0}, !fits && !zero, Failure::kOutOfRange);
  }
};
/// Of negative numbers the sign moves in; a distance that is none gives 0.
struct ShiftRight {
  template <class T>
  MILLSTREAM_BODY static T body(T x, T by) {
    const bool inside = by >= T{0} && by < T{kBits<T>};
    return inside ? static_cast<T>(x >> static_cast<int>(by)) : T{0};
  }
};

/// DuckDB has it for signed integers, to which unsigned ones widen.
struct BitCount {
  template <class T>
  MILLSTREAM_BODY static int8_t body(T x) {
    return static_cast<int8_t>(std::popcount(static_cast<std::make_unsigned_t<T>>(x)));
  }
};
struct BitCountWide {
  MILLSTREAM_BODY static int16_t body(uint64_t x) { return static_cast<int16_t>(std::popcount(x)); }
};

/// x & y of a number that is not negative lies between 0 and that number.
Bounds and_bounds(const Expression& call, std::span<const Bounds> arguments) {
  Bounds result;
  for (const Bounds& argument : arguments) {
    const Range<__int128>& range = argument.whole;
    if (!range.low || range.low->value < 0) continue;
    if (!result.whole.low || range.low->origin < result.whole.low->origin)
      result.whole.low = Limit<__int128>{0, range.low->origin};
    if (range.high && (!result.whole.high || range.high->value < result.whole.high->value))
      result.whole.high =
          Limit<__int128>{range.high->value, less_certain(range.low->origin, range.high->origin)};
  }
  return result;
}

Function bitwise(const char* name, const char* doc, std::vector<Example> examples,
                 std::vector<Binding> overloads) {
  Function f;
  f.name = name;
  f.doc = doc;
  f.examples = std::move(examples);
  f.notation = Notation::kInfix;
  f.overloads = std::move(overloads);
  return f;
}

}  // namespace

MILLSTREAM_FUNCTION(bits) {
  Function band =
      bitwise("&", "The bits that both integers have.", {{"91 & 15", "11"}}, same_type<And, 2>(Integers{}));
  band.bound = and_bounds;
  Function negation =
      bitwise("~", "The bits that the integer has not.", {{"~15", "-16"}}, same_type<Not, 1>(Integers{}));
  negation.notation = Notation::kPrefix;
  Function exclusive = bitwise("xor", "The bits that just one of both integers has.", {{"xor(17, 5)", "20"}},
                               same_type<Xor, 2>(Integers{}));
  exclusive.notation = Notation::kCall;
  Function count = bitwise("bit_count", "How many bits are 1.", {{"bit_count(31)", "5"}},
                           same_type<BitCount, 1>(SignedIntegers{}));
  count.notation = Notation::kCall;
  count.overloads.push_back(overload<BitCountWide, uint64_t>());
  count.bound = always_between<0, 64>;
  return define(std::move(band),
                bitwise("|", "The bits that one of both integers has.", {{"32 | 3", "35"}},
                        same_type<Or, 2>(Integers{})),
                std::move(exclusive), std::move(negation),
                bitwise("<<", "The bits moved to the left; an error where one would be lost.",
                        {{"1 << 4", "16"}}, same_type<ShiftLeft, 2>(Integers{})),
                bitwise(">>", "The bits moved to the right.", {{"8 >> 2", "2"}, {"-8 >> 1", "-4"}},
                        same_type<ShiftRight, 2>(Integers{})),
                std::move(count));
}

}  // namespace millstream::functions
