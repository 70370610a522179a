#pragma once
// The architecture of a decoder-only transformer as numbers and switches. model/ reads it from a Hugging Face
// config.json; plan/ derives shapes, bytes and FLOPs from it. No tensors here.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ballast {

enum class NormKind { LayerNorm, RmsNorm };
enum class PositionKind { Learned, Rope };
enum class ActivationKind { GeluTanh, Gelu, Relu, Silu };
enum class RopeScaling { None, Linear, Dynamic, Yarn, Llama3 };

struct Rope {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::None;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  int64_t original_max_positions = 0;                    // llama3, yarn, dynamic
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  std::optional<double> attention_factor;                // yarn
  bool truncate = true;                                  // yarn
};

struct ModelConfig {
  std::string model_type = "gpt2";  // as in config.json: gpt2, llama, mistral, qwen2, qwen3
  std::string name;                 // preset or folder, for messages only
  int64_t vocab_size = 0, hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int64_t max_positions = 0;
  NormKind norm = NormKind::LayerNorm;
  double norm_eps = 1e-5;
  PositionKind positions = PositionKind::Learned;
  Rope rope;
  ActivationKind activation = ActivationKind::GeluTanh;
  bool gated = false;        // SwiGLU: down(activation(gate x) * up x)
  bool fused_qkv = true;     // one c_attn tensor, stored [in, out], as in GPT-2
  bool transposed = true;    // linear weights are stored [in, out] (GPT-2's Conv1D)
  bool qkv_bias = true, output_bias = true, mlp_bias = true;
  bool qk_norm = false;      // RMSNorm over head_dim of q and k before RoPE (Qwen3)
  bool tied_head = true;
  std::vector<int64_t> window;  // per layer; 0 = full attention. Empty = full everywhere. Token i sees (i - window, i]
  double dropout_embedding = 0, dropout_residual = 0, dropout_attention = 0;
  double initializer_range = 0.02;

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t window_of(int64_t layer) const { return window.empty() ? 0 : window[static_cast<size_t>(layer)]; }
};

}  // namespace ballast
