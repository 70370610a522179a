#pragma once
// Matrix products over fp32 and bf16 views, and the linear layer made of them. fp32 accumulation everywhere.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ballast::kernel {

// How products of bf16 matrices are computed. Native: by the CPU's bf16 units (AVX-512 bf16 or AMX). Converted: by
// packed_gemm.h, which widens operands on the way into its panels, at the speed of fp32: without such units the bf16 kernels of
// ATen ran at 1 to 18 GFLOP/s where fp32 reached 150 to 180 (AVX2, 2 cores). Both round only when a result is stored as bf16.
enum class Bf16Products { Native, Converted };
// Decided once per process by the CPU's flags; BALLAST_BF16_PRODUCTS=native|converted in the environment overrides it.
Bf16Products bf16_products();
// For tests: the other path.
void set_bf16_products(Bf16Products mode);

// How products of fp32 matrices are computed: by packed_gemm.h or by the BLAS inside libtorch, which was slower on AVX2 (by 1.0 to 1.6
// with the shapes of a GPT-2 of 124M on Zen 3) and has AVX-512 where the CPU does. BALLAST_FP32_PRODUCTS=packed|blas overrides it.
enum class Fp32Products { Packed, Blas };
Fp32Products fp32_products();
void set_fp32_products(Fp32Products mode);

// The dtype in which a temporary that feeds a product should be made for a model of dtype `compute`.
at::ScalarType product_dtype(at::ScalarType compute);

// c = a b, or c += a b. 2-D views, each with unit stride along one dimension, of fp32 or bf16; accumulate needs an fp32 c.
void product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool accumulate = false);

// dst = src, elementwise between fp32 and bf16; 2-D, unit stride along the second dimension.
void convert(const at::Tensor& src, const at::Tensor& dst);

// A linear layer's weight is [out, in], or [in, out] if `transposed`. x [T, in], y and dy [T, out].
// y = x W^T + bias + residual; bias [out] and residual [T, out] may be undefined. Rounded once.
void linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool transposed, const at::Tensor& y,
                    const at::Tensor& residual = {});
// dx = dy W, or dx += dy W (fp32 dx).
void linear_backward_input(const at::Tensor& dy, const at::Tensor& weight, bool transposed, const at::Tensor& dx,
                           bool accumulate = false);
// dweight += dy^T x, dbias += column sums of dy, or = without `accumulate`; fp32, either may be undefined (frozen).
void linear_backward_weight(const at::Tensor& x, const at::Tensor& dy, bool transposed, const at::Tensor& dweight,
                            const at::Tensor& dbias, bool accumulate = true);

// sums[c] = or += sum over rows of a[r, c], in row order: the same for any number of threads. sums fp32.
void column_sums(const at::Tensor& a, const at::Tensor& sums, bool accumulate);

// Row-major fp32 product on raw pointers, within one thread of a parallel region: c = alpha op(a) op(b) + beta c.
void small_product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

}  // namespace ballast::kernel
