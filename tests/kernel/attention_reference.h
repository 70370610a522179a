#pragma once
// Attention over whole sequences in double from ATen operations under autograd: what the kernels' values are held against.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ballast/kernel/attention.h"

namespace ballast::kernel::attention_test {

struct Outputs {
  at::Tensor o, lse, dq, dk, dv;
};
inline const std::vector<at::Tensor Outputs::*> kMembers{&Outputs::o, &Outputs::lse, &Outputs::dq, &Outputs::dk, &Outputs::dv};

// Sequence s owns rows [starts[s], starts[s + 1]); dropout.keys has a key for each.
inline Outputs run_exact(const AttentionShape& shape, const std::vector<int64_t>& starts, const AttentionDropout& dropout, const at::Tensor& q_in,
                         const at::Tensor& k_in, const at::Tensor& v_in, const at::Tensor& d_o) {
  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).clone().set_requires_grad(true); };
  const at::Tensor q = leaf(q_in), k = leaf(k_in), v = leaf(v_in);
  std::vector<at::Tensor> outputs, lses;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t n = starts[s + 1] - starts[s];
    if (n == 0) continue;
    const auto part = [&](const at::Tensor& t, int64_t repeat) {
      return t.narrow(0, starts[s], n).view({n, -1, shape.head_dim}).transpose(0, 1).repeat_interleave(repeat, 0);
    };
    const int64_t group = shape.heads / shape.kv_heads;
    const at::Tensor distance = at::arange(n, at::kLong).unsqueeze(1) - at::arange(n, at::kLong);
    at::Tensor hidden = distance.lt(0);
    if (shape.window > 0) hidden = hidden.logical_or(distance.ge(shape.window));
    const at::Tensor scores = (at::matmul(part(q, 1), part(k, group).transpose(1, 2)) / std::sqrt(static_cast<double>(shape.head_dim)))
                                  .masked_fill(hidden, -std::numeric_limits<double>::infinity());
    at::Tensor weights = at::softmax(scores, -1);
    if (dropout.p > 0) {
      const at::Tensor factors = at::empty({shape.heads, n, n}, at::kFloat);
      for (int64_t h = 0; h < shape.heads; ++h)
        for (int64_t i = 0; i < n; ++i)
          dropout_factors(dropout.keys[s], i, shape.first_head + h, 0, n, dropout.place, dropout.p, factors.data_ptr<float>() + (h * n + i) * n);
      weights = weights * factors.to(at::kDouble);
    }
    lses.push_back(at::logsumexp(scores, -1));
    outputs.push_back(at::matmul(weights, part(v, group)).transpose(0, 1).reshape({n, -1}));
  }
  const at::Tensor o = at::cat(outputs);
  (o * d_o.to(at::kDouble)).sum().backward();
  return {o.detach(), at::cat(lses, 1).detach().t().contiguous(), q.grad(), k.grad(), v.grad()};
}

inline std::vector<AttendUnit> whole(const std::vector<int64_t>& starts) {
  std::vector<AttendUnit> units;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const RowSpan span{starts[s], starts[s + 1] - starts[s], 0};
    units.push_back({{span}, {span}, s});
  }
  return units;
}

// |a - b| / |b|, Euclidean; NaN anywhere gives NaN, which no bound accepts.
inline double error_of(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / (b.to(at::kDouble).norm() + 1e-30)).item<double>();
}

}  // namespace ballast::kernel::attention_test
