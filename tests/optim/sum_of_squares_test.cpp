// The sum over threads is that of one pass, to the word.
#include "ballast/optim/sum_of_squares.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ballast {
namespace {

TEST(SumOfSquares, WordsDependOnNeitherThreadsNorCuts) {
  std::vector<float> values(400'000);
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = std::ldexp(static_cast<float>(static_cast<int32_t>(state)), -31 - static_cast<int>(state >> 9 & 63));
  }
  const int before = at::get_num_threads();
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{65'537}, int64_t{399'999}}) {
    ExactSum want;
    for (int64_t i = 0; i < n; ++i) want.add(static_cast<double>(values[static_cast<size_t>(i)]) * values[static_cast<size_t>(i)]);
    for (const int threads : {1, 2, 5}) {
      at::set_num_threads(threads);
      ExactSum got;
      add_squares(got, values.data(), n);
      EXPECT_EQ(got, want) << n << " elements, " << threads << " threads";
    }
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace ballast
