#pragma once
// Attention of a few new queries against cached keys and values: the decode step, read once from where the cache lies.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ballast/kernel/attention.h"

namespace ballast::kernel {

// Rows [first, first + rows) of q are the newest tokens of a sequence, whose cache row is `slot`; `past` keys stood
// before them. Query i sees keys up to past + i, within the window.
struct CachedQueries {
  int64_t first, rows, slot, past;
};

// q, o [T, heads * d]; keys, values [slots, capacity, kv_heads * d], where the keys of the new tokens stand already.
void attention_cached(const AttentionShape& shape, std::span<const CachedQueries> queries, const at::Tensor& q,
                      const at::Tensor& keys, const at::Tensor& values, const at::Tensor& o);

}  // namespace ballast::kernel
