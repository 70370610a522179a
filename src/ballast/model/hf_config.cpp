#include "ballast/model/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/model/json_object.h"

namespace ballast {

namespace {

constexpr int64_t kLargestWidth = int64_t{1} << 24, kLargestVocab = int64_t{1} << 28,
                  kLargestPositions = int64_t{1} << 31;
constexpr int64_t kLargestLayers = 1 << 16, kLargestHeads = 1 << 16, kLargestHeadDim = 1 << 14;

const std::map<std::string, ActivationKind>& activations() {
  static const std::map<std::string, ActivationKind> names = {{"gelu_new", ActivationKind::GeluTanh},
                                                              {"gelu_pytorch_tanh", ActivationKind::GeluTanh},
                                                              {"gelu_fast", ActivationKind::GeluTanh},
                                                              {"gelu_python_tanh", ActivationKind::GeluTanh},
                                                              {"gelu_accurate", ActivationKind::GeluTanh},
                                                              {"gelu", ActivationKind::Gelu},
                                                              {"gelu_python", ActivationKind::Gelu},
                                                              {"relu", ActivationKind::Relu},
                                                              {"silu", ActivationKind::Silu},
                                                              {"swish", ActivationKind::Silu}};
  return names;
}

ActivationKind read_activation(const JsonObject& json, const std::string& key, const std::string& absent) {
  const std::string name = json.text(key).value_or(absent);
  const auto found = activations().find(name);
  if (found == activations().end()) {
    std::vector<std::string> names;
    for (const auto& [known, kind] : activations()) names.push_back(known);
    json.refuse(key, "this activation is not supported", fmt::format("one of {}", fmt::join(names, ", ")));
  }
  return found->second;
}

// A switch that changes the arithmetic and has only one supported value; absent means that value.
void require_switch(const JsonObject& json, const std::string& key, bool supported) {
  if (json.boolean(key).value_or(supported) != supported)
    json.refuse(key, "this value changes the arithmetic and is not supported", supported ? "true" : "false");
}

void read_what_every_family_has(const JsonObject& json, ModelConfig& config) {
  if (json.has("quantization_config"))
    json.refuse("quantization_config", "quantized weights are not supported", "no such key",
                "use the model's unquantized weights");
  require_switch(json, "is_encoder_decoder", false);
  require_switch(json, "add_cross_attention", false);
  if (const auto* pruned = json.find({"pruned_heads"}); pruned && !pruned->empty())
    json.refuse("pruned_heads", "pruned heads are not supported", "no such key");
  config.vocab_size = json.required_integer({"vocab_size"}, 1, kLargestVocab);
  config.initializer_range = json.number("initializer_range", 0.0, 1.0).value_or(0.02);
}

ModelConfig read_gpt2(const JsonObject& json) {
  ModelConfig config;
  config.model_type = "gpt2";
  read_what_every_family_has(json, config);
  require_switch(json, "scale_attn_weights", true);
  require_switch(json, "scale_attn_by_inverse_layer_idx", false);
  require_switch(json, "reorder_and_upcast_attn", false);
  config.hidden = json.required_integer({"n_embd", "hidden_size"}, 1, kLargestWidth);
  config.layers = json.required_integer({"n_layer", "num_hidden_layers"}, 1, kLargestLayers);
  config.heads = json.required_integer({"n_head", "num_attention_heads"}, 1, kLargestHeads);
  config.max_positions = json.required_integer({"n_positions", "max_position_embeddings"}, 1, kLargestPositions);
  if (config.hidden % config.heads != 0)
    json.refuse("n_head", "the heads do not divide the width", fmt::format("a divisor of n_embd = {}", config.hidden));
  config.kv_heads = config.heads;
  config.head_dim = config.hidden / config.heads;
  config.intermediate = json.integer({"n_inner"}, 1, kLargestWidth).value_or(4 * config.hidden);
  config.activation = read_activation(json, "activation_function", "gelu_new");
  config.norm_eps = json.number("layer_norm_epsilon", 1e-30, 1.0).value_or(1e-5);
  config.tied_head = json.boolean("tie_word_embeddings").value_or(true);
  config.dropout_embedding = json.number("embd_pdrop", 0.0, 0.999).value_or(0.1);
  config.dropout_residual = json.number("resid_pdrop", 0.0, 0.999).value_or(0.1);
  config.dropout_attention = json.number("attn_pdrop", 0.0, 0.999).value_or(0.1);
  return config;
}

// RoPE stands in rope_parameters (5.x) or in rope_scaling beside rope_theta (4.x). A rope_scaling wins, as it does when
// transformers 5 opens a file of 4.x; inside either, the object's own values win over those beside it.
Rope read_rope(const JsonObject& json, int64_t max_positions) {
  const bool old_style = json.has("rope_scaling") && !json.find({"rope_scaling"})->empty();
  const std::string where = old_style ? "rope_scaling" : "rope_parameters";
  static const nlohmann::json kNothing = nlohmann::json::object();
  const JsonObject part = json.object(where).value_or(JsonObject(kNothing, json.file(), where + "."));
  for (const std::string nested : {"full_attention", "sliding_attention"})
    if (part.has(nested)) part.refuse(nested, "RoPE that differs between layers is not supported", "one set of values");

  Rope rope;
  rope.theta = part.number("rope_theta", 1e-6, 1e18).value_or(json.number("rope_theta", 1e-6, 1e18).value_or(10000.0));
  for (const JsonObject* holder : {&part, &json})
    if (holder->number("partial_rotary_factor", 0.0, 1.0).value_or(1.0) != 1.0)
      holder->refuse("partial_rotary_factor", "rotating a part of the head is not supported", "1.0");

  static const std::map<std::string, RopeScaling> kinds = {{"default", RopeScaling::None},
                                                           {"linear", RopeScaling::Linear},
                                                           {"dynamic", RopeScaling::Dynamic},
                                                           {"yarn", RopeScaling::Yarn},
                                                           {"llama3", RopeScaling::Llama3}};
  const std::string type_key = part.has("rope_type") ? "rope_type" : "type";
  const auto kind = kinds.find(part.text(type_key).value_or("default"));
  if (kind == kinds.end())
    part.refuse(type_key, "this RoPE scaling is not supported", "one of default, linear, dynamic, yarn, llama3");
  rope.scaling = kind->second;
  if (rope.scaling == RopeScaling::None) return rope;

  const auto required = [&](const std::string& key, double lowest, double highest) {
    const std::optional<double> value = part.number(key, lowest, highest);
    if (!value) part.refuse(key, "a required key is missing", fmt::format("a number from {} to {}", lowest, highest));
    return *value;
  };
  rope.factor = required("factor", 1.0, 1e6);
  if (rope.scaling == RopeScaling::Yarn || rope.scaling == RopeScaling::Llama3) {
    const auto beside = json.integer({"original_max_position_embeddings"}, 1, kLargestPositions);
    const auto inside = part.integer({"original_max_position_embeddings"}, 1, kLargestPositions);
    rope.original_max_positions = beside ? *beside : inside.value_or(max_positions);
  }
  if (rope.scaling == RopeScaling::Dynamic) rope.original_max_positions = max_positions;
  if (rope.scaling == RopeScaling::Llama3) {
    rope.low_freq_factor = required("low_freq_factor", 1e-6, 1e6);
    rope.high_freq_factor = required("high_freq_factor", 1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      part.refuse("high_freq_factor", "the value is out of range",
                  fmt::format("more than low_freq_factor = {}", rope.low_freq_factor));
  }
  if (rope.scaling == RopeScaling::Yarn) {
    const auto or_default = [&](const std::string& key, double absent) {
      const double value = part.number(key, 0.0, 1e6).value_or(0.0);
      return value == 0.0 ? absent : value;
    };
    rope.beta_fast = or_default("beta_fast", 32.0);
    rope.beta_slow = or_default("beta_slow", 1.0);
    if (rope.beta_fast < rope.beta_slow)
      part.refuse("beta_fast", "the value is out of range", fmt::format("at least beta_slow = {}", rope.beta_slow));
    rope.truncate = part.boolean("truncate").value_or(true);
    rope.attention_factor = part.number("attention_factor", 0.0, 1e6);
    const double mscale = part.number("mscale", 0.0, 1e6).value_or(0.0);
    const double mscale_all = part.number("mscale_all_dim", 0.0, 1e6).value_or(0.0);
    if (!rope.attention_factor && mscale != 0.0 && mscale_all != 0.0) {
      const auto scale_of = [&](double m) { return rope.factor <= 1.0 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0; };
      rope.attention_factor = scale_of(mscale) / scale_of(mscale_all);
    }
  }
  return rope;
}

// What a key that another family reads would say if this family read it.
void refuse_true(const JsonObject& json, const std::string& key) {
  if (json.boolean(key).value_or(false)) json.refuse(key, "this model type has no such switch", "false");
}

// Qwen: windows in the layers that layer_types names, or in those from max_window_layers on.
std::vector<int64_t> read_layer_windows(const JsonObject& json, int64_t layers) {
  const bool use = json.boolean("use_sliding_window").value_or(false);
  const int64_t window = json.integer({"sliding_window"}, 1, kLargestPositions).value_or(4096);
  const int64_t first = json.integer({"max_window_layers"}, 0, INT64_MAX).value_or(28);
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  const nlohmann::json* types = json.find({"layer_types"});
  if (!types) {
    for (int64_t layer = first; use && layer < layers; ++layer) windows[static_cast<size_t>(layer)] = window;
  } else {
    if (!types->is_array() || static_cast<int64_t>(types->size()) != layers)
      json.refuse("layer_types", "the value has the wrong type or length", fmt::format("a list of {} strings", layers));
    for (size_t layer = 0; layer < windows.size(); ++layer) {
      const nlohmann::json& type = (*types)[layer];
      if (type == "full_attention") continue;
      if (type != "sliding_attention")
        json.refuse("layer_types", fmt::format("the kind of layer {} is not supported", layer),
                    "full_attention or sliding_attention");
      if (!use) json.refuse("layer_types", "sliding layers without use_sliding_window", "use_sliding_window: true");
      windows[layer] = window;
    }
  }
  for (const int64_t value : windows)
    if (value != 0) return windows;
  return {};
}

ModelConfig read_llama_family(const JsonObject& json, const std::string& type) {
  ModelConfig config;
  config.model_type = type;
  read_what_every_family_has(json, config);
  config.norm = NormKind::RmsNorm;
  config.positions = PositionKind::Rope;
  config.gated = true;
  config.fused_qkv = config.transposed = false;
  config.hidden = json.required_integer({"hidden_size"}, 1, kLargestWidth);
  config.layers = json.required_integer({"num_hidden_layers"}, 1, kLargestLayers);
  config.heads = json.required_integer({"num_attention_heads"}, 1, kLargestHeads);
  config.intermediate = json.required_integer({"intermediate_size"}, 1, kLargestWidth);
  config.max_positions = json.required_integer({"max_position_embeddings"}, 1, kLargestPositions);
  // An explicit null means "as many as heads" everywhere; an absent key means each family's own default.
  const int64_t absent_kv = type == "llama" ? config.heads : type == "mistral" ? 8 : 32;
  config.kv_heads = json.absent("num_key_value_heads")
                        ? absent_kv
                        : json.integer({"num_key_value_heads"}, 1, kLargestHeads).value_or(config.heads);
  if (config.heads % config.kv_heads != 0)
    json.refuse("num_key_value_heads", "the value does not divide the heads",
                fmt::format("a divisor of {}", config.heads));
  if (const auto head_dim = json.integer({"head_dim"}, 1, kLargestHeadDim)) {
    config.head_dim = *head_dim;
  } else if (type == "qwen3") {
    config.head_dim = 128;
  } else {
    if (config.hidden % config.heads != 0)
      json.refuse("num_attention_heads", "the heads do not divide the width",
                  fmt::format("a divisor of hidden_size = {}", config.hidden));
    config.head_dim = config.hidden / config.heads;
  }
  if (config.head_dim % 2 != 0) json.refuse("head_dim", "RoPE rotates pairs of elements", "an even number");
  config.activation = read_activation(json, "hidden_act", "silu");
  config.norm_eps = json.number("rms_norm_eps", 1e-30, 1.0).value_or(1e-6);
  config.tied_head = json.boolean("tie_word_embeddings").value_or(false);
  config.dropout_attention = json.number("attention_dropout", 0.0, 0.999).value_or(0.0);
  config.rope = read_rope(json, config.max_positions);

  const bool attention_bias = json.boolean("attention_bias").value_or(false);
  config.mlp_bias = false;
  if (type == "llama") config.mlp_bias = json.boolean("mlp_bias").value_or(false);
  if (type != "llama") refuse_true(json, "mlp_bias");
  if (type == "mistral") refuse_true(json, "attention_bias");
  config.qkv_bias = type == "qwen2" || attention_bias;
  config.output_bias = (type == "llama" || type == "qwen3") && attention_bias;
  config.qk_norm = type == "qwen3";
  if (type == "mistral") {
    // Absent means 4096, null means none.
    const bool absent = json.absent("sliding_window");
    const int64_t window = absent ? 4096 : json.integer({"sliding_window"}, 1, kLargestPositions).value_or(0);
    if (window > 0) config.window.assign(static_cast<size_t>(config.layers), window);
  }
  if (type == "qwen2" || type == "qwen3") config.window = read_layer_windows(json, config.layers);
  return config;
}

}  // namespace

const std::vector<std::string>& hf_model_types() {
  static const std::vector<std::string> types = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};
  return types;
}

ModelConfig parse_hf_config(const std::string& text, const std::string& name_for_errors) {
  const nlohmann::json object = parse_json_object(text, name_for_errors);
  const JsonObject json(object, name_for_errors);
  const std::optional<std::string> type = json.text("model_type");
  if (!type)
    json.refuse("model_type", "a required key is missing", fmt::format("one of {}", fmt::join(hf_model_types(), ", ")));
  ModelConfig config;
  if (*type == "gpt2") {
    config = read_gpt2(json);
  } else if (std::find(hf_model_types().begin(), hf_model_types().end(), *type) != hf_model_types().end()) {
    config = read_llama_family(json, *type);
  } else {
    json.refuse("model_type", "this model type is not supported",
                fmt::format("one of {}", fmt::join(hf_model_types(), ", ")));
  }
  config.name = name_for_errors;
  return config;
}

ModelConfig read_hf_config(const std::filesystem::path& file) {
  return parse_hf_config(read_file(file), file.string());
}

HfTokenIds parse_hf_token_ids(const std::string& text, const std::string& name_for_errors) {
  const nlohmann::json object = parse_json_object(text, name_for_errors);
  const JsonObject json(object, name_for_errors);
  HfTokenIds ids;
  ids.bos = json.integer({"bos_token_id"}, 0, kLargestVocab);
  ids.pad = json.integer({"pad_token_id"}, -1, kLargestVocab);
  const nlohmann::json* eos = json.find({"eos_token_id"});
  if (eos && eos->is_array()) {
    for (const auto& id : *eos) {
      if (!id.is_number_unsigned()) json.refuse("eos_token_id", "the value has the wrong type", "token ids");
      ids.eos.push_back(id.get<int64_t>());
    }
  } else if (eos) {
    ids.eos.push_back(*json.integer({"eos_token_id"}, 0, kLargestVocab));
  }
  return ids;
}

}  // namespace ballast
