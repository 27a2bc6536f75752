// Parts of strings, put together anew: left, right, padding, repetition, replacement, splitting. Positions and lengths
// count code points.

#include <algorithm>
#include <array>

#include "expr/bound_rules.h"
#include "functions/definition.h"
#include "functions/text_rows.h"

namespace millstream::functions {

using namespace expr;
using Text = std::string_view;

namespace {

/// The first code points; a negative number leaves that many out at the end.
struct Left {
  static Text body(Text s, int64_t count) {
    if (count < 0) {
      const int64_t size = count_code_points(s);
      count = count < -size ? 0 : size + count;
    }
    return s.substr(0, byte_of(s, count));
  }
};
/// The last code points; a negative number leaves that many out at the beginning.
struct Right {
  static Text body(Text s, int64_t count) {
    const int64_t size = count_code_points(s);
    int64_t skipped = count < 0 ? (count < -size ? size : -count) : std::max<int64_t>(size - count, 0);
    return s.substr(byte_of(s, skipped));
  }
};

/// Cut or filled up to `length` code points.
template <bool kLeft>
struct Pad {
  static Failure write(StringWriter& out, Text s, int32_t length, Text padding) {
    const int64_t size = count_code_points(s);
    if (length <= size) {
      out.append(s.substr(0, byte_of(s, std::max<int32_t>(length, 0))));
      return Failure::kNone;
    }
    if (padding.empty()) return Failure::kInvalid;
    if constexpr (!kLeft) out.append(s);
    const int64_t unit = count_code_points(padding);
    int64_t missing = length - size;
    for (; missing >= unit; missing -= unit) {
      if (out.failed()) return Failure::kNone;  // the end of the block says that it got too long
      out.append(padding);
    }
    out.append(padding.substr(0, byte_of(padding, missing)));
    if constexpr (kLeft) out.append(s);
    return Failure::kNone;
  }
};

struct Repeat {
  static Failure write(StringWriter& out, Text s, int64_t count) {
    if (s.empty() || count <= 0) return Failure::kNone;
    if (count > INT32_MAX / static_cast<int64_t>(s.size())) return Failure::kOutOfRange;
    for (int64_t i = 0; i < count; ++i) out.append(s);
    return Failure::kNone;
  }
};

struct Reverse {
  static void body(StringWriter& out, Text s) {
    while (!s.empty()) {
      size_t at = s.size() - 1;
      while (at > 0 && !starts_code_point(s[at])) --at;
      out.append(s.substr(at));
      s = s.substr(0, at);
    }
  }
};

struct Replace {
  static void body(StringWriter& out, Text s, Text from, Text to) {
    if (from.empty()) {
      out.append(s);
      return;
    }
    for (size_t at = s.find(from); at != Text::npos; at = s.find(from)) {
      out.append(s.substr(0, at));
      out.append(to);
      s.remove_prefix(at + from.size());
    }
    out.append(s);
  }
};

/// Each code point that is in `from` becomes the one in that place of `to`; where there is none it goes.
struct Translate {
  static void body(StringWriter& out, Text s, Text from, Text to) {
    for (size_t at = 0; at < s.size();) {
      const size_t end = next_code_point(s, at);
      const Text code_point = s.substr(at, end - at);
      size_t a = 0, b = 0;
      bool found = false;
      while (a < from.size() && !found) {
        const size_t next = next_code_point(from, a);
        found = from.substr(a, next - a) == code_point;
        if (!found && b < to.size()) b = next_code_point(to, b);
        a = next;
      }
      if (!found) {
        out.append(code_point);
      } else if (b < to.size()) {
        out.append(to.substr(b, next_code_point(to, b) - b));
      }
      at = end;
    }
  }
};

/// The part with that number, 1 is the first and -1 the last; an empty separator splits code points.
struct SplitPart {
  static Text body(Text s, Text separator, int64_t index) {
    if (index == 0) return {};
    const auto part_end = [&](size_t at) {  // npos: the last part
      if (!separator.empty()) return s.find(separator, at);
      if (at >= s.size()) return Text::npos;
      const size_t end = next_code_point(s, at);
      return end < s.size() ? end : Text::npos;
    };
    if (index < 0) {
      int64_t parts = 1;
      for (size_t at = 0; (at = part_end(at)) != Text::npos; at += separator.size()) ++parts;
      if (index < -parts) return {};
      index += parts + 1;
    }
    size_t at = 0;
    for (int64_t part = 1;; ++part) {
      const size_t end = part_end(at);
      if (part == index) return s.substr(at, end == Text::npos ? end : end - at);
      if (end == Text::npos) return {};
      at = end + separator.size();
    }
  }
};

/// Where the part begins, 1 is the first code point; 0: nowhere.
struct Position {
  static int64_t body(Text s, Text part) {
    const size_t at = s.find(part);
    return at == Text::npos ? 0 : count_code_points(s.substr(0, at)) + 1;
  }
};

/// `count` code points from `start` on become `other`.
struct Overlay {
  static void body(StringWriter& out, Text s, Text other, int64_t start) {
    body(out, s, other, start, count_code_points(other));
  }
  static void body(StringWriter& out, Text s, Text other, int64_t start, int64_t count) {
    constexpr int64_t kFar = int64_t{1} << 40;
    const int64_t begin = std::clamp<int64_t>(start, -kFar, kFar) - 1;
    const int64_t end = begin + std::clamp<int64_t>(count, -kFar, kFar);
    out.append(s.substr(0, byte_of(s, std::max<int64_t>(begin, 0))));
    out.append(other);
    out.append(s.substr(byte_of(s, std::max<int64_t>(end, 0))));
  }
};

struct Ascii {
  static int32_t body(Text s) { return s.empty() ? 0 : take_code_point(s); }
};
struct Unicode {
  static int32_t body(Text s) { return s.empty() ? -1 : take_code_point(s); }
};
struct Chr {
  static Failure write(StringWriter& out, int32_t code) {
    return append_code_point(out, code) ? Failure::kNone : Failure::kInvalid;
  }
};

/// Numbers and bytes in bases that are powers of two: `kBits` bits a digit.
template <int kBits>
struct Digits {
  static void body(StringWriter& out, Text s) {
    for (char c : s) {
      for (int shift = 8 - kBits; shift >= 0; shift -= kBits)
        digit(out, static_cast<unsigned char>(c) >> shift);
    }
  }
  static void body(StringWriter& out, int64_t x) { body(out, static_cast<uint64_t>(x)); }
  static void body(StringWriter& out, uint64_t x) {
    int shift = 64 - kBits;
    while (shift > 0 && (x >> shift) == 0) shift -= kBits;
    for (; shift >= 0; shift -= kBits) digit(out, x >> shift);
  }
  static void digit(StringWriter& out, uint64_t value) {
    out.append("0123456789ABCDEF"[value & ((1u << kBits) - 1)]);
  }
};

struct ToBase {
  static Failure write(StringWriter& out, int64_t x, int32_t base) { return write(out, x, base, 0); }
  static Failure write(StringWriter& out, int64_t x, int32_t base, int32_t least) {
    if (x < 0 || base < 2 || base > 36 || least < 0 || least > 64) return Failure::kInvalid;
    std::array<char, 64> digits;
    size_t at = digits.size();
    do {
      digits[--at] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[x % base];
      x /= base;
    } while (x > 0);
    while (digits.size() - at < static_cast<size_t>(least)) digits[--at] = '0';
    out.append(Text(digits.data() + at, digits.size() - at));
    return Failure::kNone;
  }
};

struct BitLength {
  MILLSTREAM_BODY static int64_t body(Text s) { return static_cast<int64_t>(s.size()) * 8; }
};

/// Characters other than letters, digits and -._~ as %XX.
struct UrlEncode {
  static void body(StringWriter& out, Text s) {
    for (char c : s) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                         c == '-' || c == '.' || c == '_' || c == '~';
      if (plain) {
        out.append(c);
      } else {
        out.append('%');
        Digits<4>::body(out, Text(&c, 1));
      }
    }
  }
};

}  // namespace

