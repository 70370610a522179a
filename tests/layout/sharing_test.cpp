// Layouts that cut sequences: context-parallel, the moves between two layouts, and the random layouts that other tests train.
#include <gtest/gtest.h>

#include <random>

#include "ballast/base/error.h"
#include "ballast/plan/attention.h"
#include "layout/layout_check.h"
#include "layout/random_layout.h"

namespace ballast {
namespace {

std::string message_of(const std::string& policy, const std::vector<SampleRef>& samples, const LayoutLimits& limits) {
  try {
    make_layout(policy, samples, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

TEST(ContextParallel, CutsEverySequenceOverAllRanks) {
  const auto samples = samples_of({100, 1, 17, 64, 3});
  for (int64_t ranks : {2, 3, 5, 8}) {
    const Layout layout = make_layout("context-parallel", samples, {ranks, 100});
    EXPECT_EQ(layout.micro_batches(), 1);
    expect_legal(layout, samples, ranks);
    for (const auto& rank : layout.ranks) EXPECT_EQ(rank[0].cuts.size(), samples.size());
  }
}

TEST(ContextParallel, HoldsSequencesLongerThanAMicroBatchAndNoLongerOnes) {
  const Layout layout = make_layout("context-parallel", samples_of({64, 64, 64, 60}), {4, 16});
  EXPECT_EQ(layout.micro_batches(), 4);
  for (const auto& rank : layout.ranks) for (const MicroBatchLayout& batch : rank) EXPECT_LE(batch.slots(), 16);
  const auto long_one = samples_of({5, 66});
  EXPECT_NE(message_of("context-parallel", long_one, {4, 16}).find("micro_tokens to 17 or more"), std::string::npos);
  EXPECT_EQ(make_layout("context-parallel", long_one, {4, 17}).tokens(), 71);
}

TEST(ContextParallel, ShortSequencesGoRoundTheRanks) {
  const Layout layout = make_layout("context-parallel", samples_of(std::vector<int64_t>(12, 1)), {4, 3});
  EXPECT_EQ(layout.micro_batches(), 1);
  for (const auto& rank : layout.ranks) EXPECT_EQ(rank[0].slots(), 3);
}

TEST(ContextParallel, RefusesTeamsAndHeadsThatDoNotDivide) {
  const auto samples = samples_of({40, 9});
  LayoutLimits limits{.ranks = 8, .micro_tokens = 16};
  limits.options.team = 2;
  expect_legal(make_layout("context-parallel", samples, limits), samples, 8);
  limits.options.team = 3;
  EXPECT_NE(message_of("context-parallel", samples, limits).find("one of 1, 2"), std::string::npos);
  limits.options = {.sharing = Sharing::Heads};
  limits.heads = 16, limits.kv_heads = 8;
  EXPECT_EQ(make_layout("context-parallel", samples, limits).ranks[0][0].cuts[0].cut->sharing, Sharing::Heads);
  limits.kv_heads = 4;
  EXPECT_NE(message_of("context-parallel", samples, limits).find("one of 1, 2, 4 ranks"), std::string::npos);
  limits.topology = Topology({{"gpu", 2, {}, {}}, {"node", 3, {}, {}}});
  EXPECT_NE(message_of("context-parallel", samples, limits).find("topology"), std::string::npos);
}

TEST(Remap, EvenSharesKeepTokensWhereTheyAre) {
  const Topology topology({{"gpu", 2, {}, {}}, {"node", 2, {}, {}}});
  EXPECT_EQ(even_shares(std::vector<int64_t>{7, 0, 2, 2}, topology), (std::vector<int64_t>{3, 3, 3, 2}));
  EXPECT_EQ(even_shares(std::vector<int64_t>{0, 0, 0, 1}, topology), (std::vector<int64_t>{0, 0, 0, 1}));
  EXPECT_EQ(even_shares(std::vector<int64_t>{0, 0, 0, 0}, topology), (std::vector<int64_t>{0, 0, 0, 0}));
}

// Cheapest way to turn held into wanted, by trying all; a token costs 1 at level 0, 1000 at level 1, ...
double cheapest(std::vector<int64_t> held, const std::vector<int64_t>& wanted, const Topology& topology) {
  for (size_t from = 0; from < held.size(); ++from) {
    if (held[from] <= wanted[from]) continue;
    double best = 1e300;
    for (size_t to = 0; to < held.size(); ++to) {
      if (held[to] >= wanted[to]) continue;
      std::vector<int64_t> next = held;
      --next[from], ++next[to];
      const double cost = std::pow(1000.0, topology.common_level(static_cast<int64_t>(from), static_cast<int64_t>(to)));
      best = std::min(best, cost + cheapest(next, wanted, topology));
    }
    return best;
  }
  return 0;
}

TEST(Remap, MovesAreMinimal) {
  std::mt19937 random(3);
  const Topology deep({{"gpu", 2, {}, {}}, {"node", 2, {}, {}}, {"rack", 2, {}, {}}});
  const Topology flat = Topology::flat(4), pairs({{"gpu", 2, {}, {}}, {"node", 3, {}, {}}});
  for (const Topology& topology : {flat, pairs, deep}) {
    for (int turn = 0; turn < 40; ++turn) {
      std::vector<int64_t> held;
      for (int64_t r = 0; r < topology.ranks(); ++r) held.push_back(static_cast<int64_t>(random() % 3));
      const auto shares = even_shares(held, topology);
      const auto moves = token_moves(held, shares, topology);
      std::vector<int64_t> out(held.size(), 0), in(held.size(), 0);
      double cost = 0;
      for (const TokenMove& move : moves) {
        EXPECT_GT(move.count, 0);
        out[static_cast<size_t>(move.from)] += move.count;
        in[static_cast<size_t>(move.to)] += move.count;
        cost += static_cast<double>(move.count) * std::pow(1000.0, topology.common_level(move.from, move.to));
      }
      for (size_t r = 0; r < held.size(); ++r) {
        EXPECT_EQ(out[r], std::max<int64_t>(held[r] - shares[r], 0));
        EXPECT_EQ(in[r], std::max<int64_t>(shares[r] - held[r], 0));
      }
      EXPECT_DOUBLE_EQ(cost, cheapest(held, shares, topology));
    }
  }
}

TEST(Remap, MakesEveryMicroBatchEven) {
  std::mt19937 random(9);
  for (int64_t ranks : {1, 2, 3, 6}) {
    for (int turn = 0; turn < 10; ++turn) {
      std::vector<int64_t> lengths;
      for (int i = 0; i < 9; ++i) lengths.push_back(1 + static_cast<int64_t>(random() % 60));
      const auto samples = samples_of(lengths);
      Layout layout = make_layout("packed", samples, {ranks, 60});
      make_remap(layout, Topology::flat(ranks));
      expect_legal(layout, samples, ranks);
      for (int64_t m = 0; m < layout.micro_batches(); ++m) {
        int64_t least = 1 << 30, most = 0;
        for (const auto& rank : layout.ranks) {
          least = std::min(least, rank[static_cast<size_t>(m)].slots());
          most = std::max(most, rank[static_cast<size_t>(m)].slots());
        }
        EXPECT_LE(most - least, 1);
      }
    }
  }
}

TEST(RandomLayout, IsLegalWhateverTheDraw) {
  bool remapped = false, heads = false, teams = false, across = false, gather = false;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    std::mt19937_64 random(seed);
    LayoutLimits limits{.ranks = 1 + static_cast<int64_t>(seed % 9), .micro_tokens = 64};
    limits.heads = 8, limits.kv_heads = 4;
    std::vector<int64_t> lengths;
    for (int i = 0; i < 8; ++i) lengths.push_back(1 + static_cast<int64_t>(random() % 64));
    const auto samples = samples_of(lengths);
    const Layout layout = random_layout(samples, limits, seed);
    expect_legal(layout, samples, limits.ranks);
    EXPECT_EQ(layout.fingerprint(), random_layout(samples, limits, seed).fingerprint());
    for (const auto& rank : layout.ranks) {
      for (const MicroBatchLayout& batch : rank) {
        EXPECT_LE(batch.slots(), 64);
        EXPECT_LE(batch.attention_slots(), 64);
        remapped |= batch.remapped();
        for (const CutPart& part : batch.cuts) {
          gather |= part.cut->sharing == Sharing::Gather;
          heads |= part.cut->sharing == Sharing::Heads && part.cut->members() > 1;
          teams |= part.cut->team > 1;
          across |= part.cut->keys_across;
        }
      }
    }
  }
  EXPECT_TRUE(remapped && heads && teams && across && gather);
}

// The attention of a cut sequence, laid out by the definition of its ring: member i's queries with every member's keys.
TEST(CutSequence, ZigZagChunksShareTheWorkAndCoverIt) {
  for (int64_t members : {1, 2, 3, 4, 7}) {
    for (int64_t length : {1, 5, 64, 137, 1000}) {
      CutSequence cut{.sample = 1, .length = length};
      cut.ranks.resize(static_cast<size_t>(members));
      const auto spans = [&](int64_t member) {
        std::vector<RowSpan> result;
        for (const Piece& chunk : cut.chunks(member)) result.push_back({0, chunk.length, chunk.begin});
        return result;
      };
      double all = 0, most = 0;
      for (int64_t q = 0; q < members; ++q) {
        double mine = 0;
        for (int64_t k = 0; k < members; ++k) mine += visible_pairs({spans(q), spans(k), 1}, 0);
        all += mine;
        most = std::max(most, mine);
      }
      EXPECT_DOUBLE_EQ(all, causal_pairs(length, 0));
      // Chunks differ by a token, so members by about one row of queries.
      EXPECT_LE(most, all / static_cast<double>(members) + 1.5 * static_cast<double>(length));
    }
  }
}

}  // namespace
}  // namespace ballast
