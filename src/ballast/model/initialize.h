#pragma once
// Fresh weights, drawn by counter: an element's value is a function of (seed, tensor name, element), so any shard can
// be drawn alone and neither rank nor world size matters.
#include <cstdint>

#include "ballast/plan/model_shape.h"

namespace ballast {

// Fills a group's flat buffer, or elements [begin, end) of it. Matrices and tables: normal(0, initializer_range),
// GPT-2's two residual projections scaled by 1 / sqrt(2 layers) ("Language Models are Unsupervised Multitask
// Learners", 2.3); biases zero; norm weights one; the gaps between tensors zero.
void initialize_group(const ModelConfig& config, const ParameterGroup& group, uint64_t seed, float* flat);
void initialize_range(const ModelConfig& config, const ParameterGroup& group, uint64_t seed, int64_t begin, int64_t end,
                      float* out);

}  // namespace ballast
