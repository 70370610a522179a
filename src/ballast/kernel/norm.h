#pragma once
// LayerNorm and RMSNorm over the last dimension of [T, H], with fp32 statistics that the caller keeps for backward.
//   LayerNorm: y = (x - mean) rstd w + b;   RMSNorm: y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps).
// Results of a row depend on that row alone.
#include <ATen/core/Tensor.h>

namespace ballast::kernel {

// Writes rstd [T] and mean [T]; an undefined `mean` asks for RMSNorm.
void norm_statistics(const at::Tensor& x, double eps, const at::Tensor& mean, const at::Tensor& rstd);
// y from x and its statistics; `bias` may be undefined.
void norm_apply(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight, const at::Tensor& bias,
                const at::Tensor& y);
// dx = gradient, or dx += gradient; the same for dweight and dbias (fp32; undefined: not wanted) by `accumulate_weights`.
//   LayerNorm: dx = rstd (g - mean(g) - xhat mean(g xhat));  RMSNorm: dx = rstd (g - xhat mean(g xhat));  g = dy w
void norm_backward(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight, const at::Tensor& dy,
                   const at::Tensor& dx, bool accumulate, const at::Tensor& dweight, const at::Tensor& dbias,
                   bool accumulate_weights = true);

}  // namespace ballast::kernel
