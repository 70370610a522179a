// Bytes and operations of the lowered graph against closed forms, over topologies of any sizes.
#include "ballast/graph/build_step.h"

#include <gtest/gtest.h>

#include <functional>

#include <yaml-cpp/yaml.h>

#include "ballast/base/error.h"
#include "ballast/graph/summary.h"

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
    for (const int64_t m : {1, 3}) {
      const auto batches = static_cast<double>(m);
      for (const auto& [placement, elements] : std::vector<std::pair<const char*, double>>{{"zero1", 2 * psi}, {"zero2", (batches + 1) * psi}}) {
        const std::vector<int64_t> got = bytes_of(recipe_of({a, b}, placement), m);
        EXPECT_EQ(static_cast<double>(got[0]), inner * elements * 4) << placement;
        EXPECT_EQ(static_cast<double>(got[1]), outer * elements * 4) << placement;
      }
    }
  }
}

// Elements that forward passes gather in one micro-batch: every group once, the tied table twice; and backward passes: the blocks.
struct Gathers {
  double forward = 0, backward = 0, all = 0;
};
Gathers gathers_of(const Recipe& recipe) {
  Gathers gathers;
  for (size_t g = 0; g < recipe.model.groups.size(); ++g) {
    const GroupPlace place = place_group(recipe, g);
    const auto padded = static_cast<double>(place.padded);
    gathers.all += padded;
    gathers.forward += padded * (place.group->name == "embedding" ? 2 : 1);
    gathers.backward += place.group->name.starts_with("block.") ? padded : 0;
  }
  return gathers;
}
double int8_bytes(double elements) { return elements / 256 * 260; }
double int4_bytes(double elements) { return elements / 256 * 132; }

TEST(BuildStep, QuantisedRowsSendTheClosedForms) {
  for (const DType compute : {DType::Float32, DType::BFloat16}) {
    for (const int64_t m : {1, 3}) {
      for (const auto& sizes : std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {3, 2}, {4, 3}}) {
        const int64_t ai = sizes.first, bi = sizes.second;  // a lambda of Clang 14 captures no structured binding
        const double a = static_cast<double>(ai), b = static_cast<double>(bi), batches = static_cast<double>(m), native = static_cast<double>(size_of(compute));
        SCOPED_TRACE(std::to_string(ai) + " x " + std::to_string(bi) + " x " + std::to_string(m));
        const auto expect = [&](const char* placement, const std::function<std::vector<double>(const Gathers&)>& formula) {
          const Recipe recipe = recipe_of({ai, bi}, placement, compute);
          const std::vector<double> want = formula(gathers_of(recipe));
          const std::vector<int64_t> got = bytes_of(recipe, m);
          for (size_t l = 0; l < want.size(); ++l) EXPECT_DOUBLE_EQ(static_cast<double>(got[l]), want[l]) << placement << " level " << l;
        };
        const double inner = b * (a - 1), outer = b - 1;
        expect("hpz(level0)", [&](const Gathers& g) {
          return std::vector<double>{batches * inner * (g.forward + g.backward + g.all) * native, batches * outer * (g.forward + g.all) * native};
        });
        expect("zeropp(level0)", [&](const Gathers& g) {
          return std::vector<double>{batches * inner * (int8_bytes(g.forward) + g.backward * native + int4_bytes(g.all)),
                                     batches * outer * (int8_bytes(g.forward) + int4_bytes(g.all))};
        });
        expect("topo(level0, level0)", [&](const Gathers& g) {
          return std::vector<double>{batches * inner * (int8_bytes(g.forward) + int8_bytes(g.backward) + int4_bytes(g.all)), outer * 2 * g.all * native};
        });
        // Every later gather is served by the secondary weights.
        expect("{weights: world, secondary: {shard: level0, forward: true}, gradients: level0, optimizer: world}", [&](const Gathers& g) {
          return std::vector<double>{inner * (batches * (g.forward + g.backward + g.all)) * native, outer * 2 * g.all * native};
        });
      }
    }
  }
}

TEST(BuildStep, TopoOverThreeLevelsLeavesTheNodeOncePerStep) {
  for (const int64_t m : {1, 4}) {
    const Recipe recipe = recipe_of({2, 3, 4}, "topo(level0, level1)", DType::BFloat16);
    const Gathers g = gathers_of(recipe);
    const double a = 2, b = 3, c = 4, batches = static_cast<double>(m);
    const std::vector<int64_t> got = bytes_of(recipe, m);
    // Pair: the forward gather, the inner hop of the backward's, and of the one-hop reduction what goes to the other of the pair.
    EXPECT_DOUBLE_EQ(static_cast<double>(got[0]), batches * (b * c * (a - 1) * (int8_bytes(g.forward) + int8_bytes(g.backward)) + c * (a - 1) * int4_bytes(g.all)));
    // Node: the outer hop of the backward's gather, the rest of the reduction, and the refresh from node to pair shards.
    EXPECT_DOUBLE_EQ(static_cast<double>(got[1]), batches * (c * (b - 1) * int8_bytes(g.backward) + c * a * (b - 1) * int4_bytes(g.all)) + c * (b - 1) * g.all * 2);
    EXPECT_DOUBLE_EQ(static_cast<double>(got[2]), (c - 1) * 2 * g.all * 2);
  }
}

