// How far two strings are from each other, and checksums of one.

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <vector>

#include "expr/bounds.h"
#include "functions/definition.h"
#include "functions/text_rows.h"

namespace millstream::functions {

using namespace expr;
using Text = std::string_view;

namespace {

std::vector<int32_t> code_points(Text s) {
  std::vector<int32_t> out;
  while (!s.empty()) out.push_back(take_code_point(s));
  return out;
}

/// Insertions, deletions and replacements; with kSwaps, neighbours that changed places count one.
template <bool kSwaps>
struct EditDistance {
  static int64_t body(Text a, Text b) {
    const std::vector<int32_t> from = code_points(a), to = code_points(b);
    const size_t width = to.size() + 1;
    // Rows of the table: the one before the last, the last, this one.
    std::array<std::vector<int64_t>, 3> rows;
    for (auto& row : rows) row.resize(width);
    for (size_t j = 0; j < width; ++j) rows[0][j] = static_cast<int64_t>(j);
    for (size_t i = 1; i <= from.size(); ++i) {
      const auto &last = rows[(i - 1) % 3], &before = rows[(i + 1) % 3];
      auto& row = rows[i % 3];
      row[0] = static_cast<int64_t>(i);
      for (size_t j = 1; j < width; ++j) {
        const bool same = from[i - 1] == to[j - 1];
        int64_t best = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
        if (kSwaps && i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
          best = std::min(best, before[j - 2] + 1);
        row[j] = best;
      }
    }
    return rows[from.size() % 3][to.size()];
  }
};

/// At how many places code points differ.
struct Mismatches {
  static Checked<int64_t> body(Text a, Text b) {
    if (a.empty() || count_code_points(a) != count_code_points(b)) return {0, Failure::kInvalid};
    int64_t count = 0;
    while (!a.empty()) count += take_code_point(a) != take_code_point(b);
    return {count};
  }
};

/// Of the code points that both have to those that one has.
struct Jaccard {
  static Checked<double> body(Text a, Text b) {
    if (a.empty() || b.empty()) return {0, Failure::kInvalid};
    const auto set_of = [](Text s) {
      std::vector<int32_t> set = code_points(s);
      std::sort(set.begin(), set.end());
      set.erase(std::unique(set.begin(), set.end()), set.end());
      return set;
    };
    const std::vector<int32_t> in_a = set_of(a), in_b = set_of(b);
    std::vector<int32_t> in_both;
    std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(), std::back_inserter(in_both));
    const size_t all = in_a.size() + in_b.size() - in_both.size();
    return {static_cast<double>(in_both.size()) / static_cast<double>(all)};
  }
};

/// The text in blocks of 64 bytes as both hashes want it: a bit 1, zeros, the length in bits.
template <bool kBigEndian, class F>
void for_each_block(Text s, F&& f) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(s.data());
  size_t at = 0;
  for (; at + 64 <= s.size(); at += 64) f(bytes + at);
  std::array<uint8_t, 128> tail{};
  const size_t rest = s.size() - at;
  std::copy_n(bytes + at, rest, tail.begin());
  tail[rest] = 0x80;
  const size_t size = rest + 9 <= 64 ? 64 : 128;
  const uint64_t bits = static_cast<uint64_t>(s.size()) * 8;
  for (size_t i = 0; i < 8; ++i) {
    const size_t shift = 8 * (kBigEndian ? 7 - i : i);
    tail[size - 8 + i] = static_cast<uint8_t>(bits >> shift);
  }
  f(tail.data());
  if (size == 128) f(tail.data() + 64);
}

template <size_t N, bool kBigEndian>
void append_words(StringWriter& out, const std::array<uint32_t, N>& words) {
  for (uint32_t word : words) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t byte = word >> (8 * (kBigEndian ? 3 - i : i)) & 0xFF;
      out.append("0123456789abcdef"[byte >> 4]);
      out.append("0123456789abcdef"[byte & 15]);
    }
  }
}

