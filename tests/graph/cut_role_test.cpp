// Who works on what of a shared sequence: every pair of query and key exactly once, and the lowering's messages against the formulas.
#include "ballast/layout/cut_role.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "ballast/base/error.h"
#include "ballast/graph/build_step.h"
#include "ballast/graph/summary.h"
#include "graph/small_recipe.h"

namespace ballast {
namespace {

struct Way {
  int64_t members, team;
  bool across;
  Sharing sharing = Sharing::Ring;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all{{1, 1, false}, {2, 1, false}, {3, 1, false}, {5, 1, false}, {4, 1, false}, {4, 2, false}, {4, 2, true}, {8, 2, false}, {8, 2, true},
                                    {9, 3, false}, {9, 3, true}, {16, 1, false}, {16, 2, false}, {16, 2, true}, {16, 4, false}, {16, 4, true}, {18, 3, false}, {18, 3, true},
                                    {3, 1, false, Sharing::Gather}, {4, 1, false, Sharing::Gather}, {2, 1, false, Sharing::Heads}, {4, 1, false, Sharing::Heads}};
  return all;
}

std::shared_ptr<CutSequence> cut_of(const Way& way, int64_t length) {
  auto cut = std::make_shared<CutSequence>();
  cut->sample = 7;
  cut->length = length;
  cut->ranks.resize(static_cast<size_t>(way.members));
  std::iota(cut->ranks.begin(), cut->ranks.end(), int64_t{0});
  cut->sharing = way.sharing;
  cut->team = way.team;
  cut->keys_across = way.across;
  return cut;
}

TEST(CutRole, MembersMeetEveryPairOnceAndRingsFitTogether) {
  for (const Way& way : ways()) {
    if (way.sharing == Sharing::Heads) continue;
    const auto cut = cut_of(way, 100);
    SCOPED_TRACE(testing::Message() << way.members << " members, teams of " << way.team << (way.across ? " across" : " within"));
    std::map<std::pair<int64_t, int64_t>, int> met;
    for (int64_t m = 0; m < way.members; ++m) {
      const CutRole role = role_of(*cut, m);
      EXPECT_EQ(static_cast<int64_t>(role.queries.size()), way.team);
      if (way.sharing == Sharing::Ring) {
        EXPECT_EQ(static_cast<int64_t>(role.stations.size()), way.members / way.team / way.team);
      }
      for (const auto& station : role.stations) for (int64_t key : station) for (int64_t query : role.queries) ++met[{query, key}];
      if (role.next >= 0) {
        EXPECT_EQ(role_of(*cut, role.next).previous, m);
        for (size_t step = 1; step < role.stations.size(); ++step) EXPECT_EQ(role.stations[step], role_of(*cut, role.previous).stations[step - 1]);
      }
      if (role.shift_to >= 0) {
        EXPECT_EQ(role_of(*cut, role.shift_to).shift_from, m);
        EXPECT_EQ(role_of(*cut, role.shift_to).stations.front(), role.keys);
      } else {
        EXPECT_EQ(role.stations.front(), role.keys);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(met.size()), way.members * way.members);
    for (const auto& [pair, count] : met) EXPECT_EQ(count, 1) << pair.first << " " << pair.second;
  }
}

TEST(CutRole, RefusesTeamsWhoseSquareDoesNotDivideTheMembers) {
  for (const auto& [members, team] : std::vector<std::pair<int64_t, int64_t>>{{8, 4}, {6, 2}, {4, 3}, {2, 2}, {4, 0}}) {
    EXPECT_THROW(role_of(*cut_of({members, team, false}, 64), 0), Error) << members << " " << team;
  }
}

TEST(CutRole, ChunksCoverTheSequenceAndSplitTheWorkEvenly) {
  for (const int64_t length : {1, 2, 7, 64, 4000, 4001}) {
    for (const int64_t members : {1, 2, 3, 8}) {
      const auto cut = cut_of({members, 1, false}, length);
      std::vector<int> seen(static_cast<size_t>(length), 0);
      std::vector<double> pairs;
      for (int64_t m = 0; m < members; ++m) {
        AttendUnit unit;
        for (const Piece& chunk : cut->chunks(m)) {
          for (int64_t t = chunk.begin; t < chunk.begin + chunk.length; ++t) ++seen[static_cast<size_t>(t)];
          unit.queries.push_back({0, chunk.length, chunk.begin});
        }
        unit.keys = {{0, length, 0}};
        pairs.push_back(visible_pairs(unit, 0));
      }
      for (int count : seen) EXPECT_EQ(count, 1);
      EXPECT_DOUBLE_EQ(std::accumulate(pairs.begin(), pairs.end(), 0.0), static_cast<double>(length) * static_cast<double>(length + 1) / 2);
      if (length >= 4000) {
        const auto [low, high] = std::minmax_element(pairs.begin(), pairs.end());
        EXPECT_LE(*high / *low, 1.01) << length << " over " << members;
      }
    }
  }
}

// --- the lowering --------------------------------------------------------------------------------------------------------------------------

struct Lowered {
  Recipe recipe;
  Layout layout;
  std::vector<StepGraph> graphs;
};

Lowered lower(const Way& way, int64_t length, DType compute = DType::Float32, int64_t heads = 4) {
  Lowered lowered;
  lowered.recipe = small_recipe(Topology::flat(way.members), 1, heads);
  lowered.recipe.compute = compute;
  const auto cut = cut_of(way, length);
  lowered.layout.name = "test";
  for (int64_t m = 0; m < way.members; ++m) {
    MicroBatchLayout batch;
    for (const Piece& chunk : cut->chunks(m)) batch.pieces.push_back(chunk);
    batch.cuts.push_back({cut, m, 0});
    lowered.layout.ranks.push_back({batch});
  }
  for (int64_t m = 0; m < way.members; ++m) lowered.graphs.push_back(build_step(lowered.recipe, m, lowered.layout.ranks[static_cast<size_t>(m)], Work::Train));
  return lowered;
}

TEST(CutRole, LoweredUnitsComputeEveryVisiblePairOnce) {
  for (const Way& way : ways()) {
    for (const int64_t length : {37, 3}) {
      const Lowered lowered = lower(way, length);
      for (const std::string_view what : {what::kAttend, what::kAttendBackward}) {
        std::map<std::pair<int64_t, int64_t>, int64_t> seen;
        for (const StepGraph& graph : lowered.graphs) {
          for (const Op& op : graph.ops) {
            if (op.what != what) continue;
            for (const AttendUnit& unit : op.units) {
              for (const RowSpan& q : unit.queries) for (const RowSpan& k : unit.keys) {
                for (int64_t i = q.position; i < q.position + q.count; ++i) for (int64_t j = k.position; j < k.position + k.count && j <= i; ++j) ++seen[{i, j}];
              }
            }
          }
        }
        EXPECT_EQ(static_cast<int64_t>(seen.size()), length * (length + 1) / 2);
        const int64_t times = way.sharing == Sharing::Heads ? way.members : 1;   // each member for its heads
        for (const auto& [pair, count] : seen) ASSERT_EQ(count, times) << pair.first << " " << pair.second << ", " << way.members << " members, team " << way.team;
      }
    }
  }
}

TEST(CutRole, MessagesAreThoseOfTheFormulas) {
  // Elements of width H that a member sends in the forward of one block: ring 2 N/P C (P/C^2 - 1), gathers and return 4 N/P (C - 1) and as many
  // rows of the log-sum-exp as come back; keys within teams move once more, 2 N/P C for all members but the first of each team.
  constexpr int64_t kLength = 288 * 4, kHidden = 32, kHeads = 4;
  for (const Way& way : ways()) {
    if (way.sharing != Sharing::Ring || kLength % (2 * way.members) != 0) continue;
    const Lowered lowered = lower(way, kLength);
    const int64_t own = kLength / way.members, team = way.team;
    for (int64_t m = 0; m < way.members; ++m) {
      int64_t bytes = 0, exchanges = 0;
      for (const Op& op : lowered.graphs[static_cast<size_t>(m)].ops) {
        if (op.what == what::kAttendDelta) break;
        if (op.kind == OpKind::Exchange) bytes += op.bytes, ++exchanges;
      }
      const int64_t hops = way.members / team / team - 1;
      const bool moves = team > 1 && !way.across && m % team != 0;
      const int64_t elements = 2 * own * team * hops * kHidden + 4 * own * (team - 1) * kHidden + own * (team - 1) * kHeads + (moves ? 2 * own * team * kHidden : 0);
      EXPECT_EQ(bytes, 4 * elements) << way.members << " members, team " << team << ", member " << m;
      EXPECT_EQ(exchanges, hops + (team > 1 ? 3 : 0) + (moves ? 1 : 0));
    }
  }
}

TEST(CutRole, MemoryIsThatOfTheFormula) {
  // In A = rows of one member x width, beside what is kept for the backward (q, k, v, o of every layer, as without teams): the plain ring holds two
  // pairs of keys and values, 4 A. A team of C holds its queries, two pairs of C-fold keys and values, and its partial results: 6 C A and C log-sum-exps.
  constexpr int64_t kLength = 288 * 64, kHidden = 32, kHeads = 4;
  for (const Way& way : ways()) {
    if (way.sharing != Sharing::Ring || way.members == 1 || kLength % (2 * way.members) != 0) continue;
    Lowered lowered = lower(way, kLength);
    const int64_t own = kLength / way.members, a = own * kHidden * 4, lse = own * kHeads * 4, c = way.team, ring = way.members / c / c;
    for (int64_t m = 0; m < way.members; ++m) {
      const StepGraph graph = build_step(lowered.recipe, m, lowered.layout.ranks[static_cast<size_t>(m)], Work::Evaluate);
      const bool moves = c > 1 && !way.across && m % c != 0;
      int64_t peak = ring > 1 ? (ring > 2 ? 4 : 2) * a : 0;   // a ring of two receives once
      if (c > 1) {
        const int64_t gathered = (c + 2 * c) * a, shift = moves ? (c + 4 * c) * a : 0;
        const int64_t attending = (c + (ring > 1 ? 4 : 2) * c + c) * a + c * lse, returning = 2 * (c * a + c * lse);
        peak = std::max({gathered, shift, attending, returning});
      }
      EXPECT_EQ(graph.buffer_bytes, peak) << way.members << " members, team " << c << (way.across ? " across" : " within") << ", member " << m;
    }
  }
}

TEST(CutRole, SummaryCountsLayoutBytesByLevelAndApart) {
  Lowered lowered = lower({4, 1, false}, 64);
  lowered.recipe.topology = Topology({{"pair", 2, {}, {}}, {"node", 2, {}, {}}});
  lowered.recipe.placement = parse_placement_preset("ddp", lowered.recipe.topology);
  const Lowered flat = lower({4, 1, false}, 64);
  const PlanSummary by_level = summarize(lowered.recipe, lowered.layout), whole = summarize(flat.recipe, flat.layout);
  // Of the ring 0 1 2 3 two of four links cross the pairs, so half of everything does.
  EXPECT_GT(by_level.levels[0].layout_bytes, 0);
  EXPECT_EQ(by_level.levels[0].layout_bytes, by_level.levels[1].layout_bytes);
  EXPECT_EQ(by_level.levels[0].layout_bytes + by_level.levels[1].layout_bytes, whole.levels[0].layout_bytes);
  Layout alone = flat.layout;
  for (auto& rank : alone.ranks) rank.front().cuts.clear();
  EXPECT_EQ(summarize(flat.recipe, alone).levels[0].bytes_per_step, whole.levels[0].bytes_per_step);
  EXPECT_EQ(summarize(flat.recipe, alone).levels[0].layout_bytes, 0);
}

}  // namespace
}  // namespace ballast
