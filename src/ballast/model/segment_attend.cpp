// q, k, v -> o, lse over units of rows, and back.
#include "ballast/kernel/attention.h"
#include "ballast/model/segment_parts.h"

namespace ballast {
namespace {

kernel::AttentionShape shape_of(const SegmentCall& call) {
  const ModelConfig& config = call.config;
  BALLAST_CHECK(call.heads_parts > 0 && call.heads_part >= 0 && call.heads_part < call.heads_parts && config.heads % call.heads_parts == 0 &&
                    config.kv_heads % call.heads_parts == 0,
                "part {} of {} of {} heads and {} key-value heads", call.heads_part, call.heads_parts, config.heads, config.kv_heads);
  const int64_t heads = config.heads / call.heads_parts;
  return {heads, config.kv_heads / call.heads_parts, config.head_dim, config.window_of(call.layer), call.heads_part * heads};
}

// The keys of the units' random streams; empty where nothing is dropped.
std::vector<uint64_t> stream_keys(const SegmentCall& call, std::span<const AttendUnit> units) {
  std::vector<uint64_t> keys;
  if (!call.train || call.config.dropout_attention <= 0) return keys;
  for (const AttendUnit& unit : units) keys.push_back(kernel::stream_key(call.seed, unit.sample));
  return keys;
}

kernel::AttentionDropout dropout_of(const SegmentCall& call, const std::vector<uint64_t>& keys) {
  if (!call.train || call.config.dropout_attention <= 0) return {};
  return {call.config.dropout_attention, keys, {kernel::DropoutPlace::Attention, call.layer}};
}

}  // namespace

void attend_forward(const SegmentCall& call, std::span<const AttendUnit> units, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& o, const at::Tensor& lse, bool merge) {
  if (units.empty()) return;
  const std::vector<uint64_t> keys = stream_keys(call, units);
  kernel::attention_forward(shape_of(call), units, dropout_of(call, keys), q, k, v, o, lse, merge);
}

void attend_delta(const SegmentCall& call, const at::Tensor& o, const at::Tensor& d_o, const at::Tensor& delta) {
  kernel::attention_delta(shape_of(call), o, d_o, delta);
}

void attend_backward(const SegmentCall& call, std::span<const AttendUnit> units, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& lse, const at::Tensor& delta, const at::Tensor& d_o, const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                     bool add_dq) {
  if (units.empty()) return;
  const std::vector<uint64_t> keys = stream_keys(call, units);
  kernel::attention_backward(shape_of(call), units, dropout_of(call, keys), q, k, v, lse, delta, d_o, dq, dk, dv, add_dq);
}

std::vector<AttendUnit> whole_sequences(const MicroBatch& batch) {
  const size_t sequences = batch.starts.empty() ? 0 : batch.starts.size() - 1;
  BALLAST_CHECK(batch.sample_keys.empty() || batch.sample_keys.size() == sequences, "{} sample keys for {} sequences", batch.sample_keys.size(),
                sequences);
  std::vector<AttendUnit> units;
  for (size_t s = 0; s < sequences; ++s) {
    const RowSpan span{batch.starts[s], batch.starts[s + 1] - batch.starts[s], 0};
    units.push_back({{span}, {span}, batch.sample_keys.empty() ? 0 : batch.sample_keys[s]});
  }
  return units;
}

}  // namespace ballast
