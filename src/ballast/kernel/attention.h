#pragma once
// Softmax attention over units of query and key rows (plan/attention.h), forward and backward, with a sliding window, grouped heads and
// dropout. No attention matrix is stored: the log-sum-exp of every query goes out, by which results over disjoint sets of keys merge exactly.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ballast/kernel/dropout.h"
#include "ballast/plan/attention.h"

namespace ballast::kernel {

struct AttentionShape {
  int64_t heads, kv_heads, head_dim;  // of the tensors given
  int64_t window = 0;                 // a query at position i sees (i - window, i]; 0 = all of [0, i]
  int64_t first_head = 0;             // where the tensors hold some of the model's heads: the index of their first, by which dropout draws
};

// Dropout of attention weights, drawn by (key of the unit, position of the query, head, position of the key).
struct AttentionDropout {
  double p = 0;
  std::span<const uint64_t> keys;  // one per unit
  DropoutPlace place{DropoutPlace::Attention, 0};
};

// q [rows, heads * d], k, v [key rows, kv_heads * d], of one dtype, fp32 or bf16; o [rows, heads * d] in it or fp32; lse [rows, heads] fp32.
// All contiguous. Writes the rows of o and lse that the units' queries name and no other; no row is named twice. A query that sees no key of
// its unit gets o = 0, lse = -inf. merge: o and lse hold the result over other keys; afterwards, that over both sets.
void attention_forward(const AttentionShape& shape, std::span<const AttendUnit> units, const AttentionDropout& dropout, const at::Tensor& q,
                       const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse, bool merge = false);

// delta [rows, heads] fp32 = sum over a head's channels of o * d_o, o over all keys; o and d_o [rows, heads * d], each fp32 or bf16.
void attention_delta(const AttentionShape& shape, const at::Tensor& o, const at::Tensor& d_o, const at::Tensor& delta);

// Gradients through the units' pairs: q, k, v, d_o of one dtype; lse and delta [rows, heads] of the result over all keys, also those outside
// the units. dq as q, dk and dv as k, each in that dtype or fp32. Writes the rows that the units name, 0 where nothing is seen; neither a
// row of queries nor one of keys may be named twice. add_dq: dq, then fp32, is added to.
void attention_backward(const AttentionShape& shape, std::span<const AttendUnit> units, const AttentionDropout& dropout, const at::Tensor& q,
                        const at::Tensor& k, const at::Tensor& v, const at::Tensor& lse, const at::Tensor& delta, const at::Tensor& d_o,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, bool add_dq = false);

// The result over several disjoint sets of keys: parts [rows, heads * d], of one dtype, with their lses [rows, heads] -> o (fp32 or bf16), lse.
// A part counts exp(its lse); with -inf nothing, whatever it holds. o and lse may be one of the parts with its lse.
void attention_merge(const AttentionShape& shape, std::span<const at::Tensor> parts, std::span<const at::Tensor> lses, const at::Tensor& o,
                     const at::Tensor& lse);

// x [rows, parts * w] -> y [parts * rows, w]: part p of row r is row p * rows + r. Of one dtype, contiguous.
void split_heads(const at::Tensor& x, int64_t parts, const at::Tensor& y);
// y [parts * rows, w] -> x [rows, parts * w].
void join_heads(const at::Tensor& y, int64_t parts, const at::Tensor& x);

}  // namespace ballast::kernel
