#pragma once
// For functions of strings that bodies can't say: texts that may fail, and code points.

#include <bit>
#include <cstring>
#include <string_view>

#include "expr/kernel.h"

namespace millstream::functions {

/// Writes a text a row: f(writer, arguments...) gives the failure, if there is one.
template <class... A, class F>
Status write_texts(expr::KernelCall& call, F&& f) {
  return [&]<size_t... I>(std::index_sequence<I...>)->Status {
    const std::tuple<expr::Strided<A>...> columns(expr::Strided<A>(call.arguments[I])...);
    expr::StringWriter writer;
    MILLSTREAM_TRY(writer.start(call.rows, call.rows * 8));
    for (int64_t i = 0; i < call.rows; ++i) {
      if (expr::is_set(call.validity, i)) {
        const expr::Failure failure = f(writer, std::get<I>(columns)[i]...);
        if (failure != expr::Failure::kNone) return expr::failure_at(call, i, failure);
      }
      writer.end_row();
    }
    return writer.finish(call.out);
  }
  (std::index_sequence_for<A...>{});
}

/// An overload whose texts may fail: Body::write(writer, arguments...) gives the failure.
template <class Body, class... A>
expr::Binding text_overload() {
  expr::Binding binding;
  binding.parameters = {expr::type_of<A>()...};
  binding.result = arrow::utf8();
  binding.can_fail = true;
  binding.kernel = [](expr::KernelCall& call) -> Status {
    return write_texts<A...>(call, [](expr::StringWriter& out, A... x) { return Body::write(out, x...); });
  };
  return binding;
}

inline bool starts_code_point(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

MILLSTREAM_BODY int64_t count_code_points(std::string_view s) {
  // Eight bytes at a time; the last of them overlap what is counted already, which is shifted out. A byte within a code
  // point is 10…: bit 7 without bit 6.
  const auto within = [](uint64_t bytes) { return bytes & ~(bytes << 1) & 0x8080808080808080u; };
  const size_t size = s.size();
  int64_t others = 0;
  if (size >= 8) {
    uint64_t bytes;
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
      std::memcpy(&bytes, s.data() + at, 8);
      others += std::popcount(within(bytes));
    }
    if (at < size) {
      std::memcpy(&bytes, s.data() + size - 8, 8);
      others += std::popcount(within(bytes) >> (8 * (8 - (size - at))));
    }
  } else if (size >= 4) {
    uint32_t first, last;
    std::memcpy(&first, s.data(), 4);
    std::memcpy(&last, s.data() + size - 4, 4);
    others = std::popcount(within(first)) + std::popcount(within(last) >> (8 * (8 - size)));
  } else if (size > 0) {
    const auto bytes = static_cast<uint64_t>(static_cast<uint8_t>(s[size - 1])) << 16 |
                       (size > 1 ? static_cast<uint64_t>(static_cast<uint8_t>(s[0])) << 8 : 0) |
                       (size > 2 ? static_cast<uint64_t>(static_cast<uint8_t>(s[1])) : 0);
    others = std::popcount(within(bytes));
  }
  return static_cast<int64_t>(size) - others;
}

/// The byte at which code point `index` begins; the end where there are fewer.
inline size_t byte_of(std::string_view s, int64_t index) {
  size_t at = 0;
  for (; at < s.size(); ++at) {
    if (starts_code_point(s[at]) && index-- == 0) break;
  }
  return at;
}

/// The byte behind the code point that begins at `at`.
inline size_t next_code_point(std::string_view s, size_t at) {
  do ++at;
  while (at < s.size() && !starts_code_point(s[at]));
  return at;
}

/// Takes the code point at the front off; its number, -1 for bytes that are none.
inline int32_t take_code_point(std::string_view& s) {
  const size_t size = next_code_point(s, 0);
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = byte(0);
  int32_t code = -1;
  if (size == 1 && first < 0x80) code = first;
  if (size == 2) code = (first & 0x1F) << 6 | (byte(1) & 0x3F);
  if (size == 3) code = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (size == 4) {
    code = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  s.remove_prefix(size);
  return code;
}

/// The bytes of a code point; false where there is no such one.
inline bool append_code_point(expr::StringWriter& out, int64_t code) {
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
  const auto rest = [&](int shift) { out.append(static_cast<char>(0x80 | (code >> shift & 0x3F))); };
  if (code < 0x80) {
    out.append(static_cast<char>(code));
  } else if (code < 0x800) {
    out.append(static_cast<char>(0xC0 | code >> 6));
    rest(0);
  } else if (code < 0x10000) {
    out.append(static_cast<char>(0xE0 | code >> 12));
    rest(6);
    rest(0);
  } else {
    out.append(static_cast<char>(0xF0 | code >> 18));
    rest(12);
    rest(6);
    rest(0);
  }
  return true;
}

}  // namespace millstream::functions
