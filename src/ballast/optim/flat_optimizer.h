#pragma once
// Optimizers over a flat shard of one parameter group: clip, decay, moments, fp32 master weights and bf16 copy in one
// pass. What the shard holds and which parts decay is the caller's; no tensor is named here.
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "ballast/plan/optimizer_spec.h"

namespace ballast {

// Elements [begin, end) of the shard. Elements in no range (padding) are left alone.
struct UpdateRange {
  int64_t begin = 0, end = 0;
  bool decay = true;
  bool operator==(const UpdateRange&) const = default;
};

// Contiguous one-dimensional CPU tensors of equal length.
struct UpdateBuffers {
  at::Tensor weights;              // fp32 master, updated in place
  at::Tensor gradient;             // fp32, read only
  std::vector<at::Tensor> states;  // fp32, in the order of optimizer_state_specs
  at::Tensor copy;                 // bf16, gets the new weights; may be undefined
};

struct UpdateStep {
  int64_t step = 1;  // counts from 1: the bias correction
  double lr = 0;     // of this step
  double scale = 1;  // multiplies the gradient: the clip factor
};

// One update of all ranges, spread over the threads of ATen; the bits do not depend on their number, nor on how the
// shard was cut. Throws Error(Internal) when buffers do not match the spec.
void apply_update(const OptimizerSpec& spec, const UpdateStep& step, const std::vector<UpdateRange>& ranges,
                  const UpdateBuffers& buffers);

// The factor that brings a global gradient norm down to `clip`: 1 when it is below, or when clip is 0 (off).
// A non-finite norm gives NaN, so that an unchecked update cannot hide it.
double clip_factor(double gradient_norm, double clip);

}  // namespace ballast
