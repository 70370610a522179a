// The block codecs' kernels for AVX2 + FMA, 32 numbers at a time; what is left over goes through a filled group.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "ballast/codec/block_kernels.h"

#define BALLAST_AVX2 __attribute__((target("avx2,fma")))
#define BALLAST_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

namespace ballast {

namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kFetchAhead = 1024;  // numbers; past the end of the run it does no harm

BALLAST_AVX2_INLINE uint32_t horizontal_max(__m256i values) {
  __m128i half = _mm_max_epu32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(half));
}
BALLAST_AVX2_INLINE float horizontal_min(__m256 values) {
  __m128 half = _mm_min_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
  half = _mm_min_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_min_ss(half, _mm_movehdup_ps(half)));
}

// Prefetchers of CPUs stop at every page, and the work between two reads is long. Of the two lines that 32 numbers
// take, the range fetches the first, and the codes, which follow a block at a time, the second: so requests to memory
// are spread over all of the time.
BALLAST_AVX2_INLINE void fetch_ahead(const float* source, int line) {
  _mm_prefetch(reinterpret_cast<const char*>(source + kFetchAhead) + 64 * line, _MM_HINT_T0);
}

struct Seen {
  __m256i magnitude;
  __m256 low, minus_high;
};
template <bool symmetric>
BALLAST_AVX2_INLINE void see(const float* source, Seen& seen) {
  const __m256 x = _mm256_loadu_ps(source);
  const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
  seen.magnitude = _mm256_max_epu32(seen.magnitude, magnitude);
  if (symmetric) return;
  seen.low = _mm256_min_ps(seen.low, x);
  seen.minus_high = _mm256_min_ps(seen.minus_high, _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
}

template <bool symmetric>
BALLAST_AVX2 BlockRange range(const float* source, int64_t elements) {
  if (elements == 0) return {};
  // Four chains hide the latency; written out, since arrays of registers live in memory unless their loops are
  // unrolled.
  Seen a{_mm256_setzero_si256(), _mm256_set1_ps(source[0]), _mm256_set1_ps(-source[0])}, b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + kGroup <= elements; i += kGroup) {
    fetch_ahead(source + i, 0);
    see<symmetric>(source + i, a);
    see<symmetric>(source + i + 8, b);
    see<symmetric>(source + i + 16, c);
    see<symmetric>(source + i + 24, d);
  }
  if (i < elements) {
    float group[kGroup];
    for (int64_t k = 0; k < kGroup; ++k) group[k] = source[i + k < elements ? i + k : i];
    for (int64_t k = 0; k < kGroup; k += 8) see<symmetric>(group + k, a);
  }
  BlockRange range;
  range.magnitude = horizontal_max(
      _mm256_max_epu32(_mm256_max_epu32(a.magnitude, b.magnitude), _mm256_max_epu32(c.magnitude, d.magnitude)));
  if (!symmetric) {
    range.low = horizontal_min(_mm256_min_ps(_mm256_min_ps(a.low, b.low), _mm256_min_ps(c.low, d.low)));
    range.high = -horizontal_min(
        _mm256_min_ps(_mm256_min_ps(a.minus_high, b.minus_high), _mm256_min_ps(c.minus_high, d.minus_high)));
  }
  return range;
}

struct Rounding {
  __m256 base, inverse;  // stochastic: the inverse in units
  __m256i seed2;
};

template <bool symmetric>
BALLAST_AVX2_INLINE __m256 offset8(const float* source, const Rounding& rounding) {
  const __m256 value = _mm256_loadu_ps(source);
  return symmetric ? value : _mm256_sub_ps(value, rounding.base);
}

// The codes of 32 numbers as bytes, in order.
template <bool symmetric>
BALLAST_AVX2_INLINE __m256i nearest32(const float* source, const Rounding& rounding) {
  const auto part = [&](int k) __attribute__((target("avx2,fma"), always_inline)) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(offset8<symmetric>(source + k, rounding), rounding.inverse));
  };
  const __m256i a = _mm256_packs_epi32(part(0), part(8)), b = _mm256_packs_epi32(part(16), part(24));
  const __m256i bytes = symmetric ? _mm256_packs_epi16(a, b) : _mm256_packus_epi16(a, b);
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// The mixes whose lower bits serve 8 numbers and whose upper bits the 8 that lie 16 later; `weyl` holds counters times
// kDrawStride plus the first seed.
BALLAST_AVX2_INLINE __m256i mixed(const Rounding& rounding, __m256i weyl) {
  __m256i x =
      _mm256_mullo_epi32(_mm256_xor_si256(weyl, _mm256_srli_epi32(weyl, 16)), _mm256_set1_epi32(kDrawMultiplier1));
  x = _mm256_add_epi32(x, rounding.seed2);
  return _mm256_mullo_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 15)),
                            _mm256_set1_epi32(static_cast<int32_t>(kDrawMultiplier2)));
}

