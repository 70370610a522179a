#pragma once
// Causal softmax attention over variable-length sequences, forward and backward, with a sliding window, grouped heads and
// dropout; the log-sum-exp goes out, no attention matrix is stored.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ballast/kernel/dropout.h"

namespace ballast::kernel {

struct AttentionShape {
  int64_t heads, kv_heads, head_dim;
  int64_t window = 0;  // token i sees (i - window, i]; 0 = all of [0, i]
};

// Dropout of attention weights; keys per sequence, positions per slot.
struct AttentionDropout {
  double p = 0;
  std::span<const uint64_t> keys;
  const int64_t* positions = nullptr;
  DropoutPlace place{DropoutPlace::Attention, 0};
};

// q, o [T, heads * d]; k, v [T, kv_heads * d]; lse [heads, T] fp32. Sequence s owns slots [starts[s], starts[s + 1]).
void attention_forward(const AttentionShape& shape, std::span<const int64_t> starts, const AttentionDropout& dropout,
                       const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse);
void attention_backward(const AttentionShape& shape, std::span<const int64_t> starts, const AttentionDropout& dropout,
                        const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse,
                        const at::Tensor& d_o, const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv);

// Upper bound of the scratch bytes of either direction, for sequences no longer than `longest`.
int64_t attention_scratch_bytes(int64_t head_dim, int64_t longest, int64_t threads, bool backward);

}  // namespace ballast::kernel
