// Exponential, activations, norms and cross entropy at their corners; that they compose is tests/model/segments_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/base/error.h"
#include "ballast/kernel/activation.h"
#include "ballast/kernel/cross_entropy.h"
#include "ballast/kernel/embedding.h"
#include "ballast/kernel/norm.h"
#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

TEST(Exponential, IsAccurateEverywhere) {
  double worst = 0;
  for (double x = -87.2; x < 88.6; x += 0.0137) {
    const float f = static_cast<float>(x);
    worst = std::max(worst, std::abs(static_cast<double>(exp_approximate(f)) / std::exp(static_cast<double>(f)) - 1.0));
  }
  EXPECT_LE(worst, 2e-7);
  EXPECT_EQ(exp_approximate(0.0f), 1.0f);
  EXPECT_EQ(exp_approximate(-INFINITY), 0.0f);
  EXPECT_EQ(exp_approximate(-1000.0f), 0.0f);
  for (float x : {-87.8f, -99.9f, -100.1f, -3e38f}) EXPECT_EQ(exp_approximate(x), 0.0f) << x;
  for (float x : {88.8f, 89.1f, 3e38f}) EXPECT_EQ(exp_approximate(x), INFINITY) << x;
  EXPECT_TRUE(std::isnan(exp_approximate(-NAN)));
  EXPECT_EQ(exp_approximate(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(exp_approximate(NAN)));
}

at::Tensor exact(Activation kind, const at::Tensor& x) {
  switch (kind) {
    case Activation::GeluTanh: return at::gelu(x, "tanh");
    case Activation::Gelu: return at::gelu(x);
    case Activation::Relu: return at::relu(x);
    case Activation::Silu: return at::silu(x);
  }
  return x;
}

TEST(Activations, ValuesAndSlopesOverAWideRange) {
  for (Activation kind : {Activation::GeluTanh, Activation::Gelu, Activation::Relu, Activation::Silu}) {
    const at::Tensor u = at::cat({at::linspace(-12, 12, 4001), at::tensor({-1e4f, -100.0f, 100.0f, 1e4f})});
    const at::Tensor leaf = u.to(at::kDouble).set_requires_grad(true);
    const at::Tensor expected = exact(kind, leaf);
    const at::Tensor dy = at::linspace(-2, 3, u.numel());
    (expected * dy.to(at::kDouble)).sum().backward();
    const at::Tensor y = at::full_like(u, NAN), again = at::full_like(u, NAN), du = at::full_like(u, NAN);
    activate(kind, u, y);
    activate_backward(kind, u, dy, du, again);
    EXPECT_TRUE(at::equal(y, again));
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), expected.detach(), 1e-5, 1e-6)) << static_cast<int>(kind);
    EXPECT_TRUE(at::allclose(du.to(at::kDouble), leaf.grad(), 1e-5, 2e-6)) << static_cast<int>(kind);
    const at::Tensor only = at::full_like(u, NAN);
    activate_backward(kind, u, dy, only, {});
    EXPECT_TRUE(at::equal(only, du));
  }
}

// Whole vectors and the rest of a row are other code.
TEST(Activations, BitsDependOnNoNeighbour) {
  at::manual_seed(4);
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (Activation kind : {Activation::GeluTanh, Activation::Gelu, Activation::Relu, Activation::Silu}) {
      const auto random = [&] { return (at::randn({203}) * 3).to(dtype); };
      const at::Tensor u = random(), up = random(), dy = random();
      const auto results = [&](int64_t step) {
        std::vector<at::Tensor> out;
        for (int i = 0; i < 7; ++i) out.push_back(at::full_like(u, NAN));
        for (int64_t begin = 0; begin < u.numel(); begin += step) {
          const auto part = [&](const at::Tensor& t) { return t.narrow(0, begin, std::min(step, u.numel() - begin)); };
          activate(kind, part(u), part(out[0]));
          activate_backward(kind, part(u), part(dy), part(out[1]), part(out[2]));
          activate_gated(kind, part(u), part(up), part(out[3]));
          activate_gated_backward(kind, part(u), part(up), part(dy), part(out[4]), part(out[5]), part(out[6]));
        }
        return out;
      };
      const std::vector<at::Tensor> whole = results(203), single = results(1), some = results(13);
      for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(whole[i], single[i]) && at::equal(whole[i], some[i])) << static_cast<int>(kind) << " " << i;
    }
  }
}

