// The block codecs' kernels for AVX-512 F + BW, 32 numbers at a time. They follow block_avx2.cpp step by step; tests
// compare them with the reference only where the CPU has the instructions.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's header leaves the lanes that an unmasked instruction never reads undefined by initialising a variable with
// itself, and warns of it where it is inlined.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "ballast/codec/block_kernels.h"

#define BALLAST_AVX512 __attribute__((target("avx512f,avx512bw,avx2,fma")))
#define BALLAST_AVX512_INLINE __attribute__((target("avx512f,avx512bw,avx2,fma"), always_inline)) inline

namespace ballast {

namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kFetchAhead = 1024;  // numbers; past the end of the run it does no harm

// Prefetchers of CPUs stop at every page, and the work between two reads is long. Of the two lines that 32 numbers
// take, the range fetches the first, and the codes, which follow a block at a time, the second: so requests to memory
// are spread over all of the time.
BALLAST_AVX512_INLINE void fetch_ahead(const float* source, int line) {
  _mm_prefetch(reinterpret_cast<const char*>(source + kFetchAhead) + 64 * line, _MM_HINT_T0);
}

struct Seen {
  __m512i magnitude;
  __m512 low, high;
};
template <bool symmetric>
BALLAST_AVX512_INLINE void see(const float* source, Seen& seen) {
  const __m512 x = _mm512_loadu_ps(source);
  const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
  seen.magnitude = _mm512_max_epu32(seen.magnitude, magnitude);
  if (symmetric) return;
  seen.low = _mm512_min_ps(seen.low, x);
  seen.high = _mm512_max_ps(seen.high, x);
}

template <bool symmetric>
BALLAST_AVX512 BlockRange range(const float* source, int64_t elements) {
  if (elements == 0) return {};
  // Two chains hide the latency.
  Seen a{_mm512_setzero_si512(), _mm512_set1_ps(source[0]), _mm512_set1_ps(source[0])}, b = a;
  int64_t i = 0;
  for (; i + kGroup <= elements; i += kGroup) {
    fetch_ahead(source + i, 0);
    see<symmetric>(source + i, a);
    see<symmetric>(source + i + 16, b);
  }
  if (i < elements) {
    float group[kGroup];
    for (int64_t k = 0; k < kGroup; ++k) group[k] = source[i + k < elements ? i + k : i];
    see<symmetric>(group, a);
    see<symmetric>(group + 16, b);
  }
  BlockRange range;
  range.magnitude = _mm512_reduce_max_epu32(_mm512_max_epu32(a.magnitude, b.magnitude));
  if (!symmetric) {
    range.low = _mm512_reduce_min_ps(_mm512_min_ps(a.low, b.low));
    range.high = _mm512_reduce_max_ps(_mm512_max_ps(a.high, b.high));
  }
  return range;
}

struct Rounding {
  __m512 base, inverse;  // stochastic: the inverse in units
  __m512i seed2;
};

template <bool symmetric>
BALLAST_AVX512_INLINE __m512 offset16(const float* source, const Rounding& rounding) {
  const __m512 value = _mm512_loadu_ps(source);
  return symmetric ? value : _mm512_sub_ps(value, rounding.base);
}

// The codes of 16 numbers as bytes, in order.
template <bool symmetric>
BALLAST_AVX512_INLINE __m128i nearest16(const float* source, const Rounding& rounding) {
  return _mm512_cvtepi32_epi8(
      _mm512_cvtps_epi32(_mm512_mul_ps(offset16<symmetric>(source, rounding), rounding.inverse)));
}
template <int bits, bool symmetric>
BALLAST_AVX512_INLINE __m128i stochastic16(const float* source, const Rounding& rounding, __m512i units) {
  const __m512i origin = _mm512_castps_si512(_mm512_set1_ps(draw_origin(symmetric)));
  const __m512 sum = _mm512_fmadd_ps(offset16<symmetric>(source, rounding), rounding.inverse,
                                     _mm512_castsi512_ps(_mm512_or_si512(units, origin)));
  const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_castps_si512(sum), unit_bits(bits)));
  return bits == 8 && symmetric ? _mm_xor_si128(bytes, _mm_set1_epi8(-0x80)) : bytes;  // the origin's bit 22
}

// The mixes whose lower bits serve 16 numbers and whose upper bits the 16 that follow; `weyl` holds counters times
// kDrawStride plus the first seed.
BALLAST_AVX512_INLINE __m512i mixed(const Rounding& rounding, __m512i weyl) {
  __m512i x =
      _mm512_mullo_epi32(_mm512_xor_si512(weyl, _mm512_srli_epi32(weyl, 16)), _mm512_set1_epi32(kDrawMultiplier1));
  x = _mm512_add_epi32(x, rounding.seed2);
  return _mm512_mullo_epi32(_mm512_xor_si512(x, _mm512_srli_epi32(x, 15)),
                            _mm512_set1_epi32(static_cast<int32_t>(kDrawMultiplier2)));
}

