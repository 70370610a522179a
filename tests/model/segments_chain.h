#pragma once
// The segments called in order over plain buffers, and an independent model of the same function in double precision from
// ATen operations under autograd: what the segments' values are held against.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "ballast/kernel/dropout.h"
#include "ballast/model/segment_rope.h"
#include "ballast/model/segments.h"
#include "ballast/plan/activations.h"

namespace ballast::segments_test {

inline at::ScalarType type_of(DType dtype) { return dtype == DType::BFloat16 ? at::kBFloat16 : at::kFloat; }

// Sequences of the given lengths with random ids; about one target in five is not trained.
inline MicroBatch random_batch(const ModelConfig& config, const std::vector<int64_t>& lengths, uint64_t seed, bool all_trained = false) {
  at::manual_seed(seed);
  MicroBatch batch;
  batch.starts = {0};
  std::vector<at::Tensor> positions{at::empty({0}, at::kLong)};
  for (int64_t length : lengths) {
    batch.sample_keys.push_back(seed * 1000 + batch.sample_keys.size());
    batch.starts.push_back(batch.starts.back() + length);
    positions.push_back(at::arange(length, at::kLong));
  }
  batch.positions = at::cat(positions);
  batch.ids = at::randint(config.vocab_size, {batch.tokens()}, at::kLong);
  batch.targets = at::randint(config.vocab_size, {batch.tokens()}, at::kLong);
  if (!all_trained) batch.targets.masked_fill_(at::rand({batch.tokens()}).lt(0.2), -1);
  return batch;
}

// Weights of every segment of a chain [embedding, block 0 .., head], and fp32 gradients of the same shapes.
struct Parameters {
  std::vector<RoleTensors> weights, gradients;
};

inline Parameters random_parameters(const ModelConfig& config, at::ScalarType dtype, uint64_t seed) {
  at::manual_seed(seed);
  const ModelShape shape = describe(config);
  Parameters p;
  p.weights.resize(static_cast<size_t>(config.layers) + 2);
  std::vector<std::pair<RoleTensors, RoleTensors>> groups;
  for (const ParameterGroup& group : shape.groups) {
    groups.emplace_back();
    for (const ParameterTensor& tensor : group.tensors) {
      const bool norm = tensor.shape.size() == 1 && tensor.name.find("bias") == std::string::npos;
      at::Tensor value = at::randn(tensor.shape, at::kDouble) * (tensor.shape.size() == 1 ? 0.1 : 0.25);
      if (norm) value += 1.0;
      groups.back().first[static_cast<size_t>(tensor.role)] = value.to(dtype);
      groups.back().second[static_cast<size_t>(tensor.role)] = at::zeros(tensor.shape, at::kFloat);
    }
  }
  p.gradients = p.weights;
  for (const Segment& segment : shape.segments) {
    const size_t index = segment.kind == SegmentKind::Embedding ? 0
                         : segment.kind == SegmentKind::Head    ? p.weights.size() - 1
                                                                : static_cast<size_t>(segment.layer) + 1;
    for (int64_t group : segment.groups) {
      for (size_t role = 0; role < kRoleCount; ++role) {
        const auto& [w, g] = groups[static_cast<size_t>(group)];
        if (w[role].defined()) p.weights[index][role] = w[role], p.gradients[index][role] = g[role];
      }
    }
  }
  return p;
}

inline std::vector<at::Tensor> buffers(const std::vector<TensorSpec>& specs) {
  std::vector<at::Tensor> tensors;
  for (const TensorSpec& spec : specs)
    tensors.push_back(at::full(spec.shape, std::numeric_limits<double>::quiet_NaN(), at::TensorOptions().dtype(type_of(spec.dtype))));
  return tensors;
}

struct LayerBuffers {
  at::Tensor x, q, k, v, o, lse;
  Saved project, finish;
};

struct ChainResult {
  at::Tensor x_out, losses;  // input of the head; [T]
  std::vector<LayerBuffers> layers;
};

// Forward and backward of the chain; adds to the gradients, or overwrites them where fresh.
inline ChainResult run_chain(const ModelConfig& config, const MicroBatch& batch, const Parameters& p, DType compute, double scale,
                             bool train = true, uint64_t seed = 5, bool fresh = false) {
  ChainResult result;
  const auto call = [&](size_t index, int64_t layer) {
    SegmentCall made{config, layer, batch, p.weights[index], p.gradients[index], train, seed};
    made.fresh.fill(fresh);
    return made;
  };
  const int64_t tokens = batch.tokens();
  const auto outputs = [&](SegmentKind kind) { return buffers(outputs_of(kind, config, tokens, compute)); };
  at::Tensor x = outputs(SegmentKind::Embedding)[0];
  embedding_forward(call(0, -1), x);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const SegmentCall c = call(static_cast<size_t>(layer) + 1, layer);
    const auto qkv = outputs(SegmentKind::Project), attended = outputs(SegmentKind::Attend);
    LayerBuffers b{x, qkv[0], qkv[1], qkv[2], attended[0], attended[1], buffers(saved_of(SegmentKind::Project, config, tokens, compute)),
                   buffers(saved_of(SegmentKind::Finish, config, tokens, compute))};
    project_forward(c, b.x, b.q, b.k, b.v, b.project);
    attend_forward(c, whole_sequences(batch), b.q, b.k, b.v, b.o, b.lse);
    at::Tensor y = outputs(SegmentKind::Finish)[0];
    finish_forward(c, b.x, b.o, y, b.finish);
    result.layers.push_back(b);
    x = y;
  }
  result.x_out = x;
  result.losses = outputs(SegmentKind::Head)[0];
  at::Tensor dx = at::full_like(x, std::numeric_limits<double>::quiet_NaN());
  head_train(call(p.weights.size() - 1, -1), x, scale, dx, result.losses);
  for (int64_t layer = config.layers - 1; layer >= 0; --layer) {
    const SegmentCall c = call(static_cast<size_t>(layer) + 1, layer);
    LayerBuffers& b = result.layers[static_cast<size_t>(layer)];
    const auto nan = [](const at::Tensor& t) { return at::full_like(t, std::numeric_limits<double>::quiet_NaN()); };
    at::Tensor d_o = nan(b.o), dq = nan(b.q), dk = nan(b.k), dv = nan(b.v);
    finish_backward(c, b.x, b.o, b.finish, dx, d_o);
    at::Tensor delta = nan(b.lse);
    attend_delta(c, b.o, d_o, delta);
    attend_backward(c, whole_sequences(batch), b.q, b.k, b.v, b.lse, delta, d_o, dq, dk, dv);
    project_backward(c, b.x, b.project, dq, dk, dv, dx);
  }
  embedding_backward(call(0, -1), dx);
  return result;
}

