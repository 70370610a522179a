#include "ballast/model/initialize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace ballast {
namespace {

ModelConfig gpt2() {
  ModelConfig config;
  config.vocab_size = 1000;
  config.hidden = 128;
  config.layers = 3;
  config.heads = config.kv_heads = 4;
  config.head_dim = 32;
  config.intermediate = 512;
  config.max_positions = 100;
  return config;
}

std::map<std::string, std::vector<float>> tensors_of(const ModelConfig& config, uint64_t seed,
                                                     std::span<const std::string> freeze = {}) {
  std::map<std::string, std::vector<float>> tensors;
  for (const ParameterGroup& group : describe(config, freeze).groups) {
    std::vector<float> flat(static_cast<size_t>(group.numel), -7.0f);
    initialize_group(config, group, seed, flat.data());
    for (const ParameterTensor& tensor : group.tensors)
      tensors[tensor.name] = {flat.begin() + tensor.offset, flat.begin() + tensor.offset + tensor.numel()};
  }
  return tensors;
}

TEST(Initialize, MomentsFollowTheRoles) {
  const ModelConfig config = gpt2();
  for (const auto& [name, values] : tensors_of(config, 7)) {
    if (values.size() < 1024) {
      const bool norm_weight = name.find("ln_") != std::string::npos && name.ends_with("weight");
      for (const float value : values) EXPECT_EQ(value, norm_weight ? 1.0f : 0.0f) << name;
      continue;
    }
    const double count = static_cast<double>(values.size());
    const double expected = name.find("c_proj") != std::string::npos ? 0.02 / std::sqrt(6.0) : 0.02;
    double mean = 0, square = 0, fourth = 0;
    for (const float value : values) {
      mean += value / count;
      square += value * value / count;
      fourth += std::pow(value, 4) / count;
    }
    EXPECT_NEAR(mean, 0, 5 * expected / std::sqrt(count)) << name;
    EXPECT_NEAR(std::sqrt(square), expected, 5 * expected / std::sqrt(2 * count)) << name;
    EXPECT_NEAR(fourth / (square * square), 3.0, 5 * std::sqrt(24.0 / count)) << name;  // a normal's kurtosis
  }
}

TEST(Initialize, OnlyGpt2ScalesItsResidualProjections) {
  ModelConfig config = gpt2();
  config.model_type = "llama";
  config.norm = NormKind::RmsNorm;
  config.positions = PositionKind::Rope;
  config.gated = config.qk_norm = true;
  config.fused_qkv = config.transposed = config.qkv_bias = config.output_bias = config.mlp_bias = config.tied_head =
      false;
  int64_t ones = 0;
  for (const auto& [name, values] : tensors_of(config, 7)) {
    double square = 0;
    for (const float value : values) square += value * value / static_cast<double>(values.size());
    if (name.find("norm") != std::string::npos) {
      EXPECT_EQ(square, 1.0) << name;
      ++ones;
    } else {
      EXPECT_NEAR(std::sqrt(square), 0.02, 0.001) << name;
    }
  }
  EXPECT_EQ(ones, 4 * 3 + 1);
}

TEST(Initialize, AnyRangeIsAPartOfTheWhole) {
  const ModelConfig config = gpt2();
  for (const ParameterGroup& group : describe(config).groups) {
    std::vector<float> whole(static_cast<size_t>(group.numel), -7.0f);
    initialize_group(config, group, 3, whole.data());
    for (int64_t begin = 0; begin < group.numel; begin += group.numel / 7 + 3) {
      for (const int64_t length : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{64}, int64_t{1001}, group.numel}) {
        const int64_t end = std::min(begin + length, group.numel);
        std::vector<float> part(static_cast<size_t>(end - begin), -7.0f);
        initialize_range(config, group, 3, begin, end, part.data());
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin))
            << group.name << " [" << begin << ", " << end << ")";
      }
    }
  }
}

TEST(Initialize, DependsOnSeedAndNameButNotOnGrouping) {
  const ModelConfig config = gpt2();
  const std::vector<std::string> freeze = {"transformer.h.1.*", "transformer.wte.weight"};
  const auto first = tensors_of(config, 7), again = tensors_of(config, 7, freeze), other = tensors_of(config, 8);
  EXPECT_EQ(first, again);
  EXPECT_NE(first.at("transformer.wte.weight"), other.at("transformer.wte.weight"));
  EXPECT_NE(first.at("transformer.h.0.attn.c_attn.weight"), first.at("transformer.h.1.attn.c_attn.weight"));
}

}  // namespace
}  // namespace ballast
