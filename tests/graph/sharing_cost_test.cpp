// What is reckoned for sharing a sequence is what the lowering sends: bytes of every way on every level, and the source's formulas.
#include "ballast/layout/sharing_cost.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "ballast/graph/summary.h"
#include "ballast/layout/route.h"
#include "graph/small_recipe.h"

namespace ballast {
namespace {

struct Sums {
  double ring = 0, turn = 0, team = 0;
  int64_t ring_transfers = 0;
};

Sums sums_of(const SequenceCost& cost, const CutSequence& cut) {
  Sums sums;
  visit_sharing(cost, cut, [&](SharingPeer to, int64_t transfers, double bytes) {
    double& sum = to == SharingPeer::Next ? sums.ring : to == SharingPeer::Turn ? sums.turn : sums.team;
    sum += static_cast<double>(transfers) * bytes;
    if (to == SharingPeer::Next) sums.ring_transfers += transfers;
  });
  return sums;
}

TEST(SharingCost, FollowsTheFormulasOfConcentricRings) {
  // A = 1 byte a token. Forward as the source says: 2 n (P - C^2) / (C P) in the ring, 4 n (C - 1) / P within teams. Backward the same, and sums of keys'
  // gradients, which come home: one hop more.
  const SequenceCost cost{.layers = {{0, 1}}, .query_bytes = 1, .key_bytes = 2, .query_sum_bytes = 1, .key_sum_bytes = 2, .head_bytes = 0};
  const double n = 6400, p = 64;
  for (const int64_t team : {1, 2, 4, 8}) {
    const double c = static_cast<double>(team), ring = 2 * n * (p - c * c) / (c * p), home = 2 * n * c / p;
    CutSequence cut{.sample = 1, .length = 6400, .ranks = std::vector<int64_t>(64), .team = team, .keys_across = team > 1};
    const Sums across = sums_of(cost, cut);
    EXPECT_DOUBLE_EQ(across.ring, team == 8 ? 0 : 3 * ring + home);
    EXPECT_EQ(across.ring_transfers, team == 8 ? 0 : 3 * (64 / (team * team) - 1) + 1);
    EXPECT_EQ(across.turn, 0);
    EXPECT_DOUBLE_EQ(across.team, (4 + 7) * n * (c - 1) / p);   // backward q, k, v, the output's gradient, and gradients of q, k, v
    EXPECT_DOUBLE_EQ(team_memory_bytes(cost, 6400, 64, team), team == 1 ? 0 : (6 * c - 4) * n / p);
    cut.keys_across = false;
    const Sums within = sums_of(cost, cut);
    EXPECT_DOUBLE_EQ(within.ring, across.ring);
    EXPECT_DOUBLE_EQ(within.team, across.team);
    EXPECT_DOUBLE_EQ(within.turn, team == 1 ? 0 : 3 * home);
  }
}

// One sequence over all ranks of a topology in the given order; routed where that pays.
Layout share(const CutSequence& shape, const Topology& topology) {
  Layout layout;
  layout.ranks.assign(static_cast<size_t>(topology.ranks()), std::vector<MicroBatchLayout>(1));
  const auto cut = std::make_shared<CutSequence>(shape);
  for (int64_t member = 0; member < cut->members(); ++member) {
    MicroBatchLayout& batch = layout.ranks[static_cast<size_t>(cut->ranks[static_cast<size_t>(member)])].front();
    for (const Piece& chunk : cut->chunks(member)) batch.pieces.push_back(chunk);
    batch.cuts.push_back({cut, member, 0});
  }
  return layout;
}

TEST(SharingCost, BytesAreThoseThatTheLoweringSends) {
  std::mt19937_64 random(3);
  int compared = 0, spread = 0;
  const auto level = [](const char* name, int64_t size, double bandwidth, int64_t links) { return Level{name, size, bandwidth, {}, links}; };
  for (const Topology& topology : {Topology::flat(2), Topology::flat(3), Topology::flat(16), Topology({level("pair", 2, 1e9, 1), level("node", 2, 1e8, 1)}),
                                   Topology({level("pair", 2, 1e9, 1), level("node", 4, 1e9, 2), level("site", 2, 1e8, 4)}),
                                   Topology({level("gpu", 4, 4e9, 1), level("node", 4, 1e8, 2)}), Topology({level("gpu", 9, 4e9, 1), level("node", 2, 1e8, 3)})}) {
    for (const Sharing sharing : {Sharing::Ring, Sharing::Gather, Sharing::Heads}) {
      for (const int64_t team : {1, 2, 3, 4}) {
        for (const bool across : {false, true}) {
          const int64_t members = topology.ranks();
          if (team * team > members || members % (team * team) != 0 || (team == 1 && across) || (sharing != Sharing::Ring && team > 1)) continue;
          if (sharing == Sharing::Heads && 16 % members != 0) continue;
          CutSequence cut{.sample = 1, .length = 2 * members * 12, .sharing = sharing, .team = team, .keys_across = across};
          cut.level = topology.outermost();
          cut.ranks.resize(static_cast<size_t>(members));
          std::iota(cut.ranks.begin(), cut.ranks.end(), int64_t{0});
          std::shuffle(cut.ranks.begin(), cut.ranks.end(), random);
          for (const DType compute : {DType::Float32, DType::BFloat16}) {
            for (const bool route : {false, true}) {
              Recipe recipe = small_recipe(topology, 2, 16, sharing == Sharing::Heads ? 1 : 2);
              recipe.compute = compute;
              const SequenceCost cost = sequence_cost(recipe.model.config, topology, 1e12, compute == DType::Float32 ? 4 : 2);
              std::vector<double> reckoned(static_cast<size_t>(topology.level_count()));
              add_sharing_bytes(cost, cut, topology, route, reckoned);
              Layout layout = share(cut, topology);
              if (route) spread += route_rings(layout, topology) > 0 ? 1 : 0;
              const PlanSummary summary = summarize(recipe, layout);
              double all = 0, by_members = 0;
              for (size_t l = 0; l < reckoned.size(); ++l) {
                EXPECT_NEAR(reckoned[l], static_cast<double>(summary.levels[l].layout_bytes), 0.5)
                    << topology.text() << ", " << name_of(sharing) << ", team " << team << (across ? " across" : " within") << (route ? ", spread" : "") << ", level " << l;
                all += reckoned[l];
              }
              visit_sharing(cost, cut, [&](SharingPeer to, int64_t transfers, double bytes) {
                const int64_t senders = to == SharingPeer::Turn ? members - members / team : members;
                by_members += static_cast<double>(senders * transfers * cost.layer_count()) * bytes;
              });
              if (!route) { EXPECT_NEAR(by_members, all, 0.5); }
              ++compared;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(spread, 10);
}

TEST(SharingCost, SecondsAreOfTransfersOneAfterTheOther) {
  // Two ranks, 1 byte a second: one hop of keys forward, one backward, two of their gradients in fp32.
  const Topology topology = Topology::flat(2);
  const SequenceCost cost{.layers = {{0, 3}}, .links = {Curve::rate(1, 10)}, .query_bytes = 2, .key_bytes = 4, .query_sum_bytes = 4, .key_sum_bytes = 8, .head_bytes = 4};
  const CutSequence cut{.sample = 1, .length = 100, .ranks = {0, 1}, .level = 0};
  EXPECT_DOUBLE_EQ(sharing_s(cost, cut, topology, false), 3 * (2 * (10 + 50 * 4.0) + 2 * (10 + 50 * 8.0)));
}

}  // namespace
}  // namespace ballast
