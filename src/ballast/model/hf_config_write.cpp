// A ModelConfig as config.json: the other direction of hf_config.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/model/hf_config.h"

namespace ballast {

namespace {

using Json = nlohmann::ordered_json;

void require(const ModelConfig& config, bool expressible, const char* what) {
  if (expressible) return;
  throw Error(ErrorKind::Usage,
              fmt::format("model type {} cannot express this architecture in config.json", config.model_type))
      .at(config.name.empty() ? "model" : config.name)
      .found(what)
      .cure("choose another model_type");
}

const char* hf_name_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::GeluTanh:
      return "gelu_new";
    case ActivationKind::Gelu:
      return "gelu";
    case ActivationKind::Relu:
      return "relu";
    case ActivationKind::Silu:
      return "silu";
  }
  return "?";
}

Json rope_scaling_of(const Rope& rope) {
  Json json;
  switch (rope.scaling) {
    case RopeScaling::None:
      return Json{{"rope_type", "default"}};
    case RopeScaling::Linear:
      return Json{{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::Dynamic:
      return Json{{"rope_type", "dynamic"}, {"factor", rope.factor}};
    case RopeScaling::Llama3:
      return Json{{"rope_type", "llama3"},
                  {"factor", rope.factor},
                  {"low_freq_factor", rope.low_freq_factor},
                  {"high_freq_factor", rope.high_freq_factor},
                  {"original_max_position_embeddings", rope.original_max_positions}};
    case RopeScaling::Yarn:
      json = Json{{"rope_type", "yarn"},
                  {"factor", rope.factor},
                  {"original_max_position_embeddings", rope.original_max_positions},
                  {"beta_fast", rope.beta_fast},
                  {"beta_slow", rope.beta_slow},
                  {"truncate", rope.truncate}};
      if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  }
  return json;
}

void write_gpt2(const ModelConfig& config, Json& json) {
  require(config, config.norm == NormKind::LayerNorm, "a norm other than LayerNorm");
  require(config, config.positions == PositionKind::Learned, "positions that are not learned");
  require(config, !config.gated && config.fused_qkv && config.transposed, "a gated MLP or separate q, k, v matrices");
  require(config, config.qkv_bias && config.output_bias && config.mlp_bias, "matrices without biases");
  require(config, !config.qk_norm && config.window.empty(), "q/k norms or a sliding window");
  require(config, config.kv_heads == config.heads && config.query_width() == config.hidden, "grouped or resized heads");
  json["architectures"] = Json::array({"GPT2LMHeadModel"});
  json["activation_function"] = hf_name_of(config.activation);
  json["n_embd"] = config.hidden;
  json["n_layer"] = config.layers;
  json["n_head"] = config.heads;
  json["n_positions"] = config.max_positions;
  json["n_ctx"] = config.max_positions;
  json["n_inner"] = config.intermediate;
  json["layer_norm_epsilon"] = config.norm_eps;
  json["embd_pdrop"] = config.dropout_embedding;
  json["resid_pdrop"] = config.dropout_residual;
  json["attn_pdrop"] = config.dropout_attention;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
}

void write_windows(const ModelConfig& config, Json& json) {
  const int64_t widest = config.window.empty() ? 0 : *std::max_element(config.window.begin(), config.window.end());
  const bool same = std::all_of(config.window.begin(), config.window.end(), [&](int64_t w) { return w == widest; });
  if (config.model_type == "mistral") {
    require(config, same, "windows that differ between layers");
    json["sliding_window"] = widest > 0 ? Json(widest) : Json(nullptr);
  } else if (config.model_type == "llama") {
    require(config, widest == 0, "a sliding window");
  } else {
    Json types = Json::array();
    // 4.x reads max_window_layers, 5.x layer_types; both say the same where the windowed layers are the last ones.
    int64_t first_windowed = config.layers;
    for (int64_t layer = config.layers - 1; layer >= 0; --layer) {
      require(config, config.window_of(layer) == 0 || config.window_of(layer) == widest, "windows of several widths");
      if (config.window_of(layer) == 0) break;
      first_windowed = layer;
    }
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      require(config, config.window_of(layer) == 0 || config.window_of(layer) == widest, "windows of several widths");
      types.push_back(config.window_of(layer) > 0 ? "sliding_attention" : "full_attention");
    }
    json["use_sliding_window"] = widest > 0;
    json["sliding_window"] = widest > 0 ? Json(widest) : Json(nullptr);
    json["max_window_layers"] = first_windowed;
    json["layer_types"] = types;
  }
}

void write_llama_family(const ModelConfig& config, Json& json) {
  const std::string& type = config.model_type;
  const bool llama = type == "llama";
  require(config, config.norm == NormKind::RmsNorm, "a norm other than RMSNorm");
  require(config, config.positions == PositionKind::Rope, "positions other than RoPE");
  require(config, config.gated && !config.fused_qkv && !config.transposed, "a plain MLP or a fused q, k, v matrix");
  require(config, config.dropout_embedding == 0 && config.dropout_residual == 0, "dropout outside the attention");
  require(config, config.qk_norm == (type == "qwen3"), "q/k norms where the type has none, or the reverse");
  require(config, llama || !config.mlp_bias, "biases in the MLP");
  require(config,
          type == "mistral" ? !config.qkv_bias && !config.output_bias
          : type == "qwen2" ? config.qkv_bias && !config.output_bias
                            : config.qkv_bias == config.output_bias,
          "this choice of attention biases");
  json["architectures"] = Json::array({llama               ? "LlamaForCausalLM"
                                       : type == "mistral" ? "MistralForCausalLM"
                                       : type == "qwen2"   ? "Qwen2ForCausalLM"
                                                           : "Qwen3ForCausalLM"});
  json["hidden_size"] = config.hidden;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["intermediate_size"] = config.intermediate;
  json["max_position_embeddings"] = config.max_positions;
  json["hidden_act"] = hf_name_of(config.activation);
  json["rms_norm_eps"] = config.norm_eps;
  json["attention_dropout"] = config.dropout_attention;
  if (llama || type == "qwen3") json["attention_bias"] = config.qkv_bias;
  if (llama) json["mlp_bias"] = config.mlp_bias;
  write_windows(config, json);
  // rope_parameters is what 5.x reads, rope_theta and rope_scaling what 4.x reads.
  Json scaling = rope_scaling_of(config.rope);
  json["rope_theta"] = config.rope.theta;
  json["rope_scaling"] = config.rope.scaling == RopeScaling::None ? Json(nullptr) : scaling;
  scaling["rope_theta"] = config.rope.theta;
  json["rope_parameters"] = scaling;
}

}  // namespace

nlohmann::ordered_json write_hf_config(const ModelConfig& config, const HfTokenIds& ids, DType storage) {
  Json json;
  json["model_type"] = config.model_type;
  if (config.model_type == "gpt2") {
    write_gpt2(config, json);
  } else {
    const auto& types = hf_model_types();
    require(config, std::find(types.begin(), types.end(), config.model_type) != types.end(),
            "a model type without a config.json");
    write_llama_family(config, json);
  }
  json["vocab_size"] = config.vocab_size;
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = config.tied_head;
  json["bos_token_id"] = ids.bos ? Json(*ids.bos) : Json(nullptr);
  json["eos_token_id"] = ids.eos.empty() ? Json(nullptr) : ids.eos.size() == 1 ? Json(ids.eos.front()) : Json(ids.eos);
  json["pad_token_id"] = ids.pad ? Json(*ids.pad) : Json(nullptr);
  json["use_cache"] = true;
  const std::string dtype = storage == DType::BFloat16 ? "bfloat16" : storage == DType::Float16 ? "float16" : "float32";
  json["torch_dtype"] = dtype;  // 4.x
  json["dtype"] = dtype;        // 5.x
  return json;
}

}  // namespace ballast
