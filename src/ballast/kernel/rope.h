#pragma once
// Rotary position embedding in the rotate-half convention: channels i and i + d/2 of a head form one plane.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ballast::kernel {

// Rotates every head of x [T, heads * d] in place by the angles of cosines, sines [T, d/2] fp32;
// `inverse` rotates back, which is the gradient.
void rotate(const at::Tensor& x, int64_t head_dim, const at::Tensor& cosines, const at::Tensor& sines, bool inverse);

}  // namespace ballast::kernel
