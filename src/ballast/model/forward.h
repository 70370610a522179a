#pragma once
// The forward pass over weights that are all in memory, without gradients: evaluation and generation share it.
#include <ATen/core/Tensor.h>

#include <functional>

#include "ballast/model/model_weights.h"
#include "ballast/model/segments.h"

namespace ballast {

// What runs between project and finish of a block: attend_whole in evaluation, KvCache::attend in generation.
using Attend = std::function<void(const SegmentCall&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  at::Tensor& o, at::Tensor& lse)>;

// Attention within each sequence of the batch, all of whose tokens are there.
void attend_whole(const SegmentCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor& o, at::Tensor& lse);

// Embedding and blocks: x [T, hidden] before the final norm. One block's buffers are held, reused by every block.
at::Tensor forward_blocks(const ModelWeights& weights, const MicroBatch& batch, const Attend& attend);

// Logits [rows, vocab] fp32 of rows of x.
at::Tensor forward_logits(const ModelWeights& weights, const MicroBatch& batch, const at::Tensor& rows);

// Loss of every token [T] fp32 in nats, 0 where the target is -1. Logits exist for a chunk of tokens at a time.
at::Tensor evaluate_batch(const ModelWeights& weights, const MicroBatch& batch);

}  // namespace ballast
