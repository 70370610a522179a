// Layouts that cut sequences over ranks and move tokens between attention and the rest: every one equals one process that holds them whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/expectations.h"

namespace ballast::testing {
namespace {

Case long_case(std::vector<Level> levels, const std::string& layout) {
  Case c;
  c.model = tiny_gpt2();
  c.levels = std::move(levels);
  c.layout = layout;
  c.longest = 61;
  c.micro_tokens = 64;
  c.samples_per_step = 11;
  return c;
}

// What rows of a test did, so that none passes for having shared or moved nothing.
struct Tally {
  int64_t cut = 0, remapped = 0;
};

void expect_exact(const Case& c, Tally* tally = nullptr) {
  SCOPED_TRACE(c.name() + " on " + Topology(c.levels).text());
  const Outcome got = run(c);
  expect_equal_to_reference(got, c);
  expect_plan_is_exact(got);
  if (tally == nullptr) return;
  tally->cut += got.cut;
  tally->remapped += got.remapped;
}

TEST(SequenceLayouts, EverySharingOfEverySequenceEqualsOneProcess) {
  struct Row {
    int64_t ranks;
    SequenceOptions sequence;
  };
  const std::vector<Row> rows{{2, {.sharing = Sharing::Ring}},
                              {3, {.sharing = Sharing::Ring}},
                              {5, {.sharing = Sharing::Ring}},
                              {4, {.sharing = Sharing::Ring, .team = 2}},
                              {4, {.sharing = Sharing::Ring, .team = 2, .keys_across = true}},
                              {8, {.sharing = Sharing::Ring, .team = 2}},
                              {8, {.sharing = Sharing::Ring, .team = 2, .keys_across = true}},
                              {9, {.sharing = Sharing::Ring, .team = 3}},
                              {16, {.sharing = Sharing::Ring, .team = 2}},
                              {16, {.sharing = Sharing::Ring, .team = 4}},
                              {16, {.sharing = Sharing::Ring, .team = 4, .keys_across = true}},
                              {3, {.sharing = Sharing::Gather}},
                              {4, {.sharing = Sharing::Gather}},
                              {2, {.sharing = Sharing::Heads}}};
  for (const Row& row : rows) {
    for (const bool llama : {false, true}) {
      Case c = long_case({level("node", row.ranks)}, "context-parallel");
      if (llama) c.model = tiny_llama();
      c.sequence = row.sequence;
      c.placement = llama ? "zero3" : "zero1";
      c.recompute_every = llama ? 1 : 0;
      c.prefetch = 2;
      c.steps = 2;
      expect_exact(c);
    }
  }
}

TEST(SequenceLayouts, RandomLayoutsEqualOneProcessUnderEveryPlacement) {
  const std::vector<std::pair<std::vector<Level>, std::vector<std::string>>> worlds{
      {{level("node", 2)}, {"ddp", "zero3"}},
      {{level("node", 3)}, {"zero2", "{weights: node, gradients: self, optimizer: node}"}},
      {{level("pair", 2), level("node", 2)}, {"zero1", "hsdp(pair)", "hpz(pair)", "{weights: pair, gradients: node, optimizer: node}"}},
      {{level("pair", 2), level("node", 2), level("cluster", 2)}, {"zero3", "hpz(node)"}},
      {{level("pair", 3), level("node", 5)}, {"zero3"}},
      {{level("pair", 4), level("node", 4)}, {"hsdp(pair)"}}};
  Tally tally;
  for (const auto& [levels, placements] : worlds) {
    for (const std::string& placement : placements) {
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        Case c = long_case(levels, "random");
        if (seed % 2 == 0) c.model = tiny_llama();
        c.placement = placement;
        c.seed = seed;
        c.micro_tokens = seed < 3 ? 64 : 200;
        c.recompute_every = static_cast<int64_t>(seed % 3);
        c.prefetch = 1 + static_cast<int64_t>(seed % 2);
        c.samples_per_step = 3 * Topology(levels).ranks();
        c.steps = 2;
        if (seed == 4) c.freeze = {"*embed_tokens*", "*.1.*"};
        SCOPED_TRACE(fmt::format("seed {}", seed));
        expect_exact(c, &tally);
      }
    }
  }
  EXPECT_GT(tally.cut, 50);
  EXPECT_GT(tally.remapped, 50);
}

TEST(SequenceLayouts, BalancedEqualsOneProcess) {
  Tally tally;
  for (const auto& [levels, placement] : std::vector<std::pair<std::vector<Level>, std::string>>{{{level("node", 3)}, "zero3"},
                                                                                                 {{level("pair", 2), level("node", 2)}, "hsdp(pair)"},
                                                                                                 {{level("pair", 3), level("node", 1), level("cluster", 2)}, "hpz(node)"},
                                                                                                 {{level("gpu", 4), level("node", 4)}, "zero1"}}) {
    for (const Remap remap : {Remap::Never, Remap::Always, Remap::Auto}) {
      for (const int64_t micro : {32, 200}) {
        Case c = long_case(levels, "balanced");
        c.placement = placement;
        c.micro_tokens = micro;
        c.sequence.remap = remap;
        c.sequence.team = remap == Remap::Auto ? 0 : 1;
        c.samples_per_step = 2 * Topology(levels).ranks() + 1;
        c.steps = 2;
        expect_exact(c, &tally);
      }
    }
  }
  EXPECT_GT(tally.cut, 10);
  EXPECT_GT(tally.remapped, 10);
}

TEST(SequenceLayouts, EveryPolicyEqualsOneProcess) {
  for (const std::string& policy : layout_policies()) {
    for (const auto& [levels, placement] : std::vector<std::pair<std::vector<Level>, std::string>>{{{level("node", 3)}, "zero2"}, {{level("pair", 2), level("node", 2)}, "hpz(pair)"}}) {
      Case c = long_case(levels, policy);
      c.model = placement == "zero2" ? tiny_gpt2() : tiny_llama();
      c.placement = placement;
      c.micro_tokens = layout_cuts(policy) ? 34 : 64;   // no room for the longest: groups of several ranks
      c.recompute_every = placement == "zero2" ? 0 : 2;
      c.steps = 2;
      Tally tally;
      expect_exact(c, &tally);
      EXPECT_EQ(tally.cut > 0, layout_cuts(policy));
    }
  }
}

// Rows whose transfers lose something: bytes and memory as planned, replicas of equal bits, two runs too. What is lost is bounded as on packed layouts
// (LossyRowsAreBoundedReproducibleAndDoNotDiverge), beside the exact reference.
TEST(SequenceLayouts, LossyPlacementsLoseNoMoreUnderAnyLayout) {
  const std::vector<std::pair<std::vector<Level>, std::vector<std::string>>> worlds{{{level("node", 3)}, {"zeropp(node)", "topo(node, node)"}},
                                                                                    {{level("pair", 2), level("node", 2)}, {"zeropp(pair)", "topo(pair, node)"}}};
  for (const auto& [levels, placements] : worlds) {
    for (const std::string& placement : placements) {
      for (const char* layout : {"packed", "bload", "hybrid", "context-parallel", "balanced", "random"}) {
        Case c = long_case(levels, layout);
        c.placement = placement;
        c.micro_tokens = layout_cuts(layout) ? 34 : 64;
        c.prefetch = 2;
        SCOPED_TRACE(c.name());
        const Outcome got = run(c), again = run(c);
        expect_plan_is_exact(got);
        EXPECT_EQ(again.losses, got.losses);
        EXPECT_EQ(again.weights, got.weights);
        const Outcome& want = reference(c);
        for (size_t s = 0; s < want.losses.size(); ++s) {
          EXPECT_NEAR(got.losses[s], want.losses[s], 0.02 * want.losses[s]);
          EXPECT_NEAR(got.norms[s], want.norms[s], 0.15 * want.norms[s]);
        }
        EXPECT_NE(got.losses.back(), want.losses.back());
      }
    }
  }
}

TEST(SequenceLayouts, WindowsAndDropoutSeeTheSamePairsAndDraws) {
  for (const char* layout : {"random", "context-parallel"}) {
    for (const int64_t window : {2, 5, 24}) {
      Case c = long_case({level("pair", 2), level("node", 2)}, layout);
      c.model = tiny_llama();
      c.model.window.assign(static_cast<size_t>(c.model.layers), window);
      expect_exact(c);
    }
    Case c = long_case({level("pair", 2), level("node", 2)}, layout);
    c.model.dropout_attention = 0.3;
    c.model.dropout_residual = 0.2;
    c.model.dropout_embedding = 0.1;
    expect_exact(c);
  }
}

TEST(SequenceLayouts, OneDocumentLongerThanAllOthersTogether) {
  for (const char* layout : {"random", "context-parallel", "balanced"}) {
    for (const int64_t longest : {1, 2}) {
      Case c = long_case({level("pair", 2), level("node", 3)}, layout);
      c.longest = longest;
      c.giant = 63;
      c.samples_per_step = 28;   // 27 of one or two tokens: 54 at most
      Tally tally;
      expect_exact(c, &tally);
      EXPECT_GT(tally.cut, 0);
    }
  }
}

TEST(SequenceLayouts, Bf16StaysNearFp32AndTwoRunsAreEqual) {
  for (const char* layout : {"random", "context-parallel"}) {
    Case c = long_case({level("pair", 2), level("node", 2)}, layout);
    c.sequence.team = 2;
    c.compute = DType::BFloat16;
    SCOPED_TRACE(c.name());
    const Outcome got = run(c), again = run(c);
    expect_plan_is_exact(got);
    EXPECT_EQ(got.losses, again.losses);
    EXPECT_EQ(got.weights, again.weights);
    Case exact = c;
    exact.compute = DType::Float32;
    for (size_t s = 0; s < got.losses.size(); ++s) EXPECT_NEAR(got.losses[s], reference(exact).losses[s], 0.02 * reference(exact).losses[s]);
  }
}

TEST(SequenceLayouts, HopsSpreadOverSeveralLinksEqualOneProcess) {
  Case c = long_case({Level{"gpu", 4, 1e12, {}, 1}, Level{"node", 2, 1e9, {}, 2}}, "context-parallel");
  c.placement = "zero3";
  expect_exact(c);
  c.layout = "random";
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    c.seed = seed;
    expect_exact(c);
  }
}

}  // namespace
}  // namespace ballast::testing
