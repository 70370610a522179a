#include "ballast/model/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "model/golden_case.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

Json gpt2() {
  return Json::parse(
      R"({"model_type": "gpt2", "vocab_size": 100, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 32})");
}

Json llama() {
  return Json::parse(
      R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 80, "max_position_embeddings": 4096})");
}

ModelConfig parse(const Json& json) { return parse_hf_config(json.dump(), "config.json"); }

ModelConfig with(Json json, const std::string& patch) {
  json.merge_patch(Json::parse(patch));
  return parse(json);
}

TEST(HfConfig, Gpt2DefaultsAreThoseOfTransformers) {
  const ModelConfig config = parse(gpt2());
  EXPECT_EQ(config.hidden, 48);
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 12);
  EXPECT_EQ(config.intermediate, 192);
  EXPECT_EQ(config.max_positions, 32);
  EXPECT_EQ(config.dropout_embedding, 0.1);
  EXPECT_EQ(config.dropout_residual, 0.1);
  EXPECT_EQ(config.dropout_attention, 0.1);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.activation, ActivationKind::GeluTanh);
  EXPECT_TRUE(config.tied_head && config.fused_qkv && config.transposed && config.qkv_bias && config.mlp_bias &&
              !config.gated);
  EXPECT_EQ(with(gpt2(), R"({"n_inner": 56, "resid_pdrop": 0.0, "activation_function": "relu"})").intermediate, 56);
  EXPECT_EQ(with(gpt2(), R"({"activation_function": "gelu_pytorch_tanh"})").activation, ActivationKind::GeluTanh);
  EXPECT_EQ(with(gpt2(), R"({"n_embd": null, "hidden_size": 96})").hidden, 96);
}

TEST(HfConfig, LlamaDefaultsAreThoseOfTransformers) {
  const ModelConfig config = parse(llama());
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rope.scaling, RopeScaling::None);
  EXPECT_FALSE(config.tied_head || config.qkv_bias || config.output_bias || config.mlp_bias || config.qk_norm ||
               config.fused_qkv);
  EXPECT_TRUE(config.gated);
  EXPECT_EQ(config.dropout_attention, 0.0);
  EXPECT_EQ(with(llama(), R"({"head_dim": 32})").query_width(), 256);
  const ModelConfig biased =
      with(llama(), R"({"attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true})");
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias && biased.tied_head);
  EXPECT_EQ(with(llama(), R"({"num_key_value_heads": null})").kv_heads, 8);
}

TEST(HfConfig, KeyValueHeadsThatAreAbsentTakeTheFamilysDefault) {
  EXPECT_EQ(
      with(llama(), R"({"model_type": "mistral", "num_attention_heads": 16, "num_key_value_heads": null})").kv_heads,
      8);
  Json explicit_null = llama();
  explicit_null["model_type"] = "mistral";
  explicit_null["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parse(explicit_null).kv_heads, 8);
  explicit_null["num_attention_heads"] = 4;
  EXPECT_EQ(parse(explicit_null).kv_heads, 4);
}

TEST(HfConfig, RopeOfBothGenerations) {
  const std::string values =
      R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 2048)";
  const Rope old =
      with(llama(), R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", )" + values + "}}").rope;
  const Rope current =
      with(llama(), R"({"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", )" + values + "}}").rope;
  for (const Rope& rope : {old, current}) {
    EXPECT_EQ(rope.scaling, RopeScaling::Llama3);
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.low_freq_factor, 1.0);
    EXPECT_EQ(rope.high_freq_factor, 4.0);
    EXPECT_EQ(rope.original_max_positions, 2048);
  }
  const Rope linear = with(llama(), R"({"rope_scaling": {"type": "linear", "factor": 2}})").rope;
  EXPECT_EQ(linear.scaling, RopeScaling::Linear);
  EXPECT_EQ(linear.factor, 2.0);
  EXPECT_EQ(with(llama(), R"({"rope_scaling": {"type": "dynamic", "factor": 2}})").rope.scaling, RopeScaling::Dynamic);
  const Rope yarn =
      with(llama(), R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024,
    "beta_fast": 16, "truncate": false}})")
          .rope;
  EXPECT_EQ(yarn.scaling, RopeScaling::Yarn);
  EXPECT_EQ(yarn.original_max_positions, 1024);
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_FALSE(yarn.attention_factor);
  const Rope scaled =
      with(llama(), R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 0.7, "mscale_all_dim": 1.0}})").rope;
  EXPECT_NEAR(scaled.attention_factor.value(), (0.07 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1), 1e-12);
  EXPECT_EQ(scaled.original_max_positions, 4096);
  EXPECT_EQ(with(llama(), R"({"rope_scaling": null, "rope_theta": 7.0})").rope.theta, 7.0);
  EXPECT_EQ(with(llama(), R"({"rope_scaling": {}, "rope_parameters": {"rope_theta": 9.0}})").rope.theta, 9.0);
}

