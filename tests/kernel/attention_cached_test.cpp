// Attention against a cache equals a plain softmax in double, for group sizes, windows, head sizes and both dtypes.
#include "ballast/kernel/attention_cached.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ballast::kernel {
namespace {

struct Row {
  int64_t heads, kv_heads, head_dim, window, past, rows;
};

void compare(const Row& row, at::ScalarType dtype, double bound) {
  at::manual_seed(11);
  const int64_t slots = 3, capacity = row.past + row.rows + 2, kv = row.kv_heads * row.head_dim,
                width = row.heads * row.head_dim;
  const at::Tensor q = at::randn({row.rows + 1, width}).to(dtype), keys = at::randn({slots, capacity, kv}).to(dtype),
                   values = at::randn({slots, capacity, kv}).to(dtype);
  at::Tensor o = at::full_like(q, 99.0);
  const std::vector<CachedQueries> queries = {{1, row.rows, 2, row.past}};  // row 0 belongs to nobody
  attention_cached({row.heads, row.kv_heads, row.head_dim, row.window}, queries, q, keys, values, o);
  const at::Tensor q64 = q.to(at::kDouble), k64 = keys[2].to(at::kDouble), v64 = values[2].to(at::kDouble),
                   o64 = o.to(at::kDouble);
  EXPECT_TRUE(at::equal(o[0], at::full_like(o[0], 99.0)));
  for (int64_t i = 0; i < row.rows; ++i) {
    const int64_t position = row.past + i, first = row.window > 0 ? std::max<int64_t>(0, position - row.window + 1) : 0;
    for (int64_t h = 0; h < row.heads; ++h) {
      const int64_t g = h / (row.heads / row.kv_heads);
      const at::Tensor k = k64.narrow(0, first, position + 1 - first).narrow(1, g * row.head_dim, row.head_dim);
      const at::Tensor v = v64.narrow(0, first, position + 1 - first).narrow(1, g * row.head_dim, row.head_dim);
      const at::Tensor scores =
          k.matmul(q64[i + 1].narrow(0, h * row.head_dim, row.head_dim)) / std::sqrt(static_cast<double>(row.head_dim));
      const at::Tensor expected = at::softmax(scores, 0).matmul(v),
                       found = o64[i + 1].narrow(0, h * row.head_dim, row.head_dim);
      EXPECT_LT((found - expected).abs().max().item<double>(), bound) << "query " << i << " head " << h;
    }
  }
}

TEST(AttentionCached, EqualsPlainSoftmax) {
  for (const Row& row : std::vector<Row>{{1, 1, 1, 0, 0, 1},
                                         {4, 4, 8, 0, 5, 1},
                                         {4, 2, 16, 0, 31, 3},
                                         {6, 1, 64, 0, 300, 2},
                                         {12, 12, 64, 0, 200, 1},
                                         {4, 2, 16, 3, 10, 4},
                                         {2, 2, 33, 1, 4, 2},
                                         {2, 1, 128, 7, 2, 5},
                                         {8, 2, 20, 100, 50, 1}}) {
    compare(row, at::kFloat, 2e-6);
    compare(row, at::kBFloat16, 1.6e-2);
  }
}

TEST(AttentionCached, LargeScoresDoNotOverflow) {
  const at::Tensor q = at::full({1, 4}, 1e4f), keys = at::zeros({1, 3, 4}), values = at::zeros({1, 3, 4});
  keys[0][1].fill_(1e4f);
  values[0][1].fill_(5.0f);
  at::Tensor o = at::empty({1, 4});
  attention_cached({1, 1, 4, 0}, std::vector<CachedQueries>{{0, 1, 0, 2}}, q, keys, values, o);
  EXPECT_TRUE(at::equal(o, at::full({1, 4}, 5.0f)));
}

}  // namespace
}  // namespace ballast::kernel
