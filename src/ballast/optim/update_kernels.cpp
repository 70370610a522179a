// Update loops, written for the vectoriser. This file is built with -O3 -ffp-contract=off: every vector width, thread
// count and cut of the arrays gives the same bits. Traffic per element: AdamW reads 16 and writes 12 bytes (14 with
// copy).
#include "ballast/optim/update_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ballast/base/clones.h"

namespace ballast {
namespace {

inline uint16_t bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet_nan = bits >> 16 | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

// The block stays in the first-level cache between the update and its copy.
constexpr int64_t kBlock = 1024;

}  // namespace

BALLAST_CLONES void bf16_copy_kernel(int64_t n, const float* __restrict from, uint16_t* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = bf16_bits(from[i]);
}

// Loshchilov and Hutter, arXiv 1711.05101, in the order of operations of PyTorch's AdamW:
//   g = scale * gradient;  w *= shrink;  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g g
//   w -= step_size * m / (sqrt(v) * inverse_root_correction + eps)
BALLAST_CLONES void adamw_kernel(const AdamWNumbers& k, int64_t n, const float* __restrict gradient,
                                 float* __restrict exp_avg, float* __restrict exp_avg_sq, float* __restrict weights,
                                 uint16_t* __restrict copy) {
  const AdamWNumbers c = k;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    for (int64_t i = begin; i < end; ++i) {
      const float g = c.scale * gradient[i];
      const float m = exp_avg[i] + c.one_minus_beta1 * (g - exp_avg[i]);
      const float v = c.beta2 * exp_avg_sq[i] + c.one_minus_beta2 * (g * g);
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      weights[i] = weights[i] * c.shrink - c.step_size * (m / (std::sqrt(v) * c.inverse_root_correction + c.eps));
    }
    if (copy != nullptr) {
      for (int64_t i = begin; i < end; ++i) copy[i] = bf16_bits(weights[i]);
    }
  }
}

// PyTorch's SGD: g = scale * gradient + decay w;  b = momentum b + g;  w -= lr b
BALLAST_CLONES void sgd_kernel(const SgdNumbers& k, int64_t n, const float* __restrict gradient,
                               float* __restrict momentum, float* __restrict weights, uint16_t* __restrict copy) {
  const SgdNumbers c = k;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    if (momentum != nullptr) {
      for (int64_t i = begin; i < end; ++i) {
        const float b = c.momentum * momentum[i] + (c.scale * gradient[i] + c.decay * weights[i]);
        momentum[i] = b;
        weights[i] = weights[i] - c.lr * b;
      }
    } else {
      for (int64_t i = begin; i < end; ++i) {
        weights[i] = weights[i] - c.lr * (c.scale * gradient[i] + c.decay * weights[i]);
      }
    }
    if (copy != nullptr) {
      for (int64_t i = begin; i < end; ++i) copy[i] = bf16_bits(weights[i]);
    }
  }
}

// Chen et al., arXiv 2302.06675: g = scale * gradient;  w *= shrink;  w -= lr sign(beta1 m + (1 - beta1) g)
//   m = beta2 m + (1 - beta2) g. The sign of zero is zero; of NaN, NaN.
BALLAST_CLONES void lion_kernel(const LionNumbers& k, int64_t n, const float* __restrict gradient,
                                float* __restrict exp_avg, float* __restrict weights, uint16_t* __restrict copy) {
  const LionNumbers c = k;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    for (int64_t i = begin; i < end; ++i) {
      const float g = c.scale * gradient[i];
      const float u = c.beta1 * exp_avg[i] + c.one_minus_beta1 * g;
      const float size = u == 0 ? 0.0f : c.lr;
      const float move = u != u ? u : std::copysign(size, u);
      weights[i] = weights[i] * c.shrink - move;
      exp_avg[i] = c.beta2 * exp_avg[i] + c.one_minus_beta2 * g;
    }
    if (copy != nullptr) {
      for (int64_t i = begin; i < end; ++i) copy[i] = bf16_bits(weights[i]);
    }
  }
}

}  // namespace ballast
