#include "ballast/layout/policies.h"

#include <gtest/gtest.h>

#include <random>

#include "ballast/base/error.h"
#include "ballast/layout/parts.h"
#include "ballast/layout/report.h"
#include "layout/layout_check.h"

namespace ballast {
namespace {

TEST(LayoutPolicies, EveryTokenOnceWithinCapacityWithEqualMicroBatches) {
  std::mt19937 random(5);
  for (const std::string& policy : layout_policies()) {
    for (int64_t ranks : {1, 2, 3, 5, 8}) {
      for (int count : {1, 2, 7, 60}) {
        std::vector<int64_t> lengths;
        for (int i = 0; i < count; ++i) lengths.push_back(1 + static_cast<int64_t>(random() % 64));
        const auto samples = samples_of(lengths);
        const Layout layout = make_layout(policy, samples, {ranks, 64});
        expect_legal(layout, samples, ranks);
        for (const auto& rank : layout.ranks) {
          for (const MicroBatchLayout& batch : rank) EXPECT_LE(batch.slots(), 64);
        }
        if (policy == "packed") { EXPECT_EQ(layout.slots(), layout.tokens()); }
      }
    }
  }
}

TEST(LayoutPolicies, LargestPartIsThatOfTheChunks) {
  for (int64_t members = 1; members <= 40; ++members) {
    for (int64_t length = 0; length <= 6 * members + 7; ++length) {
      int64_t most = 0;
      for (int64_t member = 0; member < members; ++member) {
        const auto [first, second] = zigzag_chunks(length, members, member);
        most = std::max(most, first.length + second.length);
      }
      ASSERT_EQ(largest_part(length, members), most) << length << " over " << members;
    }
  }
}

// The options under which ranks share sequences.
std::vector<LayoutLimits> sharings(int64_t ranks) {
  LayoutLimits ring{.ranks = ranks}, never = ring, always = ring, team = ring, heads = ring, slots = ring;
  never.options.remap = Remap::Never, always.options.remap = Remap::Always;
  team.options.team = 2, team.options.remap = Remap::Never;
  heads.options.sharing = Sharing::Heads, heads.options.remap = Remap::Never, heads.heads = 12, heads.kv_heads = 6;
  slots.options.attention_tokens = 3;
  return {ring, never, always, team, heads, slots};
}

// Parts of short sequences do not fall evenly with the ranks that share them (largest_part), so the longest is not always the one that needs most.
TEST(LayoutPolicies, LeastMicroTokensHoldEveryLengthAndNoLessDo) {
  const auto fits = [](const std::string& policy, int64_t length, const LayoutLimits& limits) {
    try {
      const Layout layout = make_layout(policy, samples_of({length}), limits);
      for (const auto& rank : layout.ranks) for (const MicroBatchLayout& batch : rank) EXPECT_LE(batch.slots(), limits.micro_tokens);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      return false;
    }
  };
  for (const std::string& policy : layout_policies()) {
    for (int64_t ranks : {1, 2, 3, 4, 8}) {
      for (LayoutLimits limits : sharings(ranks)) {
        for (int64_t longest : {1, 2, 3, 4, 5, 11, 27}) {
          SCOPED_TRACE(policy + " of " + std::to_string(longest) + " over " + std::to_string(ranks) + ", sharing " + name_of(limits.options.sharing));
          int64_t least = 0;
          try {
            least = least_micro_tokens(policy, longest, limits);
          } catch (const Error&) {   // no micro_tokens will do
            limits.micro_tokens = 1000;
            EXPECT_FALSE(fits(policy, longest, limits));
            continue;
          }
          limits.micro_tokens = least;
          for (int64_t length = 1; length <= longest; ++length) EXPECT_TRUE(fits(policy, length, limits)) << length;
          if (least == 1) continue;
          limits.micro_tokens = least - 1;
          bool all = true;
          for (int64_t length = 1; length <= longest; ++length) all = fits(policy, length, limits) && all;
          EXPECT_FALSE(all);
        }
      }
    }
  }
}

TEST(LayoutPolicies, NoPolicyExceedsATightCapacity) {
  std::mt19937_64 random(7);
  for (int64_t ranks : {3, 8, 40}) {
    for (LayoutLimits limits : sharings(ranks)) {
      limits.topology = ranks == 3 ? Topology::flat(3) : Topology({{"gpu", 2, {}, {}}, {"node", ranks / 2, {}, {}}});
      for (int turn = 0; turn < 12; ++turn) {
        std::vector<int64_t> lengths;
        const int64_t longest = 2 + static_cast<int64_t>(random() % 6);
        for (int i = 0; i < 30; ++i) lengths.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(longest)));
        const auto samples = samples_of(lengths);
        for (const std::string& policy : layout_policies()) {
          try {
            limits.micro_tokens = least_micro_tokens(policy, longest, limits) + turn % 2;
          } catch (const Error&) {
            continue;   // this many ranks cannot share so
          }
          SCOPED_TRACE(policy + " over " + std::to_string(ranks) + ", micro_tokens " + std::to_string(limits.micro_tokens) + ", longest " + std::to_string(longest));
          const Layout layout = make_layout(policy, samples, limits);
          expect_legal(layout, samples, ranks);
          for (const auto& rank : layout.ranks) {
            for (const MicroBatchLayout& batch : rank) {
              EXPECT_LE(batch.slots(), limits.micro_tokens);
              const int64_t attention = limits.options.attention_tokens > 0 ? limits.options.attention_tokens : 2 * limits.micro_tokens;
              EXPECT_LE(batch.attention_slots(), batch.remapped() ? attention : limits.micro_tokens);
            }
          }
        }
      }
    }
  }
}

