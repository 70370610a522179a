#include "ballast/plan/topology.h"

#include <gtest/gtest.h>

#include <set>

#include "ballast/base/error.h"

namespace ballast {
namespace {

Topology three_by_five_by_two() { return Topology({{"pair", 3, {}, {}}, {"node", 5, {}, {}}, {"cluster", 2, {}, {}}}); }

TEST(Topology, CoordinatesRebuildTheRank) {
  const Topology t = three_by_five_by_two();
  EXPECT_EQ(t.ranks(), 30);
  for (int64_t rank = 0; rank < 30; ++rank) {
    int64_t again = 0;
    for (int l = 0; l < 3; ++l) again += t.coordinate(rank, l) * t.group_size(l - 1);
    EXPECT_EQ(again, rank);
  }
}

TEST(Topology, ShardsAreNestedAndCoverOnce) {
  const Topology t = three_by_five_by_two();
  for (int level = 0; level < 3; ++level) {
    // Within one group every index appears once; the shard over an outer level lies inside the one over the inner level.
    std::set<int64_t> indices;
    for (int64_t rank = 0; rank < t.group_size(level); ++rank) {
      indices.insert(t.shard_index(rank, level));
      EXPECT_EQ(t.shard_index(rank, level) / t.level(level).size, t.shard_index(rank, level - 1));
    }
    EXPECT_EQ(static_cast<int64_t>(indices.size()), t.group_size(level));
    EXPECT_EQ(*indices.rbegin(), t.group_size(level) - 1);
  }
}

TEST(Topology, TransfersCountAtTheInnermostCommonLevel) {
  const Topology t = three_by_five_by_two();
  EXPECT_EQ(t.common_level(4, 4), kSelf);
  EXPECT_EQ(t.common_level(0, 2), 0);
  EXPECT_EQ(t.common_level(0, 3), 1);
  EXPECT_EQ(t.common_level(2, 14), 1);
  EXPECT_EQ(t.common_level(0, 15), 2);
  EXPECT_EQ(t.hop_members(4, 0), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(t.hop_members(4, 1), (std::vector<int64_t>{1, 4, 7, 10, 13}));
  EXPECT_EQ(t.hop_members(4, 2), (std::vector<int64_t>{4, 19}));
  // A hop over several levels: members in the order of their shards, the innermost coordinate first.
  EXPECT_EQ(t.hop_members(4, kSelf, 0), t.hop_members(4, 0));
  EXPECT_EQ(t.hop_members(4, kSelf, 1), (std::vector<int64_t>{0, 3, 6, 9, 12, 1, 4, 7, 10, 13, 2, 5, 8, 11, 14}));
  EXPECT_EQ(t.hop_members(19, 0, 2), (std::vector<int64_t>{1, 16, 4, 19, 7, 22, 10, 25, 13, 28}));
  for (int64_t rank = 0; rank < t.ranks(); ++rank) {
    const auto members = t.hop_members(rank, kSelf, 2);
    EXPECT_EQ(members[static_cast<size_t>(t.hop_index(rank, kSelf, 2))], rank);
    EXPECT_EQ(t.hop_index(rank, kSelf, 2), t.shard_index(rank, 2));
  }
  EXPECT_EQ(t.hop_peers(kSelf, 1, 0), 2);
  EXPECT_EQ(t.hop_peers(kSelf, 1, 1), 12);
  EXPECT_EQ(t.hop_peers(0, 2, 1), 4);
  EXPECT_EQ(t.hop_peers(0, 2, 2), 5);
  EXPECT_EQ(t.hop_peers(0, 2, 0), 0);
}

TEST(Topology, RefusesWhatIsImpossible) {
  EXPECT_THROW(Topology({}), Error);
  EXPECT_THROW(Topology({{"a", 0, {}, {}}}), Error);
  EXPECT_THROW(Topology({{"a", 2, {}, {}}, {"a", 2, {}, {}}}), Error);
  EXPECT_THROW(Topology({{"self", 2, {}, {}}}), Error);
  EXPECT_THROW(Topology({{"a", 2, 0.0, {}}}), Error);
  EXPECT_THROW(Topology({{"a", 1000000, {}, {}}, {"b", 1000000, {}, {}}}), Error);
  try {
    three_by_five_by_two().find("nod");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'node'"), std::string::npos);
  }
}

}  // namespace
}  // namespace ballast
