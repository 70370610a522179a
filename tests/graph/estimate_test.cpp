// Memory per parameter, the largest model, and seconds on links, against closed forms.
#include "ballast/graph/estimate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace ballast {
namespace {

Recipe recipe_of(std::vector<Level> levels, const std::string& placement, DType compute) {
  Recipe recipe;
  recipe.model = describe(preset("gpt2-tiny"));
  recipe.topology = Topology(std::move(levels));
  recipe.placement = parse_placement_preset(placement, recipe.topology);
  recipe.compute = compute;
  recipe.optimizer_states = {"exp_avg", "exp_avg_sq"};
  return recipe;
}

const std::vector<Level> kFrontier{{"pair", 2, {}, {}}, {"node", 4, {}, {}}, {"cluster", 48, {}, {}}};

double bytes_of(const std::string& placement, double growth = 1, DType compute = DType::BFloat16) {
  return state_bytes_per_parameter(recipe_of(kFrontier, placement, compute), growth);
}

TEST(Estimate, StatesPerParameterAreTheTableOfTheDocumentation) {
  const double n = 384, node = 8, pair = 2, int8 = 260.0 / 256;
  EXPECT_DOUBLE_EQ(bytes_of("ddp"), 2 + 4 + 12);
  EXPECT_DOUBLE_EQ(bytes_of("zero1"), 2 + 4 + 12 / n);
  EXPECT_DOUBLE_EQ(bytes_of("zero2"), 2 + 16 / n);
  EXPECT_DOUBLE_EQ(bytes_of("zero3"), 18 / n);
  EXPECT_DOUBLE_EQ(bytes_of("hsdp(node)"), 18 / node);
  EXPECT_DOUBLE_EQ(bytes_of("hpz(node)"), 18 / n + 2 / node);
  EXPECT_DOUBLE_EQ(bytes_of("zeropp(node)"), 18 / n + 2 / node);
  EXPECT_DOUBLE_EQ(bytes_of("topo(pair, node)"), 2 / pair + int8 / node + 4 / node + 12 / n);
  EXPECT_DOUBLE_EQ(bytes_of("topo(pair, node, secondary=pair)"), 2 / pair + int8 / pair + 4 / node + 12 / n);
  EXPECT_DOUBLE_EQ(bytes_of("zero3", 1, DType::Float32), 16 / n);   // the master is the weights themselves
}

TEST(Estimate, TopoSaturatesWithTheNumberOfNodesAndZero3DoesNot) {
  const double forever = std::numeric_limits<double>::infinity();
  const double limit = 64.0 * 1024 * 1024 * 1024;
  const auto largest = [&](const char* placement, double growth) { return limit / bytes_of(placement, growth); };
  EXPECT_DOUBLE_EQ(bytes_of("topo(pair, node)", forever), 1.0 + 260.0 / 256 / 8 + 0.5);
  EXPECT_LT(largest("topo(pair, node)", forever), 1.03 * largest("topo(pair, node)", 1));
  EXPECT_DOUBLE_EQ(largest("zero3", 16), 16 * largest("zero3", 1));
  EXPECT_TRUE(std::isinf(largest("zero3", forever)));
  EXPECT_GT(largest("zeropp(node)", 1), largest("topo(pair, node)", forever));
}

TEST(Estimate, SecondsAreBytesOfAUnitOverItsBandwidth) {
  const std::vector<Level> levels{{"node", 2, 1e9, {}}, {"cluster", 2, 25e6, {}}};
  const Recipe recipe = recipe_of(levels, "zero3", DType::Float32);
  const PlanSummary summary = summarize(recipe, assumed_layout(4, 1, 32, 32));
  const StepEstimate estimate = estimate_step(summary, recipe.topology, 1e9);
  EXPECT_DOUBLE_EQ(estimate.level_s[0], static_cast<double>(summary.levels[0].bytes_per_step) / 4 / 1e9);    // a unit of `node` is a rank
  EXPECT_DOUBLE_EQ(estimate.level_s[1], static_cast<double>(summary.levels[1].bytes_per_step) / 2 / 25e6);   // a unit of `cluster` is a node
  EXPECT_DOUBLE_EQ(estimate.compute_s, summary.flops_per_step / 4 / 1e9);
  const double links = estimate.level_s[0] + estimate.level_s[1];
  EXPECT_DOUBLE_EQ(estimate.communication_share(), links / (links + estimate.compute_s));
  ASSERT_GT(summary.levels[0].bytes_per_step, 0);
  const Recipe unknown = recipe_of({{"node", 2, {}, {}}, {"cluster", 2, 25e6, {}}}, "zero3", DType::Float32);
  EXPECT_TRUE(std::isnan(estimate_step(summary, unknown.topology, 1e9).communication_share()));
}

TEST(Estimate, PrefetchFollowsTheMemory) {
  const Recipe recipe = recipe_of({{"node", 4, {}, {}}}, "zero3", DType::Float32);
  const Layout layout = assumed_layout(4, 1, 32, 32);
  Recipe deep = recipe;
  deep.prefetch = 3;
  const int64_t needs = summarize(deep, layout).bytes_per_rank;
  EXPECT_EQ(prefetch_that_fits(recipe, layout, needs), 3);
  EXPECT_LT(prefetch_that_fits(recipe, layout, needs - 1), 3);
  // Where nothing fits, what needs least.
  const auto bytes = [&](int64_t depth) {
    deep.prefetch = depth;
    return summarize(deep, layout).bytes_per_rank;
  };
  const int64_t least = prefetch_that_fits(recipe, layout, 1);
  for (const int64_t depth : {1, 2, 3}) EXPECT_LE(bytes(least), bytes(depth)) << depth;
}

// Whatever is proposed must really fit, and what fits must be found: at every limit between the least and the most that any setting needs.
TEST(Estimate, WhatIsProposedFits) {
  const Topology topology({{"pair", 2, {}, {}}, {"node", 2, {}, {}}});
  Recipe recipe = recipe_of(topology.levels(), "ddp", DType::Float32);
  const Layout layout = assumed_layout(4, 2, 64, 32);
  std::map<std::string, int64_t> needs;   // by the words of a cure
  for (const std::string placement : {"ddp", "zero1", "zero2", "hsdp(pair)", "zero3"}) {
    for (const int64_t every : {0, 1}) {
      for (const int64_t depth : {1, 2, 3}) {
        Recipe other = recipe;
        other.placement = parse_placement_preset(placement, topology);
        other.recompute_every = every, other.prefetch = depth;
        needs[fmt::format("placement={}{} train.prefetch={}", placement, every == 1 ? " train.recompute=block" : "", depth)] = summarize(other, layout).bytes_per_rank;
      }
    }
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [words, bytes] : needs) least = std::min(least, bytes);
  EXPECT_EQ(settings_that_fit(recipe, layout, least - 1), "");
  for (const auto& [any, limit] : needs) {
    std::string words = settings_that_fit(recipe, layout, limit);
    ASSERT_NE(words, "") << any;
    if (words.find("prefetch") == std::string::npos) words += fmt::format(" train.prefetch={}", recipe.prefetch);
    ASSERT_TRUE(needs.contains(words)) << words;
    EXPECT_LE(needs[words], limit) << any << " gave " << words;
  }
}

}  // namespace
}  // namespace ballast
