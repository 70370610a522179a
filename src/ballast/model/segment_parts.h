#pragma once
// What the segments share: roles of a call, kernel enums, norms and dropout of a model.
#include <ATen/ATen.h>

#include <vector>

#include "ballast/base/check.h"
#include "ballast/kernel/activation.h"
#include "ballast/kernel/dropout.h"
#include "ballast/kernel/norm.h"
#include "ballast/model/segments.h"

namespace ballast::segment {

inline const at::Tensor& weight(const SegmentCall& call, Role role) { return call.weights[static_cast<size_t>(role)]; }
inline const at::Tensor& gradient(const SegmentCall& call, Role role) { return call.gradients[static_cast<size_t>(role)]; }

// Whether a contribution adds to what the gradient holds. Of a weight and its bias one may be frozen, which is never fresh.
inline bool adds(const SegmentCall& call, Role role) { return !call.fresh[static_cast<size_t>(role)]; }
inline bool adds(const SegmentCall& call, Role weight_role, Role bias_role) { return adds(call, weight_role) && adds(call, bias_role); }
// The contribution of a batch that trains nothing.
inline void contribute_nothing(const SegmentCall& call) {
  for (size_t role = 0; role < kRoleCount; ++role) {
    if (call.fresh[role] && call.gradients[role].defined()) call.gradients[role].zero_();
  }
}

inline kernel::Activation activation(const ModelConfig& config) {
  switch (config.activation) {
    case ActivationKind::GeluTanh: return kernel::Activation::GeluTanh;
    case ActivationKind::Gelu: return kernel::Activation::Gelu;
    case ActivationKind::Relu: return kernel::Activation::Relu;
    case ActivationKind::Silu: return kernel::Activation::Silu;
  }
  BALLAST_CHECK(false, "unknown activation");
}

// The statistics at the head of `saved`: [mean,] rstd.
struct Statistics {
  at::Tensor mean, rstd;
};
inline Statistics statistics(const ModelConfig& config, const Saved& saved, size_t first) {
  if (config.norm == NormKind::LayerNorm) return {saved[first], saved[first + 1]};
  return {at::Tensor(), saved[first]};
}
inline size_t statistics_count(const ModelConfig& config) { return config.norm == NormKind::LayerNorm ? 2 : 1; }
inline Statistics new_statistics(const ModelConfig& config, int64_t rows) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  return {config.norm == NormKind::LayerNorm ? at::empty({rows}, options) : at::Tensor(), at::empty({rows}, options)};
}

// One random stream key per slot, from the sample that owns it.
inline std::vector<uint64_t> slot_keys(const SegmentCall& call) {
  const MicroBatch& batch = call.batch;
  BALLAST_CHECK(batch.sample_keys.size() + 1 == batch.starts.size(), "{} sample keys for {} sequences", batch.sample_keys.size(),
                batch.starts.size() - 1);
  std::vector<uint64_t> keys(static_cast<size_t>(batch.tokens()));
  for (size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    std::fill(keys.begin() + batch.starts[s], keys.begin() + batch.starts[s + 1], kernel::stream_key(call.seed, batch.sample_keys[s]));
  }
  return keys;
}

// y = dropout(x), forward and backward alike; y may be x.
inline void dropout(const SegmentCall& call, const at::Tensor& x, const at::Tensor& y, kernel::DropoutPlace::Kind kind, double p) {
  const std::vector<uint64_t> keys = slot_keys(call);
  kernel::dropout_rows(x, y, keys.data(), call.batch.positions.data_ptr<int64_t>(), {kind, call.layer}, p);
}

}  // namespace ballast::segment
