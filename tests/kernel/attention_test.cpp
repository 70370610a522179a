// Attention beyond what the segments' tests reach: head sizes, tile borders, extreme scores, thread counts.
#include "ballast/kernel/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ballast::kernel {
namespace {

struct Outputs {
  at::Tensor o, lse, dq, dk, dv;
};

Outputs run_kernel(const AttentionShape& shape, const std::vector<int64_t>& starts, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& v, const at::Tensor& d_o) {
  Outputs out{at::full_like(q, NAN), at::full({shape.heads, q.size(0)}, NAN, at::kFloat), at::full_like(q, NAN), at::full_like(k, NAN), at::full_like(v, NAN)};
  attention_forward(shape, starts, {}, q, k, v, out.o, out.lse);
  attention_backward(shape, starts, {}, q, k, v, out.o, out.lse, d_o, out.dq, out.dk, out.dv);
  return out;
}

Outputs run_exact(const AttentionShape& shape, const std::vector<int64_t>& starts, const at::Tensor& q_in, const at::Tensor& k_in,
                  const at::Tensor& v_in, const at::Tensor& d_o) {
  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).clone().set_requires_grad(true); };
  const at::Tensor q = leaf(q_in), k = leaf(k_in), v = leaf(v_in);
  std::vector<at::Tensor> outputs, lses;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t n = starts[s + 1] - starts[s];
    if (n == 0) continue;
    const auto part = [&](const at::Tensor& t, int64_t repeat) {
      return t.narrow(0, starts[s], n).view({n, -1, shape.head_dim}).transpose(0, 1).repeat_interleave(repeat, 0);
    };
    const at::Tensor distance = at::arange(n, at::kLong).unsqueeze(1) - at::arange(n, at::kLong);
    at::Tensor hidden = distance.lt(0);
    if (shape.window > 0) hidden = hidden.logical_or(distance.ge(shape.window));
    const at::Tensor scores = (at::matmul(part(q, 1), part(k, shape.heads / shape.kv_heads).transpose(1, 2)) / std::sqrt(static_cast<double>(shape.head_dim)))
                                  .masked_fill(hidden, -std::numeric_limits<double>::infinity());
    lses.push_back(at::logsumexp(scores, -1));
    outputs.push_back(at::matmul(at::softmax(scores, -1), part(v, shape.heads / shape.kv_heads)).transpose(0, 1).reshape({n, -1}));
  }
  const at::Tensor o = at::cat(outputs);
  (o * d_o.to(at::kDouble)).sum().backward();
  return {o.detach(), at::cat(lses, 1).detach(), q.grad(), k.grad(), v.grad()};
}

double error_of(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b).norm() / (b.norm() + 1e-30)).item<double>();
}

TEST(Attention, MatchesDoubleAtTileBorders) {
  at::manual_seed(1);
  for (const AttentionShape& shape : {AttentionShape{1, 1, 2, 0}, AttentionShape{6, 3, 20, 0}, AttentionShape{2, 1, 64, 0}, AttentionShape{2, 2, 128, 1},
                                      AttentionShape{3, 1, 16, 64}, AttentionShape{4, 2, 8, 129}}) {
    for (const std::vector<int64_t>& starts : {std::vector<int64_t>{0, 1}, std::vector<int64_t>{0, 63, 127, 192, 320, 449, 450}, std::vector<int64_t>{0, 300},
                                               std::vector<int64_t>{0, 5, 5, 9}}) {
      const int64_t tokens = starts.back();
      const at::Tensor q = at::randn({tokens, shape.heads * shape.head_dim}), k = at::randn({tokens, shape.kv_heads * shape.head_dim});
      const at::Tensor v = at::randn_like(k), d_o = at::randn_like(q);
      const Outputs ours = run_kernel(shape, starts, q, k, v, d_o), exact = run_exact(shape, starts, q, k, v, d_o);
      EXPECT_LE(error_of(ours.o, exact.o), 1e-6);
      EXPECT_LE(error_of(ours.lse, exact.lse), 1e-6);
      EXPECT_LE(error_of(ours.dv, exact.dv), 2e-6);
      if (tokens == 1 || shape.window == 1) {  // one visible key: the weights are 1 whatever q and k are
        EXPECT_LE(ours.dq.abs().max().item<float>(), 2e-5f);
        EXPECT_LE(ours.dk.abs().max().item<float>(), 2e-5f);
        continue;
      }
      EXPECT_LE(error_of(ours.dq, exact.dq), 3e-6);
      EXPECT_LE(error_of(ours.dk, exact.dk), 3e-6);
    }
  }
}

TEST(Attention, ExtremeScoresStayFinite) {
  const AttentionShape shape{1, 1, 4, 0};
  const at::Tensor q = at::full({150, 4}, 1e3f), k = at::randn({150, 4}) * 1e3, v = at::randn({150, 4}), d_o = at::ones({150, 4});
  const Outputs ours = run_kernel(shape, {0, 150}, q, k, v, d_o);
  for (const at::Tensor& t : {ours.o, ours.lse, ours.dq, ours.dk, ours.dv}) EXPECT_TRUE(t.isfinite().all().item<bool>());
  EXPECT_LE(error_of(ours.o, run_exact(shape, {0, 150}, q, k, v, d_o).o), 1e-4);
}

TEST(Attention, ThreadsDoNotChangeABit) {
  at::manual_seed(3);
  const AttentionShape shape{6, 3, 24, 0};
  const std::vector<int64_t> starts{0, 100, 103, 333};
  const at::Tensor q = at::randn({333, 144}), k = at::randn({333, 72}), v = at::randn({333, 72}), d_o = at::randn({333, 144});
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const Outputs three = run_kernel(shape, starts, q, k, v, d_o), again = run_kernel(shape, starts, q, k, v, d_o);
  at::set_num_threads(before);
  for (auto member : {&Outputs::o, &Outputs::lse, &Outputs::dq, &Outputs::dk, &Outputs::dv}) EXPECT_TRUE(at::equal(three.*member, again.*member));
  const Outputs other = run_kernel(shape, starts, q, k, v, d_o);
  for (auto member : {&Outputs::o, &Outputs::lse, &Outputs::dq, &Outputs::dk, &Outputs::dv}) EXPECT_TRUE(at::equal(three.*member, other.*member));
}

}  // namespace
}  // namespace ballast::kernel