TEST(Norm, LargeMeanAndConstantRows) {
  at::manual_seed(1);
  const at::Tensor x = at::cat({at::randn({3, 50}) + 1000, at::full({1, 50}, 7.0f), at::zeros({1, 50}), at::randn({2, 50}) * 1e-4});
  const at::Tensor w = at::randn({50}), b = at::randn({50}), mean = at::empty({7}), rstd = at::empty({7}), y = at::full({7, 50}, NAN);
  norm_statistics(x, 1e-5, mean, rstd);
  norm_apply(x, mean, rstd, w, b, y);
  const at::Tensor d = x.to(at::kDouble), centered = d - d.mean(1, true);
  const at::Tensor expected = centered / (centered.square().mean(1, true) + 1e-5).sqrt() * w + b;
  EXPECT_TRUE(at::allclose(y.to(at::kDouble), expected, 1e-4, 2e-4));
  norm_statistics(x, 1e-5, {}, rstd);
  norm_apply(x, {}, rstd, w, {}, y);
  EXPECT_TRUE(at::allclose(y.to(at::kDouble), d / (d.square().mean(1, true) + 1e-5).sqrt() * w, 1e-5, 1e-6));
}

TEST(Norm, BackwardInPlaceEqualsOutOfPlace) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({9, 130}), w = at::randn({130}), dy = at::randn({9, 130}), rstd = at::empty({9});
  norm_statistics(x, 1e-5, {}, rstd);
  const at::Tensor out = at::full_like(x, NAN), place = dy.clone(), dw1 = at::zeros({130}), dw2 = at::zeros({130});
  norm_backward(x, {}, rstd, w, dy, out, false, dw1, {});
  norm_backward(x, {}, rstd, w, place, place, false, dw2, {});
  EXPECT_TRUE(at::equal(out, place));
  EXPECT_TRUE(at::equal(dw1, dw2));
}

TEST(CrossEntropy, HugeLogitsAndOneWord) {
  at::Tensor logits = at::tensor({1e4f, -1e4f, 0.0f, 3e38f, 3e38f, -3e38f, -INFINITY, 2.0f, 1.0f}).view({3, 3});
  const at::Tensor expected = -at::log_softmax(logits.to(at::kDouble), 1);
  const std::vector<int64_t> targets{1, 0, 2};
  std::vector<float> losses(3, NAN);
  cross_entropy(logits, targets.data(), losses.data(), true, 0.5);
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(losses[static_cast<size_t>(i)] / expected[i][targets[static_cast<size_t>(i)]].item<double>(), 1.0, 1e-6);
  EXPECT_EQ(logits[0][0].item<float>(), 0.5f);
  EXPECT_EQ(logits[0][1].item<float>(), -0.5f);
  EXPECT_EQ(logits[2][0].item<float>(), 0.0f);
  EXPECT_TRUE(at::allclose(logits.sum(1), at::zeros({3}), 0, 1e-6));

  at::Tensor single = at::full({2, 1}, 5.0f);
  const std::vector<int64_t> zero{0, 0};
  cross_entropy(single, zero.data(), losses.data(), true, 1.0);
  EXPECT_EQ(losses[0], 0.0f);
  EXPECT_EQ(single.abs().sum().item<float>(), 0.0f);
}

TEST(CrossEntropy, TargetOutsideTheVocabularyIsAnError) {
  at::Tensor logits = at::zeros({1, 3});
  float loss = 0;
  for (int64_t bad : {int64_t{-2}, int64_t{3}}) EXPECT_THROW(cross_entropy(logits, &bad, &loss, false, 1.0), Error);
}

TEST(Embedding, ScatterAddsInOrder) {
  const at::Tensor ids = at::tensor({2, 0, 2, 2}, at::kLong), dx = at::arange(4 * 300, at::kFloat).view({4, 300}), table = at::ones({3, 300});
  scatter_add(ids, dx, table);
  EXPECT_TRUE(at::equal(table[0], dx[1] + 1));
  EXPECT_TRUE(at::equal(table[1], at::ones({300})));
  EXPECT_TRUE(at::equal(table[2], 1 + dx[0] + dx[2] + dx[3]));
}

}  // namespace
}  // namespace ballast::kernel
