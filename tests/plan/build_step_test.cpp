// Bytes and operations of the lowered graph against closed forms, over topologies of any sizes.
#include "ballast/plan/build_step.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "ballast/base/error.h"
#include "ballast/plan/summary.h"

namespace ballast {
namespace {

Recipe recipe_of(std::vector<int64_t> sizes, const std::string& placement, DType compute = DType::Float32) {
  std::vector<Level> levels;
  for (size_t i = 0; i < sizes.size(); ++i) levels.push_back({"level" + std::to_string(i), sizes[i], {}, {}});
  Recipe recipe;
  recipe.model = describe(preset("gpt2-tiny"));
  recipe.topology = Topology(levels);
  recipe.placement = parse_placement(YAML::Load(placement), recipe.topology);
  recipe.compute = compute;
  recipe.optimizer_states = {"exp_avg", "exp_avg_sq"};
  return recipe;
}

// Elements of all group buffers, padded as shards need.
double padded_elements(const Recipe& recipe) {
  double sum = 0;
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) sum += static_cast<double>(place_group(recipe, g).padded);
  return sum;
}

// What the gathers of one micro-batch bring: each block twice; the tied table for the embedding and the head; positions and head once.
double gathered_elements(const Recipe& recipe) {
  double sum = 0;
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
    const GroupPlace place = place_group(recipe, g);
    const bool twice = place.group->name.starts_with("block.") || place.group->name == "embedding";
    sum += static_cast<double>(place.padded) * (twice ? 2 : 1);
  }
  return sum;
}

std::vector<int64_t> bytes_of(const Recipe& recipe, int64_t micro_batches = 1) {
  const PlanSummary summary = summarize(recipe, assumed_layout(recipe.topology.ranks(), micro_batches, 32, 32));
  std::vector<int64_t> bytes;
  for (const auto& level : summary.levels) bytes.push_back(level.bytes_per_step);
  return bytes;
}

TEST(BuildStep, FlatBytesAreTheClosedForms) {
  for (int64_t n : {2, 3, 4, 7}) {
    for (int64_t m : {1, 3}) {
      const auto expect = [&](const char* placement, double sent_elements) {
        for (const DType compute : {DType::Float32, DType::BFloat16}) {
          const Recipe recipe = recipe_of({n}, placement, compute);
          EXPECT_EQ(static_cast<double>(bytes_of(recipe, m)[0]), static_cast<double>(n - 1) * sent_elements * static_cast<double>(size_of(compute))) << placement << " " << n;
        }
      };
      const Recipe any = recipe_of({n}, "ddp");
      const double psi = padded_elements(any), gathers = gathered_elements(any), batches = static_cast<double>(m);
      expect("ddp", 2 * psi);
      expect("zero1", 2 * psi);
      expect("zero2", (1 + batches) * psi);
      expect("zero3", batches * (gathers + psi));
      expect("hsdp(level0)", batches * (gathers + psi));
    }
  }
}

TEST(BuildStep, HierarchicalHopsSendWhatEachLevelNeeds) {
  // Over levels of sizes a (inner) and b (outer): the outer hop of a gather moves 1/a of the buffer per rank group, the inner one all of it.
  for (const auto& [a, b] : std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {3, 2}, {2, 5}}) {
    const Recipe zero3 = recipe_of({a, b}, "zero3");
    const double psi = padded_elements(zero3), gathers = gathered_elements(zero3);
    const double inner = static_cast<double>(b) * static_cast<double>(a - 1), outer = static_cast<double>(b - 1);
    EXPECT_EQ(static_cast<double>(bytes_of(zero3)[0]), inner * (gathers + psi) * 4);
    EXPECT_EQ(static_cast<double>(bytes_of(zero3)[1]), outer * (gathers + psi) * 4);
    const Recipe hsdp = recipe_of({a, b}, "hsdp(level0)");
    EXPECT_EQ(static_cast<double>(bytes_of(hsdp)[0]), inner * (gathers + psi) * 4);
    EXPECT_EQ(static_cast<double>(bytes_of(hsdp)[1]), outer * 2 * psi * 4);   // sums there and back, once per step
    EXPECT_EQ(bytes_of(hsdp, 4)[1], bytes_of(hsdp, 1)[1]);
    const Recipe ddp = recipe_of({a, b}, "ddp");
    EXPECT_EQ(static_cast<double>(bytes_of(ddp)[0]), inner * 2 * psi * 4);
    EXPECT_EQ(static_cast<double>(bytes_of(ddp)[1]), outer * 2 * psi * 4);
  }
}

