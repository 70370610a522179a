#pragma once
// Text generation: prefill of the prompts, then one token per sequence and step from the KV cache.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ballast/model/kv_cache.h"
#include "ballast/model/model_weights.h"
#include "ballast/model/sampling.h"

namespace ballast {

struct GenerateOptions {
  int64_t max_tokens = 128;
  SamplingOptions sampling;
  uint64_t seed = 0;
  std::vector<int64_t> end_of_text;  // ids that end a text; the tokenizer's
};

enum class StopReason { EndOfText, MaxTokens, MaxPositions, Callback };
const char* name_of(StopReason reason);

struct Generation {
  std::vector<int64_t> ids;  // without the prompt and without the end-of-text that stopped it
  StopReason reason = StopReason::MaxTokens;
};

// Continues one prompt; the cache is cleared first, and bounds prompt + new tokens (StopReason::MaxPositions when it is
// full). `on_token` sees each id as it is chosen; false stops. Throws Error(Usage) for an empty or too long prompt, ids
// outside the vocabulary, and options out of range.
Generation generate(const ModelWeights& weights, KvCache& cache, std::span<const int64_t> prompt,
                    const GenerateOptions& options, const std::function<bool(int64_t id)>& on_token = {});

// Several prompts at once, each as if alone: sequence s draws from the stream (seed, s).
std::vector<Generation> generate_batch(const ModelWeights& weights, KvCache& cache,
                                       const std::vector<std::vector<int64_t>>& prompts, const GenerateOptions& options,
                                       const std::function<bool(int64_t sequence, int64_t id)>& on_token = {});

// The cache that a prompt and its continuation need: no more than the model's positions.
int64_t cache_capacity(const ModelConfig& config, int64_t longest_prompt, int64_t max_tokens);

}  // namespace ballast
