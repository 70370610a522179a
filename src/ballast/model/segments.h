#pragma once
// The five segments of the model chain, forward and backward, written out (no autograd): every tensor that outlives a call
// is handed in by the engine, as plan/activations.h lists it. Gradients of weights go into fp32 views: added, or written where fresh.
// All activations are flat over token slots: [T, width] in the compute dtype.
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ballast/plan/attention.h"
#include "ballast/plan/model_shape.h"

namespace ballast {

// One micro-batch as tensors. Sequences lie one after another; sequence s owns slots [starts[s], starts[s+1]).
struct MicroBatch {
  at::Tensor ids;                // [T] int64
  at::Tensor positions;          // [T] int64, restarting at each sequence (not at a split window's start of text, see data/)
  at::Tensor targets;            // [T] int64; -1 = not trained (padding, prompt, end of window)
  std::vector<int64_t> starts;   // [sequences + 1], starts.front() == 0, starts.back() == T
  std::vector<uint64_t> sample_keys;  // [sequences] identity of the sample: random numbers are a function of (seed, step, sample, position)
  int64_t tokens() const { return starts.empty() ? 0 : starts.back(); }
};

using RoleTensors = std::array<at::Tensor, kRoleCount>;  // undefined where the segment has no such tensor
using RoleFlags = std::array<bool, kRoleCount>;

struct SegmentCall {
  const ModelConfig& config;
  int64_t layer;                 // -1 for embedding and head
  const MicroBatch& batch;
  const RoleTensors& weights;    // views in the compute dtype, shapes as ParameterTensor::shape
  const RoleTensors& gradients;  // fp32 views; undefined for frozen tensors and in forward
  bool train = true;             // dropout applies
  uint64_t seed = 0;             // of (run seed, step)
  RoleFlags fresh{};             // gradients that hold nothing yet: overwritten instead of added to (a tied table: by the head alone)
  // Attention only: its tensors hold part heads_part of heads_parts equal parts of the query heads and of the key-value heads.
  int64_t heads_part = 0, heads_parts = 1;
};
using Saved = std::vector<at::Tensor>;  // in the order of saved_of()

void embedding_forward(const SegmentCall&, at::Tensor& x);
void embedding_backward(const SegmentCall&, const at::Tensor& dx);

// x -> q, k (after norm and RoPE), v.
void project_forward(const SegmentCall&, const at::Tensor& x, at::Tensor& q, at::Tensor& k, at::Tensor& v, const Saved& saved);
// Writes only `saved`, from x: what recompute runs. Never repeats communication or attention.
void project_recompute(const SegmentCall&, const at::Tensor& x, const Saved& saved);
// Consumes dq, dk, dv (may overwrite them); adds the norm's input gradient to dx, which already holds the residual's.
void project_backward(const SegmentCall&, const at::Tensor& x, const Saved& saved, at::Tensor& dq, at::Tensor& dk, at::Tensor& dv, at::Tensor& dx);

// Causal attention of the units' queries to their keys, with the layer's window; only the rows that units name are written, by the rules of
// kernel/attention.h. lse, delta [rows, heads] fp32. merge: o and lse hold the result over other keys, and then that over both.
void attend_forward(const SegmentCall&, std::span<const AttendUnit> units, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                    const at::Tensor& lse, bool merge = false);
// o, d_o -> delta, which every backward over some of the keys needs.
void attend_delta(const SegmentCall&, const at::Tensor& o, const at::Tensor& d_o, const at::Tensor& delta);
// lse and delta belong to the result over all keys. dq, dk, dv in the compute dtype or fp32; add_dq: dq (fp32) is added to.
void attend_backward(const SegmentCall&, std::span<const AttendUnit> units, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& lse, const at::Tensor& delta, const at::Tensor& d_o, const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                     bool add_dq = false);
// Every sequence of the batch with itself, positions from 0.
std::vector<AttendUnit> whole_sequences(const MicroBatch& batch);

// x, o -> y = x1 + mlp(norm2(x1)), x1 = x + output(o).
void finish_forward(const SegmentCall&, const at::Tensor& x, const at::Tensor& o, at::Tensor& y, const Saved& saved);
void finish_recompute(const SegmentCall&, const at::Tensor& x, const at::Tensor& o, const Saved& saved);
// dx holds dy on entry and the gradient of x through the residual on return; writes d_o.
void finish_backward(const SegmentCall&, const at::Tensor& x, const at::Tensor& o, const Saved& saved, at::Tensor& dx, at::Tensor& d_o);

// Final norm, logits and cross entropy in chunks of tokens, forward and backward in one pass: logits never exist whole.
// Writes dx = scale * d(sum of losses)/dx, adds scale * d(...)/dW to the gradients, writes token_losses [T] fp32
// (0 where not trained). Gradients may be undefined (frozen).
void head_train(const SegmentCall&, const at::Tensor& x, double scale, at::Tensor& dx, at::Tensor& token_losses);
void head_loss(const SegmentCall&, const at::Tensor& x, at::Tensor& token_losses);
// Logits [rows, vocab] fp32 of the given rows of x.
at::Tensor head_logits(const SegmentCall&, const at::Tensor& x);

}  // namespace ballast
