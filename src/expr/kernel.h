#pragma once
// From a scalar body to the vectorised loop over Arrow buffers. Included by the files that define functions.
//
// A body is a static function template `body` of a struct, over the C++ types below. What it returns says
// what may happen:
//     T             always a value
//     Checked<T>    a value, or a failure that ends the query (overflow, division by zero)
//     Maybe<T>      a value, or NULL
//     void, with a StringWriter& before the arguments: a string that is written piece by piece
// A std::string_view result is copied. Bodies must be total: they also see the values that lie under NULLs.
//
// Loops without failures and NULLs are plain loops over raw buffers, which the compiler vectorises. Failures
// are or-ed together, and only when there was one are the rows looked at again, now with their validity.

#include <cstring>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <arrow/api.h>
#include <arrow/util/bit_util.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "expr/function.h"

namespace millstream::expr {

// The C++ types of values; each has the layout of its Arrow type.
struct Date {
  int32_t days;
};
struct Time {
  int64_t micros;
};
struct Timestamp {
  int64_t micros;
};
/// A timestamp with a zone: an instant, in UTC.
struct ZonedTimestamp {
  int64_t micros;
};
struct Interval {
  int32_t months;
  int32_t days;
  int64_t nanos;
};
/// A decimal's digits; where the point stands is in the type. Arrow promises 8 bytes of alignment only.
struct [[gnu::packed, gnu::aligned(8)]] Decimal {
  __int128 digits;
};

enum class Failure : uint8_t { kNone, kOverflow, kDivisionByZero, kOutOfRange, kInvalid };

template <class T>
struct Checked {
  T value;
  Failure failure = Failure::kNone;
};
/// `value`, which is wrong where `failed`.
template <class T>
MILLSTREAM_BODY Checked<T> checked(T value, bool failed, Failure failure) {
  return {value, failed ? failure : Failure::kNone};
}

template <class T>
struct Maybe {
  T value;
  bool valid = true;
};

/// Arrow's type for a C++ type.
template <class T>
TypePtr type_of() {
  if constexpr (std::is_same_v<T, bool>) return arrow::boolean();
  if constexpr (std::is_same_v<T, int8_t>) return arrow::int8();
  if constexpr (std::is_same_v<T, int16_t>) return arrow::int16();
  if constexpr (std::is_same_v<T, int32_t>) return arrow::int32();
  if constexpr (std::is_same_v<T, int64_t>) return arrow::int64();
  if constexpr (std::is_same_v<T, uint8_t>) return arrow::uint8();
  if constexpr (std::is_same_v<T, uint16_t>) return arrow::uint16();
  if constexpr (std::is_same_v<T, uint32_t>) return arrow::uint32();
  if constexpr (std::is_same_v<T, uint64_t>) return arrow::uint64();
  if constexpr (std::is_same_v<T, float>) return arrow::float32();
  if constexpr (std::is_same_v<T, double>) return arrow::float64();
  if constexpr (std::is_same_v<T, std::string_view>) return arrow::utf8();
  if constexpr (std::is_same_v<T, Date>) return arrow::date32();
  if constexpr (std::is_same_v<T, Time>) return arrow::time64(arrow::TimeUnit::MICRO);
  if constexpr (std::is_same_v<T, Timestamp>) return timestamp_type();
  if constexpr (std::is_same_v<T, ZonedTimestamp>) return timestamp_with_zone_type();
  if constexpr (std::is_same_v<T, Interval>) return arrow::month_day_nano_interval();
}

// ---- reading
// -------------------------------------------------------------------------------------------------

template <class T>
struct Column {
  explicit Column(const arrow::ArrayData& data) : values(data.GetValues<T>(1)) {}
  T operator[](int64_t i) const { return values[i]; }
  const T* values;
};
template <>
struct Column<bool> {
  explicit Column(const arrow::ArrayData& data) : bits(data.buffers[1]->data()), offset(data.offset) {}
  bool operator[](int64_t i) const { return arrow::bit_util::GetBit(bits, offset + i); }
  const uint8_t* bits;
  int64_t offset;
};
template <>
struct Column<std::string_view> {
  explicit Column(const arrow::ArrayData& data)
      : offsets(data.GetValues<int32_t>(1)),
        bytes(data.buffers[2] ? reinterpret_cast<const char*>(data.buffers[2]->data()) : "") {}
  std::string_view operator[](int64_t i) const {
    return {bytes + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])};
  }
  const int32_t* offsets;
  const char* bytes;
};

