// Array kernels of half.h. The vector bodies take whole groups of eight; the scalar reference finishes the rest.
#include "ballast/codec/half.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define BALLAST_AVX2 __attribute__((target("avx2,f16c")))
#endif

namespace ballast {

namespace {

uint16_t load_half(const void* encoded, int64_t index) {
  uint16_t half;
  std::memcpy(&half, static_cast<const char*>(encoded) + index * 2, 2);
  return half;
}
void store_half(void* encoded, int64_t index, uint16_t half) {
  std::memcpy(static_cast<char*>(encoded) + index * 2, &half, 2);
}

#if defined(__x86_64__)
bool has_avx2() {
  // Not every compiler's __builtin_cpu_supports knows f16c.
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return has;
}

BALLAST_AVX2 __m256i bf16_bits(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}

BALLAST_AVX2 int64_t encode_bf16_avx2(const float* source, int64_t elements, void* encoded) {
  int64_t i = 0;
  for (; i + 16 <= elements; i += 16) {
    const __m256i a = bf16_bits(_mm256_loadu_ps(source + i)), b = bf16_bits(_mm256_loadu_ps(source + i + 8));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<char*>(encoded) + i * 2), packed);
  }
  return i;
}

struct Bf16 {
  BALLAST_AVX2 static __m256 load(const void* encoded, int64_t i) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(encoded) + i * 2));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};
struct Fp16 {
  BALLAST_AVX2 static __m256 load(const void* encoded, int64_t i) {
    return _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(encoded) + i * 2)));
  }
};
struct Fp32 {
  BALLAST_AVX2 static __m256 load(const void* encoded, int64_t i) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(static_cast<const char*>(encoded) + i * 4));
  }
};

BALLAST_AVX2 int64_t encode_fp16_avx2(const float* source, int64_t elements, void* encoded) {
  int64_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<char*>(encoded) + i * 2),
                     _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

template <class Format>
BALLAST_AVX2 int64_t decode_avx2(const void* encoded, int64_t elements, float* result) {
  int64_t i = 0;
  for (; i + 8 <= elements; i += 8) _mm256_storeu_ps(result + i, Format::load(encoded, i));
  return i;
}

template <class Format>
BALLAST_AVX2 int64_t decode_add_avx2(const void* encoded, int64_t elements, float* result) {
  int64_t i = 0;
  for (; i + 16 <= elements; i += 16) {
    const __m256 a = _mm256_add_ps(_mm256_loadu_ps(result + i), Format::load(encoded, i));
    const __m256 b = _mm256_add_ps(_mm256_loadu_ps(result + i + 8), Format::load(encoded, i + 8));
    _mm256_storeu_ps(result + i, a);
    _mm256_storeu_ps(result + i + 8, b);
  }
  return i;
}
#define BALLAST_VECTOR(call) (has_avx2() ? (call) : 0)
#else
#define BALLAST_VECTOR(call) 0
#endif

}  // namespace

void encode_bf16(const float* source, int64_t elements, void* encoded) {
  for (int64_t i = BALLAST_VECTOR(encode_bf16_avx2(source, elements, encoded)); i < elements; ++i)
    store_half(encoded, i, bf16_from_float(source[i]));
}
void decode_bf16(const void* encoded, int64_t elements, float* result) {
  for (int64_t i = BALLAST_VECTOR(decode_avx2<Bf16>(encoded, elements, result)); i < elements; ++i)
    result[i] = float_from_bf16(load_half(encoded, i));
}
void decode_add_bf16(const void* encoded, int64_t elements, float* result) {
  for (int64_t i = BALLAST_VECTOR(decode_add_avx2<Bf16>(encoded, elements, result)); i < elements; ++i)
    result[i] += float_from_bf16(load_half(encoded, i));
}
void encode_fp16(const float* source, int64_t elements, void* encoded) {
  for (int64_t i = BALLAST_VECTOR(encode_fp16_avx2(source, elements, encoded)); i < elements; ++i)
    store_half(encoded, i, fp16_from_float(source[i]));
}
void decode_fp16(const void* encoded, int64_t elements, float* result) {
  for (int64_t i = BALLAST_VECTOR(decode_avx2<Fp16>(encoded, elements, result)); i < elements; ++i)
    result[i] = float_from_fp16(load_half(encoded, i));
}
void decode_add_fp16(const void* encoded, int64_t elements, float* result) {
  for (int64_t i = BALLAST_VECTOR(decode_add_avx2<Fp16>(encoded, elements, result)); i < elements; ++i)
    result[i] += float_from_fp16(load_half(encoded, i));
}
void add_fp32(const void* source, int64_t elements, float* result) {
  for (int64_t i = BALLAST_VECTOR(decode_add_avx2<Fp32>(source, elements, result)); i < elements; ++i) {
    float value;
    std::memcpy(&value, static_cast<const char*>(source) + i * 4, 4);
    result[i] += value;
  }
}

const char* half_kernels() {
#if defined(__x86_64__)
  if (has_avx2()) return "avx2+f16c";
#endif
  return "scalar";
}

}  // namespace ballast
