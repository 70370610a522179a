// Faults that other systems of hierarchical, quantised partitioning shipped: each has its own test here (others stand beside their subject: the
// clamp of +absmax in tests/codec, secondary weights read before they are cut and equal links in tests/plan).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>

#include "ballast/base/error.h"
#include "ballast/comm/host_fit.h"
#include "tests/engine/thread_run.h"

namespace ballast::testing {
namespace {

using std::chrono_literals::operator""ms;

Level level(const char* name, int64_t size) { return {name, size, {}, {}}; }

Case two_by_two(const std::string& placement) {
  Case c;
  c.model = tiny_gpt2();
  c.levels = {level("pair", 2), level("node", 2)};
  c.placement = placement;
  return c;
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.weights, b.weights);
}

bool writes_secondary(const StepGraph& graph, const Op& op) {
  return !op.outputs.empty() && graph.buffers[static_cast<size_t>(op.outputs[0])].state == StateKind::Secondary;
}
bool reads_secondary(const StepGraph& graph, const Op& op) {
  return !op.inputs.empty() && graph.buffers[static_cast<size_t>(op.inputs[0])].state == StateKind::Secondary;
}

// A step in which a prefetch reads the secondary copies as early as it can: all gathers run ahead, and the links of the outermost level are idle.
Case far_ahead() {
  Case c = two_by_two("hpz(pair)");
  c.levels.push_back(level("cluster", 1));
  c.prefetch = 8;
  c.micro_tokens = 512;
  return c;
}

// Secondary copies are cut on the idle lane, so that only dependencies, not the order within a lane, keep others from reading them too early.
void cut_on_last_lane(StepGraph& graph) {
  for (Op& op : graph.ops) {
    op.after.clear();
    if (writes_secondary(graph, op)) op.lane = graph.lanes - 1;
  }
  add_data_dependencies(graph);
  plan_arena(graph);
}

// The prefetch of the backward read the secondary copy while it was being written. Prefetch runs far ahead, unwritten copies are NaN, and each cut
// starts late: the bits are those of the run without secondary weights.
TEST(PartitioningFaults, PrefetchWaitsForTheSecondaryCopy) {
  Case c = far_ahead();
  c.steps = 2;
  Case plain = c;
  plain.placement = "zero3";
  const Outcome want = run(plain);
  std::atomic<int> cuts{0};
  c.delay = [&](const StepGraph& graph, const Op& op) {
    if (!writes_secondary(graph, op)) return 0ms;
    ++cuts;
    return 30ms;
  };
  expect_same_bits(run(c), want);
  c.edit_graph = cut_on_last_lane;
  expect_same_bits(run(c), want);
  EXPECT_EQ(cuts, 2 * 2 * 4 * 3);   // runs, steps, ranks, blocks
  // The gather that a copy is cut from, late.
  c.delay = [](const StepGraph&, const Op& op) { return op.what == what::kGather && op.movement == static_cast<int32_t>(Movement::ForwardGather) && op.level == 0 ? 10ms : 0ms; };
  expect_same_bits(run(c), want);
}

#ifndef __SANITIZE_THREAD__   // it would rightly complain
// The test before would see the fault: without the dependency of the read on the cut, the prefetch takes what is not yet written.
TEST(PartitioningFaults, APrefetchThatDoesNotWaitForTheSecondaryCopyShows) {
  Case c = far_ahead();
  c.steps = 1;
  c.skip_nonfinite = true;
  c.delay = [](const StepGraph& graph, const Op& op) { return writes_secondary(graph, op) ? 30ms : 0ms; };
  c.edit_graph = [](StepGraph& graph) {
    cut_on_last_lane(graph);
    for (Op& op : graph.ops) {
      if (reads_secondary(graph, op)) std::erase_if(op.after, [&](int32_t earlier) { return writes_secondary(graph, graph.ops[static_cast<size_t>(earlier)]); });
    }
  };
  const Outcome got = run(c);
  EXPECT_EQ(got.updated, std::vector<bool>{false});
}
#endif

// The sender of a lossy gather kept its exact part while the others had the decoded one: the ranks computed with different weights.
TEST(PartitioningFaults, GatheredWeightsAreTheSameBitsOnEveryRank) {
  const std::vector<Level> three{level("pair", 2), level("node", 3), level("cluster", 2)};
  const std::string table = "{weights: cluster, secondary: {shard: node, storage: int4}, gradients: node, optimizer: cluster, "
                            "wire: {forward: [int8, fp16, native], backward: [int8, native], reduce: int4, reduce_on: int8, refresh: int8}}";
  for (const auto& [placement, levels] : std::vector<std::pair<std::string, std::vector<Level>>>{{"hpz(pair)", {three[0], three[2]}},
                                                                                                {"zeropp(pair)", {three[0], three[2]}},
                                                                                                {"zeropp(node)", three},
                                                                                                {"topo(pair, node)", three},
                                                                                                {"topo(pair, pair, refresh=int8, reduce_on=int4)", {three[0], three[2]}},
                                                                                                {table, three}}) {
    for (const DType compute : {DType::Float32, DType::BFloat16}) {
      SCOPED_TRACE(placement + " " + name_of(compute));
      Case c;
      c.model = tiny_gpt2();
      c.levels = levels;
      c.placement = placement;
      c.compute = compute;
      c.steps = 2;
      const Outcome got = run(c);
      EXPECT_GT(got.gathered, 0);
      EXPECT_EQ(got.gathered_diverged, std::vector<std::string>{});
      EXPECT_EQ(got.diverged, std::vector<std::string>{});
    }
  }
}

// The secondary copy of before a load, or of before the first step, served the backward.
TEST(PartitioningFaults, SecondaryCopyIsNotStaleAfterALoadOrAtTheFirstStep) {
  for (const char* placement : {"hpz(pair)", "{weights: node, secondary: {shard: pair, forward: true}, gradients: node, optimizer: node}"}) {
    Case c = two_by_two(placement);
    c.micro_tokens = 512;
    c.reload_before = 3;
    Case plain = c;
    plain.placement = "zero3";
    const Outcome got = run(c), want = run(plain);
    EXPECT_EQ(got.losses.front(), want.losses.front());
    expect_same_bits(got, want);
  }
}

// A two-hop mean divided by the number of nodes only: gradients came out too large by the ranks of a node, which Adam and clipping hide.
TEST(PartitioningFaults, TwoHopMeanIsDividedOnceByTheTokens) {
  Case one;
  one.model = tiny_gpt2();
  one.micro_tokens = 4096;
  one.clip = 0;
  const Outcome want = run(one);
  Case exact = two_by_two("{weights: node, gradients: node, optimizer: node, wire: {reduce: [{codec: fp32, up_to: node}, {codec: fp32, up_to: pair}]}}");
  exact.clip = 0;
  const Outcome got = run(exact);
  for (size_t s = 0; s < want.norms.size(); ++s) EXPECT_NEAR(got.norms[s], want.norms[s], 2e-5 * want.norms[s]);
  Case lossy = two_by_two("zeropp(pair)");
  lossy.clip = 0;
  EXPECT_NEAR(run(lossy).norms.front(), want.norms.front(), 0.1 * want.norms.front());
}

// Tensors smaller than a block or than the group, and what stood in the padding.
TEST(PartitioningFaults, SmallTensorsAndPaddingStayClean) {
  for (const char* placement : {"zeropp(pair)", "topo(pair, node)", "hpz(pair)", "topo(pair, pair, refresh=int8, reduce_on=int4)"}) {
    Case c = two_by_two(placement);
    c.model.hidden = 16;
    c.model.heads = c.model.kv_heads = 1;
    c.model.intermediate = 24;
    const Outcome got = run(c);   // poisoned buffers would show as NaN
    SCOPED_TRACE(placement);
    EXPECT_EQ(got.padding, 0.0);
    EXPECT_TRUE(std::isfinite(got.losses.back()));
    EXPECT_LT(got.losses.back(), got.losses.front() * 1.05);
    EXPECT_EQ(got.diverged, std::vector<std::string>{});
  }
}

// Numbers of weights that no block, no power of two and no number of ranks divides.
TEST(PartitioningFaults, OddSizesWork) {
  Case c = two_by_two("zeropp(pair)");
  c.model.vocab_size = 101;
  c.model.hidden = 33;
  c.model.heads = c.model.kv_heads = 3;
  c.model.head_dim = 11;
  c.model.intermediate = 77;
  Case one = c;
  one.levels = {level("node", 1)};
  one.placement = "ddp";
  const Outcome want = run(one);
  const Outcome got = run(c);
  for (size_t s = 0; s < want.losses.size(); ++s) EXPECT_NEAR(got.losses[s], want.losses[s], 0.02 * want.losses[s]);
  Case hpz = c;
  hpz.placement = "hpz(pair)";
  const Outcome exact = run(hpz);
  for (size_t s = 0; s < want.losses.size(); ++s) EXPECT_NEAR(exact.losses[s], want.losses[s], 2e-6 * want.losses[s]);
}

// bf16 compute with quantised weights and gradients.
TEST(PartitioningFaults, Bf16AndQuantisationMix) {
  for (const char* placement : {"hpz(pair)", "zeropp(pair)", "topo(pair, node)"}) {
    Case c = two_by_two(placement);
    c.compute = DType::BFloat16;
    Case exact = c;
    exact.placement = "zero3";
    const Outcome got = run(c), want = run(exact);
    SCOPED_TRACE(placement);
    if (std::string(placement) == "hpz(pair)") expect_same_bits(got, want);
    for (size_t s = 0; s < want.losses.size(); ++s) EXPECT_NEAR(got.losses[s], want.losses[s], 0.02 * want.losses[s]);
  }
}

// The gradient norm counted replicas of a shard.
TEST(PartitioningFaults, NormCountsEachElementOnce) {
  Case one;
  one.model = tiny_gpt2();
  one.micro_tokens = 4096;
  one.steps = 1;
  const double want = run(one).norms.front();
  for (const char* placement : {"ddp", "hsdp(pair)", "hpz(pair)", "{weights: pair, secondary: node, gradients: pair, optimizer: pair}"}) {
    Case c = two_by_two(placement);
    c.steps = 1;
    EXPECT_NEAR(run(c).norms.front(), want, 2e-5 * want) << placement;
  }
}

// Fewer elements than ranks: the last norm of this model has 8 weights and 8 biases, the world 30 ranks.
TEST(PartitioningFaults, FewerElementsThanRanks) {
  Case c;
  c.model = tiny_gpt2();
  c.model.hidden = 8;
  c.model.heads = c.model.kv_heads = 1;
  c.model.head_dim = 8;
  c.model.intermediate = 16;
  c.model.layers = 1;
  c.levels = {level("pair", 3), level("node", 5), level("cluster", 2)};
  c.steps = 2;
  Case one = c;
  one.levels = {level("node", 1)};
  one.placement = "ddp";
  const Outcome want = run(one);
  c.placement = "hpz(node)";
  const Outcome got = run(c);
  for (size_t s = 0; s < want.losses.size(); ++s) EXPECT_NEAR(got.losses[s], want.losses[s], 4e-6 * want.losses[s]);
  c.placement = "zeropp(node)";
  EXPECT_NEAR(run(c).losses.back(), want.losses.back(), 0.02 * want.losses.back());
}

// An odd number of nodes: an all-to-all of indivisible size passed silently.
TEST(PartitioningFaults, OddNumberOfNodes) {
  for (const int64_t nodes : {3, 5}) {
    Case c = two_by_two("{weights: node, gradients: node, optimizer: node, wire: {reduce: [{codec: fp32, up_to: node}, {codec: fp32, up_to: pair}]}}");
    c.levels = {level("pair", 2), level("node", nodes)};
    c.samples_per_step = 17;
    Case one = c;
    one.levels = {level("node", 1)};
    one.placement = "ddp";
    const Outcome want = run(one), got = run(c);
    for (size_t s = 0; s < want.losses.size(); ++s) EXPECT_NEAR(got.losses[s], want.losses[s], 2e-6 * want.losses[s]);
    c.placement = "zeropp(pair)";
    EXPECT_NEAR(run(c).norms.front(), want.norms.front(), 0.1 * want.norms.front());
  }
}

// A NaN is never spread silently. The step is left out or refused, and the message names what is nearest to the cause, and where: a weight that is
// NaN, whatever messages and gradients follow from it and however many elements a block has.
TEST(PartitioningFaults, NonFiniteValuesAreNamedByTensorAndRank) {
  const std::map<std::string, std::string> ranks{{"zeropp(pair)", "rank 1"}, {"zero3", "rank 1"}, {"topo(pair, node)", "ranks 1, 3"}, {"hsdp(pair)", "ranks 1, 3"}, {"ddp", "ranks 0, 1, 2, 3"}};
  for (const auto& [placement, where] : ranks) {
    SCOPED_TRACE(placement);
    Case c = two_by_two(placement);
    c.broken_tensor = "transformer.h.1.mlp.c_fc.bias";
    c.skip_nonfinite = true;
    const Outcome got = run(c);
    EXPECT_EQ(got.updated, std::vector<bool>(3, false));
    EXPECT_EQ(got.nonfinite, "; the weights transformer.h.1.mlp.c_fc.bias on " + where);
    c.skip_nonfinite = false;
    try {
      run(c);
      FAIL();
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("the loss is not finite"), std::string::npos) << text;
      EXPECT_NE(text.find("; the weights transformer.h.1.mlp.c_fc.bias on " + where), std::string::npos) << text;
    }
  }
}

