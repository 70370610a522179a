#include "ballast/model/initialize.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ballast/base/check.h"
#include "ballast/kernel/dropout.h"

namespace ballast {

namespace {

enum class Rule { Zero, One, Normal };

Rule rule_of(Role role) {
  switch (role) {
    case Role::Norm1Weight:
    case Role::Norm2Weight:
    case Role::FinalNormWeight:
    case Role::QueryNorm:
    case Role::KeyNorm:
      return Rule::One;
    case Role::Norm1Bias:
    case Role::Norm2Bias:
    case Role::FinalNormBias:
    case Role::QkvBias:
    case Role::QueryBias:
    case Role::KeyBias:
    case Role::ValueBias:
    case Role::OutputBias:
    case Role::UpBias:
    case Role::GateBias:
    case Role::DownBias:
      return Rule::Zero;
    case Role::TokenEmbedding:
    case Role::PositionEmbedding:
    case Role::QkvWeight:
    case Role::QueryWeight:
    case Role::KeyWeight:
    case Role::ValueWeight:
    case Role::OutputWeight:
    case Role::UpWeight:
    case Role::GateWeight:
    case Role::DownWeight:
    case Role::HeadWeight:
      return Rule::Normal;
    case Role::Count:
      break;
  }
  BALLAST_CHECK(false, "role {}", static_cast<int>(role));
}

double deviation_of(const ModelConfig& config, Role role) {
  const bool residual = role == Role::OutputWeight || role == Role::DownWeight;
  if (config.model_type == "gpt2" && residual)
    return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.layers));
  return config.initializer_range;
}

// FNV-1a: names decide the stream, so the order of tensors does not.
uint64_t hash_of(const std::string& name) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

// Elements 4 block .. 4 block + 3 of a stream: two Box-Muller pairs of one counter.
std::array<float, 4> normals(uint64_t key, uint64_t block, double deviation) {
  const std::array<uint32_t, 4> bits =
      kernel::philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0x696e6974u, 0}, key);
  std::array<float, 4> out;
  for (size_t pair = 0; pair < 2; ++pair) {
    const double u = (bits[2 * pair] + 1.0) * 0x1p-32,
                 angle = 2.0 * std::numbers::pi * bits[2 * pair + 1] * 0x1p-32;  // u in (0, 1]
    const double radius = deviation * std::sqrt(-2.0 * std::log(u));
    out[2 * pair] = static_cast<float>(radius * std::cos(angle));
    out[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return out;
}

void draw(uint64_t key, double deviation, int64_t begin, int64_t end, float* out) {
  const int64_t first_block = begin / 4, last_block = (end + 3) / 4;
  at::parallel_for(first_block, last_block, 4096, [&](int64_t from, int64_t to) {
    for (int64_t block = from; block < to; ++block) {
      const std::array<float, 4> values = normals(key, static_cast<uint64_t>(block), deviation);
      for (int64_t i = std::max(begin, 4 * block); i < std::min(end, 4 * block + 4); ++i)
        out[i - begin] = values[static_cast<size_t>(i - 4 * block)];
    }
  });
}

}  // namespace

void initialize_group(const ModelConfig& config, const ParameterGroup& group, uint64_t seed, float* flat) {
  initialize_range(config, group, seed, 0, group.numel, flat);
}

void initialize_range(const ModelConfig& config, const ParameterGroup& group, uint64_t seed, int64_t begin, int64_t end,
                      float* out) {
  BALLAST_CHECK(0 <= begin && begin <= end && end <= group.numel, "[{}, {}) of {}", begin, end, group.numel);
  std::fill(out, out + (end - begin), 0.0f);
  for (const ParameterTensor& tensor : group.tensors) {
    const int64_t first = std::max(begin, tensor.offset), last = std::min(end, tensor.offset + tensor.numel());
    if (first >= last) continue;
    const Rule rule = rule_of(tensor.role);
    if (rule == Rule::One) std::fill(out + (first - begin), out + (last - begin), 1.0f);
    if (rule == Rule::Normal)
      draw(kernel::stream_key(seed, hash_of(tensor.name)), deviation_of(config, tensor.role), first - tensor.offset,
           last - tensor.offset, out + (first - begin));
  }
}

}  // namespace ballast
