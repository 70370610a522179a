#pragma once
// Rotary angles of a model: inverse frequencies with the scalings of Hugging Face's config.json, and tables for a batch.
#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/model/segments.h"

namespace ballast::segment {

struct RopeFrequencies {
  std::vector<float> inverse;  // [head_dim / 2], radians per position
  float factor = 1.0f;         // multiplies cosines and sines (yarn)
};
// `length` matters to dynamic NTK only: the base grows once a sequence exceeds the original positions.
RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t length);

struct RopeTables {
  at::Tensor cosines, sines;  // [T, head_dim / 2] fp32
};
RopeTables rope_tables(const ModelConfig& config, const MicroBatch& batch);

}  // namespace ballast::segment