template <class T>
struct Constant {
  explicit Constant(const arrow::ArrayData& data) : value(Column<T>(data)[0]) {}
  T operator[](int64_t) const { return value; }
  T value;
};

/// Either of the two, decided at run time: for the third and later arguments.
template <class T>
struct Strided {
  explicit Strided(const Value& value) : column(*value.data), stride(value.constant ? 0 : 1) {}
  T operator[](int64_t i) const { return column[i * stride]; }
  Column<T> column;
  int64_t stride;
};

/// Row i counts: bit i of a bitmap that may be absent.
inline bool is_set(const uint8_t* bitmap, int64_t i) {
  return !bitmap || arrow::bit_util::GetBit(bitmap, i);
}

// ---- writing
// -------------------------------------------------------------------------------------------------

/// Bit j of the result is byte j, which is 0 or 1.
inline uint64_t pack_bits(const uint8_t bytes[64]) {
#ifdef __AVX2__
  __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes));
  __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes + 32));
  auto bits = [](__m256i v) { return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_slli_epi16(v, 7))); };
  return bits(low) | static_cast<uint64_t>(bits(high)) << 32;
#else
  uint64_t word = 0;
  for (int k = 0; k < 8; ++k) {
    uint64_t eight;
    std::memcpy(&eight, bytes + 8 * k, 8);
    word |= (eight * 0x0102040810204080ull >> 56) << (8 * k);
  }
  return word;
#endif
}

/// A buffer for `rows` values; whole words, so that bitmaps can be written by the word.
Result<std::shared_ptr<arrow::Buffer>> allocate_values(int64_t bytes);
inline int64_t bitmap_bytes(int64_t rows) {
  return (rows + 63) / 64 * 8;
}

/// Gathers a string column.
class StringWriter {
 public:
  Status start(int64_t rows, int64_t bytes_expected);
  void append(std::string_view piece) {
    if (size_ + static_cast<int64_t>(piece.size()) > capacity_) [[unlikely]]
      grow(piece.size());
    if (!failed_) std::memcpy(data_ + size_, piece.data(), piece.size());
    size_ += static_cast<int64_t>(piece.size());
  }
  void append(char c) { append(std::string_view(&c, 1)); }
  /// Room for `bytes` more, to be filled by the caller.
  char* extend(size_t bytes) {
    if (size_ + static_cast<int64_t>(bytes) > capacity_) [[unlikely]]
      grow(bytes);
    char* at = data_ + size_;
    size_ += static_cast<int64_t>(bytes);
    return failed_ ? nullptr : at;
  }
  void end_row() { offsets_[++row_] = static_cast<int32_t>(size_); }
  bool failed() const { return failed_; }
  /// Puts the buffers into `out`; an error where they got too long for one block.
  Status finish(arrow::ArrayData& out);

 private:
  void grow(size_t bytes);
  std::shared_ptr<arrow::Buffer> offsets_buffer_;
  std::unique_ptr<arrow::ResizableBuffer> buffer_;
  int32_t* offsets_ = nullptr;
  char* data_ = nullptr;
  int64_t row_ = 0;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
  bool failed_ = false;
};

/// The error of a row: "overflow in 2147483647 + 1 (INTEGER)".
Status failure_at(const KernelCall& call, int64_t row, Failure failure);

// ---- loops
// ---------------------------------------------------------------------------------------------------

template <class T>
struct IsChecked : std::false_type {};
template <class T>
struct IsChecked<Checked<T>> : std::true_type {};
template <class T>
struct IsMaybe : std::false_type {};
template <class T>
struct IsMaybe<Maybe<T>> : std::true_type {};

template <class R>
struct ValueOf {
  using type = R;
};
template <class T>
struct ValueOf<Checked<T>> {
  using type = T;
};
template <class T>
struct ValueOf<Maybe<T>> {
  using type = T;
};

