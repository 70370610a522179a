// x, o -> x1 = x + output(o) -> y = x1 + down(activation(up(norm2(x1)))).
// Saved: x1, statistics of norm2, [gate,] up before the activation. The normed x1 and the activated hidden are made again
// in backward, each in a pass that has to read its input anyway.
#include "ballast/kernel/gemm.h"
#include "ballast/model/segment_parts.h"

namespace ballast {
using segment::gradient, segment::weight;
using kernel::DropoutPlace;

namespace {

struct SavedFinish {
  at::Tensor x1;
  segment::Statistics stats;
  at::Tensor gate, up;
};

SavedFinish unpack(const ModelConfig& config, const Saved& saved) {
  const size_t next = 1 + segment::statistics_count(config);
  SavedFinish result{saved[0], segment::statistics(config, saved, 1), {}, saved[next]};
  if (config.gated) result.gate = saved[next], result.up = saved[next + 1];
  return result;
}

double residual_dropout(const SegmentCall& call) { return call.train ? call.config.dropout_residual : 0.0; }

// y = x + dropout(linear(a)).
void linear_onto_residual(const SegmentCall& call, const at::Tensor& a, Role weight_role, Role bias_role, const at::Tensor& x,
                          DropoutPlace::Kind place, const at::Tensor& y) {
  const double p = residual_dropout(call);
  if (p == 0) return kernel::linear_forward(a, weight(call, weight_role), weight(call, bias_role), call.config.transposed, y, x);
  kernel::linear_forward(a, weight(call, weight_role), weight(call, bias_role), call.config.transposed, y);
  segment::dropout(call, y, y, place, p);
  kernel::add_to(x, y);
}

at::Tensor temporary(const at::Tensor& like, int64_t width) {
  return at::empty({like.size(0), width}, like.options().dtype(kernel::product_dtype(like.scalar_type())));
}

at::Tensor normed(const SegmentCall& call, const SavedFinish& s) {
  const at::Tensor n = temporary(s.x1, call.config.hidden);
  kernel::norm_apply(s.x1, s.stats.mean, s.stats.rstd, weight(call, Role::Norm2Weight), weight(call, Role::Norm2Bias), n);
  return n;
}

// Everything that is saved.
void finish_saved(const SegmentCall& call, const at::Tensor& x, const at::Tensor& o, const SavedFinish& s) {
  const ModelConfig& config = call.config;
  linear_onto_residual(call, o, Role::OutputWeight, Role::OutputBias, x, DropoutPlace::AfterAttention, s.x1);
  kernel::norm_statistics(s.x1, config.norm_eps, s.stats.mean, s.stats.rstd);
  const at::Tensor n = normed(call, s);
  if (config.gated) kernel::linear_forward(n, weight(call, Role::GateWeight), weight(call, Role::GateBias), config.transposed, s.gate);
  kernel::linear_forward(n, weight(call, Role::UpWeight), weight(call, Role::UpBias), config.transposed, s.up);
}

void backward_weight(const SegmentCall& call, const at::Tensor& x, const at::Tensor& dy, Role weight_role, Role bias_role) {
  kernel::linear_backward_weight(x, dy, call.config.transposed, gradient(call, weight_role), gradient(call, bias_role),
                                 segment::adds(call, weight_role, bias_role));
}

// dy after the dropout of `place`.
at::Tensor upper_operand(const SegmentCall& call, const at::Tensor& dy, DropoutPlace::Kind place) {
  const double p = residual_dropout(call);
  if (p == 0) return dy;
  const at::Tensor masked = temporary(dy, dy.size(1));
  segment::dropout(call, dy, masked, place, p);
  return masked;
}

}  // namespace

void finish_forward(const SegmentCall& call, const at::Tensor& x, const at::Tensor& o, at::Tensor& y, const Saved& saved) {
  if (call.batch.tokens() == 0) return;
  const ModelConfig& config = call.config;
  const SavedFinish s = unpack(config, saved);
  finish_saved(call, x, o, s);
  const at::Tensor h = temporary(x, config.intermediate);
  if (config.gated) kernel::activate_gated(segment::activation(config), s.gate, s.up, h);
  else kernel::activate(segment::activation(config), s.up, h);
  linear_onto_residual(call, h, Role::DownWeight, Role::DownBias, s.x1, DropoutPlace::AfterMlp, y);
}

void finish_recompute(const SegmentCall& call, const at::Tensor& x, const at::Tensor& o, const Saved& saved) {
  if (call.batch.tokens() == 0) return;
  finish_saved(call, x, o, unpack(call.config, saved));
}

void finish_backward(const SegmentCall& call, const at::Tensor& x, const at::Tensor& o, const Saved& saved, at::Tensor& dx, at::Tensor& d_o) {
  if (call.batch.tokens() == 0) return segment::contribute_nothing(call);
  const ModelConfig& config = call.config;
  const bool transposed = config.transposed;
  const SavedFinish s = unpack(config, saved);
  const auto kind = segment::activation(config);

  at::Tensor d_up = temporary(x, config.intermediate), d_gate;  // d_up first holds the gradient of the hidden
  {
    const at::Tensor dy = upper_operand(call, dx, DropoutPlace::AfterMlp);
    kernel::linear_backward_input(dy, weight(call, Role::DownWeight), transposed, d_up);
    const at::Tensor h = temporary(x, config.intermediate);
    if (config.gated) {
      d_gate = temporary(x, config.intermediate);
      kernel::activate_gated_backward(kind, s.gate, s.up, d_up, d_gate, d_up, h);
    } else {
      kernel::activate_backward(kind, s.up, d_up, d_up, h);
    }
    backward_weight(call, h, dy, Role::DownWeight, Role::DownBias);
  }
  {
    const at::Tensor dn = at::empty({x.size(0), x.size(1)}, x.options().dtype(at::kFloat));
    {
      const at::Tensor n = normed(call, s);
      kernel::linear_backward_input(d_up, weight(call, Role::UpWeight), transposed, dn);
      backward_weight(call, n, d_up, Role::UpWeight, Role::UpBias);
      d_up.reset();
      if (config.gated) {
        kernel::linear_backward_input(d_gate, weight(call, Role::GateWeight), transposed, dn, true);
        backward_weight(call, n, d_gate, Role::GateWeight, Role::GateBias);
        d_gate.reset();
      }
    }
    kernel::norm_backward(s.x1, s.stats.mean, s.stats.rstd, weight(call, Role::Norm2Weight), dn, dx, true,
                          gradient(call, Role::Norm2Weight), gradient(call, Role::Norm2Bias), segment::adds(call, Role::Norm2Weight, Role::Norm2Bias));
  }
  const at::Tensor d_x1 = upper_operand(call, dx, DropoutPlace::AfterAttention);
  kernel::linear_backward_input(d_x1, weight(call, Role::OutputWeight), transposed, d_o);
  backward_weight(call, o, d_x1, Role::OutputWeight, Role::OutputBias);
}

}  // namespace ballast
