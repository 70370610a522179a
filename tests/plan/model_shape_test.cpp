// Names, counts and places of parameters against the published models, and the FLOP formulas by hand.
#include "ballast/plan/model_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ballast/base/error.h"

namespace ballast {
namespace {

std::vector<std::string> names_in(const ParameterGroup& group) {
  std::vector<std::string> names;
  for (const ParameterTensor& tensor : group.tensors) names.push_back(tensor.name);
  return names;
}

std::vector<std::string> group_names(const ModelShape& model) {
  std::vector<std::string> names;
  for (const ParameterGroup& group : model.groups) names.push_back(group.name);
  return names;
}

TEST(ModelShape, Gpt2SmallIsTheRealOne) {
  const ModelShape model = describe(preset("gpt2-124m"));
  EXPECT_EQ(model.parameters(), 124439808);
  EXPECT_EQ(model.trainable_parameters(), 124439808);
  EXPECT_EQ(model.matrix_parameters(), 50257 * 768 + 12 * 12 * 768 * 768);
  ASSERT_EQ(model.groups.size(), 2u + 12u + 1u);
  EXPECT_EQ(names_in(model.groups[0]), std::vector<std::string>{"transformer.wte.weight"});
  EXPECT_EQ(names_in(model.groups[1]), std::vector<std::string>{"transformer.wpe.weight"});
  EXPECT_EQ(names_in(model.groups[13]),
            (std::vector<std::string>{"transformer.h.11.ln_1.weight", "transformer.h.11.ln_1.bias", "transformer.h.11.attn.c_attn.weight",
                                      "transformer.h.11.attn.c_attn.bias", "transformer.h.11.attn.c_proj.weight",
                                      "transformer.h.11.attn.c_proj.bias", "transformer.h.11.ln_2.weight", "transformer.h.11.ln_2.bias",
                                      "transformer.h.11.mlp.c_fc.weight", "transformer.h.11.mlp.c_fc.bias",
                                      "transformer.h.11.mlp.c_proj.weight", "transformer.h.11.mlp.c_proj.bias"}));
  EXPECT_EQ(names_in(model.groups[14]), (std::vector<std::string>{"transformer.ln_f.weight", "transformer.ln_f.bias"}));
  EXPECT_EQ(model.groups[13].tensors[2].shape, (std::vector<int64_t>{768, 2304}));
  EXPECT_EQ(model.segments.front().groups, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(model.segments.back().groups, (std::vector<int64_t>{14, 0}));
  EXPECT_EQ(model.segments[4].name(), "block.1.project");
  EXPECT_EQ(model.segments[4].groups, std::vector<int64_t>{3});
  EXPECT_TRUE(model.segments[5].groups.empty());
  EXPECT_EQ(model.segments[6].groups, std::vector<int64_t>{3});
}

TEST(ModelShape, LlamaNames) {
  ModelConfig config = preset("llama-60m");
  config.qk_norm = config.qkv_bias = true;
  const ModelShape model = describe(config);
  EXPECT_EQ(group_names(model)[0], "embedding");
  EXPECT_EQ(names_in(model.groups[0]), std::vector<std::string>{"model.embed_tokens.weight"});
  EXPECT_EQ(names_in(model.groups[8]),
            (std::vector<std::string>{"model.layers.7.input_layernorm.weight", "model.layers.7.self_attn.q_proj.weight",
                                      "model.layers.7.self_attn.k_proj.weight", "model.layers.7.self_attn.v_proj.weight",
                                      "model.layers.7.self_attn.q_proj.bias", "model.layers.7.self_attn.k_proj.bias",
                                      "model.layers.7.self_attn.v_proj.bias", "model.layers.7.self_attn.q_norm.weight",
                                      "model.layers.7.self_attn.k_norm.weight", "model.layers.7.self_attn.o_proj.weight",
                                      "model.layers.7.post_attention_layernorm.weight", "model.layers.7.mlp.gate_proj.weight",
                                      "model.layers.7.mlp.up_proj.weight", "model.layers.7.mlp.down_proj.weight"}));
  EXPECT_EQ(names_in(model.groups[9]), (std::vector<std::string>{"model.norm.weight", "lm_head.weight"}));
  EXPECT_EQ(model.groups[9].tensors[1].shape, (std::vector<int64_t>{32000, 512}));
  EXPECT_EQ(model.segments.back().groups, std::vector<int64_t>{9});
}

TEST(ModelShape, LlamaCounts) {
  const ModelShape model = describe(preset("llama-60m"));
  const int64_t block = 4 * 512 * 512 + 3 * 512 * 1376;
  EXPECT_EQ(model.parameters(), 2 * 32000 * 512 + 8 * (block + 2 * 512) + 512);
  EXPECT_EQ(model.matrix_parameters(), 32000 * 512 + 8 * block);  // the input table is looked up, not multiplied
  EXPECT_EQ(linear_flops_per_token(model), 6.0 * static_cast<double>(model.matrix_parameters()));
  const ModelShape grouped = describe(preset("llama-110m"));
  EXPECT_EQ(grouped.groups[1].tensors[2].shape, (std::vector<int64_t>{256, 768}));
}

TEST(ModelShape, TensorsStartOnUnitsWithoutOverlap) {
  for (const std::string& name : preset_names()) {
    for (const ParameterGroup& group : describe(preset(name)).groups) {
      int64_t end = 0, parameters = 0;
      for (const ParameterTensor& tensor : group.tensors) {
        EXPECT_EQ(tensor.offset % kUnit, 0);
        EXPECT_GE(tensor.offset, end);
        EXPECT_LT(tensor.offset - end, kUnit);
        end = tensor.offset + tensor.numel();
        parameters += tensor.numel();
        EXPECT_EQ(tensor.decay, tensor.shape.size() == 2);
      }
      EXPECT_EQ(group.parameters, parameters);
      EXPECT_EQ(group.numel, (end + kUnit - 1) / kUnit * kUnit);
    }
  }
}

TEST(ModelShape, QueryKeyValueAreOneMatrix) {
  const ModelShape model = describe(preset("llama-110m"));
  const auto& tensors = model.groups[1].tensors;
  EXPECT_EQ(tensors[1].offset + tensors[1].numel(), tensors[2].offset);
  EXPECT_EQ(tensors[2].offset + tensors[2].numel(), tensors[3].offset);
  EXPECT_EQ(tensors[1].role, Role::QueryWeight);
  EXPECT_EQ(tensors[6].role, Role::GateWeight);
  EXPECT_EQ(tensors[7].role, Role::UpWeight);
  EXPECT_EQ(tensors[6].offset + tensors[6].numel(), tensors[7].offset);
}

TEST(ModelShape, UntiedPositionsRideWithTheTable) {
  ModelConfig config = preset("gpt2-tiny");
  config.tied_head = false;
  const ModelShape model = describe(config);
  EXPECT_EQ(names_in(model.groups[0]), (std::vector<std::string>{"transformer.wte.weight", "transformer.wpe.weight"}));
  EXPECT_EQ(names_in(model.groups.back()), (std::vector<std::string>{"transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"}));
}

TEST(ModelShape, FrozenTensorsHaveGroupsOfTheirOwn) {
  const std::vector<std::string> freeze{"transformer.wte.*", "transformer.h.[12].mlp.*"};
  const ModelShape model = describe(preset("gpt2-tiny"), freeze);
  EXPECT_EQ(group_names(model), (std::vector<std::string>{"embedding.frozen", "positions", "block.0", "block.1", "block.1.frozen", "block.2",
                                                          "block.2.frozen", "block.3", "head"}));
  EXPECT_FALSE(model.groups[4].trainable);
  EXPECT_TRUE(model.groups[3].trainable);
  EXPECT_EQ(names_in(model.groups[4]).front(), "transformer.h.1.mlp.c_fc.weight");
  EXPECT_EQ(model.segments[6].groups, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(model.segments.back().groups, (std::vector<int64_t>{8, 0}));
  EXPECT_EQ(model.parameters(), describe(preset("gpt2-tiny")).parameters());
  EXPECT_EQ(model.trainable_parameters(), model.parameters() - 50257 * 256 - 2 * (8 * 256 * 256 + 5 * 256));
}

TEST(ModelShape, PatternThatMatchesNothingIsRefused) {
  const std::vector<std::string> freeze{"transformer.h.0.mlp.c_fd.weight"};
  try {
    describe(preset("gpt2-tiny"), freeze);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_EQ(error.place(), "train.freeze");
    EXPECT_NE(std::string(error.what()).find("transformer.h.0.mlp.c_fc.weight"), std::string::npos) << error.what();
  }
}

TEST(Preset, UnknownNameListsThem) {
  try {
    preset("gpt2-125m");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    for (const std::string& name : preset_names()) EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
  }
}

TEST(Preset, HaveNoDropout) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset(name);
    EXPECT_EQ(config.dropout_attention + config.dropout_embedding + config.dropout_residual, 0.0) << name;
    EXPECT_EQ(config.name, name);
  }
  EXPECT_GE(preset("llama-60m").max_positions, 4096);
}

TEST(AttentionFlops, CountsVisiblePairs) {
  ModelConfig config = preset("gpt2-tiny");  // 4 layers, query width 256
  const std::vector<int64_t> lengths{1, 10};
  EXPECT_EQ(attention_flops(config, lengths), 12.0 * 256 * 4 * (1 + 55));
  config.window = {0, 3, 10, 100};
  // window 3 over 10 tokens: 1 + 2 + 8 * 3 = 27
  EXPECT_EQ(attention_flops(config, lengths), 12.0 * 256 * ((1 + 55) + (1 + 27) + (1 + 55) + (1 + 55)));
  EXPECT_EQ(attention_flops(config, {}), 0.0);
}

}  // namespace
}  // namespace ballast