// Of 8 numbers from `source` and the 8 that lie 16 later: in each 32 bits, the code of the one in the lowest byte and
// that of the other in the third. The bytes between hold what is left of the origin.
template <int bits, bool symmetric>
BALLAST_AVX2_INLINE __m256i stochastic8_and_8(const float* source, const Rounding& rounding, __m256i weyl) {
  constexpr int unit = unit_bits(bits);
  const __m256i mix = mixed(rounding, weyl), origin = _mm256_castps_si256(_mm256_set1_ps(draw_origin(symmetric)));
  const __m256i lower = _mm256_xor_si256(mix, _mm256_srli_epi32(mix, 16));
  const __m256i low = unit == 16 ? _mm256_blend_epi16(lower, origin, 0xaa)
                                 : _mm256_or_si256(_mm256_and_si256(lower, _mm256_set1_epi32((1 << unit) - 1)), origin);
  const __m256i high = _mm256_or_si256(_mm256_srli_epi32(mix, 32 - unit), origin);
  const auto sum = [&](int k, __m256i start) __attribute__((target("avx2,fma"), always_inline)) {
    return _mm256_castps_si256(
        _mm256_fmadd_ps(offset8<symmetric>(source + k, rounding), rounding.inverse, _mm256_castsi256_ps(start)));
  };
  const __m256i first = sum(0, low), second = sum(16, high);
  return _mm256_blend_epi16(_mm256_srli_epi32(first, unit), _mm256_slli_epi32(second, 16 - unit), 0xaa);
}

// The codes of 32 numbers as bytes: each 32 bits hold those of numbers k, k + 8, k + 16 and k + 24. A code of 4 bits is
// the lower half of its byte.
template <int bits, bool symmetric>
BALLAST_AVX2_INLINE __m256i stochastic32(const float* source, const Rounding& rounding, __m256i weyl) {
  const __m256i after8 = _mm256_add_epi32(weyl, _mm256_set1_epi32(static_cast<int32_t>(8 * kDrawStride)));
  const __m256i even = stochastic8_and_8<bits, symmetric>(source, rounding, weyl);
  const __m256i odd = stochastic8_and_8<bits, symmetric>(source + 8, rounding, after8);
  const __m256i bytes = _mm256_blendv_epi8(even, _mm256_slli_epi16(odd, 8), _mm256_set1_epi16(-0x100));
  return bits == 8 && symmetric ? _mm256_xor_si256(bytes, _mm256_set1_epi8(-0x80)) : bytes;  // the origin's bit 22
}

template <int bits>
BALLAST_AVX2_INLINE void store32(uint8_t* data, __m256i codes) {
  if (bits == 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(data), codes);
  } else {
    // Pairs (even, odd) become even + 16 * odd.
    const __m256i nibbles = _mm256_and_si256(codes, _mm256_set1_epi8(0xf));
    const __m256i pairs = _mm256_maddubs_epi16(nibbles, _mm256_set1_epi16(0x1001));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(data), _mm256_castsi256_si128(packed));
  }
}

// As store32, of bytes as stochastic32 gives them.
template <int bits>
BALLAST_AVX2_INLINE void store_transposed32(uint8_t* data, __m256i codes) {
  if (bits == 8) {
    const __m256i gather = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                            0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i fours = _mm256_shuffle_epi8(codes, gather);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(data),
                        _mm256_permutevar8x32_epi32(fours, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  } else {
    // Neighbours lie 32 bits apart.
    const __m256i nibbles = _mm256_and_si256(codes, _mm256_set1_epi8(0xf));
    const __m256i pairs = _mm256_or_si256(nibbles, _mm256_srli_epi64(nibbles, 28));
    const __m256i gather = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                            0, 8, 1, 9, 2, 10, 3, 11, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i fours = _mm256_shuffle_epi8(pairs, gather);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(data),
                     _mm_unpacklo_epi16(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1)));
  }
}

template <int bits, bool symmetric, bool stochastic>
BALLAST_AVX2_INLINE void code32(const float* source, const Rounding& rounding, __m256i weyl, uint8_t* data) {
  if (stochastic) {
    store_transposed32<bits>(data, stochastic32<bits, symmetric>(source, rounding, weyl));
  } else {
    store32<bits>(data, nearest32<symmetric>(source, rounding));
  }
}

