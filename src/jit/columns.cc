#include "jit/columns.h"

#include <bit>
#include <cstring>

#include "expr/kernel.h"
#include "expr/selection.h"

namespace millstream::jit {

namespace {

#ifdef __AVX2__
/// The build is for machines without it; most have it.
bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return has;
}
[[gnu::target("avx512f,avx512bw")]] void pack_words_avx512(const uint8_t* bytes, int64_t count,
                                                           uint64_t* words) {
  for (int64_t w = 0; w < count; ++w) {
    const __m512i whole = _mm512_loadu_si512(bytes + 64 * w);
    words[w] = _mm512_test_epi8_mask(whole, whole);
  }
}
[[gnu::target("avx512f,avx512bw")]] void expand_words_avx512(const expr::BitReader& reader, int64_t count,
                                                             uint8_t* bytes) {
  for (int64_t w = 0; w < count; ++w)
    _mm512_storeu_si512(bytes + 64 * w, _mm512_maskz_mov_epi8(reader.word(w), _mm512_set1_epi8(1)));
}
#endif

}  // namespace

void expand_bits(const uint8_t* bits, int64_t offset, int64_t rows, uint8_t* bytes) {
  const expr::BitReader reader(bits, offset, rows);
  int64_t first = 0;
#ifdef __AVX2__
  if (has_avx512()) {
    expand_words_avx512(reader, rows / 64, bytes);
    first = rows / 64 * 64;
  }
#endif
  for (; first < rows; first += 64) {
    const uint64_t word = reader.word(first / 64);
    const int64_t count = std::min<int64_t>(64, rows - first);
    alignas(32) uint8_t made[64];
    uint8_t* out = count == 64 ? bytes + first : made;
#ifdef __AVX2__
    const __m256i select = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ull));
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                            2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    for (int half = 0; half < 2; ++half) {
      const __m256i four = _mm256_set1_epi32(static_cast<int32_t>(word >> (32 * half)));
      const __m256i set =
          _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(four, spread), select), select);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * half),
                          _mm256_and_si256(set, _mm256_set1_epi8(1)));
    }
#else
    for (int j = 0; j < 64; ++j) out[j] = word >> j & 1;
#endif
    if (count < 64) std::memcpy(bytes + first, made, static_cast<size_t>(count));
  }
}

void pack_bytes(const uint8_t* bytes, int64_t rows, uint64_t* words) {
  alignas(32) uint8_t whole[64];
  int64_t first = 0;
#ifdef __AVX2__
  if (has_avx512()) {
    pack_words_avx512(bytes, rows / 64, words);
    first = rows / 64 * 64;
  }
#endif
  for (; first + 64 <= rows; first += 64) {
    std::memcpy(whole, bytes + first, 64);
    words[first / 64] = expr::pack_bits(whole);
  }
  if (first == rows) return;
  std::memset(whole, 0, sizeof whole);
  std::memcpy(whole, bytes + first, static_cast<size_t>(rows - first));
  words[first / 64] = expr::pack_bits(whole);
}

int64_t select_rows(const uint64_t* words, int64_t count, int32_t* out) {
  int64_t found = 0;
  for (int64_t w = 0; w < count; ++w) {
    const auto first = static_cast<int32_t>(64 * w);
    uint64_t word = words[w];
    if (word == ~uint64_t{0}) {
      for (int32_t j = 0; j < 64; ++j) out[found + j] = first + j;
      found += 64;
      continue;
    }
    for (; word; word &= word - 1) out[found++] = first + std::countr_zero(word);
  }
  return found;
}

