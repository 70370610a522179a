// Panels, the 6 x 16 tile in registers, and how a product is spread over threads.
#include "ballast/kernel/packed_gemm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <new>

#include "ballast/base/check.h"
#include "ballast/kernel/avx2.h"
#include "ballast/kernel/few_rows.h"
#include "ballast/kernel/packing.h"
#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

// Sums of 64 columns at a time, from memory as it is.
template <class A, class B>
void plain_part(const A* a, const B* b, const MatrixOperand& at_a, const MatrixOperand& at_b, int64_t m, int64_t column, int64_t n, int64_t k,
                float* c, int64_t ldc, bool accumulate) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j0 = column; j0 < column + n; j0 += 64) {
      const int64_t columns = std::min<int64_t>(64, column + n - j0);
      float sums[64] = {};
      for (int64_t p = 0; p < k; ++p) {
        const float x = load1(a + i * at_a.row_stride + p * at_a.column_stride);
        for (int64_t j = 0; j < columns; ++j) sums[j] += x * load1(b + p * at_b.row_stride + (j0 + j) * at_b.column_stride);
      }
      for (int64_t j = 0; j < columns; ++j) c[i * ldc + j0 + j] = accumulate ? c[i * ldc + j0 + j] + sums[j] : sums[j];
    }
  }
}

// For CPUs without AVX2.
void plain_product(const MatrixOperand& a, const MatrixOperand& b, int64_t m, int64_t n, int64_t k, float* c, int64_t ldc, bool accumulate) {
  const auto with = [](const MatrixOperand& operand, auto&& f) {
    if (operand.bf16) f(static_cast<const uint16_t*>(operand.data));
    else f(static_cast<const float*>(operand.data));
  };
  at::parallel_for(0, n, 64, [&](int64_t begin, int64_t end) {
    with(a, [&](const auto* left) {
      with(b, [&](const auto* right) { plain_part(left, right, a, b, m, begin, end - begin, k, c, ldc, accumulate); });
    });
  });
}

}  // namespace

#if defined(__x86_64__)
namespace {

// A tile of 6 x 16 sums takes 12 of the 16 registers. A panel of b, kDepth x 16, stays in the first-level cache while it meets
// a block of a, kRows x kDepth, that stays in the second; kColumns bounds how much of b is packed at a time.
constexpr int64_t kTileRows = 6, kTileColumns = 16;
constexpr int64_t kDepth = kProductDepth, kRows = 192, kColumns = 2048;
constexpr int64_t kSlack = 16;  // packing writes whole vectors

struct Panels {
  float* a;
  float* b;
};

// The calling thread's panels, kept for its life.
Panels panels() {
  struct Free {
    void operator()(float* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<float, Free> memory{
      static_cast<float*>(::operator new((kRows * kDepth + kDepth * kColumns + 2 * kSlack) * sizeof(float), std::align_val_t{64}))};
  return {memory.get(), memory.get() + kRows * kDepth + kSlack};
}

template <int kWidth>
void pack_operand(const MatrixOperand& m, int64_t across, int64_t along_k, int64_t offset, int64_t lines, int64_t depth, float* out) {
  if (m.bf16) pack<kWidth>(static_cast<const uint16_t*>(m.data) + offset, across, along_k, lines, depth, out);
  else pack<kWidth>(static_cast<const float*>(m.data) + offset, across, along_k, lines, depth, out);
}

// c [6, 16] = or += a sliver x b sliver.
BALLAST_AVX2 void multiply_tile(const float* __restrict a, const float* __restrict b, int64_t depth, float* __restrict c, int64_t ldc, bool add) {
  __m256 sum[kTileRows][2];
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    sum[i][0] = _mm256_setzero_ps(), sum[i][1] = _mm256_setzero_ps();
    __builtin_prefetch(c + i * ldc, 1);
    __builtin_prefetch(c + i * ldc + 15, 1);
  }
  int64_t p = 0;
  const auto step = [&]() __attribute__((target("avx2,fma"), always_inline)) {
    const __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kTileRows; ++i) {
      const __m256 x = _mm256_broadcast_ss(a + i);
      sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
    }
    a += kTileRows, b += kTileColumns;
  };
  for (; p + 4 <= depth; p += 4) {
    step();
    step();
    step();
    step();
  }
  for (; p < depth; ++p) step();
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    float* row = c + i * ldc;
    if (add) {
      sum[i][0] = _mm256_add_ps(sum[i][0], _mm256_loadu_ps(row));
      sum[i][1] = _mm256_add_ps(sum[i][1], _mm256_loadu_ps(row + 8));
    }
    _mm256_storeu_ps(row, sum[i][0]);
    _mm256_storeu_ps(row + 8, sum[i][1]);
  }
}