MILLSTREAM_FUNCTION(string_parts) {
  Function position = overloaded_function(
      "strpos", {"instr", "position"},
      "Where the second begins in the text, counted from 1; 0: nowhere. Also position(part IN text).",
      {{"strpos('abc', 'c')", "3"}, {"position('b' IN 'abc')", "2"}}, {overload<Position, Text, Text>()});
  position.bound = not_negative;
  Function ascii = overloaded_function("ascii", {}, "The number of the first character; of an empty text 0.",
                                       {{"ascii('A')", "65"}}, {overload<Ascii, Text>()});
  ascii.bound = always_between<-1, 0x10FFFF>;
  Function unicode =
      overloaded_function("unicode", {"ord"}, "The number of the first character; of an empty text -1.",
                          {{"unicode('ü')", "252"}}, {overload<Unicode, Text>()});
  unicode.bound = always_between<-1, 0x10FFFF>;
  Function bit_length = overloaded_function("bit_length", {}, "Number of bits.",
                                            {{"bit_length('abc')", "24"}}, {overload<BitLength, Text>()});
  bit_length.bound = not_negative;
  return define(
      overloaded_function(
          "left", {}, "The first characters; a negative number leaves out so many at the end.",
          {{"left('hello', 2)", "he"}, {"left('hello', -2)", "hel"}}, {overload<Left, Text, int64_t>()}),
      overloaded_function(
          "right", {}, "The last characters; a negative number leaves out so many at the beginning.",
          {{"right('hello', 2)", "lo"}, {"right('hello', -2)", "llo"}}, {overload<Right, Text, int64_t>()}),
      overloaded_function("lpad", {}, "Cut to a length, or filled up to it at the beginning.",
                          {{"lpad('7', 3, '0')", "007"}}, {text_overload<Pad<true>, Text, int32_t, Text>()}),
      overloaded_function("rpad", {}, "Cut to a length, or filled up to it at the end.",
                          {{"rpad('7', 3, '.')", "7.."}}, {text_overload<Pad<false>, Text, int32_t, Text>()}),
      overloaded_function("repeat", {}, "So many times behind one another.", {{"repeat('ab', 3)", "ababab"}},
                          {text_overload<Repeat, Text, int64_t>()}),
      overloaded_function("reverse", {}, "The characters (code points) in the other direction.",
                          {{"reverse('abc')", "cba"}}, {overload<Reverse, Text>()}),
      overloaded_function("replace", {}, "Every occurrence of the second becomes the third.",
                          {{"replace('banana', 'an', 'o')", "booa"}},
                          {overload<Replace, Text, Text, Text>()}),
      overloaded_function(
          "translate", {},
          "Characters of the second become those in the same place of the third; those without one go.",
          {{"translate('12345', '143', 'ax')", "a2x5"}}, {overload<Translate, Text, Text, Text>()}),
      overloaded_function("split_part", {},
                          "A part of the text between separators: 1 is the first, -1 the last.",
                          {{"split_part('a-b-c', '-', 2)", "b"}, {"split_part('a-b-c', '-', -1)", "c"}},
                          {overload<SplitPart, Text, Text, int64_t>()}),
      overloaded_function(
          "overlay", {},
          "With characters replaced from a position on: overlay(text PLACING other FROM start FOR count).",
          {{"overlay('abcdef', 'XX', 2, 3)", "aXXef"}, {"overlay('abcdef' PLACING 'XX' FROM 2)", "aXXdef"}},
          {overload<Overlay, Text, Text, int64_t>(), overload<Overlay, Text, Text, int64_t, int64_t>()}),
      std::move(position), std::move(ascii), std::move(unicode),
      overloaded_function("chr", {}, "The character with that number.", {{"chr(65)", "A"}},
                          {text_overload<Chr, int32_t>()}),
      std::move(bit_length),
      overloaded_function(
          "hex", {"to_hex"}, "An integer or the bytes of a text as hexadecimal digits.",
          {{"hex(255)", "FF"}, {"hex('abc')", "616263"}},
          {overload<Digits<4>, Text>(), overload<Digits<4>, int64_t>(), overload<Digits<4>, uint64_t>()}),
      overloaded_function(
          "bin", {"to_binary"}, "An integer or the bytes of a text as binary digits.", {{"bin(5)", "101"}},
          {overload<Digits<1>, Text>(), overload<Digits<1>, int64_t>(), overload<Digits<1>, uint64_t>()}),
      overloaded_function(
          "to_base", {},
          "A number that is not negative in a base of 2 to 36; a third argument is the "
          "least number of digits.",
          {{"to_base(255, 16)", "FF"}, {"to_base(5, 2, 8)", "00000101"}},
          {text_overload<ToBase, int64_t, int32_t>(), text_overload<ToBase, int64_t, int32_t, int32_t>()}),
      overloaded_function("url_encode", {}, "With the characters that have a meaning in URLs written as %XX.",
                          {{"url_encode('a b')", "a%20b"}}, {overload<UrlEncode, Text>()}));
}

}  // namespace millstream::functions
