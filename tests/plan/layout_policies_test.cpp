#include "ballast/plan/layout_policies.h"

#include <gtest/gtest.h>

#include <random>

#include "ballast/plan/layout_report.h"
#include "ballast/base/error.h"
#include "plan/layout_check.h"

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
