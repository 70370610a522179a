#pragma once
// The arithmetic of one optimizer update over plain arrays of fp32: one pass over gradient, states and weights, which
// also writes the bf16 copy of the new weights. Threads and ranges are flat_optimizer.h's.
#include <cstdint>

namespace ballast {

// The numbers of one call, already bias-corrected; see update_kernels.cpp for the equations.
struct AdamWNumbers {
  float scale, one_minus_beta1, beta2, one_minus_beta2, shrink, step_size, inverse_root_correction, eps;
};
struct SgdNumbers {
  float scale, decay, momentum, lr;
};
struct LionNumbers {
  float scale, beta1, one_minus_beta1, beta2, one_minus_beta2, shrink, lr;
};

// Arrays of n elements; `copy` is bfloat16 bits, or null. No array may overlap another.
void adamw_kernel(const AdamWNumbers& numbers, int64_t n, const float* gradient, float* exp_avg, float* exp_avg_sq,
                  float* weights, uint16_t* copy);
// `momentum` may be null when numbers.momentum is 0.
void sgd_kernel(const SgdNumbers& numbers, int64_t n, const float* gradient, float* momentum, float* weights,
                uint16_t* copy);
void lion_kernel(const LionNumbers& numbers, int64_t n, const float* gradient, float* exp_avg, float* weights,
                 uint16_t* copy);
// fp32 to bfloat16 bits, to nearest, ties to even; NaN stays NaN.
void bf16_copy_kernel(int64_t n, const float* from, uint16_t* to);

}  // namespace ballast