// The same function from ATen operations in the dtype of the weights, which may require gradients: the truth in double, and in
// bf16 what eager execution makes of it, rounding after every operation. The loss is double in both.
class Oracle {
 public:
  Oracle(const ModelConfig& config, const MicroBatch& batch, const std::vector<RoleTensors>& weights, bool train = true, uint64_t seed = 5)
      : config_(config), batch_(batch), weights_(weights), train_(train), seed_(seed) {}

  at::Tensor hidden() const {
    at::Tensor x = at::embedding(weights_[0][role(Role::TokenEmbedding)], batch_.ids);
    if (config_.positions == PositionKind::Learned) x = x + at::embedding(weights_[0][role(Role::PositionEmbedding)], batch_.positions);
    x = x * mask(kernel::DropoutPlace::Embedding, -1, config_.dropout_embedding);
    for (int64_t layer = 0; layer < config_.layers; ++layer) x = block(x, layer);
    return x;
  }
  at::Tensor losses(const at::Tensor& hidden) const {  // [T], 0 where not trained
    const RoleTensors& w = weights_.back();
    const at::Tensor n = norm(hidden, w[role(Role::FinalNormWeight)], w[role(Role::FinalNormBias)]);
    const at::Tensor& head = w[role(config_.tied_head ? Role::TokenEmbedding : Role::HeadWeight)];
    const at::Tensor logits = at::log_softmax(at::matmul(n, head.t()).to(at::kDouble), 1);
    const at::Tensor trained = batch_.targets.ge(0);
    return -logits.gather(1, batch_.targets.clamp_min(0).unsqueeze(1)).squeeze(1) * trained.to(at::kDouble);
  }

