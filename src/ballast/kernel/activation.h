#pragma once
// Activations of the MLP and their gradients, plain (y = f(u)) and gated (y = f(g) u). All [T, I].
// A backward also writes y again, which the weight gradient of the next layer needs: one pass for both.
#include <ATen/core/Tensor.h>

namespace ballast::kernel {

enum class Activation { GeluTanh, Gelu, Relu, Silu };

void activate(Activation kind, const at::Tensor& u, const at::Tensor& y);
// du = dy f'(u); du may be dy. y = f(u), undefined: not wanted.
void activate_backward(Activation kind, const at::Tensor& u, const at::Tensor& dy, const at::Tensor& du, const at::Tensor& y);

void activate_gated(Activation kind, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y);
// d_up may be dy.
void activate_gated_backward(Activation kind, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& dy,
                             const at::Tensor& d_gate, const at::Tensor& d_up, const at::Tensor& y);

// y += x, elementwise; contiguous, equal sizes.
void add_to(const at::Tensor& x, const at::Tensor& y);
// y = a + b.
void add(const at::Tensor& a, const at::Tensor& b, const at::Tensor& y);

}  // namespace ballast::kernel