// Finite weights and a finite loss, but the gradient that enters h.1's feed-forward is infinite behind its second matrix.
TEST(PartitioningFaults, GradientsThatOverflowAreNamedWhereTheBackwardMetThem) {
  for (const char* placement : {"ddp", "zero3", "zeropp(pair)", "topo(pair, node)"}) {
    SCOPED_TRACE(placement);
    Case c = two_by_two(placement);
    c.steps = 1;
    c.skip_nonfinite = true;
    c.constants = {{"transformer.h.1.mlp.c_fc.weight", 0}, {"transformer.h.1.mlp.c_fc.bias", 0}, {"transformer.h.1.mlp.c_proj.weight", 3e38f}, {"transformer.ln_f.weight", 1e4f}};
    const Outcome got = run(c);
    EXPECT_TRUE(std::isfinite(got.losses.front()));
    ASSERT_EQ(got.updated, std::vector<bool>{false});
    const bool blocks = std::string(placement).find("pp(") != std::string::npos || std::string(placement).starts_with("topo");
    EXPECT_NE(got.nonfinite.find(blocks ? "; a message with transformer.h.1.mlp.c_fc.bias on rank" : "; the gradient of transformer.h.1.mlp.c_fc.bias on rank"), std::string::npos)
        << got.nonfinite;
  }
  Case c = two_by_two("zeropp(pair)");
  c.steps = 1;
  c.skip_nonfinite = true;
  c.constants = {{"transformer.ln_f.weight", 3e38f}};
  EXPECT_EQ(run(c).nonfinite, "; the loss, all weights being finite, on ranks 0, 1, 2, 3");
}