 private:
  static size_t role(Role r) { return static_cast<size_t>(r); }
  at::ScalarType dtype() const { return weights_[0][role(Role::TokenEmbedding)].scalar_type(); }
  at::Tensor norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const {
    if (config_.norm == NormKind::RmsNorm) return rms(x, w);
    const at::Tensor centered = x - x.mean(-1, true);
    return centered * at::rsqrt(centered.square().mean(-1, true) + config_.norm_eps) * w + b;
  }
  at::Tensor rms(const at::Tensor& x, const at::Tensor& w) const {
    return x * at::rsqrt(x.square().mean(-1, true) + config_.norm_eps) * w;
  }
  at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const {
    const at::Tensor y = at::matmul(x, config_.transposed ? w : w.t());
    return b.defined() ? y + b : y;
  }
  at::Tensor mask(kernel::DropoutPlace::Kind kind, int64_t layer, double p) const {
    if (!train_ || p == 0) return at::ones({1}, dtype());
    std::vector<uint64_t> keys;
    for (size_t s = 0; s + 1 < batch_.starts.size(); ++s)
      keys.resize(static_cast<size_t>(batch_.starts[s + 1]), kernel::stream_key(seed_, batch_.sample_keys[s]));
    const at::Tensor ones = at::ones({batch_.tokens(), config_.hidden}, at::kFloat);
    kernel::dropout_rows(ones, ones, keys.data(), batch_.positions.data_ptr<int64_t>(), {kind, layer}, p);
    return ones.to(dtype());
  }
  at::Tensor rope(const at::Tensor& x) const {  // [T, heads, d]
    if (config_.positions != PositionKind::Rope) return x;
    const int64_t half = config_.head_dim / 2;
    const auto frequencies = segment::rope_frequencies(config_, 0);
    const at::Tensor inverse = at::tensor(frequencies.inverse, at::kFloat);
    const at::Tensor angle = (batch_.positions.to(at::kFloat).unsqueeze(1) * inverse.unsqueeze(0)).to(at::kDouble).unsqueeze(1);
    const double factor = static_cast<double>(frequencies.factor);
    const at::Tensor c = (angle.cos() * factor).to(dtype()), s = (angle.sin() * factor).to(dtype());
    const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
    return at::cat({a * c - b * s, b * c + a * s}, 2);
  }
  at::Tensor activated(const at::Tensor& u) const {
    switch (config_.activation) {
      case ActivationKind::GeluTanh: return at::gelu(u, "tanh");
      case ActivationKind::Gelu: return at::gelu(u);
      case ActivationKind::Relu: return at::relu(u);
      case ActivationKind::Silu: return at::silu(u);
    }
    return u;
  }
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer) const {  // [T, heads, d]
    std::vector<at::Tensor> outputs;
    const int64_t group = config_.heads / config_.kv_heads, window = config_.window_of(layer);
    for (size_t s = 0; s + 1 < batch_.starts.size(); ++s) {
      const int64_t start = batch_.starts[s], n = batch_.starts[s + 1] - start;
      const auto part = [&](const at::Tensor& t, int64_t repeat) {
        return t.narrow(0, start, n).transpose(0, 1).repeat_interleave(repeat, 0);
      };
      at::Tensor scores = at::matmul(part(q, 1), part(k, group).transpose(1, 2)) / std::sqrt(static_cast<double>(config_.head_dim));
      const at::Tensor distance = at::arange(n, at::kLong).unsqueeze(1) - at::arange(n, at::kLong).unsqueeze(0);
      at::Tensor hidden = distance.lt(0);
      if (window > 0) hidden = hidden.logical_or(distance.ge(window));
      at::Tensor weights = at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
      if (train_ && config_.dropout_attention > 0) {
        at::Tensor factors = at::empty({config_.heads, n, n}, at::kFloat);
        for (int64_t h = 0; h < config_.heads; ++h)
          for (int64_t i = 0; i < n; ++i)
            kernel::dropout_factors(kernel::stream_key(seed_, batch_.sample_keys[s]), i, h, 0, n, {kernel::DropoutPlace::Attention, layer},
                                    config_.dropout_attention, factors.data_ptr<float>() + (h * n + i) * n);
        weights = weights * factors.to(dtype());
      }
      outputs.push_back(at::matmul(weights, part(v, group)).transpose(0, 1).reshape({n, config_.query_width()}));
    }
    return at::cat(outputs);
  }
  at::Tensor block(const at::Tensor& x, int64_t layer) const {
    const RoleTensors& w = weights_[static_cast<size_t>(layer) + 1];
    const auto get = [&](Role r) -> const at::Tensor& { return w[role(r)]; };
    const at::Tensor n = norm(x, get(Role::Norm1Weight), get(Role::Norm1Bias));
    at::Tensor q, k, v;
    if (config_.fused_qkv) {
      const auto parts = linear(n, get(Role::QkvWeight), get(Role::QkvBias)).split_with_sizes({config_.query_width(), config_.kv_width(), config_.kv_width()}, 1);
      q = parts[0], k = parts[1], v = parts[2];
    } else {
      q = linear(n, get(Role::QueryWeight), get(Role::QueryBias));
      k = linear(n, get(Role::KeyWeight), get(Role::KeyBias));
      v = linear(n, get(Role::ValueWeight), get(Role::ValueBias));
    }
    const auto heads = [&](const at::Tensor& t) { return t.reshape({t.size(0), -1, config_.head_dim}); };
    q = heads(q), k = heads(k), v = heads(v);
    if (config_.qk_norm) q = rms(q, get(Role::QueryNorm)), k = rms(k, get(Role::KeyNorm));
    const at::Tensor o = attention(rope(q), rope(k), v, layer);
    const at::Tensor x1 = x + linear(o, get(Role::OutputWeight), get(Role::OutputBias)) *
                                  mask(kernel::DropoutPlace::AfterAttention, layer, config_.dropout_residual);
    const at::Tensor n2 = norm(x1, get(Role::Norm2Weight), get(Role::Norm2Bias));
    at::Tensor h = linear(n2, get(Role::UpWeight), get(Role::UpBias));
    h = config_.gated ? activated(linear(n2, get(Role::GateWeight), get(Role::GateBias))) * h : activated(h);
    return x1 + linear(h, get(Role::DownWeight), get(Role::DownBias)) * mask(kernel::DropoutPlace::AfterMlp, layer, config_.dropout_residual);
  }

  const ModelConfig& config_;
  const MicroBatch& batch_;
  const std::vector<RoleTensors>& weights_;
  bool train_;
  uint64_t seed_;
};