/// An unsigned integer as wide as T, so that a failure flag does not change the width of a vector loop.
template <class T>
using FlagOf = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

/// bits[i] = row(i), a word at a time.
template <class F>
void fill_bits(uint8_t* bitmap, int64_t rows, F&& row) {
  alignas(32) uint8_t bytes[64];
  auto* words = reinterpret_cast<uint64_t*>(bitmap);
  int64_t i = 0;
  for (; i + 64 <= rows; i += 64) {
    for (int j = 0; j < 64; ++j) bytes[j] = row(i + j);
    words[i / 64] = pack_bits(bytes);
  }
  if (i < rows) {
    std::memset(bytes, 0, sizeof bytes);
    for (int64_t j = 0; i + j < rows; ++j) bytes[j] = row(i + j);
    words[i / 64] = pack_bits(bytes);
  }
}

/// out[i] = f(in[i]...), where `f` returns R as bodies do (void: it is given the StringWriter first).
template <class R, class F, class... Readers>
Status loop(KernelCall& call, F&& f, const Readers&... in) {
  using T = typename ValueOf<R>::type;
  const int64_t rows = call.rows;
  std::shared_ptr<arrow::Buffer> validity;
  if constexpr (IsMaybe<R>::value) {
    MILLSTREAM_ASSIGN(validity, allocate_values(bitmap_bytes(rows)));
  }
  if constexpr (std::is_same_v<T, std::string_view> || std::is_void_v<R>) {
    StringWriter writer;
    MILLSTREAM_TRY(writer.start(rows, rows * 8));
    for (int64_t i = 0; i < rows; ++i) {
      if (is_set(call.validity, i)) {
        if constexpr (std::is_void_v<R>) {
          f(writer, in[i]...);
        } else if constexpr (IsMaybe<R>::value) {
          R r = f(in[i]...);
          if (r.valid) writer.append(r.value);
          arrow::bit_util::SetBitTo(validity->mutable_data(), i, r.valid);
        } else {
          writer.append(f(in[i]...));
        }
      } else if constexpr (IsMaybe<R>::value) {
        arrow::bit_util::ClearBit(validity->mutable_data(), i);
      }
      writer.end_row();
    }
    MILLSTREAM_TRY(writer.finish(call.out));
  } else if constexpr (std::is_same_v<T, bool>) {
    MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(bitmap_bytes(rows)));
    uint8_t* out = call.out.buffers[1]->mutable_data();
    if constexpr (IsChecked<R>::value) {
      for (int64_t i = 0; i < rows; ++i) {
        R r = f(in[i]...);
        if (r.failure != Failure::kNone && is_set(call.validity, i)) return failure_at(call, i, r.failure);
        arrow::bit_util::SetBitTo(out, i, r.value);
      }
    } else if constexpr (IsMaybe<R>::value) {
      for (int64_t i = 0; i < rows; ++i) {
        R r = f(in[i]...);
        arrow::bit_util::SetBitTo(out, i, r.value);
        arrow::bit_util::SetBitTo(validity->mutable_data(), i, r.valid);
      }
    } else {
      fill_bits(out, rows, [&](int64_t i) -> uint8_t { return f(in[i]...); });
    }
  } else {
    MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(rows * static_cast<int64_t>(sizeof(T))));
    T* out = reinterpret_cast<T*>(call.out.buffers[1]->mutable_data());
    if constexpr (IsChecked<R>::value) {
      FlagOf<T> failed = 0;
      for (int64_t i = 0; i < rows; ++i) {
        R r = f(in[i]...);
        out[i] = r.value;
        failed |= static_cast<FlagOf<T>>(r.failure);
      }
      if (failed) [[unlikely]] {
        for (int64_t i = 0; i < rows; ++i) {
          R r = f(in[i]...);
          if (r.failure != Failure::kNone && is_set(call.validity, i)) return failure_at(call, i, r.failure);
        }
      }
    } else if constexpr (IsMaybe<R>::value) {
      uint8_t all = 1;
      fill_bits(validity->mutable_data(), rows, [&](int64_t i) -> uint8_t {
        R r = f(in[i]...);
        out[i] = r.value;
        all &= static_cast<uint8_t>(r.valid);
        return r.valid;
      });
      if (all) validity = nullptr;
    } else {
      for (int64_t i = 0; i < rows; ++i) out[i] = f(in[i]...);
    }
  }
  if constexpr (IsMaybe<R>::value) {
    if (validity) {
      call.out.buffers[0] = std::move(validity);
      call.out.null_count = arrow::kUnknownNullCount;
    }
  }
  return Status::OK();
}