TEST(HfConfig, WindowsByFamily) {
  const auto windows = [](const std::string& patch) { return with(llama(), patch).window; };
  EXPECT_EQ(windows(R"({"model_type": "mistral"})"), (std::vector<int64_t>{4096, 4096, 4096}));
  EXPECT_EQ(windows(R"({"model_type": "mistral", "sliding_window": 7})"), (std::vector<int64_t>{7, 7, 7}));
  Json none = llama();
  none["model_type"] = "mistral";
  none["sliding_window"] = nullptr;
  EXPECT_TRUE(parse(none).window.empty());
  EXPECT_TRUE(windows(R"({"model_type": "qwen2", "sliding_window": 7, "max_window_layers": 1})").empty());
  const std::string on = R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 7, )";
  EXPECT_EQ(windows(on + R"("max_window_layers": 1})"), (std::vector<int64_t>{0, 7, 7}));
  EXPECT_EQ(
      windows(on +
              R"("max_window_layers": 0, "layer_types": ["sliding_attention", "full_attention", "full_attention"]})"),
      (std::vector<int64_t>{7, 0, 0}));
  EXPECT_TRUE(windows(on + R"("max_window_layers": 28})").empty());
}

TEST(HfConfig, QwenFamilies) {
  const ModelConfig qwen2 = with(llama(), R"({"model_type": "qwen2"})");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.qk_norm);
  const ModelConfig qwen3 = with(llama(), R"({"model_type": "qwen3"})");
  EXPECT_TRUE(!qwen3.qkv_bias && !qwen3.output_bias && qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 128);
}

TEST(HfConfig, TokenIds) {
  const HfTokenIds ids =
      parse_hf_token_ids(R"({"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": null})", "config.json");
  EXPECT_EQ(ids.bos, 1);
  EXPECT_EQ(ids.eos, (std::vector<int64_t>{2, 3}));
  EXPECT_FALSE(ids.pad);
}

struct Bad {
  const char* family;
  const char* patch;
  const char* key;    // must stand in the message
  const char* found;  // so must this
};

