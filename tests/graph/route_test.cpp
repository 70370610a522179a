// Hops of rings that are spread over the links of a unit: when that pays, over which ranks they go, and what is sent on which level.
#include "ballast/layout/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "ballast/graph/summary.h"
#include "ballast/layout/policies.h"
#include "ballast/layout/report.h"
#include "graph/small_recipe.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Topology nodes(int64_t gpus, int64_t links, double within = 400e9, double between = 25e9, int64_t count = 2) {
  return Topology({{"gpu", gpus, within, {}, 1}, {"node", count, between, {}, links}});
}

TEST(Route, SecondsAreThoseOfTheFormula) {
  // n [2 b_in + (b_out - 2 b_in) / x] with b = seconds per byte; x = 1 is the direct way.
  const double within = 400e9, between = 25e9, bytes = 1e9;
  for (const int64_t x : {1, 2, 3, 4, 8}) {
    const double expected = bytes * (2 / within + (1 / between - 2 / within) / static_cast<double>(x));
    EXPECT_NEAR(routed_seconds(bytes, within, between, x), expected, 1e-12 * expected) << x << " links";
  }
  const double direct = bytes / between;
  EXPECT_DOUBLE_EQ(routed_seconds(bytes, within, between, 1), direct);
  EXPECT_NEAR(routed_seconds(bytes, within, between, 2) / direct, 0.5625, 1e-12);
  EXPECT_NEAR(routed_seconds(bytes, within, between, 4) / direct, 0.34375, 1e-12);
  EXPECT_NEAR(routed_seconds(bytes, within, between, 8) / direct, 0.234375, 1e-12);
}

TEST(Route, MoreLinksAreFasterExactlyWhereTheOutsideIsMoreThanTwiceAsSlow) {
  // So whenever it pays at all, all links are the best choice of x.
  for (const double slower : {0.5, 1.0, 1.9, 2.1, 4.0, 16.0}) {
    for (int64_t x = 2; x <= 16; ++x) {
      const double fewer = routed_seconds(1e6, 100e9, 100e9 / slower, x - 1), more = routed_seconds(1e6, 100e9, 100e9 / slower, x);
      EXPECT_EQ(more < fewer, slower > 2) << slower << " times slower, " << x << " links";
    }
  }
}

TEST(Route, PaysOnlyFromTwiceAsSlowOnAndOverSeveralLinks) {
  for (const int64_t links : {2, 4}) {
    EXPECT_FALSE(routing_pays(nodes(4, links, 100e9, 100e9), 1));
    EXPECT_FALSE(routing_pays(nodes(4, links, 100e9, 51e9), 1));
    EXPECT_TRUE(routing_pays(nodes(4, links, 100e9, 49e9), 1));
    EXPECT_TRUE(routing_pays(nodes(4, links), 1));
    EXPECT_FALSE(routing_pays(nodes(4, links), 0));   // there is nothing within a rank to spread over
  }
  EXPECT_FALSE(routing_pays(nodes(4, 1), 1));
  EXPECT_FALSE(routing_pays(nodes(1, 4), 1));   // one rank per node has one link
  EXPECT_FALSE(routing_pays(Topology({{"gpu", 4, {}, {}, 1}, {"node", 2, 25e9, {}, 4}}), 1));   // a rate is not known
  EXPECT_FALSE(routing_pays(Topology({{"gpu", 4, 400e9, {}, 1}, {"node", 2, {}, {}, 4}}), 1));
}

TEST(Route, EveryLinkHasOneProxyHoweverManyRanksShareIt) {
  for (const int64_t gpus : {1, 2, 3, 4, 8}) {
    for (const int64_t links : {1, 2, 3, 4, 8, 16}) {
      const Topology topology = nodes(gpus, links);
      for (int64_t rank = 0; rank < topology.ranks(); ++rank) {
        const std::vector<int64_t> heads = topology.link_heads(rank, 1);
        std::set<int64_t> used;
        for (const int64_t head : heads) {
          EXPECT_EQ(head / gpus, rank / gpus);   // in the rank's own node
          used.insert(topology.link_of(head, 1));
        }
        EXPECT_EQ(static_cast<int64_t>(heads.size()), std::min(gpus, links));
        EXPECT_EQ(used.size(), heads.size()) << gpus << " ranks, " << links << " links";
      }
    }
  }
  EXPECT_THAT(nodes(8, 4).link_heads(11, 1), ElementsAre(8, 10, 12, 14));   // two ranks share a link
}

// One sequence over these ranks, the rest of the layout empty; routed where that pays.
Layout ring_over(const std::vector<int64_t>& ranks, const Topology& topology, int64_t length, bool route) {
  auto cut = std::make_shared<CutSequence>();
  cut->length = length;
  cut->ranks = ranks;
  cut->level = topology.outermost();
  Layout layout;
  layout.ranks.assign(static_cast<size_t>(topology.ranks()), std::vector<MicroBatchLayout>(1));
  for (int64_t member = 0; member < cut->members(); ++member) {
    MicroBatchLayout& batch = layout.ranks[static_cast<size_t>(ranks[static_cast<size_t>(member)])].front();
    for (const Piece& chunk : cut->chunks(member)) batch.pieces.push_back(chunk);
    batch.cuts.push_back({cut, member, 0});
  }
  if (route) {
    EXPECT_EQ(route_rings(layout, topology), 1);
  }
  return layout;
}

std::vector<int64_t> layout_bytes(const Layout& layout, const Topology& topology) {
  const PlanSummary summary = summarize(small_recipe(topology, 2), layout);
  return {summary.levels[0].layout_bytes, summary.levels[1].layout_bytes};
}

