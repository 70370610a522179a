#pragma once
// What every segment puts out and what it saves for its backward pass: names, shapes and dtypes as a function of the
// micro-batch. The engine allocates exactly these; the segments of model/ write exactly these.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ballast/plan/attention.h"
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
//   attend: q, k, v -> o [T, heads*head_dim], lse [T, heads] fp32;  finish: x, o -> x' [T, H];  head: x -> loss
std::vector<TensorSpec> outputs_of(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute);

// What the backward needs beside the segment's inputs, outputs and weights. Written by forward (or by recompute, which
// reruns the segment from its inputs). The order is the order in which the segment receives them.
std::vector<TensorSpec> saved_of(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute);

// Threads for which the plan leaves scratch where kernels take some for each.
constexpr int64_t kScratchThreads = 4;

// Calibrated upper bound of the scratch bytes that a segment's kernels take from the allocator while they run with up to
// `threads` threads (attention has tiles per thread). The head's forward and backward are one: `backward` does not matter.
// Attention is bounded as if all tokens were one sequence.
int64_t scratch_bytes(SegmentKind kind, const ModelConfig& config, int64_t tokens, DType compute, bool backward, int64_t threads = kScratchThreads);

// The same for one call of attention over these units, with all of the model's heads or a part of them. Exact where
// there is work for all threads and gradients go out in `compute`; where they go out in fp32, less is taken.
int64_t attend_scratch_bytes(const ModelConfig& config, std::span<const AttendUnit> units, DType compute, bool backward, int64_t threads);

}  // namespace ballast