void spread_rows(const float* columns, int64_t column_stride, int64_t width, int64_t count, float* rows,
                 int64_t stride) {
  int64_t c = 0;
#ifdef __AVX2__
  for (; c + 8 <= width; c += 8) {  // squares of eight by eight
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
      __m256 in[8], pairs[8], fours[8];
      for (int k = 0; k < 8; ++k) in[k] = _mm256_loadu_ps(columns + (c + k) * column_stride + i);
      for (int k = 0; k < 4; ++k) {
        pairs[2 * k] = _mm256_unpacklo_ps(in[2 * k], in[2 * k + 1]);
        pairs[2 * k + 1] = _mm256_unpackhi_ps(in[2 * k], in[2 * k + 1]);
      }
      for (int k = 0; k < 2; ++k) {
        fours[4 * k] = _mm256_shuffle_ps(pairs[4 * k], pairs[4 * k + 2], 0x44);
        fours[4 * k + 1] = _mm256_shuffle_ps(pairs[4 * k], pairs[4 * k + 2], 0xEE);
        fours[4 * k + 2] = _mm256_shuffle_ps(pairs[4 * k + 1], pairs[4 * k + 3], 0x44);
        fours[4 * k + 3] = _mm256_shuffle_ps(pairs[4 * k + 1], pairs[4 * k + 3], 0xEE);
      }
      for (int k = 0; k < 4; ++k) {
        _mm256_storeu_ps(rows + (i + k) * stride + c, _mm256_permute2f128_ps(fours[k], fours[4 + k], 0x20));
        _mm256_storeu_ps(rows + (i + 4 + k) * stride + c,
                         _mm256_permute2f128_ps(fours[k], fours[4 + k], 0x31));
      }
    }
    for (; i < count; ++i) {
      for (int64_t k = c; k < c + 8; ++k) rows[i * stride + k] = columns[k * column_stride + i];
    }
  }
#endif
  for (; c < width; ++c) {
    for (int64_t i = 0; i < count; ++i) rows[i * stride + c] = columns[c * column_stride + i];
  }
}

ChunkReader::ChunkReader(const arrow::ArrayData& data, Machine machine, bool with_validity)
    : machine_(machine),
      width_(width_of(machine)),
      values_(data.buffers[1] ? data.buffers[1]->data() : nullptr),
      validity_(with_validity ? expr::validity_of(data) : nullptr),
      offset_(data.offset) {
  if (machine == Machine::kText) {
    if (values_) values_ += offset_ * int64_t{sizeof(int32_t)};
    text_bytes_ = data.buffers[2] ? reinterpret_cast<const char*>(data.buffers[2]->data()) : "";
  } else if (machine != Machine::kBool && values_) {
    values_ += offset_ * width_;
  }
}

int64_t ChunkReader::value_scratch(int64_t rows, bool selected) const {
  const bool made = selected || machine_ == Machine::kBool;
  return made ? (rows * width_ + 63) / 64 * 64 : 0;
}

namespace {

template <class T>
void gather_values(const uint8_t* values, const int32_t* selected, int64_t count, uint8_t* scratch) {
  const T* in = reinterpret_cast<const T*>(values);
  T* out = reinterpret_cast<T*>(scratch);
  for (int64_t i = 0; i < count; ++i) out[i] = in[selected[i]];
}

}  // namespace

const void* ChunkReader::values(int64_t first, const int32_t* selected, int64_t count,
                                uint8_t* scratch) const {
  if (machine_ == Machine::kBool) {
    if (selected) {
      for (int64_t i = 0; i < count; ++i)
        scratch[i] = arrow::bit_util::GetBit(values_, offset_ + selected[i]);
    } else {
      expand_bits(values_, offset_ + first, count, scratch);
    }
    return scratch;
  }
  if (machine_ == Machine::kText) return values_ + first * int64_t{sizeof(int32_t)};
  if (!selected) return values_ + first * width_;
  struct Wide {
    uint64_t words[2];
  };
  switch (width_) {
    case 1:
      gather_values<uint8_t>(values_, selected, count, scratch);
      break;
    case 2:
      gather_values<uint16_t>(values_, selected, count, scratch);
      break;
    case 4:
      gather_values<uint32_t>(values_, selected, count, scratch);
      break;
    case 8:
      gather_values<uint64_t>(values_, selected, count, scratch);
      break;
    default:
      gather_values<Wide>(values_, selected, count, scratch);
  }
  return scratch;
}

const uint8_t* ChunkReader::validity(int64_t first, const int32_t* selected, int64_t count,
                                     uint8_t* scratch) const {
  if (!validity_) {
    std::memset(scratch, 1, static_cast<size_t>(count));
  } else if (selected) {
    for (int64_t i = 0; i < count; ++i)
      scratch[i] = arrow::bit_util::GetBit(validity_, offset_ + selected[i]);
  } else {
    expand_bits(validity_, offset_ + first, count, scratch);
  }
  return scratch;
}

}  // namespace millstream::jit
