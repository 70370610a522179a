// q, k, v -> o, lse within each sequence of the batch.
#include "ballast/kernel/attention.h"
#include "ballast/model/segment_parts.h"

namespace ballast {
namespace {

kernel::AttentionShape shape_of(const SegmentCall& call) {
  return {call.config.heads, call.config.kv_heads, call.config.head_dim, call.config.window_of(call.layer)};
}

// The keys of the sequences' random streams; empty where nothing is dropped.
std::vector<uint64_t> stream_keys(const SegmentCall& call) {
  std::vector<uint64_t> keys;
  if (!call.train || call.config.dropout_attention <= 0) return keys;
  for (uint64_t sample : call.batch.sample_keys) keys.push_back(kernel::stream_key(call.seed, sample));
  return keys;
}

kernel::AttentionDropout dropout_of(const SegmentCall& call, const std::vector<uint64_t>& keys) {
  if (!call.train || call.config.dropout_attention <= 0) return {};
  return {call.config.dropout_attention, keys, call.batch.positions.data_ptr<int64_t>(), {kernel::DropoutPlace::Attention, call.layer}};
}

}  // namespace

void attend_forward(const SegmentCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor& o, at::Tensor& lse) {
  if (call.batch.tokens() == 0) return;
  const std::vector<uint64_t> keys = stream_keys(call);
  kernel::attention_forward(shape_of(call), call.batch.starts, dropout_of(call, keys), q, k, v, o, lse);
}

void attend_backward(const SegmentCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o,
                     const at::Tensor& lse, const at::Tensor& d_o, at::Tensor& dq, at::Tensor& dk, at::Tensor& dv) {
  if (call.batch.tokens() == 0) return;
  const std::vector<uint64_t> keys = stream_keys(call);
  kernel::attention_backward(shape_of(call), call.batch.starts, dropout_of(call, keys), q, k, v, o, lse, d_o, dq, dk, dv);
}

}  // namespace ballast
