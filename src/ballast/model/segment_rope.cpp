// Angles are products of fp32 numbers, as in transformers, so that high positions agree with it.
#include "ballast/model/segment_rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

#include "ballast/base/check.h"

namespace ballast::segment {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// YaRN (arXiv:2309.00071): channels that turn often keep their frequency, slow ones are interpolated, a ramp between.
RopeFrequencies yarn(const ModelConfig& config, const std::vector<double>& plain) {
  const Rope& rope = config.rope;
  const double d = static_cast<double>(config.head_dim);
  const double original = static_cast<double>(rope.original_max_positions > 0 ? rope.original_max_positions : config.max_positions);
  const auto channel = [&](double turns) { return d * std::log(original / (turns * kTwoPi)) / (2.0 * std::log(rope.theta)); };
  double low = channel(rope.beta_fast), high = channel(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;
  RopeFrequencies result;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    result.inverse.push_back(static_cast<float>(plain[i] / rope.factor * interpolated + plain[i] * (1.0 - interpolated)));
  }
  const double by_default = rope.factor > 1.0 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0;
  result.factor = static_cast<float>(rope.attention_factor.value_or(by_default));
  return result;
}

// Llama 3.1: wavelengths beyond the original context are stretched, short ones kept, those between blended.
double llama3(const Rope& rope, double frequency) {
  const double turns = static_cast<double>(rope.original_max_positions) * frequency / kTwoPi;  // within the original context
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t length) {
  const Rope& rope = config.rope;
  const double d = static_cast<double>(config.head_dim);
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::Dynamic) {
    const double original = static_cast<double>(rope.original_max_positions > 0 ? rope.original_max_positions : config.max_positions);
    const double reach = std::max(original, static_cast<double>(length));
    theta *= std::pow(rope.factor * reach / original - (rope.factor - 1.0), d / (d - 2.0));
  }
  std::vector<double> plain;
  for (int64_t i = 0; i < config.head_dim / 2; ++i) plain.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / d));
  if (rope.scaling == RopeScaling::Yarn) return yarn(config, plain);
  RopeFrequencies result;
  for (double frequency : plain) {
    if (rope.scaling == RopeScaling::Linear) frequency /= rope.factor;
    if (rope.scaling == RopeScaling::Llama3) frequency = llama3(rope, frequency);
    result.inverse.push_back(static_cast<float>(frequency));
  }
  return result;
}

RopeTables rope_tables(const ModelConfig& config, const MicroBatch& batch) {
  const int64_t tokens = batch.tokens(), half = config.head_dim / 2;
  const auto options = at::TensorOptions().dtype(at::kFloat);
  RopeTables tables{at::empty({tokens, half}, options), at::empty({tokens, half}, options)};
  const int64_t* positions = batch.positions.data_ptr<int64_t>();
  float *cosines = tables.cosines.data_ptr<float>(), *sines = tables.sines.data_ptr<float>();
  RopeFrequencies frequencies = rope_frequencies(config, 0);
  for (size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const int64_t begin = batch.starts[s], end = batch.starts[s + 1];
    if (config.rope.scaling == RopeScaling::Dynamic && end > begin)
      frequencies = rope_frequencies(config, *std::max_element(positions + begin, positions + end) + 1);
    at::parallel_for(begin, end, 64, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        for (int64_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(positions[t]) * frequencies.inverse[static_cast<size_t>(i)];
          cosines[t * half + i] = std::cos(angle) * frequencies.factor;
          sines[t * half + i] = std::sin(angle) * frequencies.factor;
        }
      }
    });
  }
  return tables;
}

}  // namespace ballast::segment
