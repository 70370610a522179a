#pragma once
// Eight floats at a time from fp32 or bf16 memory, for the kernels that are written in AVX2 intrinsics.
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>

#define BALLAST_AVX2 __attribute__((target("avx2,fma")))
#define BALLAST_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

namespace ballast::kernel {

// bf16 as its bits.
BALLAST_AVX2_INLINE __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
BALLAST_AVX2_INLINE __m256 load8(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

// The 8 x 8 matrix of which r[i] is row i.
BALLAST_AVX2_INLINE void transpose8(__m256* r) {
  __m256 t[8], s[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    s[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    s[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    s[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    s[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
  }
}

}  // namespace ballast::kernel
#endif

namespace ballast::kernel {

inline float load1(const float* p) { return *p; }
inline float load1(const uint16_t* p) {
  const uint32_t bits = static_cast<uint32_t>(*p) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace ballast::kernel