TEST(HfConfig, EveryBadValueNamesItsKey) {
  const std::vector<Bad> table = {
      {"gpt2", R"({"model_type": null})", "key model_type", "required"},
      {"gpt2", R"({"model_type": "bert"})", "key model_type", "gpt2, llama, mistral, qwen2, qwen3"},
      {"gpt2", R"({"model_type": 3})", "key model_type", "wrong type"},
      {"gpt2", R"({"vocab_size": null})", "key vocab_size", "missing"},
      {"gpt2", R"({"vocab_size": 0})", "key vocab_size", "out of range"},
      {"gpt2", R"({"vocab_size": -5})", "key vocab_size", "-5"},
      {"gpt2", R"({"vocab_size": 1e30})", "key vocab_size", "wrong type"},
      {"gpt2", R"({"vocab_size": 18446744073709551615})", "key vocab_size", "out of range"},
      {"gpt2", R"({"vocab_size": "100"})", "key vocab_size", "wrong type"},
      {"gpt2", R"({"vocab_size": true})", "key vocab_size", "wrong type"},
      {"gpt2", R"({"n_embd": null})", "key n_embd", "missing"},
      {"gpt2", R"({"n_embd": 1000000000})", "key n_embd", "out of range"},
      {"gpt2", R"({"n_head": 5})", "key n_head", "divisor"},
      {"gpt2", R"({"n_layer": 0})", "key n_layer", "out of range"},
      {"gpt2", R"({"n_positions": null})", "key n_positions", "missing"},
      {"gpt2", R"({"n_inner": -1})", "key n_inner", "out of range"},
      {"gpt2", R"({"activation_function": "mish"})", "key activation_function", "mish"},
      {"gpt2", R"({"scale_attn_weights": false})", "key scale_attn_weights", "not supported"},
      {"gpt2", R"({"scale_attn_by_inverse_layer_idx": true})", "key scale_attn_by_inverse_layer_idx", "not supported"},
      {"gpt2", R"({"reorder_and_upcast_attn": true})", "key reorder_and_upcast_attn", "not supported"},
      {"gpt2", R"({"add_cross_attention": true})", "key add_cross_attention", "not supported"},
      {"gpt2", R"({"resid_pdrop": 1.0})", "key resid_pdrop", "out of range"},
      {"gpt2", R"({"embd_pdrop": -0.1})", "key embd_pdrop", "out of range"},
      {"gpt2", R"({"attn_pdrop": "x"})", "key attn_pdrop", "wrong type"},
      {"gpt2", R"({"layer_norm_epsilon": 0})", "key layer_norm_epsilon", "out of range"},
      {"gpt2", R"({"initializer_range": -1})", "key initializer_range", "out of range"},
      {"gpt2", R"({"quantization_config": {"bits": 4}})", "key quantization_config", "not supported"},
      {"gpt2", R"({"pruned_heads": {"0": [1]}})", "key pruned_heads", "not supported"},
      {"llama", R"({"hidden_size": null})", "key hidden_size", "missing"},
      {"llama", R"({"intermediate_size": null})", "key intermediate_size", "missing"},
      {"llama", R"({"num_key_value_heads": 3})", "key num_key_value_heads", "divisor of 8"},
      {"llama", R"({"num_attention_heads": 6, "num_key_value_heads": 2})", "key num_attention_heads", "divisor"},
      {"llama", R"({"head_dim": 9})", "key head_dim", "even"},
      {"llama", R"({"head_dim": 0})", "key head_dim", "out of range"},
      {"llama", R"({"hidden_act": "gelu_10"})", "key hidden_act", "gelu_10"},
      {"llama", R"({"rms_norm_eps": "1e-6"})", "key rms_norm_eps", "wrong type"},
      {"llama", R"({"rope_theta": 0})", "key rope_theta", "out of range"},
      {"llama", R"({"partial_rotary_factor": 0.5})", "key partial_rotary_factor", "0.5"},
      {"llama", R"({"rope_scaling": {"type": "longrope", "factor": 2}})", "key rope_scaling.type", "longrope"},
      {"llama", R"({"rope_scaling": {"type": "linear"}})", "key rope_scaling.factor", "missing"},
      {"llama", R"({"rope_scaling": {"type": "linear", "factor": 0.5}})", "key rope_scaling.factor", "out of range"},
      {"llama", R"({"rope_scaling": "linear"})", "key rope_scaling", "wrong type"},
      {"llama", R"({"rope_parameters": {"rope_type": "llama3", "factor": 8}})", "key rope_parameters.low_freq_factor",
       "missing"},
      {"llama",
       R"({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}})",
       "key rope_parameters.high_freq_factor", "more than"},
      {"llama", R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
       "key rope_parameters.full_attention", "not supported"},
      {"llama", R"({"rope_parameters": {"rope_type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2}})",
       "rope_parameters.beta_fast", "at least"},
      {"llama", R"({"tie_word_embeddings": "yes"})", "key tie_word_embeddings", "wrong type"},
      {"llama", R"({"model_type": "mistral", "num_key_value_heads": 2, "attention_bias": true})", "key attention_bias",
       "no such switch"},
      {"llama", R"({"model_type": "qwen3", "mlp_bias": true})", "key mlp_bias", "no such switch"},
      {"llama", R"({"model_type": "mistral", "sliding_window": 0})", "key sliding_window", "out of range"},
      {"llama", R"({"model_type": "qwen2", "layer_types": ["full_attention"]})", "key layer_types", "3 strings"},
      {"llama", R"({"model_type": "qwen2", "layer_types": ["full_attention", "linear_attention", "full_attention"]})",
       "key layer_types", "layer 1"},
      {"llama", R"({"model_type": "qwen2", "layer_types": ["full_attention", "full_attention", "sliding_attention"]})",
       "key layer_types", "use_sliding_window"},
  };
  for (const Bad& row : table) {
    Json json = std::string(row.family) == "gpt2" ? gpt2() : llama();
    json.merge_patch(Json::parse(row.patch));
    try {
      parse(json);
      ADD_FAILURE() << "accepted: " << row.patch;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage) << row.patch;
      const std::string message = error.what();
      EXPECT_NE(message.find(row.key), std::string::npos) << row.patch << "\n" << message;
      EXPECT_NE(message.find(row.found), std::string::npos) << row.patch << "\n" << message;
      EXPECT_NE(message.find("config.json"), std::string::npos) << message;
    }
  }
}

