#pragma once
// Sums of doubles that do not depend on the order of the additions: exact, and rounded once at the end. So any
// number of ranks and threads, and any way the rows were dealt to them, gives the same bits.
//
// Nearly all real values are multiples of 2^-80 below 2^46, and are added as such to a 128-bit integer. The others
// (tiny, huge, or a sum that overflows) go to a wide accumulator that covers every double, made where it is needed.
// Accumulators only ever hold exact sums, so where a value went does not matter.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millstream::exec {

/// Every double, exactly: digits of 32 bits from 2^-1088 up, each in 64 bits, so that 2^31 additions need no carry.
class WideSum {
 public:
  static constexpr int kLow = -1088;
  static constexpr int kDigits = 72;

  void add(double x);
  /// x * 2^exponent.
  void add_integer(__int128 x, int exponent);
  void add(const WideSum& other);
  /// The nearest double (ties to even); NaN and infinities as IEEE sums them.
  double value() const;
  void append_to(std::string& out) const { out.append(reinterpret_cast<const char*>(this), sizeof *this); }

 private:
  void normalise();

  int64_t digits_[kDigits] = {};
  int64_t additions_ = 0;
  bool positive_infinity_ = false, negative_infinity_ = false, nan_ = false;
};

/// A sum a group.
class ExactSums {
 public:
  void resize(size_t groups) {
    low_.resize(groups, 0);
    wide_index_.resize(groups, -1);
  }
  size_t size() const { return low_.size(); }

  void add(size_t group, double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    const int exponent = static_cast<int>(bits >> 52 & 0x7FF);
    // x = mantissa * 2^(exponent - 1075); the shift makes it a multiple of 2^-80.
    const int shift = exponent - (1075 - 80);
    const auto mantissa = static_cast<int64_t>((bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52);
    const int64_t sign = static_cast<int64_t>(bits) >> 63;
    if (static_cast<unsigned>(shift) <= 73) [[likely]] {
      const auto term = static_cast<__int128>((mantissa ^ sign) - sign) << shift;
      __int128 sum;
      if (!__builtin_add_overflow(low_[group], term, &sum)) [[likely]] {
        low_[group] = sum;
        return;
      }
    } else if (bits << 1 == 0) {
      return;  // a zero
    }
    add_wide(group, x);
  }
  /// x * x, its rounding error included down to 2^-80.
  void add_square(size_t group, double x) { add_product(group, x, x); }
  /// x * y, likewise.
  void add_product(size_t group, double x, double y);

  void merge(size_t group, const ExactSums& other, size_t other_group);
  double value(size_t group) const;
  /// For further computing: the sum with 113 bits; only where it is finite.
  __float128 wide_value(size_t group) const;

  int64_t bytes() const {
    return static_cast<int64_t>(low_.capacity() * (sizeof(__int128) + 4) +
                                wide_.capacity() * sizeof(WideSum));
  }
  void save(std::string& out) const;
  /// False where the bytes are not what save() wrote.
  bool load(std::string_view& in, size_t groups);

 private:
  void add_wide(size_t group, double x);
  WideSum& wide(size_t group);
  WideSum total(size_t group) const;

  std::vector<__int128> low_;  // times 2^-80
  std::vector<int32_t> wide_index_;
  std::vector<WideSum> wide_;
};

/// Bytes of vectors of plain values, for sending states between ranks.
template <class T>
void save_vector(std::string& out, const std::vector<T>& values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <class T>
bool load_vector(std::string_view& in, std::vector<T>& values, size_t count) {
  if (in.size() < count * sizeof(T)) return false;
  values.resize(count);
  if (count > 0) std::memcpy(static_cast<void*>(values.data()), in.data(), count * sizeof(T));
  in.remove_prefix(count * sizeof(T));
  return true;
}

}  // namespace millstream::exec
