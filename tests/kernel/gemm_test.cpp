// Products over odd sizes, strides and dtypes against double precision.
#include "ballast/kernel/gemm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ballast::kernel {
namespace {

double error_of(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

class WithMode {
 public:
  explicit WithMode(Bf16Products bf16, Fp32Products fp32) : bf16_(bf16_products()), fp32_(fp32_products()) {
    set_bf16_products(bf16);
    set_fp32_products(fp32);
  }
  ~WithMode() {
    set_bf16_products(bf16_);
    set_fp32_products(fp32_);
  }

 private:
  Bf16Products bf16_;
  Fp32Products fp32_;
};

TEST(Product, MatchesDoubleForAllLayouts) {
  at::manual_seed(1);
  for (const auto& [bf16, fp32] : {std::pair{Bf16Products::Converted, Fp32Products::Packed}, {Bf16Products::Native, Fp32Products::Blas}}) {
    const WithMode guard(bf16, fp32);
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {1, 7, 5}, {5, 1, 7}, {7, 5, 1}, {13, 33, 65}, {64, 64, 64}}) {
        for (int layout = 0; layout < 8; ++layout) {
          const auto view = [&](int64_t rows, int64_t cols, bool flip) {  // a slice of something wider
            const at::Tensor base = at::randn(flip ? std::vector<int64_t>{cols, rows + 3} : std::vector<int64_t>{rows, cols + 3}).to(dtype);
            return flip ? base.narrow(1, 2, rows).t() : base.narrow(1, 2, cols);
          };
          const at::Tensor a = view(m, k, (layout & 1) != 0), b = view(k, n, (layout & 2) != 0);
          const at::Tensor exact = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
          const at::Tensor start = at::randn({m, n});
          at::Tensor c = start.clone();
          if ((layout & 4) != 0) c = start.t().clone(at::MemoryFormat::Contiguous).t();
          product(a, b, c, true);
          EXPECT_LE(error_of(c, exact + start), 2e-6) << m << " " << k << " " << n << " " << layout;
          product(a, b, c, false);
          EXPECT_LE(error_of(c, exact), 2e-6) << m << " " << k << " " << n << " " << layout;
          if ((layout & 4) != 0) continue;
          at::Tensor narrow = at::full({m, n}, NAN, at::kBFloat16);
          product(a, b, narrow);
          EXPECT_LE(error_of(narrow, exact), 4e-3);
        }
      }
    }
  }
}

TEST(Product, WithoutInnerDimensionIsZero) {
  const at::Tensor c = at::ones({3, 4});
  product(at::empty({3, 0}), at::empty({0, 4}), c, true);
  EXPECT_EQ(c.sum().item<float>(), 12.0f);
  product(at::empty({3, 0}), at::empty({0, 4}), c);
  EXPECT_EQ(c.abs().sum().item<float>(), 0.0f);
  product(at::empty({0, 5}), at::empty({5, 4}), at::empty({0, 4}));
}

TEST(Linear, BiasAndResidualAreAddedBeforeRounding) {
  at::manual_seed(2);
  for (bool transposed : {false, true}) {
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = at::randn({9, 21}).to(dtype), w = at::randn(transposed ? std::vector<int64_t>{21, 34} : std::vector<int64_t>{34, 21}).to(dtype);
      const at::Tensor bias = at::randn({34}).to(dtype), residual = at::randn({9, 34}).to(dtype);
      const at::Tensor wd = w.to(at::kDouble), exact = at::matmul(x.to(at::kDouble), transposed ? wd : wd.t());
      for (int with = 0; with < 4; ++with) {
        const at::Tensor b = (with & 1) != 0 ? bias : at::Tensor(), r = (with & 2) != 0 ? residual : at::Tensor();
        at::Tensor expected = exact.clone();
        if (b.defined()) expected += b.to(at::kDouble);
        if (r.defined()) expected += r.to(at::kDouble);
        const at::Tensor y = at::full({9, 34}, NAN, dtype);
        linear_forward(x, w, b, transposed, y, r);
        EXPECT_LE(error_of(y, expected), dtype == at::kFloat ? 1e-6 : 3e-3) << with;
      }
      const at::Tensor dy = at::randn({9, 34}).to(dtype), dx = at::full({9, 21}, NAN, dtype);
      linear_backward_input(dy, w, transposed, dx);
      EXPECT_LE(error_of(dx, at::matmul(dy.to(at::kDouble), transposed ? wd.t() : wd)), dtype == at::kFloat ? 1e-6 : 3e-3);
      const at::Tensor dw = at::ones(w.sizes()), db = at::ones({34});
      linear_backward_weight(x, dy, transposed, dw, db);
      at::Tensor expected = at::matmul(dy.to(at::kDouble).t(), x.to(at::kDouble));
      if (transposed) expected = expected.t();
      EXPECT_LE(error_of(dw, expected + 1), 1e-6);
      EXPECT_LE(error_of(db, dy.to(at::kDouble).sum(0) + 1), 1e-6);
    }
  }
}

TEST(Convert, RoundsAsATenDoes) {
  const at::Tensor x = at::cat({at::randn({1000}) * 1e30, at::randn({1000}) * 1e-30, at::randn({1000}),
                                at::tensor({0.0f, -0.0f, INFINITY, -INFINITY, 3.4e38f, 1e-45f, 1.00390625f, 1.01171875f})}).unsqueeze(0);
  const at::Tensor y = at::empty(x.sizes(), at::kBFloat16), back = at::empty(x.sizes());
  convert(x, y);
  EXPECT_TRUE(at::equal(y, x.to(at::kBFloat16)));
  convert(y, back);
  EXPECT_TRUE(at::equal(back, y.to(at::kFloat)));
  const at::Tensor nan = at::full({1, 5}, NAN), out = at::zeros({1, 5}, at::kBFloat16);
  convert(nan, out);
  EXPECT_TRUE(out.isnan().all().item<bool>());
}

}  // namespace
}  // namespace ballast::kernel
