// Selection: a bijective order per epoch, every sample once, independent of where a run was cut, weights kept.
#include "ballast/layout/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "ballast/base/error.h"
#include "ballast/layout/policies.h"

namespace ballast {
namespace {

// Stream s holds samples with the given lengths; sample keys are s << 32 | index; every input token but the first is
// trained.
class Lengths : public SampleIndex {
 public:
  explicit Lengths(std::vector<std::vector<int64_t>> lengths, std::vector<double> weights = {})
      : lengths_(std::move(lengths)), weights_(std::move(weights)) {}
  int64_t streams() const override { return static_cast<int64_t>(lengths_.size()); }
  double weight(int64_t s) const override { return weights_.empty() ? 1 : weights_[static_cast<size_t>(s)]; }
  int64_t samples(int64_t s) const override { return static_cast<int64_t>(lengths_[static_cast<size_t>(s)].size()); }
  SampleRef sample(int64_t s, int64_t i) const override {
    return {static_cast<uint64_t>(s) << 32 | static_cast<uint64_t>(i),
            lengths_.at(static_cast<size_t>(s)).at(static_cast<size_t>(i))};
  }
  int64_t trained_targets(uint64_t key) const override { return lengths_.at(key >> 32).at(key & 0xffffffff) - 1; }
  int64_t tokens_per_epoch() const override {
    int64_t sum = 0;
    for (const auto& stream : lengths_) sum = std::accumulate(stream.begin(), stream.end(), sum);
    return sum;
  }
  uint64_t fingerprint() const override { return 1; }

 private:
  std::vector<std::vector<int64_t>> lengths_;
  std::vector<double> weights_;
};

std::vector<int64_t> ragged(int64_t n) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < n; ++i) lengths.push_back(1 + i * i % 17);
  return lengths;
}

TEST(Permutation, IsABijectionForEveryN) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 64, 100, 1009, 65536, 100003}) {
    for (const uint64_t epoch : {0, 1}) {
      const Permutation p(n, 7, epoch);
      std::vector<bool> seen(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        const int64_t x = p(i);
        ASSERT_GE(x, 0);
        ASSERT_LT(x, n);
        ASSERT_FALSE(seen[static_cast<size_t>(x)]) << "n " << n << " value " << x;
        seen[static_cast<size_t>(x)] = true;
      }
    }
  }
}

TEST(Permutation, IsFrozen) {
  // A change here reorders every run that is resumed: it needs a new cursor version.
  const Permutation p(10, 1, 0);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 10; ++i) order.push_back(p(i));
  EXPECT_EQ(order, (std::vector<int64_t>{5, 3, 8, 6, 9, 4, 2, 7, 1, 0}));
}

TEST(Permutation, AllOrdersOfFourComeEquallyOften) {
  std::map<std::vector<int64_t>, int> count;
  for (uint64_t epoch = 0; epoch < 24000; ++epoch) {
    const Permutation p(4, 3, epoch);
    ++count[{p(0), p(1), p(2), p(3)}];
  }
  ASSERT_EQ(count.size(), 24u);
  // 24 cells of expected 1000: chi-square with 23 degrees of freedom stays below 58 except once in 1e4; the seed is
  // fixed.
  double chi = 0;
  for (const auto& [order, n] : count) chi += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi, 58);
}

TEST(Permutation, PositionsOfALargeDomainAreUniform) {
  const int64_t n = 100'000'000;
  const Permutation p(n, 11, 2);
  std::vector<int> bins(100);
  for (int64_t i = 0; i < 10000; ++i) ++bins[static_cast<size_t>(p(i) / (n / 100))];
  double chi = 0;
  for (const int b : bins) chi += (b - 100.0) * (b - 100.0) / 100.0;
  EXPECT_LT(chi, 160);  // 99 degrees of freedom
  std::set<int64_t> values;
  for (int64_t i = n - 1000; i < n; ++i) values.insert(p(i));
  EXPECT_EQ(values.size(), 1000u);
}

