// Names, shapes, groups and offsets of the GPT-2 and llama families, as Hugging Face stores them.
#include "ballast/plan/model_shape.h"

#include <algorithm>

#include <fmt/format.h>
#include <fnmatch.h>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/plan/attention.h"

namespace ballast {
namespace {

int64_t round_up_to_unit(int64_t elements) { return (elements + kUnit - 1) / kUnit * kUnit; }

using Shape = std::vector<int64_t>;

// Collects the tensors of one group in buffer order; frozen ones go to a second group.
class GroupBuilder {
 public:
  GroupBuilder(std::string name, std::span<const std::string> freeze) : freeze_(freeze) {
    live_.name = name;
    frozen_.name = name + ".frozen";
    frozen_.trainable = false;
  }

  void add(Role role, std::string name, Shape shape) {
    const bool frozen = std::any_of(freeze_.begin(), freeze_.end(), [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
    ParameterGroup& group = frozen ? frozen_ : live_;
    ParameterTensor tensor{std::move(name), role, std::move(shape), group.numel, true};
    tensor.decay = tensor.shape.size() > 1;
    group.numel += round_up_to_unit(tensor.numel());
    group.parameters += tensor.numel();
    group.tensors.push_back(std::move(tensor));
  }

  // Appends the non-empty groups to `model` and their indices to the result.
  std::vector<int64_t> finish(ModelShape& model) {
    std::vector<int64_t> indices;
    for (ParameterGroup* group : {&live_, &frozen_}) {
      if (group->tensors.empty()) continue;
      indices.push_back(static_cast<int64_t>(model.groups.size()));
      model.groups.push_back(std::move(*group));
    }
    return indices;
  }

 private:
  std::span<const std::string> freeze_;
  ParameterGroup live_, frozen_;
};

// The names that differ between the two families.
struct Names {
  std::string tokens, positions, block, norm1, norm2, qkv, q, k, v, output, up, gate, down, q_norm, k_norm, final_norm;
  std::string head = "lm_head";
};

Names names_of(const ModelConfig& config) {
  if (config.model_type == "gpt2") {
    return {.tokens = "transformer.wte.weight", .positions = "transformer.wpe.weight", .block = "transformer.h.",
            .norm1 = "ln_1", .norm2 = "ln_2", .qkv = "attn.c_attn", .q = "attn.q_proj", .k = "attn.k_proj", .v = "attn.v_proj",
            .output = "attn.c_proj", .up = "mlp.c_fc", .gate = "mlp.c_gate", .down = "mlp.c_proj",
            .q_norm = "attn.q_norm", .k_norm = "attn.k_norm", .final_norm = "transformer.ln_f"};
  }
  return {.tokens = "model.embed_tokens.weight", .positions = "model.embed_positions.weight", .block = "model.layers.",
          .norm1 = "input_layernorm", .norm2 = "post_attention_layernorm", .qkv = "self_attn.qkv_proj",
          .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj", .output = "self_attn.o_proj",
          .up = "mlp.up_proj", .gate = "mlp.gate_proj", .down = "mlp.down_proj",
          .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm", .final_norm = "model.norm"};
}

void add_block(GroupBuilder& group, const ModelConfig& config, const Names& names, int64_t layer) {
  const std::string prefix = names.block + std::to_string(layer) + ".";
  const int64_t hidden = config.hidden, query = config.query_width(), kv = config.kv_width(), inner = config.intermediate;
  const auto norm = [&](Role weight, Role bias, const std::string& name) {
    group.add(weight, prefix + name + ".weight", {hidden});
    if (config.norm == NormKind::LayerNorm) group.add(bias, prefix + name + ".bias", {hidden});
  };
  const auto weight = [&](Role role, const std::string& name, int64_t in, int64_t out) {
    group.add(role, prefix + name + ".weight", config.transposed ? Shape{in, out} : Shape{out, in});
  };
  const auto bias = [&](bool present, Role role, const std::string& name, int64_t out) {
    if (present) group.add(role, prefix + name + ".bias", {out});
  };

  norm(Role::Norm1Weight, Role::Norm1Bias, names.norm1);
  if (config.fused_qkv) {
    weight(Role::QkvWeight, names.qkv, hidden, query + 2 * kv);
    bias(config.qkv_bias, Role::QkvBias, names.qkv, query + 2 * kv);
  } else {
    // Adjacent and in this order: where the sizes are multiples of kUnit they are one [query + 2 kv, hidden] matrix.
    weight(Role::QueryWeight, names.q, hidden, query);
    weight(Role::KeyWeight, names.k, hidden, kv);
    weight(Role::ValueWeight, names.v, hidden, kv);
    bias(config.qkv_bias, Role::QueryBias, names.q, query);
    bias(config.qkv_bias, Role::KeyBias, names.k, kv);
    bias(config.qkv_bias, Role::ValueBias, names.v, kv);
  }
  if (config.qk_norm) {
    group.add(Role::QueryNorm, prefix + names.q_norm + ".weight", {config.head_dim});
    group.add(Role::KeyNorm, prefix + names.k_norm + ".weight", {config.head_dim});
  }
  weight(Role::OutputWeight, names.output, query, hidden);
  bias(config.output_bias, Role::OutputBias, names.output, hidden);
  norm(Role::Norm2Weight, Role::Norm2Bias, names.norm2);
  if (config.gated) weight(Role::GateWeight, names.gate, hidden, inner);
  weight(Role::UpWeight, names.up, hidden, inner);
  if (config.gated) bias(config.mlp_bias, Role::GateBias, names.gate, inner);
  bias(config.mlp_bias, Role::UpBias, names.up, inner);
  weight(Role::DownWeight, names.down, inner, hidden);
  bias(config.mlp_bias, Role::DownBias, names.down, hidden);
}

std::vector<int64_t> joined(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

void check_patterns(const ModelShape& model, std::span<const std::string> patterns, const std::string& key) {
  for (const std::string& pattern : patterns) {
    std::vector<std::string> names;
    bool used = false;
    for (const ParameterGroup& group : model.groups) {
      for (const ParameterTensor& tensor : group.tensors) {
        names.push_back(tensor.name);
        used = used || fnmatch(pattern.c_str(), tensor.name.c_str(), 0) == 0;
      }
    }
    if (used) continue;
    const std::string near = nearest(pattern, names);
    throw Error(ErrorKind::Usage, "a pattern matches no parameter")
        .at(key)
        .found(printable(pattern))
        .expected("a glob over parameter names such as " + names.front())
        .cure(near.empty() ? "`*` stands for any text, dots included" : "did you mean '" + near + "'?");
  }
}

const char* name_of(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::Embedding: return "embedding";
    case SegmentKind::Project: return "project";
    case SegmentKind::Attend: return "attend";
    case SegmentKind::Finish: return "finish";
    case SegmentKind::Head: return "head";
  }
  return "?";
}

std::string Segment::name() const {
  return layer < 0 ? std::string(name_of(kind)) : fmt::format("block.{}.{}", layer, name_of(kind));
}

int64_t ParameterTensor::numel() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

int64_t ModelShape::parameters() const {
  int64_t sum = 0;
  for (const ParameterGroup& group : groups) sum += group.parameters;
  return sum;
}

int64_t ModelShape::trainable_parameters() const {
  int64_t sum = 0;
  for (const ParameterGroup& group : groups) sum += group.trainable ? group.parameters : 0;
  return sum;
}

int64_t ModelShape::matrix_parameters() const {
  int64_t sum = 0;
  for (const ParameterGroup& group : groups) {
    for (const ParameterTensor& tensor : group.tensors) {
      if (tensor.shape.size() < 2 || tensor.role == Role::PositionEmbedding) continue;
      if (tensor.role == Role::TokenEmbedding && !config.tied_head) continue;
      sum += tensor.numel();
    }
  }
  return sum;
}

ModelShape describe(const ModelConfig& config, std::span<const std::string> freeze) {
  BALLAST_CHECK(config.vocab_size > 0 && config.hidden > 0 && config.layers >= 0 && config.heads > 0 && config.kv_heads > 0 &&
                    config.head_dim > 0 && config.intermediate > 0 && config.heads % config.kv_heads == 0,
                "incomplete model configuration '{}'", config.name);
  BALLAST_CHECK(config.window.empty() || static_cast<int64_t>(config.window.size()) == config.layers,
                "{} windows for {} layers", config.window.size(), config.layers);
  ModelShape model{config, {}, {}};
  const Names names = names_of(config);

  GroupBuilder embedding("embedding", freeze);
  embedding.add(Role::TokenEmbedding, names.tokens, {config.vocab_size, config.hidden});
  std::vector<int64_t> tables, inputs;
  if (config.positions == PositionKind::Learned && config.tied_head) {
    // The tied table is gathered once more for the head: nothing else rides along.
    tables = embedding.finish(model);
    GroupBuilder positions("positions", freeze);
    positions.add(Role::PositionEmbedding, names.positions, {config.max_positions, config.hidden});
    inputs = joined(tables, positions.finish(model));
  } else {
    if (config.positions == PositionKind::Learned)
      embedding.add(Role::PositionEmbedding, names.positions, {config.max_positions, config.hidden});
    inputs = tables = embedding.finish(model);
  }
  model.segments.push_back({SegmentKind::Embedding, -1, inputs});

  for (int64_t layer = 0; layer < config.layers; ++layer) {
    GroupBuilder block(fmt::format("block.{}", layer), freeze);
    add_block(block, config, names, layer);
    const std::vector<int64_t> groups = block.finish(model);
    model.segments.push_back({SegmentKind::Project, layer, groups});
    model.segments.push_back({SegmentKind::Attend, layer, {}});
    model.segments.push_back({SegmentKind::Finish, layer, groups});
  }

  GroupBuilder head("head", freeze);
  head.add(Role::FinalNormWeight, names.final_norm + ".weight", {config.hidden});
  if (config.norm == NormKind::LayerNorm) head.add(Role::FinalNormBias, names.final_norm + ".bias", {config.hidden});
  if (!config.tied_head) head.add(Role::HeadWeight, names.head + ".weight", {config.vocab_size, config.hidden});
  std::vector<int64_t> groups = head.finish(model);
  model.segments.push_back({SegmentKind::Head, -1, config.tied_head ? joined(groups, tables) : groups});
  check_patterns(model, freeze, "train.freeze");
  return model;
}

double linear_flops_per_token(const ModelShape& shape) { return 6.0 * static_cast<double>(shape.matrix_parameters()); }

double attention_flops(const ModelConfig& config, std::span<const int64_t> lengths) {
  double pairs = 0;  // over all layers
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (int64_t length : lengths) pairs += causal_pairs(length, config.window_of(layer));
  }
  return 12.0 * static_cast<double>(config.query_width()) * pairs;
}

}  // namespace ballast