// Error feedback that is reset in every step was thrown away before every micro-batch of it, not only before the first.
TEST(PartitioningFaults, FeedbackIsResetOnceAStep) {
  const auto with = [](const char* feedback, int64_t micro_tokens) {
    Case c = two_by_two(std::string("{weights: node, gradients: node, optimizer: node, wire: {reduce: [{codec: int4") + feedback + "}, {codec: int4" + feedback + "}]}}");
    c.micro_tokens = micro_tokens;
    c.steps = 2;
    return run(c);
  };
  const char* reset = ", feedback: {beta: 0, reset: 1}";
  const Outcome one = with(reset, 512);
  ASSERT_EQ(one.micro_batches, 1);
  expect_same_bits(one, with("", 512));
  const Outcome several = with(reset, 32), none = with("", 32);
  ASSERT_GT(several.micro_batches, 1);
  EXPECT_NE(several.norms, none.norms);
  // Over the levels outside the gradient shard there is one encoding a step, behind the last micro-batch.
  const auto on = [](const char* feedback) {
    Case c = two_by_two(std::string("{weights: pair, gradients: pair, optimizer: pair, wire: {reduce_on: {codec: int4") + feedback + "}}}");
    c.micro_tokens = 32;
    return run(c);
  };
  expect_same_bits(on(reset), on(""));
  EXPECT_NE(on(", feedback: true").norms, on("").norms);
}