// The same by movement, and for a row whose movements are all lossy; sums are there and back.
TEST(BuildStep, MovementsAddUpToTheirLevels) {
  for (const int64_t m : {1, 4}) {
    const Recipe recipe = recipe_of({2, 3, 4}, "topo(level0, level1, reduce_on=int4, refresh=int8)", DType::BFloat16);
    const Gathers g = gathers_of(recipe);
    const double a = 2, b = 3, c = 4, batches = static_cast<double>(m);
    const PlanSummary summary = summarize(recipe, assumed_layout(24, m, 32, 32));
    std::map<std::pair<std::string, std::string>, double> got;
    std::map<std::string, int64_t> sums;
    for (const auto& one : summary.movements) {
      got[{one.movement, one.level}] = static_cast<double>(one.bytes_per_step);
      sums[one.level] += one.bytes_per_step;
    }
    for (const auto& level : summary.levels) EXPECT_EQ(sums[level.name], level.bytes_per_step) << level.name;
    const std::map<std::pair<std::string, std::string>, double> want{
        {{"forward", "level0"}, batches * b * c * (a - 1) * int8_bytes(g.forward)},
        {{"backward", "level0"}, batches * b * c * (a - 1) * int8_bytes(g.backward)},
        {{"backward", "level1"}, batches * c * (b - 1) * int8_bytes(g.backward)},
        {{"reduce", "level0"}, batches * c * (a - 1) * int4_bytes(g.all)},
        {{"reduce", "level1"}, batches * c * a * (b - 1) * int4_bytes(g.all)},
        {{"reduce_on", "level2"}, (c - 1) * int4_bytes(g.all)},
        {{"refresh", "level1"}, c * (b - 1) * int8_bytes(g.all)},
        {{"refresh", "level2"}, (c - 1) * int8_bytes(g.all)}};
    EXPECT_EQ(got, want);
  }
  // Replicas of the optimizer get the sums back: in the compute dtype.
  const Recipe hsdp = recipe_of({2, 3}, "hsdp(level0)");
  for (const auto& one : summarize(hsdp, assumed_layout(6, 2, 32, 32)).movements) {
    if (one.level == "level1") {
      EXPECT_EQ(one.movement, "reduce_on");
      EXPECT_EQ(static_cast<double>(one.bytes_per_step), 2 * 2 * gathers_of(hsdp).all * 4);
    }
  }
}

// Between two lossy hops a sum is encoded as it is made: two quantisations on two levels, whatever the ranks and the micro-batches.
TEST(BuildStep, ALossyReductionEncodesOnceAHop) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{2, 2}, {4, 3}, {3, 5}, {8, 16}}) {
    const Recipe recipe = recipe_of(sizes, "{weights: world, gradients: world, optimizer: world, wire: {reduce: int4}}");
    for (const size_t m : {size_t{1}, size_t{3}}) {
      const Layout layout = assumed_layout(recipe.topology.ranks(), static_cast<int64_t>(m), 32, 32);
      const StepGraph graph = build_step(recipe, 1, layout.ranks[1], Work::Train);
      std::map<int32_t, size_t> encodings, decodings;   // by group
      for (const Op& op : graph.ops) {
        if (op.kind != OpKind::Codec) continue;
        encodings[op.group] += op.into.blocked();
        decodings[op.group] += op.codec.blocked();
      }
      ASSERT_EQ(encodings.size(), recipe.model.groups.size());
      for (const auto& [group, count] : encodings) EXPECT_EQ(count, 2 * m) << group;
      for (const auto& [group, count] : decodings) EXPECT_EQ(count, 2 * m) << group;
    }
  }
}