/// RFC 1321.
struct Md5 {
  static void body(StringWriter& out, Text s) {
    static constexpr std::array<uint32_t, 64> kSines = {
        0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
        0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
        0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
        0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
        0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
        0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
        0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
        0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
    static constexpr int kShifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    std::array<uint32_t, 4> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    for_each_block<false>(s, [&](const uint8_t* block) {
      std::array<uint32_t, 16> words;
      for (size_t i = 0; i < 16; ++i) {
        words[i] = block[4 * i] | block[4 * i + 1] << 8 | block[4 * i + 2] << 16 |
                   static_cast<uint32_t>(block[4 * i + 3]) << 24;
      }
      auto [a, b, c, d] = state;
      for (uint32_t i = 0; i < 64; ++i) {
        const uint32_t round = i / 16;
        uint32_t mixed = 0, word = 0;
        if (round == 0) mixed = (b & c) | (~b & d), word = i;
        if (round == 1) mixed = (d & b) | (~d & c), word = (5 * i + 1) % 16;
        if (round == 2) mixed = b ^ c ^ d, word = (3 * i + 5) % 16;
        if (round == 3) mixed = c ^ (b | ~d), word = 7 * i % 16;
        const uint32_t sum = a + mixed + kSines[i] + words[word];
        a = d;
        d = c;
        c = b;
        b += std::rotl(sum, kShifts[round][i % 4]);
      }
      state[0] += a;
      state[1] += b;
      state[2] += c;
      state[3] += d;
    });
    append_words<4, false>(out, state);
  }
};

/// FIPS 180-4.
struct Sha256 {
  static void body(StringWriter& out, Text s) {
    static constexpr std::array<uint32_t, 64> kPrimes = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for_each_block<true>(s, [&](const uint8_t* block) {
      std::array<uint32_t, 64> w;
      for (size_t i = 0; i < 16; ++i) {
        w[i] = static_cast<uint32_t>(block[4 * i]) << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 |
               block[4 * i + 3];
      }
      for (size_t i = 16; i < 64; ++i) {
        const uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3) + w[i - 7] +
               (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10);
      }
      auto [a, b, c, d, e, f, g, h] = state;
      for (size_t i = 0; i < 64; ++i) {
        const uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                               ((e & f) ^ (~e & g)) + kPrimes[i] + w[i];
        const uint32_t second =
            (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
      }
      const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
      for (size_t i = 0; i < 8; ++i) state[i] += added[i];
    });
    append_words<8, true>(out, state);
  }
};

Function text_function(const char* name, std::vector<std::string> aliases, const char* doc,
                       std::vector<Example> examples, std::vector<Binding> overloads) {
  Function f = overloaded_function(name, std::move(aliases), doc, std::move(examples), std::move(overloads));
  if (f.overloads[0].result->id() == arrow::Type::INT64) f.bound = not_negative;
  return f;
}

}  // namespace

MILLSTREAM_FUNCTION(string_distance) {
  return define(
      text_function(
          "levenshtein", {"editdist3"},
          "How many characters must be inserted, deleted or replaced to come from one text to the other.",
          {{"levenshtein('duck', 'db')", "3"}}, {overload<EditDistance<false>, Text, Text>()}),
      text_function("damerau_levenshtein", {},
                    "As levenshtein, where neighbours that changed places count one.",
                    {{"damerau_levenshtein('ab', 'ba')", "1"}}, {overload<EditDistance<true>, Text, Text>()}),
      text_function("hamming", {"mismatches"}, "At how many places two texts of one length differ.",
                    {{"hamming('abc', 'axc')", "1"}}, {overload<Mismatches, Text, Text>()}),
      text_function("jaccard", {}, "Of the different characters of both texts, which part both have.",
                    {{"jaccard('abc', 'abd')", "0.5"}}, {overload<Jaccard, Text, Text>()}),
      text_function("md5", {}, "The MD5 hash as hexadecimal digits.",
                    {{"md5('abc')", "900150983cd24fb0d6963f7d28e17f72"}}, {overload<Md5, Text>()}),
      text_function("sha256", {}, "The SHA-256 hash as hexadecimal digits.",
                    {{"left(sha256('abc'), 16)", "ba7816bf8f01cfea"}}, {overload<Sha256, Text>()}));
}

}  // namespace millstream::functions