TEST(HfConfig, TextThatIsNoObjectIsCorrupt) {
  for (const char* text : {"", "{", "[]", "3", "null", "{\"a\": }", "\xff\xfe", "{\"model_type\": \"gpt2\"} x"}) {
    try {
      parse_hf_config(text, "config.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::CorruptFile) << text;
    }
  }
}

// Everything that the arithmetic depends on.
void expect_same(const ModelConfig& a, const ModelConfig& b, const std::string& name) {
  const auto numbers = [](const ModelConfig& c) {
    return std::vector<double>{static_cast<double>(c.vocab_size),
                               static_cast<double>(c.hidden),
                               static_cast<double>(c.layers),
                               static_cast<double>(c.heads),
                               static_cast<double>(c.kv_heads),
                               static_cast<double>(c.head_dim),
                               static_cast<double>(c.intermediate),
                               static_cast<double>(c.max_positions),
                               c.norm_eps,
                               c.rope.theta,
                               static_cast<double>(c.rope.scaling),
                               c.rope.factor,
                               c.rope.low_freq_factor,
                               c.rope.high_freq_factor,
                               static_cast<double>(c.rope.original_max_positions),
                               c.rope.beta_fast,
                               c.rope.beta_slow,
                               c.rope.attention_factor.value_or(-1),
                               static_cast<double>(c.rope.truncate),
                               static_cast<double>(c.norm),
                               static_cast<double>(c.positions),
                               static_cast<double>(c.activation),
                               static_cast<double>(c.gated),
                               static_cast<double>(c.fused_qkv),
                               static_cast<double>(c.transposed),
                               static_cast<double>(c.qkv_bias),
                               static_cast<double>(c.output_bias),
                               static_cast<double>(c.mlp_bias),
                               static_cast<double>(c.qk_norm),
                               static_cast<double>(c.tied_head),
                               c.dropout_embedding,
                               c.dropout_residual,
                               c.dropout_attention,
                               c.initializer_range};
  };
  EXPECT_EQ(a.model_type, b.model_type) << name;
  EXPECT_EQ(numbers(a), numbers(b)) << name;
  EXPECT_EQ(a.window, b.window) << name;
}

TEST(HfConfig, WhatIsWrittenReadsBackTheSame) {
  for (const std::string& name : golden::names()) {
    const ModelConfig config = read_hf_config(golden::folder(name) + "/config.json");
    const Json written = Json::parse(write_hf_config(config, {}, DType::BFloat16).dump());
    expect_same(parse(written), config, name);
    Json old = written, current = written;  // each generation's keys alone say the same
    old.erase("rope_parameters");
    current.erase("rope_scaling");
    current.erase("rope_theta");
    expect_same(parse(old), config, name + " as 4.x");
    expect_same(parse(current), config, name + " as 5.x");
    EXPECT_EQ(written["dtype"], "bfloat16");
  }
}

TEST(HfConfig, ArchitecturesThatATypeCannotExpressAreRefused) {
  const auto refused = [](const ModelConfig& config) {
    try {
      write_hf_config(config, {}, DType::Float32);
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::Usage;
    }
  };
  ModelConfig config = parse(llama());
  EXPECT_FALSE(refused(config));
  config.window = {7, 7, 7};
  EXPECT_TRUE(refused(config));
  config = with(llama(), R"({"model_type": "mistral"})");
  config.window = {7, 0, 7};
  EXPECT_TRUE(refused(config));
  config = parse(gpt2());
  config.qkv_bias = false;
  EXPECT_TRUE(refused(config));
  config = with(llama(), R"({"model_type": "qwen3"})");
  config.qk_norm = false;
  EXPECT_TRUE(refused(config));
  config = parse(llama());
  config.dropout_residual = 0.1;
  EXPECT_TRUE(refused(config));
  config.model_type = "own";
  EXPECT_TRUE(refused(config));
}

TEST(HfConfig, AMissingFileSaysSo) {
  try {
    read_hf_config("no/such/config.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
    EXPECT_NE(std::string(error.what()).find("no/such/config.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace ballast