// What a rank sends lossily it also receives: the whole of what was gathered is decoded, its own part with it, and nothing else writes there.
TEST(BuildStep, ASenderUsesWhatItSent) {
  for (const char* placement : {"zeropp(level0)", "{weights: world, gradients: world, optimizer: world, wire: {forward: [int8, fp16], backward: int4}}",
                                "{weights: level0, gradients: level0, optimizer: world, wire: {forward: int8, backward: int8, refresh: [int8]}}"}) {
    const Recipe recipe = recipe_of({2, 3}, placement);
    const Layout layout = assumed_layout(6, 1, 32, 32);
    for (int64_t rank = 0; rank < 6; ++rank) {
      const StepGraph graph = build_step(recipe, rank, layout.ranks[static_cast<size_t>(rank)], Work::Train);
      std::map<BufferId, std::vector<const Op*>> writers;
      for (const Op& op : graph.ops) {
        if (op.kind == OpKind::Update) continue;
        for (BufferId id : op.outputs) writers[id].push_back(&op);
      }
      size_t seen = 0;
      for (const auto& [id, ops] : writers) {
        const Buffer& buffer = graph.buffers[static_cast<size_t>(id)];
        const bool gathered = buffer.name.starts_with("gathered."), refreshed = buffer.name.starts_with("weights.") && std::string(placement).find("refresh") != std::string::npos;
        if (!gathered && !refreshed) continue;
        if (gathered && ops.front()->what == what::kCopy) continue;   // from the secondary weights of zeropp, native: what was decoded before
        ++seen;
        ASSERT_EQ(ops.size(), 1u) << buffer.name;
        EXPECT_EQ(ops[0]->what, what::kTranscode) << buffer.name;
        EXPECT_TRUE(ops[0]->codec.blocked() || ops[0]->codec.name == "fp16") << buffer.name;
        EXPECT_EQ(ops[0]->into_begin, 0);
        EXPECT_EQ(ops[0]->part, buffer.numel()) << buffer.name;
      }
      EXPECT_GE(seen, recipe.model.groups.size());
    }
  }
}

TEST(BuildStep, SecondaryWeightsAreAState) {
  const Recipe recipe = recipe_of({2, 2, 2}, "topo(level0, level1)", DType::BFloat16);
  const PlanSummary summary = summarize(recipe, assumed_layout(8, 1, 32, 32));
  const double psi = padded_elements(recipe);
  std::map<std::string, double> bytes;
  for (const auto& state : summary.memory) bytes[state.state] = static_cast<double>(state.bytes_per_rank);
  EXPECT_EQ(bytes["weights"], 2 * psi / 2);
  EXPECT_EQ(bytes["secondary"], int8_bytes(psi) / 4);
  EXPECT_EQ(bytes["gradients"], 4 * psi / 4);
  EXPECT_EQ(bytes["optimizer"], 12 * psi / 8);
}

TEST(BuildStep, ReadingSecondaryWeightsThatThisGraphDidNotCutIsRefused) {
  const Recipe recipe = recipe_of({2, 2}, "hpz(level0)");
  const Layout layout = assumed_layout(4, 1, 32, 32);
  StepGraph graph = build_step(recipe, 0, layout.ranks[0], Work::Train);
  EXPECT_NO_THROW(check_graph(graph));
  int removed = 0;
  for (Op& op : graph.ops) {
    if (op.outputs.empty() || graph.buffers[static_cast<size_t>(op.outputs[0])].state != StateKind::Secondary) continue;
    op.outputs = op.inputs;  // no longer writes the secondary copy
    ++removed;
  }
  EXPECT_GT(removed, 0);
  EXPECT_THROW(check_graph(graph), std::exception);
}

TEST(BuildStep, EveryRankGetsTheSameOperations) {
  for (const char* placement : {"zeropp(level0)", "topo(level0, level1, secondary=level0)", "ddp", "zero3", "hsdp(level0)", "{weights: level1, gradients: self, optimizer: world}"}) {
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

TEST(BuildStep, GatheredWeightsDoNotPileUpWithTheLayersOrTheMicroBatches) {
  for (const char* placement : {"zero3", "hpz(level0)", "zeropp(level0)", "topo(level0, level1)", "hsdp(level0)"}) {
    for (const int64_t prefetch : {1, 2, 3}) {
      std::vector<int64_t> bytes;
      for (const auto& [layers, micro_batches] : std::vector<std::pair<int64_t, int64_t>>{{8, 1}, {24, 1}, {8, 4}}) {
        Recipe recipe = recipe_of({2, 2}, placement, DType::BFloat16);
        ModelConfig config = preset("gpt2-tiny");
        config.layers = layers;
        recipe.model = describe(config);
        recipe.prefetch = prefetch;
        const Layout layout = assumed_layout(4, micro_batches, 32, 32);
        bytes.push_back(build_step(recipe, 0, layout.ranks[0], Work::Train).buffer_bytes);
      }
      // Three times the blocks would be seen at once. First fit may place a few buffers otherwise; between micro-batches the next one's token table is
      // gathered while the last one's gradient is still there.
      EXPECT_LE(static_cast<double>(bytes[1]), 1.05 * static_cast<double>(bytes[0])) << placement << " prefetch " << prefetch;
      EXPECT_LE(static_cast<double>(bytes[2]), 1.6 * static_cast<double>(bytes[0])) << placement << " prefetch " << prefetch;
    }
  }
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

}  // namespace
}  // namespace ballast