TEST(Selection, EverySampleOncePerEpochAndOrderChangesBetweenEpochs) {
  const Lengths data({ragged(101)});
  Selector selector(data, 5, 40);
  std::vector<uint64_t> taken;
  while (taken.size() < 303) {
    const Selection step = selector.next();
    int64_t tokens = 0;
    for (const SampleRef& s : step) taken.push_back(s.sample), tokens += s.length;
    ASSERT_FALSE(step.empty());
    ASSERT_LE(tokens, 40);
  }
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    const std::set<uint64_t> once(taken.begin() + static_cast<long>(101 * epoch),
                                  taken.begin() + static_cast<long>(101 * (epoch + 1)));
    EXPECT_EQ(once.size(), 101u);
  }
  EXPECT_NE(std::vector<uint64_t>(taken.begin(), taken.begin() + 101),
            std::vector<uint64_t>(taken.begin() + 101, taken.begin() + 202));
}

TEST(Selection, IsGreedyTheNextSampleWouldExceedTheBatch) {
  const Lengths data({ragged(50)});
  Selector selector(data, 9, 33);
  Selection before = selector.next();
  for (int i = 0; i < 40; ++i) {
    const Selection after = selector.next();
    EXPECT_GT(tokens_of(before) + after.front().length, 33);
    before = after;
  }
}

TEST(Selection, ASampleLongerThanTheBatchGoesAlone) {
  const Lengths data({{100, 100, 100}});
  Selector selector(data, 1, 10);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(selector.next().size(), 1u);
  EXPECT_EQ(selector.cursor().streams[0].epoch, 2);
  EXPECT_EQ(selector.cursor().tokens, 600);
}

TEST(Selection, AStepFlowsOnIntoTheNextEpoch) {
  const Lengths data({{2, 2, 2}});
  Selector selector(data, 1, 8);
  EXPECT_EQ(selector.next().size(), 4u);
  EXPECT_EQ(selector.cursor().streams[0].epoch, 1);
  EXPECT_EQ(selector.cursor().streams[0].index, 1);
  EXPECT_EQ(selector.cursor().epochs(data), 1);
}

TEST(Selection, ResumesExactlyFromAWrittenCursor) {
  const Lengths data({ragged(37), ragged(11)}, {3, 1});
  Selector whole(data, 5, 50);
  std::vector<std::vector<uint64_t>> expected;
  std::vector<std::string> cursors;
  for (int i = 0; i < 60; ++i) {
    cursors.push_back(whole.cursor().json());
    expected.emplace_back();
    for (const SampleRef& s : whole.next()) expected.back().push_back(s.sample);
  }
  for (int cut = 0; cut < 60; cut += 7) {
    Selector resumed(data, 5, 50, Cursor::parse(cursors[static_cast<size_t>(cut)]));
    for (int i = cut; i < 60; ++i) {
      std::vector<uint64_t> got;
      for (const SampleRef& s : resumed.next()) got.push_back(s.sample);
      ASSERT_EQ(got, expected[static_cast<size_t>(i)]) << "cut " << cut << " step " << i;
    }
    EXPECT_EQ(resumed.cursor(), whole.cursor());
  }
}

TEST(Selection, StepsHoldTheSameSamplesAtEveryWorldSizeAndGoOnAtAnother) {
  std::vector<int64_t> lengths = ragged(60);
  for (size_t i = 0; i < lengths.size(); i += 9) lengths[i] = 150 + static_cast<int64_t>(i);
  const Lengths data({lengths});
  // Tokens by sample: of a selection, and of what a balanced layout gives all ranks together, for the linear modules and for attention.
  using Tokens = std::map<uint64_t, int64_t>;
  const auto selected = [](const Selection& selection) {
    Tokens tokens;
    for (const SampleRef& one : selection) tokens[one.sample] += one.length;
    return tokens;
  };
  const auto expect_laid_out = [&](const Selection& selection, int64_t ranks) {
    const Layout layout = make_layout("balanced", selection, {.ranks = ranks, .micro_tokens = 600 / ranks});
    Tokens linear, attended;
    for (const auto& rank : layout.ranks) {
      for (const MicroBatchLayout& batch : rank) {
        for (const Piece& piece : batch.pieces) linear[piece.sample] += piece.length;
        for (const Piece& piece : batch.attention_pieces()) attended[piece.sample] += piece.length;
      }
    }
    EXPECT_EQ(linear, selected(selection)) << ranks << " ranks";
    EXPECT_EQ(attended, selected(selection)) << ranks << " ranks";
  };
  Selector whole(data, 5, 500);
  Selector before(data, 5, 500);
  std::vector<Tokens> steps;
  for (int step = 0; step < 12; ++step) {
    const Selection selection = whole.next();
    steps.push_back(selected(selection));
    for (const int64_t ranks : {1, 2, 3}) expect_laid_out(selection, ranks);
  }
  for (size_t step = 0; step < 5; ++step) {
    const Selection selection = before.next();
    EXPECT_EQ(selected(selection), steps[step]);
    expect_laid_out(selection, 2);
  }
  Selector after(data, 5, 500, Cursor::parse(before.cursor().json()));
  for (size_t step = 5; step < steps.size(); ++step) {
    const Selection selection = after.next();
    EXPECT_EQ(selected(selection), steps[step]) << "step " << step + 1;
    expect_laid_out(selection, 3);
  }
  EXPECT_EQ(after.cursor(), whole.cursor());
}