template <int bits, bool symmetric, bool stochastic>
BALLAST_AVX2 void codes(const float* source, int64_t elements, const BlockScale& scale, DrawSeed seed, uint32_t counter,
                        uint8_t* data) {
  const Rounding rounding{_mm256_set1_ps(scale.base),
                          _mm256_set1_ps(stochastic ? scale.inverse * units_in_step(bits) : scale.inverse),
                          _mm256_set1_epi32(static_cast<int32_t>(seed.second))};
  const __m256i counters =
      _mm256_add_epi32(_mm256_set1_epi32(static_cast<int32_t>(counter)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i weyl = _mm256_add_epi32(_mm256_mullo_epi32(counters, _mm256_set1_epi32(static_cast<int32_t>(kDrawStride))),
                                  _mm256_set1_epi32(static_cast<int32_t>(seed.first)));
  int64_t i = 0;
  for (; i + kGroup <= elements; i += kGroup) {
    fetch_ahead(source + i, 1);
    code32<bits, symmetric, stochastic>(source + i, rounding, weyl, data + i * bits / 8);
    weyl = _mm256_add_epi32(weyl, _mm256_set1_epi32(static_cast<int32_t>(kGroup * kDrawStride)));
  }
  if (i < elements) {
    float group[kGroup] = {};
    uint8_t packed[kGroup];
    std::memcpy(group, source + i, static_cast<size_t>(elements - i) * 4);
    code32<bits, symmetric, stochastic>(group, rounding, weyl, packed);
    const int64_t bytes = code_bytes(bits, elements - i);
    if (bits == 4 && elements % 2 == 1) packed[bytes - 1] &= 0xf;
    std::memcpy(data + i * bits / 8, packed, static_cast<size_t>(bytes));
  }
}

template <int bits, bool symmetric>
BALLAST_AVX2_INLINE void load32(const uint8_t* data, __m128i& first, __m128i& second) {
  first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
  if (bits == 8) {
    second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16));
  } else {
    const __m128i mask = _mm_set1_epi8(0xf), eight = _mm_set1_epi8(8);
    __m128i even = _mm_and_si128(first, mask), odd = _mm_and_si128(_mm_srli_epi16(first, 4), mask);
    if (symmetric) {
      even = _mm_sub_epi8(_mm_xor_si128(even, eight), eight);
      odd = _mm_sub_epi8(_mm_xor_si128(odd, eight), eight);
    }
    first = _mm_unpacklo_epi8(even, odd);
    second = _mm_unpackhi_epi8(even, odd);
  }
}

enum class Into { Set, Add, Stream };

template <Into into>
BALLAST_AVX2_INLINE void put8(float* result, __m256 value) {
  if (into == Into::Set) _mm256_storeu_ps(result, value);
  if (into == Into::Add) _mm256_storeu_ps(result, _mm256_add_ps(_mm256_loadu_ps(result), value));
  if (into == Into::Stream) _mm256_stream_ps(result, value);
}

template <bool symmetric>
BALLAST_AVX2_INLINE __m256 value8(__m128i codes, __m256 base, __m256 step) {
  const __m256i wide = symmetric ? _mm256_cvtepi8_epi32(codes) : _mm256_cvtepu8_epi32(codes);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide), step, base);
}

template <int bits, bool symmetric, Into into>
BALLAST_AVX2_INLINE void values32(const uint8_t* data, __m256 base, __m256 step, float* result) {
  __m128i first, second;
  load32<bits, symmetric>(data, first, second);
  put8<into>(result, value8<symmetric>(first, base, step));
  put8<into>(result + 8, value8<symmetric>(_mm_srli_si128(first, 8), base, step));
  put8<into>(result + 16, value8<symmetric>(second, base, step));
  put8<into>(result + 24, value8<symmetric>(_mm_srli_si128(second, 8), base, step));
}

template <int bits, bool symmetric, Into into>
BALLAST_AVX2 void values(const uint8_t* data, int64_t elements, float base, float step, float* result) {
  const __m256 bases = _mm256_set1_ps(base), steps = _mm256_set1_ps(step);
  int64_t i = 0;
  for (; i + kGroup <= elements; i += kGroup) {
    values32<bits, symmetric, into>(data + i * bits / 8, bases, steps, result + i);
  }
  if (i < elements) {
    uint8_t packed[kGroup] = {};
    float group[kGroup] = {};
    const size_t bytes = static_cast<size_t>(elements - i) * 4;
    std::memcpy(packed, data + i * bits / 8, static_cast<size_t>(code_bytes(bits, elements - i)));
    if (into == Into::Add) std::memcpy(group, result + i, bytes);
    values32<bits, symmetric, into == Into::Add ? Into::Add : Into::Set>(packed, bases, steps, group);
    std::memcpy(result + i, group, bytes);
  }
}

void stream_end() { _mm_sfence(); }

template <int bits, bool symmetric>
BlockKernels kernels(bool stochastic) {
  return {"avx2",
          range<symmetric>,
          stochastic ? codes<bits, symmetric, true> : codes<bits, symmetric, false>,
          values<bits, symmetric, Into::Set>,
          values<bits, symmetric, Into::Add>,
          values<bits, symmetric, Into::Stream>,
          stream_end};
}

}  // namespace

bool has_avx2_block_kernels() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

BlockKernels avx2_block_kernels(const CodecSpec& spec) {
  if (spec.name == "int8")
    return spec.symmetric ? kernels<8, true>(spec.stochastic) : kernels<8, false>(spec.stochastic);
  return spec.symmetric ? kernels<4, true>(spec.stochastic) : kernels<4, false>(spec.stochastic);
}

}  // namespace ballast
#endif
