// Products by slivers against double, at every edge of rows, columns and depth, from fp32 and bf16.
#include "ballast/kernel/sliver_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace ballast::kernel {
namespace {

TEST(SliverProduct, MatchesDoubleAtEveryEdge) {
  at::manual_seed(2);
  for (int64_t m : {1, 2, 5, 6, 7, 11, 64}) {
    for (int64_t n : {1, 8, 15, 16, 17, 100}) {
      for (int64_t depth : {1, 7, 8, 20, 130}) {
        for (int64_t variant = 0; variant < 8; ++variant) {
          const bool transpose_a = (variant & 1) != 0, transpose_b = (variant & 2) != 0, narrow = (variant & 4) != 0;
          const at::Tensor a = transpose_a ? at::randn({depth, m + 3}) : at::randn({m, depth + 3});
          const at::Tensor b = (transpose_b ? at::randn({n, depth + 2}) : at::randn({depth, n + 2})).to(narrow ? at::kBFloat16 : at::kFloat);
          const at::Tensor slivers = at::full({sliver_columns(n) * depth}, NAN), start = at::randn({m + 1, n + 5}), c = start.clone();
          if (narrow) pack_slivers(b.data_ptr<c10::BFloat16>(), b.size(1), transpose_b, depth, n, slivers.data_ptr<float>());
          else pack_slivers(b.data_ptr<float>(), b.size(1), transpose_b, depth, n, slivers.data_ptr<float>());
          const at::Tensor left = (transpose_a ? a.narrow(1, 0, m).t() : a.narrow(1, 0, depth)).to(at::kDouble);
          const at::Tensor right = (transpose_b ? b.narrow(1, 0, depth).t() : b.narrow(1, 0, n)).to(at::kDouble);
          const at::Tensor exact = left.matmul(right);
          const auto part = [&](const at::Tensor& t) { return t.narrow(0, 0, m).narrow(1, 0, n); };
          sliver_product(transpose_a, m, n, depth, a.data_ptr<float>(), a.size(1), slivers.data_ptr<float>(), c.data_ptr<float>(), n + 5, true);
          EXPECT_LE((part(c).to(at::kDouble) - exact - part(start)).abs().max().item<double>(), 3e-5);
          sliver_product(transpose_a, m, n, depth, a.data_ptr<float>(), a.size(1), slivers.data_ptr<float>(), c.data_ptr<float>(), n + 5, false);
          EXPECT_LE((part(c).to(at::kDouble) - exact).abs().max().item<double>(), 3e-5) << m << " " << n << " " << depth << " " << variant;
          EXPECT_TRUE(at::equal(c.narrow(1, n, 5), start.narrow(1, n, 5)) && at::equal(c[m], start[m]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast::kernel