TEST(Selection, SeedsDiffer) {
  const Lengths data({ragged(64)});
  const auto order = [&](uint64_t seed) {
    Selector selector(data, seed, 1000);
    std::vector<uint64_t> keys;
    for (const SampleRef& s : selector.next()) keys.push_back(s.sample);
    return keys;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(Selection, WeightsAreSharesOfTrainedTargets) {
  const Lengths data({ragged(200), std::vector<int64_t>(10, 30), ragged(55)}, {0.7, 0.2, 0.1});
  Selector selector(data, 3, 500);
  for (int i = 0; i < 400; ++i) selector.next();
  std::vector<double> trained;
  for (const auto& s : selector.cursor().streams) trained.push_back(static_cast<double>(s.trained));
  const double sum = trained[0] + trained[1] + trained[2];
  // The stream furthest behind is drawn next, so each stays within one sample (30 targets) over its weight of its
  // share.
  const double bound = 30 / 0.1 / sum;
  EXPECT_NEAR(trained[0] / sum, 0.7, bound);
  EXPECT_NEAR(trained[1] / sum, 0.2, bound);
  EXPECT_NEAR(trained[2] / sum, 0.1, bound);
  EXPECT_LT(bound, 0.01);
}

TEST(Selection, SamplesWithoutTargetsDoNotHoldTheMixture) {
  const Lengths data({{1, 1}, {5, 5}}, {1, 1});
  Selector selector(data, 3, 12);
  for (int i = 0; i < 50; ++i) selector.next();
  EXPECT_GT(selector.cursor().streams[1].trained, 100);
}

TEST(Selection, InOrderGivesEveryStreamOnceAndEnds) {
  const Lengths data({{3, 3, 3}, {4}});
  int64_t next = 0;
  std::vector<size_t> sizes;
  std::vector<uint64_t> keys;
  while (true) {
    const Selection batch = select_in_order(data, 7, next);
    if (batch.empty()) break;
    sizes.push_back(batch.size());
    for (const SampleRef& s : batch) keys.push_back(s.sample);
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 2}));
  EXPECT_EQ(keys, (std::vector<uint64_t>{0, 1, 2, 1ULL << 32}));
  EXPECT_EQ(next, 4);
}

TEST(Cursor, CorruptTextsAreTypedErrors) {
  Cursor good;
  good.streams = {{1, 2, 3}};
  good.steps = 4, good.samples = 5, good.tokens = 6;
  EXPECT_EQ(Cursor::parse(good.json()), good);
  for (const char* text :
       {"", "[]", "{", "{}", R"({"steps":-1,"samples":0,"tokens":0,"streams":[]})",
        R"({"steps":1.5,"samples":0,"tokens":0,"streams":[]})", R"({"steps":1,"samples":0,"tokens":0})",
        R"({"steps":1,"samples":0,"tokens":0,"streams":[3]})",
        R"({"steps":1,"samples":0,"tokens":0,"streams":[{"epoch":0,"index":"a","trained":0}]})",
        R"({"steps":18446744073709551615,"samples":0,"tokens":0,"streams":[]})"}) {
    try {
      Cursor::parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::CorruptFile) << text;
    }
  }
}

TEST(Cursor, ThatDoesNotFitTheDataIsRefused) {
  const Lengths data({{3, 3, 3}});
  Cursor beyond;
  beyond.streams = {{0, 3, 0}};
  EXPECT_THROW(Selector(data, 1, 10, beyond), Error);
  Cursor two;
  two.streams.resize(2);
  EXPECT_THROW(Selector(data, 1, 10, two), Error);
  EXPECT_THROW(Selector(Lengths(std::vector<std::vector<int64_t>>{{}}), 1, 10), Error);
}

}  // namespace
}  // namespace ballast