// A tile at the edge is computed whole beside c, with the same operations.
BALLAST_AVX2 void multiply_edge(const float* a, const float* b, int64_t depth, float* c, int64_t ldc, bool add, int64_t rows, int64_t columns) {
  alignas(64) float tile[kTileRows * kTileColumns];
  multiply_tile(a, b, depth, tile, kTileColumns, false);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const float value = tile[i * kTileColumns + j];
      c[i * ldc + j] = add ? value + c[i * ldc + j] : value;
    }
  }
}

// Rows [row, row + m) and columns [column, column + n) of c, on this thread.
void product_part(const MatrixOperand& a, const MatrixOperand& b, int64_t row, int64_t m, int64_t column, int64_t n, int64_t k, float* c,
                  int64_t ldc, bool accumulate) {
  const Panels at = panels();
  for (int64_t j0 = column; j0 < column + n; j0 += kColumns) {
    const int64_t columns = std::min(kColumns, column + n - j0);
    for (int64_t p0 = 0; p0 < k; p0 += kDepth) {
      const int64_t depth = std::min(kDepth, k - p0);
      const bool add = accumulate || p0 > 0;
      pack_operand<kTileColumns>(b, b.column_stride, b.row_stride, j0 * b.column_stride + p0 * b.row_stride, columns, depth, at.b);
      for (int64_t i0 = row; i0 < row + m; i0 += kRows) {
        const int64_t rows = std::min(kRows, row + m - i0);
        pack_operand<kTileRows>(a, a.row_stride, a.column_stride, i0 * a.row_stride + p0 * a.column_stride, rows, depth, at.a);
        for (int64_t j = 0; j < columns; j += kTileColumns) {
          const int64_t width = std::min(kTileColumns, columns - j);
          for (int64_t i = 0; i < rows; i += kTileRows) {
            const int64_t height = std::min(kTileRows, rows - i);
            float* tile = c + (i0 + i) * ldc + j0 + j;
            if (height == kTileRows && width == kTileColumns) multiply_tile(at.a + i * depth, at.b + j * depth, depth, tile, ldc, add);
            else multiply_edge(at.a + i * depth, at.b + j * depth, depth, tile, ldc, add, height, width);
          }
        }
      }
    }
  }
}

}  // namespace

bool packed_products_are_fastest() {
  static const bool yes = has_avx2() && !__builtin_cpu_supports("avx512f");
  return yes;
}

void packed_product(const MatrixOperand& a, const MatrixOperand& b, int64_t m, int64_t n, int64_t k, float* c, int64_t ldc, bool accumulate) {
  BALLAST_CHECK(k > 0 && (a.row_stride == 1 || a.column_stride == 1) && (b.row_stride == 1 || b.column_stride == 1), "operands without a unit stride");
  if (!has_avx2()) return plain_product(a, b, m, n, k, c, ldc, accumulate);
  if (m <= kFewRows) return few_rows_product(a, b, m, n, k, c, ldc, accumulate);
  // One cut, along rows or columns: that which packs less twice. Parts are whole tiles, several for each thread.
  const int64_t threads = at::get_num_threads();
  const bool by_rows = m + threads * n <= n + threads * m;
  const int64_t unit = by_rows ? kTileRows : kTileColumns, extent = by_rows ? m : n;
  const int64_t units = (extent + unit - 1) / unit;
  // A task is worth a thread from about a million multiplications.
  const int64_t least = std::max<int64_t>(1, (int64_t{1} << 20) / std::max<int64_t>(1, unit * k * (by_rows ? n : m)));
  at::parallel_for(0, units, least, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * unit, count = std::min(end * unit, extent) - first;
    if (by_rows) product_part(a, b, first, count, 0, n, k, c, ldc, accumulate);
    else product_part(a, b, 0, m, first, count, k, c, ldc, accumulate);
  });
}

#else
bool packed_products_are_fastest() { return false; }
void packed_product(const MatrixOperand& a, const MatrixOperand& b, int64_t m, int64_t n, int64_t k, float* c, int64_t ldc, bool accumulate) {
  plain_product(a, b, m, n, k, c, ldc, accumulate);
}
#endif

}  // namespace ballast::kernel
