// Checks the buffers, corrects the bias, and hands pieces of the ranges to the kernels.
#include "ballast/optim/flat_optimizer.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "ballast/base/check.h"
#include "ballast/optim/update_kernels.h"

namespace ballast {
namespace {

constexpr int64_t kGrain = 32768;  // elements per task: about half a megabyte of traffic

float* data_of(const at::Tensor& tensor, int64_t n, at::ScalarType dtype, const char* what) {
  BALLAST_CHECK(tensor.defined() && tensor.dim() == 1 && tensor.numel() == n && tensor.scalar_type() == dtype &&
                    tensor.is_contiguous(),
                "{} is not a flat buffer of {} elements", what, n);
  return static_cast<float*>(tensor.mutable_data_ptr());
}

// Calls kernel(begin, n) over [range.begin, range.end) on the threads of ATen.
template <class Kernel>
void over(const UpdateRange& range, const Kernel& kernel) {
  at::parallel_for(range.begin, range.end, kGrain,
                   [&kernel](int64_t begin, int64_t end) { kernel(begin, end - begin); });
}

}  // namespace

double clip_factor(double gradient_norm, double clip) {
  if (!std::isfinite(gradient_norm)) return std::numeric_limits<double>::quiet_NaN();
  return clip > 0 && gradient_norm > clip ? clip / gradient_norm : 1.0;
}

void apply_update(const OptimizerSpec& spec, const UpdateStep& step, const std::vector<UpdateRange>& ranges,
                  const UpdateBuffers& buffers) {
  BALLAST_CHECK(step.step >= 1, "steps count from 1, not {}", step.step);
  const int64_t n = buffers.weights.defined() ? buffers.weights.numel() : 0;
  float* weights = data_of(buffers.weights, n, at::kFloat, "weights");
  const float* gradient = data_of(buffers.gradient, n, at::kFloat, "gradient");
  uint16_t* copy = nullptr;
  if (buffers.copy.defined()) copy = reinterpret_cast<uint16_t*>(data_of(buffers.copy, n, at::kBFloat16, "copy"));
  const std::vector<OptimizerState> specs = optimizer_state_specs(spec);
  BALLAST_CHECK(specs.size() == buffers.states.size(), "{} states for {}, which has {}", buffers.states.size(),
                spec.name, specs.size());
  std::vector<float*> states;
  for (size_t i = 0; i < specs.size(); ++i)
    states.push_back(data_of(buffers.states[i], n, at::kFloat, specs[i].name.c_str()));

  const float scale = static_cast<float>(step.scale);
  const auto copy_at = [copy](int64_t begin) { return copy == nullptr ? nullptr : copy + begin; };
  for (const UpdateRange& range : ranges) {
    BALLAST_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= n, "range [{}, {}) of {}", range.begin,
                  range.end, n);
    const double decay = range.decay ? spec.weight_decay : 0;
    const float shrink = static_cast<float>(1 - step.lr * decay);
    if (spec.name == "adamw") {
      const double correction1 = 1 - std::pow(spec.beta1, static_cast<double>(step.step));
      const double correction2 = 1 - std::pow(spec.beta2, static_cast<double>(step.step));
      const AdamWNumbers numbers{scale,
                                 static_cast<float>(1 - spec.beta1),
                                 static_cast<float>(spec.beta2),
                                 static_cast<float>(1 - spec.beta2),
                                 shrink,
                                 static_cast<float>(step.lr / correction1),
                                 static_cast<float>(1 / std::sqrt(correction2)),
                                 static_cast<float>(spec.eps)};
      over(range, [&](int64_t begin, int64_t count) {
        adamw_kernel(numbers, count, gradient + begin, states[0] + begin, states[1] + begin, weights + begin,
                     copy_at(begin));
      });
    } else if (spec.name == "sgd") {
      const SgdNumbers numbers{scale, static_cast<float>(decay), static_cast<float>(spec.momentum),
                               static_cast<float>(step.lr)};
      over(range, [&](int64_t begin, int64_t count) {
        sgd_kernel(numbers, count, gradient + begin, states.empty() ? nullptr : states[0] + begin, weights + begin,
                   copy_at(begin));
      });
    } else {
      const LionNumbers numbers{scale,
                                static_cast<float>(spec.beta1),
                                static_cast<float>(1 - spec.beta1),
                                static_cast<float>(spec.beta2),
                                static_cast<float>(1 - spec.beta2),
                                shrink,
                                static_cast<float>(step.lr)};
      over(range, [&](int64_t begin, int64_t count) {
        lion_kernel(numbers, count, gradient + begin, states[0] + begin, weights + begin, copy_at(begin));
      });
    }
  }
}

}  // namespace ballast
