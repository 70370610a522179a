#pragma once
// Products with few rows, as in decoding: the speed is that of reading b from memory, once, in its own dtype.
#include <cstdint>

#include "ballast/kernel/packed_gemm.h"

namespace ballast::kernel {

constexpr int64_t kFewRows = 8;

// As packed_product, for m <= kFewRows on a CPU with AVX2. Threads share the columns. A row's results depend on that row and b alone.
void few_rows_product(const MatrixOperand& a, const MatrixOperand& b, int64_t m, int64_t n, int64_t k, float* c, int64_t ldc, bool accumulate);

}  // namespace ballast::kernel
