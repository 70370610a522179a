// A b that lies along columns gives vectors of columns; one that lies along k gives dot products.
#include "ballast/kernel/few_rows.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "ballast/base/check.h"
#include "ballast/kernel/avx2.h"

namespace ballast::kernel {

#if defined(__x86_64__)
namespace {

constexpr int64_t kUnit = 64;  // columns of a task: whole cache lines of b and c

// Sums of kRows rows and 8 kVectors columns over `depth`, of a b that lies along columns.
template <int kRows, int kVectors, class T>
BALLAST_AVX2 void along_columns(const float* a, int64_t lda, const T* b, int64_t stride, int64_t depth, float* c, int64_t ldc, bool add) {
  __m256 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_setzero_ps();
  }
  for (int64_t p = 0; p < depth; ++p) {
    const T* row = b + p * stride;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const __m256 w = load8(row + 8 * v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums[r][v] = _mm256_fmadd_ps(_mm256_broadcast_ss(a + r * lda + p), w, sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* to = c + r * ldc + 8 * v;
      _mm256_storeu_ps(to, add ? _mm256_add_ps(sums[r][v], _mm256_loadu_ps(to)) : sums[r][v]);
    }
  }
}

BALLAST_AVX2_INLINE float sum_of(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// kRows rows and kColumns columns of a b that lies along k: each element is eight interleaved sums, then their sum, then the rest.
template <int kRows, int kColumns, class T>
BALLAST_AVX2 void along_k(const float* a, int64_t lda, const T* b, int64_t stride, int64_t k, float* c, int64_t ldc, bool add) {
  __m256 sums[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) sums[r][j] = _mm256_setzero_ps();
  }
  int64_t p = 0;
  for (; p + 8 <= k; p += 8) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const __m256 w = load8(b + j * stride + p);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums[r][j] = _mm256_fmadd_ps(_mm256_loadu_ps(a + r * lda + p), w, sums[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      float sum = sum_of(sums[r][j]);
      for (int64_t q = p; q < k; ++q) sum = __builtin_fmaf(a[r * lda + q], load1(b + j * stride + q), sum);
      c[r * ldc + j] = add ? sum + c[r * ldc + j] : sum;
    }
  }
}

// One column of a b that lies along columns, as a lane of along_columns.
template <class T>
BALLAST_AVX2 void one_column(const float* a, int64_t lda, int64_t rows, const T* b, int64_t stride, int64_t depth, float* c, int64_t ldc, bool add) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (int64_t p = 0; p < depth; ++p) sum = __builtin_fmaf(a[r * lda + p], load1(b + p * stride), sum);
    c[r * ldc] = add ? sum + c[r * ldc] : sum;
  }
}

// Columns [first, end) of c for kRows rows; what later rows read of b is then in the cache.
template <int kRows, class T>
void stretch(const float* a, int64_t lda, const T* b, const MatrixOperand& at, int64_t first, int64_t end, int64_t k, float* c, int64_t ldc,
             bool accumulate) {
  if (at.row_stride == 1) {
    constexpr int kColumns = kRows <= 2 ? 4 : 2;
    int64_t j = first;
    for (; j + kColumns <= end; j += kColumns)
      along_k<kRows, kColumns>(a, lda, b + j * at.column_stride, at.column_stride, k, c + j, ldc, accumulate);
    for (; j < end; ++j) along_k<kRows, 1>(a, lda, b + j * at.column_stride, at.column_stride, k, c + j, ldc, accumulate);
    return;
  }
  constexpr int kVectors = kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
  for (int64_t p0 = 0; p0 < k; p0 += kProductDepth) {
    const int64_t depth = std::min(kProductDepth, k - p0);
    const T* rows = b + p0 * at.row_stride;
    const bool add = accumulate || p0 > 0;
    int64_t j = first;
    for (; j + 8 * kVectors <= end; j += 8 * kVectors)
      along_columns<kRows, kVectors>(a + p0, lda, rows + j, at.row_stride, depth, c + j, ldc, add);
    for (; j + 8 <= end; j += 8) along_columns<kRows, 1>(a + p0, lda, rows + j, at.row_stride, depth, c + j, ldc, add);
    for (; j < end; ++j) one_column(a + p0, lda, kRows, rows + j, at.row_stride, depth, c + j, ldc, add);
  }
}

template <class T>
void part(const float* a, int64_t lda, const T* b, const MatrixOperand& at, int64_t m, int64_t first, int64_t end, int64_t k, float* c,
          int64_t ldc, bool accumulate) {
  for (int64_t j0 = first; j0 < end; j0 += kUnit) {
    const int64_t j1 = std::min(end, j0 + kUnit);
    for (int64_t i = 0; i < m; i += 4) {
      const float* x = a + i * lda;
      float* y = c + i * ldc;
      switch (std::min<int64_t>(4, m - i)) {
        case 1: stretch<1>(x, lda, b, at, j0, j1, k, y, ldc, accumulate); break;
        case 2: stretch<2>(x, lda, b, at, j0, j1, k, y, ldc, accumulate); break;
        case 3: stretch<3>(x, lda, b, at, j0, j1, k, y, ldc, accumulate); break;
        default: stretch<4>(x, lda, b, at, j0, j1, k, y, ldc, accumulate); break;
      }
    }
  }
}

}  // namespace

void few_rows_product(const MatrixOperand& a, const MatrixOperand& b, int64_t m, int64_t n, int64_t k, float* c, int64_t ldc, bool accumulate) {
  BALLAST_CHECK(m <= kFewRows, "{} rows are not few", m);
  const float* rows = static_cast<const float*>(a.data);
  int64_t lda = a.row_stride;
  std::vector<float> copy;
  if (a.bf16 || a.column_stride != 1) {
    copy.resize(static_cast<size_t>(m * k));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t p = 0; p < k; ++p) {
        const int64_t at = i * a.row_stride + p * a.column_stride;
        copy[static_cast<size_t>(i * k + p)] = a.bf16 ? load1(static_cast<const uint16_t*>(a.data) + at) : static_cast<const float*>(a.data)[at];
      }
    }
    rows = copy.data(), lda = k;
  }
  // A task is worth a thread from about 64 Ki elements of b.
  const int64_t units = (n + kUnit - 1) / kUnit, least = std::max<int64_t>(1, (int64_t{1} << 16) / (kUnit * k));
  at::parallel_for(0, units, least, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kUnit, last = std::min(end * kUnit, n);
    if (b.bf16) part(rows, lda, static_cast<const uint16_t*>(b.data), b, m, first, last, k, c, ldc, accumulate);
    else part(rows, lda, static_cast<const float*>(b.data), b, m, first, last, k, c, ldc, accumulate);
  });
}

#else
void few_rows_product(const MatrixOperand&, const MatrixOperand&, int64_t, int64_t, int64_t, float*, int64_t, bool) {
  BALLAST_CHECK(false, "this product needs AVX2");
}
#endif

}  // namespace ballast::kernel
