#pragma once
// What a model is to the plan: a chain of segments over parameter groups, every tensor with its place in the flat buffer
// of its group. Pure; the tensors themselves live in model/ and engine/.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ballast/plan/dtype.h"
#include "ballast/plan/model_config.h"

namespace ballast {

// What a tensor is to the segment that reads it; its name is the Hugging Face one.
enum class Role : uint8_t {
  TokenEmbedding, PositionEmbedding,
  Norm1Weight, Norm1Bias, QkvWeight, QkvBias, QueryWeight, QueryBias, KeyWeight, KeyBias, ValueWeight, ValueBias,
  QueryNorm, KeyNorm,
  OutputWeight, OutputBias, Norm2Weight, Norm2Bias, UpWeight, UpBias, GateWeight, GateBias, DownWeight, DownBias,
  FinalNormWeight, FinalNormBias, HeadWeight,
  Count
};
constexpr size_t kRoleCount = static_cast<size_t>(Role::Count);

struct ParameterTensor {
  std::string name;             // "transformer.h.0.attn.c_attn.weight", "model.layers.0.self_attn.q_proj.weight", ...
  Role role;
  std::vector<int64_t> shape;   // as stored on disk, row-major
  int64_t offset = 0;           // elements from the start of the group's flat buffer, a multiple of kUnit
  bool decay = true;            // weight decay applies (matrices yes; norms and biases no)
  int64_t numel() const;
};

// The unit in which group buffers are laid out and cut, in elements: tensors start on it, shards are multiples of it.
constexpr int64_t kUnit = 64;

// The unit of ownership, gather, reduction and update.
struct ParameterGroup {
  std::string name;   // "embedding", "positions", "block.3", "block.3.frozen", "head"
  bool trainable = true;
  std::vector<ParameterTensor> tensors;
  int64_t numel = 0;          // elements of the flat buffer before padding to shards; a multiple of kUnit
  int64_t parameters = 0;     // sum of tensor sizes
};

enum class SegmentKind : uint8_t { Embedding, Project, Attend, Finish, Head };
const char* name_of(SegmentKind kind);

struct Segment {
  SegmentKind kind;
  int64_t layer = -1;            // block index, -1 for embedding and head
  std::vector<int64_t> groups;   // indices of the groups that it reads, forward and backward
  std::string name() const;      // "block.3.project"
};

struct ModelShape {
  ModelConfig config;
  std::vector<ParameterGroup> groups;
  std::vector<Segment> segments;  // in forward order

  int64_t parameters() const;            // trainable and frozen
  int64_t trainable_parameters() const;
  int64_t matrix_parameters() const;     // those in matrix products per token: all but norms, biases, position table and an untied input table
};

// Groups and segments of a model. Tensors whose name matches a glob of `freeze` go into groups of their own that are not
// trainable. Throws Error(Usage) for a pattern that matches nothing (with the nearest name).
ModelShape describe(const ModelConfig& config, std::span<const std::string> freeze = {});
// A glob over parameter names that matches none is a mistake of the user's: throws Error(Usage) at `key` with the nearest name.
void check_patterns(const ModelShape& model, std::span<const std::string> patterns, const std::string& key);

// Named presets: gpt2-10m, gpt2-124m, llama-60m, and the smaller ones of tests and benchmarks (gpt2-30m, gpt2-tiny, llama-110m).
// Throws Error(Usage) with the list for an unknown name.
ModelConfig preset(const std::string& name);
std::vector<std::string> preset_names();

// Training FLOPs of one token at a causal context: 6 per matrix parameter plus attention; recompute and input embedding
// excluded. Attention: forward 2 products of 2*query_width*keys each, backward twice that. `attended` is the number of
// (query, key) pairs that the masks keep, over all sequences and for one layer with that window.
double linear_flops_per_token(const ModelShape& shape);                     // 6 * matrix parameters
double attention_flops(const ModelConfig& config, std::span<const int64_t> lengths);  // all layers, forward + backward, causal and windowed

}  // namespace ballast
