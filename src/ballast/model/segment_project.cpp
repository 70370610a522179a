// x -> norm -> q, k, v, with the optional norms of q and k over each head and RoPE.
// Saved: statistics of the norm; with q/k norms also q and k before them. The normed x is made again in backward.
#include "ballast/kernel/gemm.h"
#include "ballast/kernel/rope.h"
#include "ballast/model/segment_parts.h"
#include "ballast/model/segment_rope.h"

namespace ballast {
using segment::gradient, segment::weight;

namespace {

// One of q, k, v: a linear layer of its own or a slice of the fused one.
struct Projection {
  at::Tensor weight, bias, weight_gradient, bias_gradient;
  bool adds;  // to its gradients
};

std::array<Projection, 3> projections(const SegmentCall& call) {
  const ModelConfig& config = call.config;
  if (!config.fused_qkv) {
    const auto part = [&](Role w, Role b) { return Projection{weight(call, w), weight(call, b), gradient(call, w), gradient(call, b), segment::adds(call, w, b)}; };
    return {part(Role::QueryWeight, Role::QueryBias), part(Role::KeyWeight, Role::KeyBias), part(Role::ValueWeight, Role::ValueBias)};
  }
  const std::array<int64_t, 3> widths{config.query_width(), config.kv_width(), config.kv_width()};
  const int64_t out_dimension = config.transposed ? 1 : 0;
  std::array<Projection, 3> parts;
  int64_t first = 0;
  for (size_t i = 0; i < 3; ++i) {
    const auto slice = [&](const at::Tensor& t, int64_t dimension) {
      return t.defined() ? t.narrow(dimension, first, widths[i]) : at::Tensor();
    };
    parts[i] = {slice(weight(call, Role::QkvWeight), out_dimension), slice(weight(call, Role::QkvBias), 0),
                slice(gradient(call, Role::QkvWeight), out_dimension), slice(gradient(call, Role::QkvBias), 0), segment::adds(call, Role::QkvWeight, Role::QkvBias)};
    first += widths[i];
  }
  return parts;
}

at::Tensor normed(const SegmentCall& call, const at::Tensor& x, const segment::Statistics& stats) {
  const at::Tensor n = at::empty({x.size(0), x.size(1)}, x.options().dtype(kernel::product_dtype(x.scalar_type())));
  kernel::norm_apply(x, stats.mean, stats.rstd, weight(call, Role::Norm1Weight), weight(call, Role::Norm1Bias), n);
  return n;
}

at::Tensor per_head(const SegmentCall& call, const at::Tensor& t) { return t.view({-1, call.config.head_dim}); }

// y = norm of every head of x.
void head_norm(const SegmentCall& call, const at::Tensor& x, Role role, const at::Tensor& y) {
  const at::Tensor rows = per_head(call, x);
  const at::Tensor rstd = at::empty({rows.size(0)}, x.options().dtype(at::kFloat));
  kernel::norm_statistics(rows, call.config.norm_eps, {}, rstd);
  kernel::norm_apply(rows, {}, rstd, weight(call, role), {}, per_head(call, y));
}

void head_norm_backward(const SegmentCall& call, const at::Tensor& x, Role role, const at::Tensor& dy) {
  const at::Tensor rows = per_head(call, x), upper = per_head(call, dy);
  const at::Tensor rstd = at::empty({rows.size(0)}, x.options().dtype(at::kFloat));
  kernel::norm_statistics(rows, call.config.norm_eps, {}, rstd);
  kernel::norm_backward(rows, {}, rstd, weight(call, role), upper, upper, false, gradient(call, role), {}, segment::adds(call, role));
}

}  // namespace

void project_forward(const SegmentCall& call, const at::Tensor& x, at::Tensor& q, at::Tensor& k, at::Tensor& v, const Saved& saved) {
  if (call.batch.tokens() == 0) return;
  const ModelConfig& config = call.config;
  const segment::Statistics stats = segment::statistics(config, saved, 0);
  const size_t raw = segment::statistics_count(config);
  kernel::norm_statistics(x, config.norm_eps, stats.mean, stats.rstd);
  {
    const at::Tensor n = normed(call, x, stats);
    const auto parts = projections(call);
    const std::array<at::Tensor, 3> outputs{config.qk_norm ? saved[raw] : q, config.qk_norm ? saved[raw + 1] : k, v};
    for (size_t i = 0; i < 3; ++i) kernel::linear_forward(n, parts[i].weight, parts[i].bias, config.transposed, outputs[i]);
  }
  if (config.qk_norm) {
    head_norm(call, saved[raw], Role::QueryNorm, q);
    head_norm(call, saved[raw + 1], Role::KeyNorm, k);
  }
  if (config.positions == PositionKind::Rope) {
    const segment::RopeTables tables = segment::rope_tables(config, call.batch);
    kernel::rotate(q, config.head_dim, tables.cosines, tables.sines, false);
    kernel::rotate(k, config.head_dim, tables.cosines, tables.sines, false);
  }
}

void project_recompute(const SegmentCall& call, const at::Tensor& x, const Saved& saved) {
  if (call.batch.tokens() == 0) return;
  const ModelConfig& config = call.config;
  const segment::Statistics stats = segment::statistics(config, saved, 0);
  kernel::norm_statistics(x, config.norm_eps, stats.mean, stats.rstd);
  if (!config.qk_norm) return;
  const at::Tensor n = normed(call, x, stats);
  const auto parts = projections(call);
  for (size_t i = 0; i < 2; ++i)
    kernel::linear_forward(n, parts[i].weight, parts[i].bias, config.transposed, saved[segment::statistics_count(config) + i]);
}

void project_backward(const SegmentCall& call, const at::Tensor& x, const Saved& saved, at::Tensor& dq, at::Tensor& dk, at::Tensor& dv,
                      at::Tensor& dx) {
  if (call.batch.tokens() == 0) return segment::contribute_nothing(call);
  const ModelConfig& config = call.config;
  if (config.positions == PositionKind::Rope) {
    const segment::RopeTables tables = segment::rope_tables(config, call.batch);
    kernel::rotate(dq, config.head_dim, tables.cosines, tables.sines, true);
    kernel::rotate(dk, config.head_dim, tables.cosines, tables.sines, true);
  }
  const size_t raw = segment::statistics_count(config);
  if (config.qk_norm) {
    head_norm_backward(call, saved[raw], Role::QueryNorm, dq);
    head_norm_backward(call, saved[raw + 1], Role::KeyNorm, dk);
  }
  const segment::Statistics stats = segment::statistics(config, saved, 0);
  const at::Tensor dn = at::empty({x.size(0), x.size(1)}, x.options().dtype(at::kFloat));
  const auto parts = projections(call);
  const std::array<at::Tensor, 3> upper{dq, dk, dv};
  {
    const at::Tensor n = normed(call, x, stats);
    for (size_t i = 0; i < 3; ++i) {
      kernel::linear_backward_input(upper[i], parts[i].weight, config.transposed, dn, i > 0);
      kernel::linear_backward_weight(n, upper[i], config.transposed, parts[i].weight_gradient, parts[i].bias_gradient, parts[i].adds);
    }
  }
  kernel::norm_backward(x, stats.mean, stats.rstd, weight(call, Role::Norm1Weight), dn, dx, true, gradient(call, Role::Norm1Weight),
                        gradient(call, Role::Norm1Bias), segment::adds(call, Role::Norm1Weight, Role::Norm1Bias));
}

}  // namespace ballast