/// The same over the arguments of the call, of types A.
template <class R, class... A, class F>
Status loop_over(KernelCall& call, F&& f) {
  constexpr size_t n = sizeof...(A);
  if constexpr (n == 0) {
    return loop<R>(call, f);
  } else if constexpr (n == 1) {
    using A0 = std::tuple_element_t<0, std::tuple<A...>>;
    return loop<R>(call, f, Column<A0>(*call.arguments[0].data));
  } else if constexpr (n == 2) {
    using A0 = std::tuple_element_t<0, std::tuple<A...>>;
    using A1 = std::tuple_element_t<1, std::tuple<A...>>;
    const Value &x = call.arguments[0], &y = call.arguments[1];
    // Two constants are one row of columns.
    if (x.constant && !y.constant) return loop<R>(call, f, Constant<A0>(*x.data), Column<A1>(*y.data));
    if (y.constant && !x.constant) return loop<R>(call, f, Column<A0>(*x.data), Constant<A1>(*y.data));
    return loop<R>(call, f, Column<A0>(*x.data), Column<A1>(*y.data));
  } else {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return loop<R>(call, f, Strided<A>(call.arguments[I])...);
    }
    (std::make_index_sequence<n>{});
  }
}

template <class Body, class... A>
constexpr auto result_of() {
  if constexpr (requires { Body::body(std::declval<StringWriter&>(), std::declval<A>()...); }) {
    return std::type_identity<void>{};
  } else {
    return std::type_identity<decltype(Body::body(std::declval<A>()...))>{};
  }
}
template <class Body, class... A>
using ResultOf = typename decltype(result_of<Body, A...>())::type;

/// The kernel of a body for argument types A.
template <class Body, class... A>
Status run(KernelCall& call) {
  using R = ResultOf<Body, A...>;
  if constexpr (std::is_void_v<R>) {
    return loop_over<R, A...>(call, [](StringWriter& out, A... x) { Body::body(out, x...); });
  } else {
    return loop_over<R, A...>(call, [](A... x) { return Body::body(x...); });
  }
}

// ---- bodies for generated code
// ----------------------------------------------------------------------------------------------------
//
// clang compiles the same files to bitcode with MILLSTREAM_BITCODE defined: then there are no loops, and every
// body over one row, a `call` below, is emitted. Generated code calls it, everything by pointer, and it dissolves there.
// Its name in the bitcode follows from that of its class, which both compilers mangle alike.

#ifdef MILLSTREAM_BITCODE
#define MILLSTREAM_EMIT [[gnu::used]]
#else
#define MILLSTREAM_EMIT
#endif

/// Value and flag of a body's result: why it failed (Failure), or whether there is a value (1).
template <class R, class T>
MILLSTREAM_BODY void give(const R& r, T* value, uint8_t* flag) {
  if constexpr (IsChecked<R>::value) {
    *value = r.value;
    *flag = static_cast<uint8_t>(r.failure);
  } else if constexpr (IsMaybe<R>::value) {
    *value = r.value;
    *flag = r.valid;
  } else {
    *value = r;
  }
}

template <class Body, class... A>
struct Scalar {
  using R = ResultOf<Body, A...>;
  MILLSTREAM_EMIT static void call(const A*... x, typename ValueOf<R>::type* value, uint8_t* flag) {
    give<R>(Body::body(*x...), value, flag);
  }
};

/// A body with state: what `Prepare{}(call)` returns.
template <class Prepare, class... A>
struct PreparedScalar {
  using Body = decltype(Prepare{}(std::declval<const Expression&>()));
  using R = decltype(std::declval<const Body&>()(std::declval<A>()...));
  MILLSTREAM_EMIT static void call(const Body* body, const A*... x, typename ValueOf<R>::type* value,
                                   uint8_t* flag) {
    give<R>((*body)(*x...), value, flag);
  }
};

