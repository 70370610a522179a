// Attention beyond what the segments' tests reach: head sizes, tile borders, extreme scores, thread counts.
#include "ballast/kernel/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "kernel/attention_reference.h"

namespace ballast::kernel {
namespace {

using attention_test::error_of;
using attention_test::Outputs;

Outputs run_kernel(const AttentionShape& shape, const std::vector<int64_t>& starts, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& v, const at::Tensor& d_o) {
  const std::vector<AttendUnit> units = attention_test::whole(starts);
  Outputs out{at::full_like(q, NAN), at::full({q.size(0), shape.heads}, NAN, at::kFloat), at::full_like(q, NAN), at::full_like(k, NAN), at::full_like(v, NAN)};
  const at::Tensor delta = at::full_like(out.lse, NAN);
  attention_forward(shape, units, {}, q, k, v, out.o, out.lse);
  attention_delta(shape, out.o, d_o, delta);
  attention_backward(shape, units, {}, q, k, v, out.lse, delta, d_o, out.dq, out.dk, out.dv);
  return out;
}

Outputs run_exact(const AttentionShape& shape, const std::vector<int64_t>& starts, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& d_o) {
  return attention_test::run_exact(shape, starts, {}, q, k, v, d_o);
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
  for (auto member : attention_test::kMembers) EXPECT_TRUE(at::equal(three.*member, again.*member));
  const Outputs other = run_kernel(shape, starts, q, k, v, d_o);
  for (auto member : attention_test::kMembers) EXPECT_TRUE(at::equal(three.*member, other.*member));
}

}  // namespace
}  // namespace ballast::kernel