TEST(LayoutPolicies, PackedFindsATightFit) {
  // The least filled bin first leaves 6 homeless; best fit does not: 6+4, 5+5.
  const Layout tight = make_layout("packed", samples_of({6, 5, 5, 4}), {2, 10});
  EXPECT_EQ(tight.micro_batches(), 1);
  EXPECT_DOUBLE_EQ(describe_layout(tight, {2, 10}).token_imbalance, 1.0);
  // 7 5 5 3: spread gives 7|5, 5 -> 5+5, 3 -> 7+3.
  EXPECT_EQ(make_layout("packed", samples_of({7, 5, 5, 3}), {2, 10}).micro_batches(), 1);
  // Spread alone puts 4 and 3 apart (6+3, 4+3+..) and fails; best fit finds 6+4 and 3+3+2+2.
  EXPECT_EQ(make_layout("packed", samples_of({6, 4, 3, 3, 2, 2}), {2, 10}).micro_batches(), 1);
}

TEST(LayoutPolicies, PaddedRowsAreAsWideAsTheLongest) {
  const Layout layout = make_layout("padded", samples_of({3, 5, 2, 8}), {1, 16});
  EXPECT_EQ(layout.micro_batches(), 2);
  EXPECT_EQ(layout.ranks[0][0].slots(), 15);
  EXPECT_EQ(layout.ranks[0][1].slots(), 8);
  EXPECT_EQ(layout.tokens(), 18);
}

TEST(LayoutPolicies, RefusesWhatDoesNotFitAndUnknownNames) {
  try {
    make_layout("packed", samples_of({4, 17}), {2, 16});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_NE(std::string(error.what()).find("17"), std::string::npos);
  }
  EXPECT_THROW(make_layout("packd", samples_of({1}), {1, 16}), Error);
  EXPECT_THROW(make_layout("packed", samples_of({0}), {1, 16}), Error);
}

TEST(LayoutPolicies, FingerprintTellsLayoutsApart) {
  const Layout a = make_layout("packed", samples_of({3, 5, 2, 8}), {2, 16});
  EXPECT_EQ(a.fingerprint(), make_layout("packed", samples_of({3, 5, 2, 8}), {2, 16}).fingerprint());
  EXPECT_NE(a.fingerprint(), make_layout("packed", samples_of({3, 5, 2, 7}), {2, 16}).fingerprint());
  EXPECT_NE(a.fingerprint(), make_layout("padded", samples_of({3, 5, 2, 8}), {2, 16}).fingerprint());
}

}  // namespace
}  // namespace ballast