template <int bits, bool symmetric, bool stochastic>
BALLAST_AVX512_INLINE void code32(const float* source, const Rounding& rounding, __m512i weyl, uint8_t* data) {
  __m128i first, second;
  if (stochastic) {
    constexpr int unit = unit_bits(bits);
    const __m512i mix = mixed(rounding, weyl);
    const __m512i lower = _mm512_xor_si512(mix, _mm512_srli_epi32(mix, 16));
    const __m512i low = _mm512_and_si512(lower, _mm512_set1_epi32((1 << unit) - 1));
    first = stochastic16<bits, symmetric>(source, rounding, low);
    second = stochastic16<bits, symmetric>(source + 16, rounding, _mm512_srli_epi32(mix, 32 - unit));
  } else {
    first = nearest16<symmetric>(source, rounding);
    second = nearest16<symmetric>(source + 16, rounding);
  }
  if (bits == 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(data), first);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(data + 16), second);
  } else {
    // Pairs (even, odd) become even + 16 * odd.
    const __m128i mask = _mm_set1_epi8(0xf), weights = _mm_set1_epi16(0x1001);
    const __m128i low = _mm_maddubs_epi16(_mm_and_si128(first, mask), weights);
    const __m128i high = _mm_maddubs_epi16(_mm_and_si128(second, mask), weights);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(data), _mm_packus_epi16(low, high));
  }
}

template <int bits, bool symmetric, bool stochastic>
BALLAST_AVX512 void codes(const float* source, int64_t elements, const BlockScale& scale, DrawSeed seed,
                          uint32_t counter, uint8_t* data) {
  const Rounding rounding{_mm512_set1_ps(scale.base),
                          _mm512_set1_ps(stochastic ? scale.inverse * units_in_step(bits) : scale.inverse),
                          _mm512_set1_epi32(static_cast<int32_t>(seed.second))};
  const __m512i counters = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int32_t>(counter)),
                                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m512i weyl = _mm512_add_epi32(_mm512_mullo_epi32(counters, _mm512_set1_epi32(static_cast<int32_t>(kDrawStride))),
                                  _mm512_set1_epi32(static_cast<int32_t>(seed.first)));
  int64_t i = 0;
  for (; i + kGroup <= elements; i += kGroup) {
    fetch_ahead(source + i, 1);
    code32<bits, symmetric, stochastic>(source + i, rounding, weyl, data + i * bits / 8);
    weyl = _mm512_add_epi32(weyl, _mm512_set1_epi32(static_cast<int32_t>(kGroup * kDrawStride)));
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

enum class Into { Set, Add, Stream };

template <bool symmetric, Into into>
BALLAST_AVX512_INLINE void value16(__m128i codes, __m512 base, __m512 step, float* result) {
  const __m512i wide = symmetric ? _mm512_cvtepi8_epi32(codes) : _mm512_cvtepu8_epi32(codes);
  const __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(wide), step, base);
  if (into == Into::Set) _mm512_storeu_ps(result, value);
  if (into == Into::Add) _mm512_storeu_ps(result, _mm512_add_ps(_mm512_loadu_ps(result), value));
  if (into == Into::Stream) {  // in halves: the result's alignment is that of AVX2
    _mm256_stream_ps(result, _mm512_castps512_ps256(value));
    _mm256_stream_ps(result + 8, _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(value), 1)));
  }
}

template <int bits, bool symmetric, Into into>
BALLAST_AVX512_INLINE void values32(const uint8_t* data, __m512 base, __m512 step, float* result) {
  __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data)), second;
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
  value16<symmetric, into>(first, base, step, result);
  value16<symmetric, into>(second, base, step, result + 16);
}

template <int bits, bool symmetric, Into into>
BALLAST_AVX512 void values(const uint8_t* data, int64_t elements, float base, float step, float* result) {
  const __m512 bases = _mm512_set1_ps(base), steps = _mm512_set1_ps(step);
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
  return {"avx512",
          range<symmetric>,
          stochastic ? codes<bits, symmetric, true> : codes<bits, symmetric, false>,
          values<bits, symmetric, Into::Set>,
          values<bits, symmetric, Into::Add>,
          values<bits, symmetric, Into::Stream>,
          stream_end};
}

}  // namespace

bool has_avx512_block_kernels() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

BlockKernels avx512_block_kernels(const CodecSpec& spec) {
  if (spec.name == "int8")
    return spec.symmetric ? kernels<8, true>(spec.stochastic) : kernels<8, false>(spec.stochastic);
  return spec.symmetric ? kernels<4, true>(spec.stochastic) : kernels<4, false>(spec.stochastic);
}

}  // namespace ballast
#endif