// |a - b| / |b|, Euclidean; NaN anywhere gives NaN, which no bound accepts.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const double norm = y.norm().item<double>(), error = (x - y).norm().item<double>();
  return norm > 0 ? error / norm : error;
}

inline ModelConfig tiny_gpt2() {
  ModelConfig c;
  c.vocab_size = 101, c.hidden = 36, c.layers = 2, c.heads = c.kv_heads = 3, c.head_dim = 12, c.intermediate = 77, c.max_positions = 256;
  return c;
}

inline ModelConfig tiny_llama() {
  ModelConfig c = tiny_gpt2();
  c.model_type = "llama";
  c.heads = 6, c.kv_heads = 2, c.head_dim = 10;  // query width 60 is not the hidden size
  c.norm = NormKind::RmsNorm;
  c.positions = PositionKind::Rope;
  c.activation = ActivationKind::Silu;
  c.gated = true;
  c.fused_qkv = c.transposed = c.qkv_bias = c.output_bias = c.mlp_bias = c.tied_head = false;
  return c;
}

struct Case {
  std::string name;
  ModelConfig config;
};

inline std::vector<Case> cases() {
  const auto with = [](ModelConfig config, auto&& change) {
    change(config);
    return config;
  };
  return {
      {"gpt2", tiny_gpt2()},
      {"gpt2_dropout", with(tiny_gpt2(), [](ModelConfig& c) { c.dropout_embedding = 0.1, c.dropout_residual = 0.2, c.dropout_attention = 0.3; })},
      {"gpt2_untied_gelu_erf", with(tiny_gpt2(), [](ModelConfig& c) { c.tied_head = false, c.activation = ActivationKind::Gelu; })},
      {"gpt2_relu_window", with(tiny_gpt2(), [](ModelConfig& c) { c.activation = ActivationKind::Relu, c.window = {5, 0}; })},
      {"llama_gqa", tiny_llama()},
      {"llama_tied", with(tiny_llama(), [](ModelConfig& c) { c.tied_head = true; })},
      {"mistral_window", with(tiny_llama(), [](ModelConfig& c) { c.window = {17, 70}; })},
      {"qwen2_bias", with(tiny_llama(), [](ModelConfig& c) { c.qkv_bias = true; })},
      {"qwen3_qk_norm", with(tiny_llama(), [](ModelConfig& c) { c.qk_norm = true; })},
      {"llama_all_biases_dropout",
       with(tiny_llama(), [](ModelConfig& c) { c.qkv_bias = c.output_bias = c.mlp_bias = true, c.dropout_residual = 0.1, c.dropout_attention = 0.1, c.window = {0, 33}; })},
      {"llama_yarn", with(tiny_llama(), [](ModelConfig& c) { c.rope.scaling = RopeScaling::Yarn, c.rope.factor = 4, c.rope.original_max_positions = 64; })},
  };
}

}  // namespace ballast::segments_test
