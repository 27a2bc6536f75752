#include "exec/exact_sum.h"

#include <limits>

namespace millstream::exec {

void WideSum::add(double x) {
  if (std::isnan(x)) {
    nan_ = true;
  } else if (std::isinf(x)) {
    (x > 0 ? positive_infinity_ : negative_infinity_) = true;
  } else if (x != 0) {
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);
    add_integer(static_cast<__int128>(std::ldexp(fraction, 53)), exponent - 53);
  }
}

void WideSum::add_integer(__int128 x, int exponent) {
  if (x == 0) return;
  const bool negative = x < 0;
  auto magnitude = static_cast<unsigned __int128>(negative ? -x : x);
  const int at = exponent - kLow;
  size_t digit = static_cast<size_t>(at / 32);
  const int shift = at % 32;
  // The low 32 - shift bits first, then whole digits.
  const auto low = static_cast<uint32_t>(static_cast<uint64_t>(magnitude) << shift);
  magnitude = shift == 0 ? magnitude >> 32 : magnitude >> (32 - shift);
  digits_[digit] += negative ? -static_cast<int64_t>(low) : static_cast<int64_t>(low);
  while (magnitude != 0) {
    ++digit;
    const auto part = static_cast<int64_t>(static_cast<uint32_t>(magnitude));
    digits_[digit] += negative ? -part : part;
    magnitude >>= 32;
  }
  if (++additions_ >= int64_t{1} << 30) normalise();
}

void WideSum::normalise() {
  int64_t carry = 0;
  for (int i = 0; i < kDigits; ++i) {
    const int64_t digit = digits_[i] + carry;
    if (i + 1 == kDigits) {
      digits_[i] = digit;  // the last keeps the sign
      break;
    }
    carry = digit >> 32;
    digits_[i] = digit & 0xFFFFFFFF;
  }
  additions_ = 0;
}

void WideSum::add(const WideSum& other) {
  WideSum normal = other;
  normal.normalise();
  for (int i = 0; i < kDigits; ++i) digits_[i] += normal.digits_[i];
  nan_ |= normal.nan_;
  positive_infinity_ |= normal.positive_infinity_;
  negative_infinity_ |= normal.negative_infinity_;
  if (++additions_ >= int64_t{1} << 30) normalise();
}

double WideSum::value() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (nan_ || (positive_infinity_ && negative_infinity_)) return std::numeric_limits<double>::quiet_NaN();
  if (positive_infinity_) return kInfinity;
  if (negative_infinity_) return -kInfinity;
  WideSum normal = *this;
  normal.normalise();
  const bool negative = normal.digits_[kDigits - 1] < 0;
  if (negative) {
    for (int64_t& digit : normal.digits_) digit = -digit;
    normal.normalise();
  }
  int top = kDigits - 1;
  while (top >= 0 && normal.digits_[top] == 0) --top;
  if (top < 0) return 0;
  // The top 96 bits or more, and whether anything is below them: enough to round once.
  unsigned __int128 bits = 0;
  int used = 0;
  int digit = top;
  for (; digit >= 0 && used < 3; --digit, ++used)
    bits = bits << 32 | static_cast<uint32_t>(normal.digits_[digit]);
  bool below = false;
  for (int rest = digit; rest >= 0; --rest) below |= normal.digits_[rest] != 0;
  int exponent = kLow + 32 * (digit + 1);
  // Subnormals have fewer bits: the last bit of a double is at least 2^-1074.
  int length = 0;
  for (unsigned __int128 b = bits; b != 0; b >>= 1) ++length;
  const int last = std::max(length + exponent - 53, -1074);
  const int drop = last - exponent;
  if (drop > 0) {
    const unsigned __int128 rest = bits & ((static_cast<unsigned __int128>(1) << drop) - 1);
    const unsigned __int128 half = static_cast<unsigned __int128>(1) << (drop - 1);
    bits >>= drop;
    exponent = last;
    if (rest > half || (rest == half && (below || (bits & 1) != 0))) ++bits;
  }
  const double magnitude = std::ldexp(static_cast<double>(static_cast<uint64_t>(bits)), exponent);
  return negative ? -magnitude : magnitude;
}

WideSum& ExactSums::wide(size_t group) {
  if (wide_index_[group] < 0) {
    wide_index_[group] = static_cast<int32_t>(wide_.size());
    wide_.emplace_back();
  }
  return wide_[static_cast<size_t>(wide_index_[group])];
}

void ExactSums::add_wide(size_t group, double x) {
  wide(group).add(x);
}

void ExactSums::add_product(size_t group, double x, double y) {
  const double product = x * y;
  add(group, product);
  const double error = std::fma(x, y, -product);
  if (error == 0 || !std::isfinite(error)) return;
  // The error as a multiple of 2^-80: what is cut off depends on x and y alone.
  const double scaled = std::ldexp(error, 80);
  if (std::abs(scaled) < 1e30) {
    const auto term = static_cast<__int128>(scaled);
    __int128 sum;
    if (__builtin_add_overflow(low_[group], term, &sum)) {
      wide(group).add_integer(term, -80);
    } else {
      low_[group] = sum;
    }
  } else {
    add_wide(group, error);
  }
}

void ExactSums::merge(size_t group, const ExactSums& other, size_t other_group) {
  __int128 sum;
  if (__builtin_add_overflow(low_[group], other.low_[other_group], &sum)) {
    wide(group).add_integer(other.low_[other_group], -80);
  } else {
    low_[group] = sum;
  }
  if (other.wide_index_[other_group] >= 0)
    wide(group).add(other.wide_[static_cast<size_t>(other.wide_index_[other_group])]);
}

WideSum ExactSums::total(size_t group) const {
  WideSum total;
  if (wide_index_[group] >= 0) total = wide_[static_cast<size_t>(wide_index_[group])];
  total.add_integer(low_[group], -80);
  return total;
}

double ExactSums::value(size_t group) const {
  // The conversion of a 128-bit integer rounds once, to nearest; the power of two is exact.
  if (wide_index_[group] < 0) return static_cast<double>(low_[group]) * 0x1p-80;
  return total(group).value();
}

__float128 ExactSums::wide_value(size_t group) const {
  constexpr double kQuantum = 0x1p-80;
  __float128 value = static_cast<__float128>(low_[group]) * static_cast<__float128>(kQuantum);
  if (wide_index_[group] >= 0)
    value += static_cast<__float128>(wide_[static_cast<size_t>(wide_index_[group])].value());
  return value;
}

void ExactSums::save(std::string& out) const {
  save_vector(out, low_);
  save_vector(out, wide_index_);
  const uint64_t count = wide_.size();
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  for (const WideSum& sum : wide_) sum.append_to(out);
}

bool ExactSums::load(std::string_view& in, size_t groups) {
  std::vector<uint64_t> count;
  if (!load_vector(in, low_, groups) || !load_vector(in, wide_index_, groups) || !load_vector(in, count, 1))
    return false;
  return load_vector(in, wide_, count[0]);
}

}  // namespace millstream::exec