// The size of a node came from the launcher's environment. It is the topology's, and that is held against the hosts: three ranks here and one there
// are no two nodes of two, whatever LOCAL_WORLD_SIZE says.
TEST(PartitioningFaults, NodeSizeIsTheTopologys) {
  const Topology topology({level("pair", 2), level("node", 2)});
  const Outcome exact = run(two_by_two("zero3")), want = run(two_by_two("hpz(pair)"));
  std::vector<Outcome> all;
  for (const char* local : {"1", "3", "4"}) {
    for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"}) setenv(name, local, 1);
    all.push_back(run(two_by_two("hpz(pair)")));
    for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"}) unsetenv(name);
  }
  // The backward's weights stay within pairs of ranks, as many bytes as the plan of this topology has; without secondary copies they cross.
  EXPECT_EQ(want.bytes, want.planned_bytes);
  EXPECT_LT(want.bytes[1], exact.bytes[1]);
  for (const Outcome& got : all) {
    expect_same_bits(got, exact);
    EXPECT_EQ(got.bytes, want.bytes);
    EXPECT_EQ(got.memory, want.memory);
  }
  EXPECT_EQ(host_misfit(topology, {"a", "a", "b", "b"}), "");
  EXPECT_NE(host_misfit(topology, {"a", "a", "a", "b"}).find("level 'pair' of the topology crosses hosts: its units have 2 ranks, the 2 hosts 3, 1; rank 2 and rank 3 of one unit"),
            std::string::npos);
  EXPECT_NE(host_misfit(Topology({level("node", 4)}), {"a", "a", "b", "b"}).find("its unit has 4 ranks, the 2 hosts 2 on each"), std::string::npos);
}

}  // namespace
}  // namespace ballast::testing