TEST(BuildStep, EveryRankGetsTheSameOperations) {
  for (const char* placement : {"ddp", "zero3", "hsdp(level0)", "{weights: level1, gradients: self, optimizer: world}"}) {
    const Recipe recipe = recipe_of({2, 3}, placement);
    const Layout layout = assumed_layout(6, 2, 32, 16);
    const uint64_t fingerprint = build_step(recipe, 0, layout.ranks[0], Work::Train).fingerprint();
    for (int64_t rank = 1; rank < 6; ++rank) EXPECT_EQ(build_step(recipe, rank, layout.ranks[static_cast<size_t>(rank)], Work::Train).fingerprint(), fingerprint);
  }
}

TEST(BuildStep, StatesAreTheFormula) {
  const Recipe recipe = recipe_of({2, 2}, "{weights: level0, gradients: world, optimizer: world}", DType::BFloat16);
  const PlanSummary summary = summarize(recipe, assumed_layout(4, 1, 32, 32));
  const double psi = padded_elements(recipe);
  std::map<std::string, double> bytes;
  for (const auto& state : summary.memory) bytes[state.state] = static_cast<double>(state.bytes_per_rank);
  EXPECT_EQ(bytes["weights"], 2 * psi / 2);
  EXPECT_EQ(bytes["gradients"], 4 * psi / 4);
  EXPECT_EQ(bytes["optimizer"], 12 * psi / 4);
  // In fp32 the master is the weight shard itself.
  const PlanSummary fp32 = summarize(recipe_of({2, 2}, "zero3"), assumed_layout(4, 1, 32, 32));
  for (const auto& state : fp32.memory) {
    if (state.state == "optimizer") { EXPECT_EQ(static_cast<double>(state.bytes_per_rank), 8 * psi / 4); }
  }
}

TEST(BuildStep, KeepGathersOncePerMicroBatchAndPrefetchCostsMemoryOnly) {
  const Recipe plain = recipe_of({4}, "zero3");
  const Recipe kept = recipe_of({4}, "{weights: world, gradients: world, optimizer: world, keep: true}");
  EXPECT_LT(bytes_of(kept)[0], bytes_of(plain)[0]);
  Recipe ahead = plain;
  ahead.prefetch = 4;
  EXPECT_EQ(bytes_of(ahead), bytes_of(plain));
  const Layout layout = assumed_layout(4, 1, 32, 32);
  EXPECT_GT(summarize(ahead, layout).bytes_per_rank, summarize(plain, layout).bytes_per_rank);
}

TEST(BuildStep, WhatDoesNotFitIsRefusedWithAPlacementThatDoes) {
  const Recipe recipe = recipe_of({8}, "ddp");
  const Layout layout = assumed_layout(8, 1, 32, 32);
  const int64_t need = summarize(recipe, layout).bytes_per_rank;
  EXPECT_NO_THROW(require_fit(summarize(recipe, layout), recipe, layout, need));
  try {
    require_fit(summarize(recipe, layout), recipe, layout, need - 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::OutOfMemory);
    EXPECT_NE(std::string(error.what()).find("would fit"), std::string::npos);
  }
}

TEST(Placement, IllegalTablesNameTheRule) {
  const Topology topology({{"pair", 2, {}, {}}, {"node", 2, {}, {}}});
  for (const char* text : {"{weights: {shard: node}, optimizer: {shard: pair}}", "{gradients: {shard: node}}", "{weights: {shard: rack}}", "{weight: {shard: pair}}", "zero5", "hsdp",
                           "hsdp()", "ddp(pair)", "{wire: {forward: int3}}", "{weights: node, gradients: node, optimizer: node, wire: {reduce: [native, native, native]}}", "[]",
                           "{weights: {shard: pair, tier: host}, optimizer: pair}", "{weights: {storage: fp16}}", "{keep: maybe}"}) {
    EXPECT_THROW(parse_placement(YAML::Load(text), topology), Error) << text;
  }
}

}  // namespace
}  // namespace ballast
