// Products in panels and with few rows: values against double precision at every edge of the blocking, and bits that depend neither on
// the threads nor on the neighbours.
#include "ballast/kernel/packed_gemm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ballast/kernel/few_rows.h"

namespace ballast::kernel {
namespace {

MatrixOperand operand(const at::Tensor& t) { return {t.data_ptr(), t.scalar_type() == at::kBFloat16, t.stride(0), t.stride(1)}; }

// A matrix inside a wider one; what stands around it is NaN, so that reading outside shows in the result.
at::Tensor inside(int64_t rows, int64_t columns, bool flip, at::ScalarType dtype) {
  const int64_t lines = flip ? columns : rows, length = flip ? rows : columns;
  const at::Tensor base = at::full({lines + 2, length + 5}, NAN, dtype);
  at::Tensor view = base.narrow(0, 1, lines).narrow(1, 3, length);
  view.copy_(at::randn({lines, length}));
  return flip ? view.t() : view;
}

at::Tensor multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& start, bool accumulate) {
  const at::Tensor base = at::full({a.size(0), b.size(1) + 7}, NAN);
  at::Tensor c = base.narrow(1, 2, b.size(1));
  if (accumulate) c.copy_(start);
  packed_product(operand(a), operand(b), a.size(0), b.size(1), a.size(1), c.data_ptr<float>(), c.stride(0), accumulate);
  EXPECT_TRUE(base.narrow(1, 0, 2).isnan().all().item<bool>() && base.narrow(1, 2 + b.size(1), 5).isnan().all().item<bool>()) << "wrote outside";
  return c.clone();
}

// Rows about the tile of 6, the block of 192 and the bound of few rows; columns about 8, 16, 64 and the block of 2048; depths about 8 and 256.
const std::vector<std::array<int64_t, 3>> kSizes{{1, 1, 1},    {1, 300, 131},  {2, 257, 67},  {3, 256, 64},   {4, 8, 200},   {5, 520, 9},
                                                 {7, 100, 33}, {8, 255, 129},  {9, 256, 16},  {12, 7, 15},    {191, 260, 31}, {192, 64, 48},
                                                 {193, 9, 17}, {400, 513, 40}, {13, 33, 2049}, {20, 300, 4100}};

TEST(PackedProduct, MatchesDoubleAtEveryEdge) {
  at::manual_seed(1);
  for (const auto& [m, k, n] : kSizes) {
    for (int layout = 0; layout < 16; ++layout) {
      const at::Tensor a = inside(m, k, (layout & 1) != 0, (layout & 4) != 0 ? at::kBFloat16 : at::kFloat);
      const at::Tensor b = inside(k, n, (layout & 2) != 0, (layout & 8) != 0 ? at::kBFloat16 : at::kFloat);
      const at::Tensor start = at::randn({m, n}), exact = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
      for (bool accumulate : {false, true}) {
        const at::Tensor want = accumulate ? exact + start : exact;
        const double error = ((multiply(a, b, start, accumulate).to(at::kDouble) - want).norm() / want.norm()).item<double>();
        EXPECT_LE(error, 2e-6) << m << " " << k << " " << n << " layout " << layout << " accumulate " << accumulate;
      }
    }
  }
}

TEST(PackedProduct, WideningBeforeChangesNoBit) {
  at::manual_seed(2);
  for (const auto& [m, k, n] : kSizes) {
    for (bool flip : {false, true}) {
      const at::Tensor a = at::randn({m, k}), b = inside(k, n, flip, at::kBFloat16), none;
      const at::Tensor wide = flip ? b.t().to(at::kFloat).contiguous().t() : b.to(at::kFloat).contiguous();
      EXPECT_TRUE(at::equal(multiply(a, b, none, false), multiply(a, wide, none, false))) << m << " " << k << " " << n << " " << flip;
    }
  }
}

TEST(PackedProduct, BitsDependOnNeitherThreadsNorNeighbours) {
  at::manual_seed(3);
  const int before = at::get_num_threads();
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{8, 700, 3000}, {300, 700, 1500}, {1500, 700, 300}}) {
    for (bool flip : {false, true}) {
      const at::Tensor a = at::randn({m, k}), b = inside(k, n, flip, at::kFloat), none;
      at::set_num_threads(1);
      const at::Tensor alone = multiply(a, b, none, false);
      at::set_num_threads(3);
      EXPECT_TRUE(at::equal(multiply(a, b, none, false), alone)) << m << " " << n;
      at::set_num_threads(1);
      const int64_t rows = m <= kFewRows ? m - 3 : m - 7;
      EXPECT_TRUE(at::equal(multiply(a.narrow(0, 3, rows - 3), b, none, false), alone.narrow(0, 3, rows - 3)));
      EXPECT_TRUE(at::equal(multiply(a, b.narrow(1, 5, n - 9), none, false), alone.narrow(1, 5, n - 9)));
    }
  }
  at::set_num_threads(before);
}

TEST(PackedProduct, CarriesInfinitiesAndNaN) {
  at::Tensor a = at::randn({30, 40}), b = at::randn({40, 50});
  a[3][7] = INFINITY;
  a[20][1] = NAN;
  const at::Tensor c = multiply(a, b, {}, false);
  EXPECT_FALSE(c[3].isfinite().any().item<bool>());
  EXPECT_TRUE(c[20].isnan().all().item<bool>());
  EXPECT_TRUE(c.narrow(0, 4, 16).isfinite().all().item<bool>() && c.narrow(0, 21, 9).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace ballast::kernel