template <class S>
const char* body_name() {
#ifdef MILLSTREAM_BITCODE
  [[maybe_unused]] static auto* volatile emitted = &S::call;
#endif
  return typeid(S).name();
}

/// Whether generated code can take what a body returns: texts it can't.
template <class R>
constexpr bool kIsFusible =
    !std::is_void_v<R> && !std::is_same_v<typename ValueOf<R>::type, std::string_view>;

/// `fusion` by Body over arguments of types A.
template <class Body, class... A>
void fuse(Binding& binding, Fusion fusion = Fusion::kBody) {
  if constexpr (kIsFusible<ResultOf<Body, A...>>) {
    binding.fusion = fusion;
    binding.body = body_name<Scalar<Body, A...>>();
  }
}

/// The body is Prepare{}(call) over arguments of types A; the kernel stays what it is.
template <class Prepare, class... A>
void fuse_prepared(Binding& binding) {
  using S = PreparedScalar<Prepare, A...>;
  using Body = typename S::Body;
  static_assert(std::is_trivially_copyable_v<Body>);
  if constexpr (kIsFusible<typename S::R>) {
    binding.fusion = Fusion::kBody;
    binding.body = body_name<S>();
    binding.state = [](const Expression& call, std::string& bytes) {
      const Body body = Prepare{}(call);
      bytes.clear();
      if constexpr (!std::is_empty_v<Body>) bytes.assign(reinterpret_cast<const char*>(&body), sizeof body);
    };
  }
}

/// Kernel and body of Prepare{}(call), over the first arguments, of types A.
template <class Prepare, class... A>
void prepared(Binding& binding) {
  binding.body_arguments = sizeof...(A);
#ifndef MILLSTREAM_BITCODE
  binding.kernel = [](KernelCall& call) -> Status {
    const auto body = Prepare{}(call.expression);
    using R = decltype(body(std::declval<A>()...));
    KernelCall first{call.expression, call.arguments.first(sizeof...(A)), call.rows, call.validity, call.out};
    return loop_over<R, A...>(first, body);
  };
#endif
  fuse_prepared<Prepare, A...>(binding);
}

/// One overload: Body over arguments of types A.
template <class Body, class... A>
Binding overload() {
  using R = ResultOf<Body, A...>;
  Binding binding;
  binding.parameters = {type_of<A>()...};
  if constexpr (std::is_void_v<R>) {
    binding.result = arrow::utf8();
  } else {
    binding.result = type_of<typename ValueOf<R>::type>();
    binding.can_fail = IsChecked<R>::value;
    binding.gives_null = IsMaybe<R>::value;
  }
#ifndef MILLSTREAM_BITCODE
  binding.kernel = run<Body, A...>;
#endif
  fuse<Body, A...>(binding);
  return binding;
}

// Lists of types to make overloads for.
template <class... T>
struct Types {};
using SignedIntegers = Types<int8_t, int16_t, int32_t, int64_t>;
using UnsignedIntegers = Types<uint8_t, uint16_t, uint32_t, uint64_t>;
using Floats = Types<float, double>;
using Integers = Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;

/// Overloads (T), (T, T), … with `N` arguments of one type, for every T of the list.
template <class Body, int N, class... T>
std::vector<Binding> same_type(Types<T...>) {
  auto one = []<class U>(std::type_identity<U>) {
    if constexpr (N == 1) return overload<Body, U>();
    if constexpr (N == 2) return overload<Body, U, U>();
    if constexpr (N == 3) return overload<Body, U, U, U>();
  };
  return {one(std::type_identity<T>{})...};
}

template <class... V>
std::vector<Binding> join(std::vector<Binding> first, V&&... rest) {
  (first.insert(first.end(), rest.begin(), rest.end()), ...);
  return first;
}

/// A file's functions.
template <class... F>
std::vector<Function> define(F&&... f) {
  std::vector<Function> out;
  (out.push_back(std::forward<F>(f)), ...);
  return out;
}

}  // namespace millstream::expr
