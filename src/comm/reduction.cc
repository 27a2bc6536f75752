#include "comm/reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "base/check.h"

namespace millstream::comm {

int64_t size_of(DataType type) {
  switch (type) {
    case DataType::kDouble:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat:
    case DataType::kInt32:
      return 4;
    case DataType::kHalf:
    case DataType::kBFloat16:
    case DataType::kInt16:
      return 2;
    case DataType::kInt8:
    case DataType::kUInt8:
    case DataType::kBool:
      return 1;
  }
  return 1;
}

float half_to_float(uint16_t bits) {
#ifdef __F16C__
  return _cvtsh_ss(bits);
#else
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 31, fraction = bits & 0x3FF, out;
  if (exponent == 31) {
    out = sign | 0x7F800000u | (fraction << 13);
  } else if (exponent) {
    out = sign | ((exponent + 112) << 23) | (fraction << 13);
  } else if (fraction) {  // subnormal: normalise
    int shift = 0;
    while (!(fraction & 0x400)) {
      fraction <<= 1;
      ++shift;
    }
    out = sign | (uint32_t(113 - shift) << 23) | ((fraction & 0x3FF) << 13);
  } else {
    out = sign;
  }
  float value;
  std::memcpy(&value, &out, 4);
  return value;
#endif
}

uint16_t float_to_half(float value) {
#ifdef __F16C__
  return static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
#else
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00;
  if (magnitude >= 0x477FF000u) return sign | 0x7C00;  // rounds beyond the largest half
  if (magnitude < 0x33000001u) return sign;            // rounds to zero
  const uint32_t exponent = magnitude >> 23;
  const uint32_t fraction = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t drop = exponent < 113 ? 126 - exponent : 13;
  uint32_t half =
      exponent < 113 ? fraction >> drop : ((exponent - 112) << 10) | ((fraction & 0x7FFFFFu) >> 13);
  const uint32_t rest = fraction & ((1u << drop) - 1), middle = 1u << (drop - 1);
  if (rest > middle || (rest == middle && (half & 1))) ++half;
  return static_cast<uint16_t>(sign | half);
#endif
}

float bfloat16_to_float(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

uint16_t float_to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

Status check_reduction(DataType type, ReduceOp op) {
  const bool floating = type == DataType::kFloat || type == DataType::kDouble || type == DataType::kHalf ||
                        type == DataType::kBFloat16;
  if (floating && (op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor)) {
    return bug_error(
        "a bitwise reduction of floating point numbers was asked for; it needs integers or bools");
  }
  return Status::OK();
}

namespace {

constexpr int64_t kTile = 1024;  // elements worked on at a time: stay in the first-level cache

template <ReduceOp op, class T>
inline T combine(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    using W = std::conditional_t<(sizeof(T) < 4), uint32_t, U>;  // no signed overflow after promotion
    if constexpr (op == ReduceOp::kSum) return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
    if constexpr (op == ReduceOp::kProduct) return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
    if constexpr (op == ReduceOp::kMin) return b < a ? b : a;
    if constexpr (op == ReduceOp::kMax) return a < b ? b : a;
    if constexpr (op == ReduceOp::kBitAnd) return static_cast<T>(a & b);
    if constexpr (op == ReduceOp::kBitOr) return static_cast<T>(a | b);
    if constexpr (op == ReduceOp::kBitXor) return static_cast<T>(a ^ b);
  } else {
    if constexpr (op == ReduceOp::kSum) return a + b;
    if constexpr (op == ReduceOp::kProduct) return a * b;
    if constexpr (op == ReduceOp::kMin) return (b < a || b != b) ? b : a;
    if constexpr (op == ReduceOp::kMax) return (a < b || b != b) ? b : a;
    return a;
  }
}

// NaN in min and max: `b` replaces `a` where it is less or NaN; a NaN in `a` stays, since nothing compares to
// it.

template <ReduceOp op, class T>
void reduce_plain(T* out, const void* const* sources, int n, int64_t count) {
  auto source = [&](int i) { return static_cast<const T*>(sources[i]); };
  if (n == 1) {
    if (out != source(0)) std::memmove(out, source(0), count * sizeof(T));
    return;
  }
  if (n == 2) {
    const T* a = source(0);
    const T* b = source(1);
    // `out` is one of the two or neither, never an overlap: each element depends on itself alone.
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) out[i] = combine<op, T>(a[i], b[i]);
    return;
  }
  T tile[kTile];
  for (int64_t at = 0; at < count; at += kTile) {
    const int64_t k = std::min(kTile, count - at);
    const T* a = source(0) + at;
    const T* b = source(1) + at;
    for (int64_t i = 0; i < k; ++i) tile[i] = combine<op, T>(a[i], b[i]);
    for (int s = 2; s < n; ++s) {
      const T* c = source(s) + at;
      for (int64_t i = 0; i < k; ++i) tile[i] = combine<op, T>(tile[i], c[i]);
    }
    std::memcpy(out + at, tile, k * sizeof(T));
  }
}

template <ReduceOp op, float (*widen)(uint16_t), uint16_t (*narrow)(float)>
void reduce_narrow(uint16_t* out, const void* const* sources, int n, int64_t count) {
  float tile[kTile];
  for (int64_t at = 0; at < count; at += kTile) {
    const int64_t k = std::min(kTile, count - at);
    for (int s = 0; s < n; ++s) {
      const uint16_t* c = static_cast<const uint16_t*>(sources[s]) + at;
      if (s == 0) {
        for (int64_t i = 0; i < k; ++i) tile[i] = widen(c[i]);
      } else {
        for (int64_t i = 0; i < k; ++i) tile[i] = combine<op, float>(tile[i], widen(c[i]));
      }
    }
    for (int64_t i = 0; i < k; ++i) out[at + i] = narrow(tile[i]);
  }
}

template <ReduceOp op>
void reduce_with(void* out, const void* const* sources, int n, int64_t count, DataType type) {
  switch (type) {
    case DataType::kFloat:
      return reduce_plain<op>(static_cast<float*>(out), sources, n, count);
    case DataType::kDouble:
      return reduce_plain<op>(static_cast<double*>(out), sources, n, count);
    case DataType::kHalf:
      return reduce_narrow<op, half_to_float, float_to_half>(static_cast<uint16_t*>(out), sources, n, count);
    case DataType::kBFloat16:
      return reduce_narrow<op, bfloat16_to_float, float_to_bfloat16>(static_cast<uint16_t*>(out), sources, n,
                                                                     count);
    case DataType::kInt8:
      return reduce_plain<op>(static_cast<int8_t*>(out), sources, n, count);
    case DataType::kUInt8:
      return reduce_plain<op>(static_cast<uint8_t*>(out), sources, n, count);
    case DataType::kInt16:
      return reduce_plain<op>(static_cast<int16_t*>(out), sources, n, count);
    case DataType::kInt32:
      return reduce_plain<op>(static_cast<int32_t*>(out), sources, n, count);
    case DataType::kInt64:
      return reduce_plain<op>(static_cast<int64_t*>(out), sources, n, count);
    case DataType::kBool: {
      // A bool is a byte of 0 or 1.
      constexpr ReduceOp byte_op = op == ReduceOp::kSum || op == ReduceOp::kMax       ? ReduceOp::kBitOr
                                   : op == ReduceOp::kProduct || op == ReduceOp::kMin ? ReduceOp::kBitAnd
                                                                                      : op;
      return reduce_plain<byte_op>(static_cast<uint8_t*>(out), sources, n, count);
    }
  }
}

}  // namespace

void reduce_arrays(void* out, const void* const* sources, int num_sources, int64_t count, DataType type,
                   ReduceOp op) {
  if (count == 0) return;
  switch (op) {
    case ReduceOp::kSum:
      return reduce_with<ReduceOp::kSum>(out, sources, num_sources, count, type);
    case ReduceOp::kProduct:
      return reduce_with<ReduceOp::kProduct>(out, sources, num_sources, count, type);
    case ReduceOp::kMin:
      return reduce_with<ReduceOp::kMin>(out, sources, num_sources, count, type);
    case ReduceOp::kMax:
      return reduce_with<ReduceOp::kMax>(out, sources, num_sources, count, type);
    case ReduceOp::kBitAnd:
      return reduce_with<ReduceOp::kBitAnd>(out, sources, num_sources, count, type);
    case ReduceOp::kBitOr:
      return reduce_with<ReduceOp::kBitOr>(out, sources, num_sources, count, type);
    case ReduceOp::kBitXor:
      return reduce_with<ReduceOp::kBitXor>(out, sources, num_sources, count, type);
  }
}

}  // namespace millstream::comm
