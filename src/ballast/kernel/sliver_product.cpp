// 6 x 16 sums stand in 12 of the 16 registers while a column of a and a row of a sliver go by.
#include "ballast/kernel/sliver_product.h"

#include <algorithm>

#include "ballast/kernel/packing.h"
#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

constexpr int64_t kWidth = kSliverWidth, kHeight = 6;

// For CPUs without AVX2.
template <class T>
void pack_plain(const T* b, int64_t along_k, int64_t across, int64_t depth, int64_t columns, float* out) {
  for (int64_t first = 0; first < columns; first += kWidth, out += kWidth * depth) {
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t j = 0; j < kWidth; ++j) out[p * kWidth + j] = first + j < columns ? load1(b + p * along_k + (first + j) * across) : 0.0f;
  }
}

void product_plain(int64_t along_m, int64_t along_k, int64_t m, int64_t n, int64_t depth, const float* a, const float* b, float* c, int64_t ldc,
                   bool accumulate) {
  for (int64_t j0 = 0; j0 < n; j0 += kWidth, b += kWidth * depth) {
    for (int64_t i = 0; i < m; ++i) {
      float sums[kWidth] = {};
      for (int64_t p = 0; p < depth; ++p)
        for (int64_t j = 0; j < kWidth; ++j) sums[j] += a[i * along_m + p * along_k] * b[p * kWidth + j];
      for (int64_t j = 0; j < std::min(kWidth, n - j0); ++j) c[i * ldc + j0 + j] = accumulate ? c[i * ldc + j0 + j] + sums[j] : sums[j];
    }
  }
}

template <class T>
void pack_any(const T* b, int64_t stride, bool transposed, int64_t depth, int64_t columns, float* out) {
  const int64_t along_k = transposed ? 1 : stride, across = transposed ? stride : 1;
#if defined(__x86_64__)
  if (has_avx2()) return pack<kWidth>(b, across, along_k, columns, depth, out);
#endif
  pack_plain(b, along_k, across, depth, columns, out);
}

#if defined(__x86_64__)
template <int kRows, bool kTransposed>
BALLAST_AVX2_INLINE void multiply(const float* __restrict a, int64_t lda, const float* __restrict b, int64_t depth, float* __restrict c, int64_t ldc,
                                  bool add) {
  __m256 sum[kRows][2];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) sum[i][0] = _mm256_setzero_ps(), sum[i][1] = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int64_t p = 0; p < depth; ++p) {
    const __m256 b0 = _mm256_loadu_ps(b + p * kWidth), b1 = _mm256_loadu_ps(b + p * kWidth + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m256 x = _mm256_broadcast_ss(kTransposed ? a + p * lda + i : a + i * lda + p);
      sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    float* row = c + i * ldc;
    if (add) sum[i][0] = _mm256_add_ps(sum[i][0], _mm256_loadu_ps(row)), sum[i][1] = _mm256_add_ps(sum[i][1], _mm256_loadu_ps(row + 8));
    _mm256_storeu_ps(row, sum[i][0]);
    _mm256_storeu_ps(row + 8, sum[i][1]);
  }
}

// The same for fewer columns: computed whole beside c.
template <int kRows, bool kTransposed>
BALLAST_AVX2_INLINE void multiply_edge(const float* a, int64_t lda, const float* b, int64_t depth, float* c, int64_t ldc, int64_t columns, bool add) {
  float tile[kRows * kWidth];
  multiply<kRows, kTransposed>(a, lda, b, depth, tile, kWidth, false);
  for (int i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < columns; ++j) c[i * ldc + j] = add ? tile[i * kWidth + j] + c[i * ldc + j] : tile[i * kWidth + j];
  }
}

template <int kRows, bool kTransposed>
BALLAST_AVX2 void multiply_rows(const float* a, int64_t lda, const float* b, int64_t depth, float* c, int64_t ldc, int64_t columns, bool add) {
  if (columns == kWidth) multiply<kRows, kTransposed>(a, lda, b, depth, c, ldc, add);
  else multiply_edge<kRows, kTransposed>(a, lda, b, depth, c, ldc, columns, add);
}

template <bool kTransposed>
BALLAST_AVX2 void product_avx2(int64_t m, int64_t n, int64_t depth, const float* a, int64_t lda, const float* b, float* c, int64_t ldc, bool add) {
  for (int64_t j = 0; j < n; j += kWidth, b += kWidth * depth) {
    const int64_t columns = std::min(kWidth, n - j);
    int64_t i = 0;
    const auto from = [&] { return a + (kTransposed ? i : i * lda); };
    for (; i + kHeight <= m; i += kHeight) multiply_rows<kHeight, kTransposed>(from(), lda, b, depth, c + i * ldc + j, ldc, columns, add);
    if (i + 4 <= m) multiply_rows<4, kTransposed>(from(), lda, b, depth, c + i * ldc + j, ldc, columns, add), i += 4;
    if (i + 2 <= m) multiply_rows<2, kTransposed>(from(), lda, b, depth, c + i * ldc + j, ldc, columns, add), i += 2;
    if (i < m) multiply_rows<1, kTransposed>(from(), lda, b, depth, c + i * ldc + j, ldc, columns, add);
  }
}
#endif

}  // namespace

void pack_slivers(const float* b, int64_t stride, bool transposed, int64_t depth, int64_t columns, float* out) {
  pack_any(b, stride, transposed, depth, columns, out);
}
void pack_slivers(const c10::BFloat16* b, int64_t stride, bool transposed, int64_t depth, int64_t columns, float* out) {
  pack_any(reinterpret_cast<const uint16_t*>(b), stride, transposed, depth, columns, out);
}

void sliver_product(bool transpose_a, int64_t m, int64_t n, int64_t depth, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
                    bool accumulate) {
#if defined(__x86_64__)
  if (has_avx2()) {
    return transpose_a ? product_avx2<true>(m, n, depth, a, lda, b, c, ldc, accumulate) : product_avx2<false>(m, n, depth, a, lda, b, c, ldc, accumulate);
  }
#endif
  product_plain(transpose_a ? 1 : lda, transpose_a ? lda : 1, m, n, depth, a, b, c, ldc, accumulate);
}

}  // namespace ballast::kernel