TEST(Route, AHopPassesTheProxiesOfBothNodesAndNobodyElse) {
  const Topology topology = nodes(4, 2);   // links begin at ranks 0 and 2, 4 and 6
  const Layout layout = ring_over({1, 5}, topology, 64, true);
  std::vector<int64_t> members;   // by rank; -1: passes on; -2: knows nothing of it
  for (const auto& rank : layout.ranks) members.push_back(rank.front().cuts.empty() ? -2 : rank.front().cuts.front().member);
  EXPECT_THAT(members, ElementsAre(-1, 0, -1, -2, -1, 1, -1, -2));
  const CutSequence& cut = *layout.ranks[1].front().cuts.front().cut;
  EXPECT_TRUE(cut.routed);
  const std::vector<RoutedHop> hops = routed_hops(cut, topology, 0);
  ASSERT_EQ(hops.size(), 2u);
  EXPECT_EQ(hops[0].from, 1);
  EXPECT_EQ(hops[0].to, 5);
  EXPECT_EQ(hops[0].to_member, 1);
  EXPECT_EQ(hops[0].level, 1);
  EXPECT_THAT(hops[0].out, ElementsAre(0, 2));
  EXPECT_THAT(hops[0].in, ElementsAre(4, 6));
  EXPECT_EQ(hops[1].from, 5);
  EXPECT_THAT(hops[1].out, ElementsAre(4, 6));
  EXPECT_THAT(routed_hops(cut, topology, 3), IsEmpty());
}

TEST(Route, HopsWithinANodeStayAsTheyAre) {
  const Topology topology = nodes(4, 4);
  Layout layout = ring_over({0, 1, 2}, topology, 48, false);
  const uint64_t before = layout.fingerprint();
  EXPECT_EQ(route_rings(layout, topology), 0);
  EXPECT_EQ(layout.fingerprint(), before);
}

TEST(Route, BytesBetweenNodesStayAndThoseWithinAreTheSlicesOfTheProxies) {
  const Topology topology = nodes(4, 2);
  // Ring 0 1 2 ... 7: the hops 3 -> 4 and 7 -> 0 cross. Both senders give everything to proxies, both receivers are proxies of one slice of two
  // themselves: three halves of a message more for each, beside six that stay within.
  std::vector<int64_t> all(8);
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto direct = layout_bytes(ring_over(all, topology, 512, false), topology), routed = layout_bytes(ring_over(all, topology, 512, true), topology);
  EXPECT_GT(direct[1], 0);
  EXPECT_EQ(direct[0], 3 * direct[1]);
  EXPECT_EQ(routed[1], direct[1]);
  EXPECT_EQ(routed[0], direct[0] + 3 * direct[1] / 2);
  // Members that are no proxies: all of each message to proxies and all from proxies.
  const auto apart = layout_bytes(ring_over({1, 5}, topology, 512, false), topology), spread = layout_bytes(ring_over({1, 5}, topology, 512, true), topology);
  EXPECT_EQ(apart[0], 0);
  EXPECT_EQ(spread[1], apart[1]);
  EXPECT_EQ(spread[0], 2 * apart[1]);
}

TEST(Route, PredictionsUseTheSpreadWay) {
  const Topology topology = nodes(4, 2);
  LayoutLimits limits{.ranks = 8, .micro_tokens = 64, .topology = topology};
  limits.cost.links = {Curve::rate(400e9), Curve::rate(25e9)};
  const std::vector<SampleRef> samples{{1, 512}};
  const auto sharing_of = [&](bool route) {
    limits.options.route = route;
    return describe_layout(make_layout("context-parallel", samples, limits), limits);
  };
  const LayoutReport direct = sharing_of(false), routed = sharing_of(true);
  EXPECT_GT(direct.ranks[0].sharing, 0);
  EXPECT_NEAR(routed.ranks[0].sharing, direct.ranks[0].sharing * routed_seconds(1, 400e9, 25e9, 2) * 25e9, 1e-9 * direct.ranks[0].sharing);
  EXPECT_DOUBLE_EQ(routed.sharing_bytes[1], direct.sharing_bytes[1]);
  EXPECT_NEAR(routed.sharing_bytes[0], direct.sharing_bytes[0] * 1.5, 1e-9 * direct.sharing_bytes[0]);   // as BytesBetweenNodesStay counts
  EXPECT_LT(routed.hidden_from[1], direct.hidden_from[1]);
}

TEST(Route, OffWithOneLinkPerNodeAndTheReportSaysSo) {
  for (const int64_t links : {1, 2}) {
    const Topology topology = nodes(4, links);
    LayoutLimits limits{.ranks = 8, .micro_tokens = 64, .topology = topology};
    limits.cost.links = {Curve::rate(400e9), Curve::rate(25e9)};
    const std::vector<SampleRef> samples{{1, 512}};
    const Layout layout = make_layout("context-parallel", samples, limits);
    EXPECT_EQ(layout.ranks[3].front().cuts.front().cut->routed, links > 1);
    const LayoutReport report = describe_layout(layout, limits);
    const auto says = std::count(report.notes.begin(), report.notes.end(), "hops of rings over level node are not spread: there is one link per unit (topology: links)");
    EXPECT_EQ(says, links == 1 ? 1 : 0);
    limits.options.route = false;
    EXPECT_FALSE(make_layout("context-parallel", samples, limits).ranks[3].front().cuts.front().cut->routed);
  }
}

}  // namespace
}  // namespace ballast
