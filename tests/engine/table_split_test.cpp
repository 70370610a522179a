// A token table that travels in two parts gives the bits, the bytes and the losses of one that travels whole.
#include <gtest/gtest.h>

#include "tests/engine/expectations.h"

namespace ballast::testing {
namespace {

// Runs the case both ways; step buffers and what a refresh has not brought yet are NaN until they are written.
void expect_equal_whole(Case c) {
  SCOPED_TRACE(c.name() + " on " + Topology(c.levels).text());
  c.split_table = true;
  const Outcome parts = run(c);
  expect_plan_is_exact(parts);
  c.split_table = false;
  const Outcome whole = run(c);
  EXPECT_EQ(parts.losses, whole.losses);
  EXPECT_EQ(parts.norms, whole.norms);
  EXPECT_EQ(parts.gradients, whole.gradients);
  EXPECT_EQ(parts.eval_loss, whole.eval_loss);
  EXPECT_EQ(parts.bytes, whole.bytes);
  EXPECT_EQ(parts.micro_batches, whole.micro_batches);
  ASSERT_EQ(parts.weights.size(), whole.weights.size());
  for (const auto& [name, values] : whole.weights) {
    EXPECT_EQ(parts.weights.at(name), values) << name;
    EXPECT_NE(values, whole.initial.at(name)) << name;
  }
}

struct World {
  std::vector<Level> levels;
  std::vector<std::string> placements;
};

const std::vector<World>& worlds() {
  static const std::vector<World> all{
      {{level("node", 3)}, {"ddp", "zero1", "zero2", "zero3", "zeropp(node)"}},
      {{level("pair", 2), level("node", 2)},
       {"ddp", "zero1", "zero3", "hsdp(pair)", "hpz(pair)", "zeropp(pair)", "topo(pair, pair)", "topo(pair, node)",
        "{weights: pair, gradients: pair, optimizer: world, wire: {forward: int8, reduce: int4, reduce_on: int8, refresh: int8}}",
        "{weights: self, gradients: self, optimizer: self, wire: {reduce_on: [int4, int8]}}",
        "{weights: self, gradients: node, optimizer: node, wire: {reduce: {codec: int8, up_to: node, block: 32}, refresh: fp16}}",
        // What stays whole runs beside it: feedback, stochastic rounding, secondary weights that serve forwards.
        "{weights: self, gradients: self, optimizer: node, wire: {reduce_on: {codec: int4, feedback: true}}}",
        "{weights: self, gradients: self, optimizer: node, wire: {refresh: {codec: int8, rounding: stochastic}}}",
        "{weights: pair, secondary: {shard: pair, forward: true}, gradients: pair, optimizer: node}"}},
      {{level("pair", 2), level("node", 2), level("cluster", 2)},
       {"ddp", "zero1", "topo(pair, node, refresh=int8, reduce_on=int4)", "{weights: self, gradients: pair, optimizer: node}",
        "{weights: pair, secondary: node, gradients: node, optimizer: cluster, wire: {reduce: {codec: native, up_to: node}}}"}},
  };
  return all;
}

Case case_of(const World& world, const std::string& placement) {
  Case c;
  c.model = tiny_gpt2();
  c.model.vocab_size = 997;   // most rows are no token's
  c.levels = world.levels;
  c.placement = placement;
  return c;
}

class TableSplit : public ::testing::TestWithParam<std::tuple<bool, int64_t>> {};

TEST_P(TableSplit, PartsAreTheWholeBitByBit) {
  const auto& [bf16, micro_tokens] = GetParam();
  for (const World& world : worlds()) {
    for (const std::string& placement : world.placements) {
      Case c = case_of(world, placement);
      c.compute = bf16 ? DType::BFloat16 : DType::Float32;
      c.micro_tokens = micro_tokens;
      c.prefetch = 2 + static_cast<int64_t>(placement.size() % 2);
      c.samples_per_step = micro_tokens < 64 ? 5 * Topology(world.levels).ranks() : 9;
      expect_equal_whole(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, TableSplit, ::testing::Combine(::testing::Bool(), ::testing::Values<int64_t>(32, 512)));

// The conditions that make parts unequal or empty, under rows that move parts in every way.
TEST(TableSplit, HoldsWhateverTheTokensAre) {
  for (const World& world : worlds()) {
    for (const std::string& placement : world.placements) {
      if (placement != "ddp" && placement != "zero1" && placement.find("int4") == std::string::npos) continue;
      Case rows_straddle_blocks = case_of(world, placement);
      rows_straddle_blocks.model.hidden = 24;
      rows_straddle_blocks.model.head_dim = 12;
      rows_straddle_blocks.model.vocab_size = 1499;
      expect_equal_whole(rows_straddle_blocks);
      Case all_rows_hot = case_of(world, placement);
      all_rows_hot.model.vocab_size = 7;
      expect_equal_whole(all_rows_hot);
      Case no_row_hot = case_of(world, placement);
      no_row_hot.empty_ends = true;
      expect_equal_whole(no_row_hot);
      Case some_ranks_empty = case_of(world, placement);
      some_ranks_empty.samples_per_step = 2;
      expect_equal_whole(some_ranks_empty);
      Case padded = case_of(world, placement);
      padded.layout = "padded";
      expect_equal_whole(padded);
    }
  }
}

// The table of an untied model is refreshed in parts, with positions beside it in its group, and also where nothing reads it again.
TEST(TableSplit, HoldsForUntiedModelsFrozenPartsAndRecompute) {
  for (const World& world : worlds()) {
    for (const char* placement : {"zero1", "{weights: self, gradients: self, optimizer: world, wire: {refresh: int8}}"}) {
      for (const int64_t micro_tokens : {32, 512}) {
        Case llama = case_of(world, placement);
        llama.model = tiny_llama();
        llama.model.vocab_size = 997;
        llama.micro_tokens = micro_tokens;
        expect_equal_whole(llama);
        Case untied = case_of(world, placement);
        untied.model.tied_head = false;
        untied.micro_tokens = micro_tokens;
        untied.recompute_every = 1;
        expect_equal_whole(untied);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::testing
