#pragma once
// Matrix products in AVX2: both operands are copied into panels that the innermost loop reads in order (K. Goto, R. van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008). bf16 operands are widened, exactly, while they are copied, so that no
// widened matrix ever exists. Each element of the result is summed in one order of k, whatever the number of threads and whatever
// rows and columns stand around it. CPUs without AVX2 run plain loops.
#include <cstdint>

namespace ballast::kernel {

// Whether these are the fastest fp32 products of this CPU: with AVX2 and without AVX-512.
bool packed_products_are_fastest();

// Sums run over this many k at a time; the sums of such stretches are then added, in order.
constexpr int64_t kProductDepth = 256;

// A matrix in memory, fp32 or bf16; one of the strides, in elements, is 1.
struct MatrixOperand {
  const void* data;
  bool bf16;
  int64_t row_stride, column_stride;
};

// c [m, n] = a [m, k] b [k, n], or c += a b; c is fp32, row-major with `ldc` elements between rows. k > 0. On the threads of ATen; each
// thread keeps about 2.3 MiB of panels.
void packed_product(const MatrixOperand& a, const MatrixOperand& b, int64_t m, int64_t n, int64_t k, float* c, int64_t ldc, bool accumulate);

}  // namespace ballast::kernel
