// Strategy equivalence: every lossless combination of placement, layout, accumulation, recompute and world size equals the one-process fp32
// reference. A new strategy joins by adding a row.
//  - Between placements of one topology, layout and accumulation where reductions have the same order: bit-equal.
//  - Against the reference: updates by relative norm per tensor (kernels round differently for other row counts).
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/expectations.h"

namespace ballast::testing {
namespace {

struct World {
  std::vector<Level> levels;
  std::vector<std::string> placements;
};

const std::vector<World>& worlds() {
  static const std::vector<World> all{
      {{level("node", 1)}, {"ddp", "zero1", "zero2", "zero3"}},
      {{level("node", 2)}, {"ddp", "zero1", "zero2", "zero3", "{weights: node, gradients: self, optimizer: node}", "{weights: node, gradients: node, optimizer: node, keep: true}",
                             "hpz(node)", "{weights: node, secondary: self, gradients: node, optimizer: node}"}},
      {{level("node", 3)}, {"ddp", "zero1", "zero2", "zero3", "mics(node)"}},
      {{level("pair", 2), level("node", 2)},
       {"ddp", "zero1", "zero2", "zero3", "hsdp(pair)", "{weights: pair, gradients: node, optimizer: node}", "{weights: node, gradients: pair, optimizer: node}",
        "{weights: pair, gradients: pair, optimizer: world, keep: true}",
        "hpz(pair)",
        "{weights: node, secondary: {shard: pair, forward: true}, gradients: pair, optimizer: node}", "{weights: pair, secondary: node, gradients: pair, optimizer: world}",
        "{weights: pair, secondary: node, gradients: node, optimizer: node, wire: {reduce: {codec: native, up_to: node}}}",
        "[{groups: 'block.*', weights: world, gradients: pair, optimizer: world}, {weights: self, gradients: self, optimizer: pair}]"}},
      {{level("pair", 2), level("node", 2), level("cluster", 2)},
       {"ddp", "zero3", "hsdp(pair)", "hsdp(node)", "hpz(pair)", "hpz(node)",
        "topo(pair, node, forward=native, reduce=native)", "{weights: pair, secondary: node, gradients: node, optimizer: cluster}",
        "{weights: world, secondary: pair, gradients: world, optimizer: world, wire: {reduce: [{codec: native, up_to: world}, {codec: native, up_to: node}]}}",
        "{weights: pair, gradients: node, optimizer: cluster}", "{weights: self, gradients: pair, optimizer: node}"}},
      {{level("pair", 1), level("node", 3), level("cluster", 2)}, {"zero3", "hsdp(node)", "hpz(node)", "hpz(pair)", "{weights: node, gradients: self, optimizer: world}"}},
  };
  return all;
}

class Equivalence : public ::testing::TestWithParam<std::tuple<int, const char*, int64_t, int64_t>> {};

TEST_P(Equivalence, PlacementsAgreeWithEachOtherAndWithOneProcess) {
  const auto& [model, layout, micro_tokens, recompute] = GetParam();
  for (const World& world : worlds()) {
    std::optional<Outcome> bits;
    for (const std::string& placement : world.placements) {
      Case c;
      c.model = model % 2 == 0 ? tiny_gpt2() : tiny_llama();
      if (model >= 2) c.freeze = model == 2 ? std::vector<std::string>{"transformer.wte.*", "*.h.0.*", "*.mlp.c_fc.weight"} : std::vector<std::string>{"*embed_tokens*", "*.1.*"};
      c.levels = world.levels;
      c.placement = placement;
      c.layout = layout;
      c.micro_tokens = micro_tokens;
      c.recompute_every = recompute;
      c.prefetch = 1 + static_cast<int64_t>(placement.size() % 3);
      SCOPED_TRACE(c.name() + " on " + Topology(world.levels).text());
      const Outcome got = run(c);
      expect_plan_is_exact(got);
      if (placement.starts_with("topo")) {  // its secondary weights are int8
        EXPECT_NEAR(got.losses.back(), reference(c).losses.back(), 0.01 * reference(c).losses.back());
        continue;
      }
      expect_equal_to_reference(got, c);
      // Gradients are summed rank by rank after local accumulation, or micro-batch by micro-batch: two orders, equal for one micro-batch.
      // A hop over several levels sums its members in one row, not level by level.
      if (got.micro_batches != 1 || placement.find("up_to") != std::string::npos) continue;
      if (!bits) {
        bits = got;
        continue;
      }
      EXPECT_EQ(got.losses, bits->losses);
      EXPECT_EQ(got.norms, bits->norms);
      for (const auto& [name, values] : bits->weights) EXPECT_EQ(got.weights.at(name), values) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, Equivalence,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3), ::testing::Values("packed", "padded"), ::testing::Values<int64_t>(32, 512),
                                            ::testing::Values<int64_t>(0, 1, 2)));

TEST(Equivalence, Bf16PlacementsAreBitEqualAndNearFp32) {
  for (const World& world : worlds()) {
    // Where replicas of the optimizer shard exist, they get the sums through the bf16 wire; where none exist the sums stay fp32.
    std::optional<Outcome> bits;
    for (const std::string& placement : world.placements) {
      Case c;
      c.model = tiny_llama();
      c.levels = world.levels;
      c.placement = placement;
      c.micro_tokens = 512;
      c.compute = DType::BFloat16;
      SCOPED_TRACE(c.name() + " on " + Topology(world.levels).text());
      const Outcome got = run(c);
      expect_plan_is_exact(got);
      Case exact = c;
      exact.compute = DType::Float32;
      EXPECT_NEAR(got.losses.back(), reference(exact).losses.back(), 0.02 * reference(exact).losses.back());
      const bool replicas = placement == "ddp" || placement.starts_with("hsdp") || placement.find("optimizer: pair}]") != std::string::npos ||
                            placement.find("gradients: pair") != std::string::npos || placement.find("up_to") != std::string::npos || placement.starts_with("topo") ||
                            (world.levels.size() == 3 && placement.find("optimizer: node}") != std::string::npos);
      if (replicas) continue;
      if (!bits) bits = got;
      EXPECT_EQ(got.losses, bits->losses);
    }
  }
}

TEST(Equivalence, AdamWOverShardsEqualsAdamWWhole) {
  for (const char* placement : {"ddp", "zero1", "zero3", "hsdp(pair)"}) {
    Case c;
    c.model = tiny_gpt2();
    c.levels = {level("pair", 2), level("node", 2)};
    c.placement = placement;
    c.optimizer = OptimizerSpec{.name = "adamw", .eps = 1e-4, .weight_decay = 0.1};
    c.lr = 0.01;
    SCOPED_TRACE(c.name());
    expect_equal_to_reference(run(c), c);
  }
}

TEST(Equivalence, MoreRanksThanSamplesLeavesMicroBatchesEmpty) {
  Case c;
  c.model = tiny_gpt2();
  c.levels = {level("pair", 2), level("node", 4)};
  c.placement = "zero3";
  c.samples_per_step = 3;
  expect_equal_to_reference(run(c), c);
}

// Lossy rows over worlds of odd and even sizes: the plan's bytes and memory are exact, replicas hold equal bits, two runs too, and the loss stays
// near the exact one.
TEST(Equivalence, LossyRowsAreBoundedReproducibleAndDoNotDiverge) {
  const std::vector<World> lossy{
      {{level("pair", 2), level("node", 2)},
       {"zeropp(pair)", "topo(pair, pair)", "topo(pair, node)", "topo(pair, pair, refresh=int8, reduce_on=int4)", "{weights: node, gradients: node, optimizer: node, wire: {forward: bf16, reduce: [bf16, native]}}",
        "{weights: pair, gradients: pair, optimizer: pair, wire: {reduce_on: int4}}", "{weights: self, gradients: self, optimizer: self, wire: {reduce_on: [int4, int8]}}",
        "{weights: node, secondary: {shard: pair, storage: {codec: int8, block: 64, symmetric: false}}, gradients: node, optimizer: node, wire: {forward: [int8, bf16], backward: bf16}}",
        "{weights: pair, gradients: node, optimizer: node, wire: {reduce: {codec: int4, block: 32, rounding: stochastic}, refresh: fp16}}",
        "{weights: node, gradients: node, optimizer: node, wire: {reduce: [{codec: int4, feedback: true}, {codec: int4, feedback: {beta: 0.5, reset: 2}}]}}"}},
      {{level("pair", 2), level("node", 3), level("cluster", 2)}, {"zeropp(node)", "topo(pair, node)", "topo(pair, node, secondary=pair, reduce_on=int4)"}},
      {{level("node", 3)}, {"zeropp(node)", "topo(node, node)"}},
  };
  for (const DType compute : {DType::Float32, DType::BFloat16}) {
    for (const World& world : lossy) {
      for (const std::string& placement : world.placements) {
        Case c;
        c.model = tiny_gpt2();
        c.levels = world.levels;
        c.placement = placement;
        c.compute = compute;
        c.prefetch = 2;
        c.steps = 4;
        SCOPED_TRACE(c.name() + " on " + Topology(world.levels).text());
        const Outcome got = run(c);
        expect_plan_is_exact(got);
        Case exact = c;
        exact.compute = DType::Float32;
        const Outcome& want = reference(exact);
        for (size_t s = 0; s < want.losses.size(); ++s) {
          EXPECT_NEAR(got.losses[s], want.losses[s], 0.02 * want.losses[s]);
          EXPECT_NEAR(got.norms[s], want.norms[s], 0.15 * want.norms[s]);   // a sum divided by other than the token count would miss by a factor
        }
        EXPECT_NE(got.losses.back(), want.losses.back());
        const Outcome again = run(c);
        EXPECT_EQ(again.losses, got.losses);
        EXPECT_EQ(again.weights, got.weights);
      }
    }
  }
}

// The same rows beside weights that are frozen, of another architecture, and where blocks are computed twice.
TEST(Equivalence, LossyRowsHoldWithFrozenWeightsAndRecompute) {
  for (const bool llama : {false, true}) {
    for (const char* placement : {"zeropp(pair)", "topo(pair, pair, refresh=int8, reduce_on=int4)", "topo(pair, node)",
                                  "{weights: node, secondary: {shard: pair, storage: int8, forward: true}, gradients: node, optimizer: node, wire: {forward: int8, reduce: {codec: int4, feedback: true}}}"}) {
      Case c;
      c.model = llama ? tiny_llama() : tiny_gpt2();
      c.freeze = llama ? std::vector<std::string>{"*embed_tokens*", "*.1.*"} : std::vector<std::string>{"transformer.wte.*", "*.h.0.*", "*.mlp.c_fc.weight"};
      c.levels = {level("pair", 2), level("node", 2)};
      c.placement = placement;
      c.recompute_every = llama ? 2 : 1;
      c.micro_tokens = 32;
      SCOPED_TRACE(c.name());
      const Outcome got = run(c);
      expect_plan_is_exact(got);
      const Outcome& want = reference(c);
      for (size_t s = 0; s < want.losses.size(); ++s) {
        EXPECT_NEAR(got.losses[s], want.losses[s], 0.02 * want.losses[s]);
        EXPECT_NEAR(got.norms[s], want.norms[s], 0.15 * want.norms[s]);
      }
      EXPECT_NE(got.losses.back(), want.losses.back());
      size_t kept = 0;
      for (const auto& [name, values] : got.weights) {
        const bool frozen = want.weights.at(name) == want.initial.at(name);
        kept += frozen;
        EXPECT_EQ(values == got.initial.at(name), frozen) << name;
      }
      EXPECT_GT(kept, 0u);
      EXPECT_LT(kept, got.weights.size());
    }
  }
}

// Sizes that are no powers of two, four levels, more shards than some tensors have elements.
TEST(Equivalence, ThirtyRanksInAnOddTree) {
  for (const char* placement : {"hpz(node)", "zero3", "{weights: pair, secondary: node, gradients: node, optimizer: world, wire: {reduce: {codec: native, up_to: node}}}"}) {
    Case c;
    c.model = tiny_gpt2();
    c.levels = {level("pair", 3), level("node", 5), level("cluster", 2)};
    c.placement = placement;
    c.steps = 2;
    c.samples_per_step = 40;
    SCOPED_TRACE(c.name());
    const Outcome got = run(c);
    expect_equal_to_reference(got, c);
    expect_plan_is_exact(got);
  }
  Case c;
  c.model = tiny_llama();
  c.levels = {level("die", 2), level("pair", 1), level("node", 3), level("cluster", 2)};
  c.placement = "{weights: pair, secondary: node, gradients: node, optimizer: world, wire: {refresh: [native, native], reduce: {codec: native, up_to: node}}}";
  expect_equal_to_reference(run(c), c);
}

}  // namespace
}  // namespace ballast::testing
