// The named model configurations: real GPT-2 small, and shapes for the quick start, tests and benchmarks.
#include "ballast/base/error.h"
#include "ballast/plan/model_shape.h"

namespace ballast {
namespace {

ModelConfig gpt2(const std::string& name, int64_t hidden, int64_t layers, int64_t heads) {
  ModelConfig config;
  config.model_type = "gpt2";
  config.name = name;
  config.vocab_size = 50257;
  config.hidden = hidden;
  config.layers = layers;
  config.heads = config.kv_heads = heads;
  config.head_dim = hidden / heads;
  config.intermediate = 4 * hidden;
  config.max_positions = 1024;
  return config;
}

ModelConfig llama(const std::string& name, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t intermediate) {
  ModelConfig config;
  config.model_type = "llama";
  config.name = name;
  config.vocab_size = 32000;
  config.hidden = hidden;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = hidden / heads;
  config.intermediate = intermediate;
  config.max_positions = 4096;
  config.norm = NormKind::RmsNorm;
  config.norm_eps = 1e-5;
  config.positions = PositionKind::Rope;
  config.activation = ActivationKind::Silu;
  config.gated = true;
  config.fused_qkv = config.transposed = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = false;
  config.tied_head = false;
  return config;
}

std::vector<ModelConfig> presets() {
  return {gpt2("gpt2-10m", 160, 6, 5),
          gpt2("gpt2-30m", 384, 6, 6),
          gpt2("gpt2-124m", 768, 12, 12),
          gpt2("gpt2-tiny", 256, 4, 4),
          llama("llama-60m", 512, 8, 8, 8, 1376),
          llama("llama-110m", 768, 12, 12, 4, 2048)};
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelConfig& config : presets()) names.push_back(config.name);
  return names;
}

ModelConfig preset(const std::string& name) {
  std::string list;
  for (const ModelConfig& config : presets()) {
    if (config.name == name) return config;
    list += (list.empty() ? "" : ", ") + config.name;
  }
  const std::string near = nearest(name, preset_names());
  throw Error(ErrorKind::Usage, "unknown model preset")
      .at("model.preset")
      .found(printable(name))
      .expected(list)
      .cure(near.empty() ? "choose one of the list, or give model.path or model.config" : "did you mean '" + near + "'?");
}

}  // namespace ballast
