#pragma once
// What every segment puts out and what it saves for its backward pass: names, shapes and dtypes as a function of the
// micro-batch. The engine allocates exactly these; the segments of model/ write exactly these.
#include <cstdint>
#include <string>
#include <vector>

#include "ballast/plan/dtype.h"
#include "ballast/plan/model_shape.h"

namespace ballast {

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype;
  int64_t bytes() const;  // without alignment
};

// Boundary tensors between segments. T = token slots of the micro-batch, H = hidden.
//   embedding -> x [T, H];  project: x -> q [T, heads*head_dim], k [T, kv_heads*head_dim], v [same];
//   attend: q, k, v -> o [T, heads*head_dim], lse [heads, T] fp32;  finish: x, o -> x' [T, H];  head: x -> loss
std::vector<TensorSpec> outputs_of(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute);

// What the backward needs beside the segment's inputs, outputs and weights. Written by forward (or by recompute, which
// reruns the segment from its inputs). The order is the order in which the segment receives them.
std::vector<TensorSpec> saved_of(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute);

// Calibrated upper bound of the scratch bytes that a segment's kernels take from the allocator while they run with up to
// `threads` threads (attention has tiles per thread). The head's forward and backward are one: `backward` does not matter.
int64_t scratch_bytes(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute, bool backward, int64_t threads = 4);

}  // namespace ballast
