// Layouts of whole sequences in blocks, the baselines, and what layouts are predicted to cost.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ballast/base/error.h"
#include "ballast/layout/cost_curves.h"
#include "ballast/layout/parts.h"
#include "ballast/layout/remap.h"
#include "ballast/layout/report.h"
#include "ballast/layout/sharing_cost.h"
#include "ballast/layout/svg.h"
#include "layout/layout_check.h"

namespace ballast {
namespace {

std::vector<int64_t> heavy_lengths(int count, int64_t longest, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> lengths{longest};
  while (static_cast<int>(lengths.size()) < count) {
    const double u = static_cast<double>(random() >> 11) / 9007199254740992.0;
    lengths.push_back(1 + std::min<int64_t>(longest - 1, static_cast<int64_t>(20 / std::pow(1 - u, 0.8))));
  }
  return lengths;
}

TEST(Bload, BlocksAreOfOneLengthAndDrawnAnewEveryEpoch) {
  const auto samples = samples_of(heavy_lengths(300, 1000, 1));
  LayoutLimits limits{.ranks = 3, .micro_tokens = 2500};
  const Layout first = make_layout("bload", samples, limits);
  expect_legal(first, samples, 3);
  EXPECT_EQ(first.slots() % 1000, 0);
  for (const auto& rank : first.ranks) {
    for (const MicroBatchLayout& batch : rank) {
      EXPECT_LE(batch.slots(), 2000);   // two blocks side by side
      int64_t filled = 0;
      for (const Piece& piece : batch.pieces) {
        filled += piece.length + piece.padding;
        EXPECT_EQ(piece.begin, 0);
        if (piece.padding > 0) { EXPECT_EQ(filled % 1000, 0); }   // only a block's end is padding
      }
      EXPECT_EQ(filled % 1000, 0);
    }
  }
  EXPECT_EQ(first.fingerprint(), make_layout("bload", samples, limits).fingerprint());
  limits.options.epoch = 1;
  const uint64_t second = make_layout("bload", samples, limits).fingerprint();
  EXPECT_NE(first.fingerprint(), second);
  limits.options.epoch = 0, limits.options.seed = 1;
  EXPECT_NE(first.fingerprint(), make_layout("bload", samples, limits).fingerprint());
  EXPECT_NE(second, make_layout("bload", samples, limits).fingerprint());
}

TEST(Bload, PadsAHundredTimesLessThanPaddingToTheLongest) {
  // Like the published list: many clips of a few to some dozens of frames, few long ones, one far longer than all.
  std::mt19937_64 random(2);
  std::vector<int64_t> lengths{94};
  while (lengths.size() < 7500) lengths.push_back(3 + static_cast<int64_t>(random() % 12) + (random() % 6 == 0 ? static_cast<int64_t>(random() % 70) : 0));
  const auto samples = samples_of(lengths);
  const Layout blocks = make_layout("bload", samples, {.ranks = 8, .micro_tokens = 94});
  const double padding = static_cast<double>(blocks.slots() - blocks.tokens());
  const double longest = static_cast<double>(94 * static_cast<int64_t>(lengths.size()) - blocks.tokens());
  EXPECT_GE(longest, 100 * padding) << longest << " against " << padding;
}

TEST(BestFit, NeedsNoMoreBinsThanElevenNinthsOfTheBest) {
  const auto samples = samples_of(heavy_lengths(200, 900, 3));
  const Layout layout = make_layout("best-fit", samples, {.ranks = 1, .micro_tokens = 1000});
  expect_legal(layout, samples, 1);
  EXPECT_LE(layout.micro_batches() * 9, 11 * ((layout.tokens() + 999) / 1000) + 6);
  EXPECT_EQ(make_layout("best-fit", samples_of({6, 5, 5, 4}), {.ranks = 2, .micro_tokens = 10}).micro_batches(), 1);
}

TEST(LongestFirst, PutsEachToTheLeastLoadedRank) {
  LayoutLimits limits{.ranks = 2, .micro_tokens = 100};
  limits.cost.linear = Curve();
  const Layout layout = make_layout("longest-first", samples_of({50, 40, 30, 20}), limits);   // squares: 2500 | 1600 + 900, 2500 + 400 |
  EXPECT_EQ(layout.ranks[0][0].tokens(), 70);
  EXPECT_EQ(layout.ranks[1][0].tokens(), 70);
  EXPECT_EQ(layout.ranks[0][0].pieces.size(), 2u);
  EXPECT_EQ(layout.ranks[1][0].pieces.front().length, 40);
}

TEST(Hybrid, GivesEachSequenceTheSmallestGroupThatHoldsIt) {
  const auto samples = samples_of({100, 60, 33, 16, 12, 5, 5, 5, 5, 5, 5, 5, 5});
  const Layout layout = make_layout("hybrid", samples, {.ranks = 6, .micro_tokens = 18});
  expect_legal(layout, samples, 6);
  EXPECT_EQ(layout.micro_batches(), 4);   // groups of 6, of 4, of 2, and single ranks
  EXPECT_EQ(layout.ranks[0][0].cuts[0].cut->members(), 6);
  EXPECT_EQ(layout.ranks[0][1].cuts[0].cut->members(), 4);
  EXPECT_TRUE(layout.ranks[4][1].pieces.empty());   // two ranks idle
  EXPECT_EQ(layout.ranks[0][2].cuts[0].cut->members(), 2);
  for (const auto& rank : layout.ranks) for (const MicroBatchLayout& batch : rank) EXPECT_LE(batch.slots(), 18);
  EXPECT_THROW(make_layout("hybrid", samples_of({109}), {.ranks = 6, .micro_tokens = 18}), Error);
}

TEST(LayoutReport, NoLayoutTakesLessThanItsBoundWhichIsOneForAll) {
  const auto samples = samples_of({100, 60, 33, 16, 12, 5, 5, 5, 1, 80});
  LayoutLimits limits{.ranks = 4, .micro_tokens = 128};
  limits.topology = Topology({{"gpu", 2, {}, {}}, {"node", 2, {}, {}}});
  const SequenceCost rates = {.attention = Curve::rate(1e6), .linear = Curve::rate(1e4, 1e-4)};
  SequenceCost measured = rates;   // parts of a sequence cost less than their share
  measured.attention = Curve({{100, 1e-5}, {1000, 5e-4}, {4000, 1e-2}});
  for (const SequenceCost& cost : {rates, measured}) {
    limits.cost = cost;
    const double bound = describe_layout(make_layout("packed", samples, limits), limits).lower_bound_s;
    EXPECT_GT(bound, 0);
    for (const std::string& policy : layout_policies()) {
      const LayoutReport report = describe_layout(make_layout(policy, samples, limits), limits);
      EXPECT_EQ(report.lower_bound_s, bound) << policy;
      EXPECT_GE(report.step_s, bound * (1 - 1e-12)) << policy;
    }
  }
}

TEST(LayoutReport, CountsSecondsBytesAndPadding) {
  const double pairs_per_s = 1.00001e6;   // no boundary is a whole number
  LayoutLimits limits{.ranks = 4, .micro_tokens = 1000};
  limits.topology = Topology({{"gpu", 2, {}, {}}, {"node", 2, {}, {}}});
  limits.cost = {.layers = {{0, 2}}, .attention = Curve::rate(pairs_per_s), .linear = Curve::rate(1e4), .links = {Curve::rate(1e6), Curve::rate(1e5)}, .query_bytes = 5, .key_bytes = 10, .key_sum_bytes = 20};
  Layout layout = empty_layout("test", 4, 1);
  place_sequences(layout, 0, {{.sample = 1, .length = 800, .ranks = {0, 1, 2, 3}}}, std::vector<WholeSequence>{{{2, 100}, 3}}, *limits.topology);
  LayoutReport report = describe_layout(layout, limits);
  const double part = 2 * 800.0 * 801 / 2 / 4 / pairs_per_s, whole = 2 * 100.0 * 101 / 2 / pairs_per_s;
  EXPECT_DOUBLE_EQ(report.ranks[0].attention, part);
  EXPECT_DOUBLE_EQ(report.ranks[3].attention, part + whole);
  EXPECT_DOUBLE_EQ(report.ranks[3].linear, 2 * 300 / 1e4);
  // Three hops of 200 tokens' keys and values forward and backward, four of their gradients, twice as large, in two layers; two of four neighbours are
  // across nodes.
  const double hop = 200 * 10, hops = (2 * 3 + 4 * 2) * 2;
  EXPECT_DOUBLE_EQ(report.ranks[0].sharing, hops * hop / 1e5);
  EXPECT_DOUBLE_EQ(report.sharing_bytes[0], 2 * hops * hop);
  EXPECT_DOUBLE_EQ(report.sharing_bytes[1], 2 * hops * hop);
  EXPECT_DOUBLE_EQ(report.step_s, std::max(part + whole, hops * hop / 1e5) + 2 * 300 / 1e4);
  const double compute = 4 * part + whole + 2 * 900 / 1e4;
  EXPECT_DOUBLE_EQ(report.lower_bound_s, compute / 4);
  EXPECT_DOUBLE_EQ(report.cost_imbalance, (part + whole + 0.06) / (compute / 4));
  EXPECT_DOUBLE_EQ(report.token_imbalance, 300.0 * 4 / 900);
  EXPECT_EQ(report.longest_whole, 100);
  EXPECT_EQ(report.shortest_cut, (std::vector<int64_t>{0, 800}));
  // Shared by G ranks: (2 (G - 1) 10 + G 20) s / G bytes at B take as long as s (s + 1) / 2 / G pairs at F: s is just above the whole number less 1.
  EXPECT_EQ(report.hidden_from[0], 2 * (2 * 1 * 10 + 2 * 20));
  EXPECT_EQ(report.hidden_from[1], 2 * (2 * 3 * 10 + 4 * 20) * 10);
  ASSERT_EQ(report.notes.size(), 2u);
  EXPECT_NE(report.notes[0].find("from 2800 tokens on"), std::string::npos) << report.notes[0];
  EXPECT_EQ(report.notes[1], "hops of rings over level node are not spread: there is one link per unit (topology: links)");
  make_remap(layout, *limits.topology);
  report = describe_layout(layout, limits);
  EXPECT_DOUBLE_EQ(report.token_imbalance, 1.0);
  EXPECT_DOUBLE_EQ(report.moved_bytes[0], 25 * 40 * 2);   // of 300 slots 225 stay, 25 go to the neighbour
  EXPECT_DOUBLE_EQ(report.moved_bytes[1], 50 * 40 * 2);
  EXPECT_DOUBLE_EQ(report.remap_s, 2 * 50 * 40 / 1e5);
  EXPECT_EQ(make_layout("padded", samples_of({3, 1}), {1, 8}).slots(), 6);
  EXPECT_DOUBLE_EQ(describe_layout(make_layout("padded", samples_of({3, 1}), {1, 8}), {1, 8}).padding_share(), 1.0 / 3);
}

TEST(LayoutSvg, ShowsEveryRankAndRing) {
  LayoutLimits limits{.ranks = 4, .micro_tokens = 300};
  limits.topology = Topology({{"g<p>u", 2, {}, {}}, {"node", 2, {}, {}}});
  const Layout layout = make_layout("balanced", samples_of({900, 60, 50, 40, 10}), limits);
  const std::string svg = layout_svg(layout, describe_layout(layout, limits), limits);
  EXPECT_EQ(svg.find("<svg"), 0u);
  for (const char* words : {"rank 3", "5 sequences, 1060 tokens", "sample 100, 900 tokens: ring within node over ranks 0 1 2 3", "g&lt;p&gt;u"}) {
    EXPECT_NE(svg.find(words), std::string::npos) << words;
  }
}

TEST(CostCurves, AreWrittenAndReadBack) {
  CostCurves curves;
  curves.attention = {{10, 0.5}, {100, 2}};
  curves.linear = {{8, 1}, {16, 3}};
  curves.links = {{"node", {{1000, 0.001}}}};
  const CostCurves read = parse_cost_curves(cost_curves_text(curves), "curves.yaml");
  EXPECT_EQ(read.attention, curves.attention);
  EXPECT_EQ(read.linear, curves.linear);
  EXPECT_EQ(read.links, curves.links);
  SequenceCost cost;
  apply(read, Topology({{"gpu", 2, {}, {}}, {"node", 2, {}, {}}}), cost);
  EXPECT_DOUBLE_EQ(cost.attention_s(10), 0.5);
  EXPECT_DOUBLE_EQ(cost.attention_s(100), 2);
  EXPECT_DOUBLE_EQ(cost.linear_s(12), 2);
  EXPECT_DOUBLE_EQ(cost.linear_s(32), 6);    // beyond: seconds per token of the last point
  EXPECT_DOUBLE_EQ(cost.linear_s(4), 0.5);   // before: towards the line of the first two at 0, which is not below 0
  EXPECT_DOUBLE_EQ(cost.link_s(0, 1e9), 0);
  EXPECT_DOUBLE_EQ(cost.link_s(1, 2000), 0.002);
  EXPECT_THROW(apply(read, Topology::flat(2, "rack"), cost), Error);
}

TEST(CostCurves, RefuseWhatIsNotACurve) {
  for (const char* text : {"attention: 3", "attention: []", "attention: [[1]]", "attention: [[1, x]]", "attention: [[2, 1], [1, 1]]", "attention: [[0, 1]]", "linear: [[1, -1]]",
                           "linear: [[1, '1']]", "links: [[1, 1]]", "atention: [[1, 1]]", "[1]", "3", "", "linear: [[1, .inf]]", "linear: [[1, 1e999]]"}) {
    try {
      parse_cost_curves(text, "c.yaml");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage) << text;
      EXPECT_NE(std::string(error.what()).find("c.yaml"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ballast
