// The balanced layout: what it promises whatever the lengths, ranks, topology and options.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "ballast/base/error.h"
#include "ballast/layout/balance.h"
#include "ballast/layout/report.h"
#include "ballast/layout/sharing_cost.h"
#include "layout/layout_check.h"
#include "layout/random_layout.h"

namespace ballast {
namespace {

int64_t total_tokens(std::span<const SampleRef> samples) {
  int64_t sum = 0;
  for (const SampleRef& sample : samples) sum += sample.length;
  return sum;
}

// A few topologies of one to four levels, odd sizes among them.
std::vector<Topology> topologies() {
  return {Topology::flat(1), Topology::flat(2), Topology::flat(7), Topology({{"gpu", 2, {}, {}}, {"node", 2, {}, {}}}),
          Topology({{"gpu", 3, {}, {}}, {"node", 5, {}, {}}, {"rack", 2, {}, {}}}), Topology({{"gpu", 1, {}, {}}, {"node", 4, {}, {}}}),
          Topology({{"die", 2, {}, {}}, {"gpu", 2, {}, {}}, {"node", 3, {}, {}}, {"rack", 2, {}, {}}})};
}

BalanceTask task_of(const LayoutLimits& limits, const Topology& topology) {
  BalanceTask task{limits, topology, limits.micro_tokens, 0, {}};
  for (int64_t members = 2; members <= limits.ranks; ++members) task.members.push_back(members);
  return task;
}

double slowest(const Balance& balance) { return *std::max_element(balance.load.begin(), balance.load.end()); }

TEST(Balanced, KeepsEveryTokenWithinCapacityOnAnyTopology) {
  std::mt19937_64 random(11);
  std::lognormal_distribution<double> heavy(3.0, 1.4);
  const std::vector<std::function<int64_t()>> kinds = {[] { return int64_t{1}; }, [&] { return 1 + static_cast<int64_t>(random() % 97); },
                                                       [&] { return 1 + std::min<int64_t>(250, static_cast<int64_t>(heavy(random))); }};
  for (const Topology& topology : topologies()) {
    for (const auto& length : kinds) {
      for (const int count : {0, 1, 3, 40}) {
        std::vector<int64_t> lengths;
        for (int i = 0; i < count; ++i) lengths.push_back(length());
        const auto samples = samples_of(lengths);
        for (const Remap remap : {Remap::Auto, Remap::Always, Remap::Never}) {
          for (const int64_t capacity : {256, 300}) {
            LayoutLimits limits{.ranks = topology.ranks(), .micro_tokens = capacity};
            limits.topology = topology;
            limits.options.remap = remap;
            const Layout layout = make_layout("balanced", samples, limits);
            expect_legal(layout, samples, topology.ranks());
            EXPECT_EQ(layout.slots(), layout.tokens());
            for (const auto& rank : layout.ranks) {
              for (const MicroBatchLayout& batch : rank) {
                EXPECT_LE(batch.slots(), capacity);
                EXPECT_LE(batch.attention_slots(), batch.remapped() ? 2 * capacity : capacity);
                for (const CutPart& part : batch.cuts) {
                  EXPECT_GE(part.cut->members(), 2);
                  EXPECT_EQ(part.cut->level, common_level(part.cut->ranks, topology));
                }
              }
            }
            EXPECT_EQ(layout.fingerprint(), make_layout("balanced", samples, limits).fingerprint());
          }
        }
      }
    }
  }
}

TEST(Balanced, HoldsASequenceLongerThanAllOthersTogether) {
  std::vector<int64_t> lengths(30, 5);
  lengths.push_back(3001);
  const auto samples = samples_of(lengths);
  LayoutLimits limits{.ranks = 30, .micro_tokens = 106};
  limits.topology = Topology({{"gpu", 3, {}, {}}, {"node", 5, {}, {}}, {"rack", 2, {}, {}}});
  for (const Remap remap : {Remap::Always, Remap::Never}) {
    limits.options.remap = remap;
    const Layout layout = make_layout("balanced", samples, limits);
    EXPECT_EQ(layout.micro_batches(), 1);
    expect_legal(layout, samples, 30);
  }
}

TEST(Balanced, CutsOutermostFirst) {
  LayoutLimits limits{.ranks = 8, .micro_tokens = 1000};
  limits.topology = Topology({{"gpu", 2, {}, {}}, {"node", 4, {}, {}}});
  const auto samples = samples_of({900, 4000, 500, 500, 500, 480, 30, 30, 20, 1000});
  const Layout layout = make_layout("balanced", samples, limits);
  expect_legal(layout, samples, 8);
  bool outer = false;
  for (const auto& rank : layout.ranks) {
    int level = 9;
    for (const CutPart& part : rank[0].cuts) {
      EXPECT_LE(part.cut->level, level);
      level = part.cut->level;
      outer |= level == 1;
    }
  }
  EXPECT_TRUE(outer);
}

// A list with the shares of documents by tokens of the histogram that SandAI-org/MagiAttention publishes (Apache-2.0).
std::vector<int64_t> histogram_lengths(int64_t count, int64_t longest, uint64_t seed) {
  struct Bin {
    int64_t from, to;
    double percent;
  };
  constexpr Bin kBins[] = {{1, 10, .22},        {11, 50, 2.91},       {51, 100, 5.20},       {101, 200, 10.23},     {201, 500, 28.19},
                           {501, 1000, 24.64},  {1001, 2000, 15.65},  {2001, 4000, 7.34},    {4001, 8000, 3.05},    {8001, 16000, 1.29},
                           {16001, 32000, .85}, {32001, 64000, .14},  {64001, 128000, .17},  {128001, 192000, .14}};
  std::vector<double> weights;
  for (const Bin& bin : kBins) weights.push_back(bin.percent);
  std::mt19937_64 random(seed);
  std::discrete_distribution<size_t> pick(weights.begin(), weights.end());
  std::vector<int64_t> lengths;
  while (static_cast<int64_t>(lengths.size()) < count) {
    const Bin& bin = kBins[pick(random)];
    const int64_t length = bin.from + static_cast<int64_t>(random() % static_cast<uint64_t>(bin.to - bin.from + 1));
    if (length <= longest) lengths.push_back(length);
  }
  return lengths;
}

TEST(Balanced, HeavyTailedListsAreEvenOver64Ranks) {
  LayoutLimits limits{.ranks = 64, .micro_tokens = 8192};
  limits.topology = Topology({{"gpu", 8, {}, {}}, {"node", 8, {}, {}}});
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto samples = longest_first(samples_of(histogram_lengths(200, 131072, seed)));
    BalanceTask task = task_of(limits, *limits.topology);
    task.capacity = 2 * limits.micro_tokens;
    const auto found = balance(task, samples);
    ASSERT_TRUE(found);
    EXPECT_LE(slowest(*found) / found->mean, 1.03) << seed;
    EXPECT_EQ(make_layout("balanced", samples, limits).micro_batches(), 1 + (total_tokens(samples) - 1) / (64 * 8192));
  }
}

TEST(Balanced, IsNeverWorseThanLongestFirst) {
  std::mt19937_64 random(4);
  for (const Topology& topology : topologies()) {
    for (int turn = 0; turn < 30; ++turn) {
      std::vector<int64_t> lengths;
      const int count = 1 + static_cast<int>(random() % 30);
      for (int i = 0; i < count; ++i) lengths.push_back(1 + static_cast<int64_t>(std::exp(static_cast<double>(random() % 600) / 100)));
      const auto samples = longest_first(samples_of(lengths));
      LayoutLimits limits{.ranks = topology.ranks(), .micro_tokens = 600};
      const BalanceTask task = task_of(limits, topology);
      const auto whole = balance_longest_first(task, samples);
      const auto found = balance(task, samples);
      if (!whole) continue;
      ASSERT_TRUE(found);
      EXPECT_LE(slowest(*found), slowest(*whole));
      EXPECT_GE(slowest(*found), found->mean * (1 - 1e-9));
    }
  }
}

// The least possible load of the slowest rank where nothing may be cut.
double best_whole(const std::vector<double>& costs, size_t ranks) {
  double best = 1e300;
  std::vector<double> load(ranks, 0.0);
  const std::function<void(size_t)> go = [&](size_t i) {
    const double most = *std::max_element(load.begin(), load.end());
    if (most >= best) return;
    if (i == costs.size()) {
      best = most;
      return;
    }
    for (double& one : load) {
      one += costs[i];
      go(i + 1);
      one -= costs[i];
    }
  };
  go(0);
  return best;
}

TEST(Balanced, IsAsGoodAsTheBestWholeDivisionOfSmallCases) {
  std::mt19937_64 random(21);
  for (int64_t ranks : {2, 3}) {
    const Topology topology = Topology::flat(ranks);
    for (int turn = 0; turn < 200; ++turn) {
      std::vector<int64_t> lengths;
      const int count = 2 + static_cast<int>(random() % 7);
      for (int i = 0; i < count; ++i) lengths.push_back(20 + static_cast<int64_t>(random() % 400));
      const auto samples = longest_first(samples_of(lengths));
      LayoutLimits limits{.ranks = ranks, .micro_tokens = 10000};
      std::vector<double> costs;
      for (const SampleRef& sample : samples) costs.push_back(limits.cost.attention_s(sample.length));
      const double best = best_whole(costs, static_cast<size_t>(ranks));
      const auto cut = balance(task_of(limits, topology), samples);
      ASSERT_TRUE(cut);
      EXPECT_LE(slowest(*cut), std::max(best, 1.011 * cut->mean) * (1 + 1e-9));   // free links: a cut makes up for what moves do not
      BalanceTask whole = task_of(limits, topology);
      whole.members.clear();
      const auto moved = balance(whole, samples);
      ASSERT_TRUE(moved);
      EXPECT_NEAR(slowest(*moved), best, 1e-9 * best);
    }
  }
}

// The least seconds of the slowest rank, by trying every rank and every ring for every sequence; infinity where tokens find no room.
double best_of_all(const BalanceTask& task, const std::vector<SampleRef>& samples) {
  const auto ranks = static_cast<size_t>(task.topology.ranks());
  std::vector<double> load(ranks, 0.0), link(ranks, 0.0);   // load: an equal share of a ring's tokens
  std::vector<int64_t> tokens(ranks, 0);
  double best = 1e300;
  const std::function<void(size_t)> go = [&](size_t i) {
    if (i == samples.size()) {
      double most = 0;
      for (size_t r = 0; r < ranks; ++r) most = std::max({most, load[r], task.token_s * static_cast<double>(tokens[r]) + link[r]});
      best = std::min(best, most);
      return;
    }
    for (unsigned set = 1; set < 1u << ranks; ++set) {
      CutSequence cut{.length = samples[i].length};
      for (size_t r = 0; r < ranks; ++r) if ((set >> r & 1) != 0) cut.ranks.push_back(static_cast<int64_t>(r));
      if (cut.members() > 1 && task.members.empty()) continue;
      cut.level = common_level(cut.ranks, task.topology);
      const double share = static_cast<double>(cut.length) / static_cast<double>(cut.members());
      const double work = task.limits.cost.attention_s(cut.length, cut.members()) + task.token_s * share, send = sharing_s(task.limits.cost, cut, task.topology, true);
      const auto change = [&](int sign) {
        bool fits = true;
        for (int64_t member = 0; member < cut.members(); ++member) {
          const auto r = static_cast<size_t>(cut.ranks[static_cast<size_t>(member)]);
          const auto [first, second] = cut.chunks(member);
          load[r] += sign * work, link[r] += sign * send, tokens[r] += sign * (first.length + second.length);
          fits &= tokens[r] <= task.capacity;
        }
        return fits;
      };
      if (change(1)) go(i + 1);
      change(-1);
    }
  };
  go(0);
  return best;
}

TEST(Balanced, EqualsTheBestOfAllDivisionsOfSmallCases) {
  std::mt19937_64 random(5);
  int64_t refused = 0, cut = 0, even = 0, uneven = 0;
  const Topology pairs({{"gpu", 2, {}, {}}, {"node", 2, {}, {}}});
  for (const auto& [topology, most] : std::vector<std::pair<Topology, uint64_t>>{{Topology::flat(2), 8}, {Topology::flat(3), 5}, {pairs, 3}}) {
    for (int turn = 0; turn < 60; ++turn) {
      std::vector<int64_t> lengths;
      const uint64_t count = 1 + random() % most;
      for (uint64_t i = 0; i < count; ++i) lengths.push_back(1 + static_cast<int64_t>(random() % 300));
      const auto samples = longest_first(samples_of(lengths));
      LayoutLimits limits{.ranks = topology.ranks()};
      const int64_t room = 1 + total_tokens(samples) / limits.ranks;
      limits.micro_tokens = turn % 3 == 0 ? room : turn % 3 == 1 ? room + 40 : 10000;
      if (turn % 4 != 0) limits.cost.links = {Curve::rate(std::pow(10.0, 6 + turn % 5), 1e-6), Curve::rate(std::pow(10.0, 5 + turn % 5), 1e-5)};
      for (const bool whole : {false, true}) {
        BalanceTask task = task_of(limits, topology);
        task.token_s = turn % 2 == 0 ? 0 : 1e-6;
        if (whole) task.members.clear();
        const double best = best_of_all(task, samples);
        const auto found = balance(task, samples);
        ASSERT_EQ(found.has_value(), best < 1e299) << "turn " << turn;
        if (!found) {
          ++refused;
          continue;
        }
        const double least = (whole ? 1 : 1.002) * found->mean;   // below it divisions that cut are equal
        EXPECT_NEAR(std::max(found->seconds, least), std::max(best, least), 1e-9 * best) << "turn " << turn << (whole ? ", whole" : "");
        (best <= least ? even : uneven) += 1;
        cut += static_cast<int64_t>(found->rings.size());
      }
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(cut, 50);
  EXPECT_GT(even, 20);
  EXPECT_GT(uneven, 100);
}

TEST(Balanced, SlowLinksKeepSequencesWhole) {
  const auto samples = samples_of({1000, 700, 600, 500});
  LayoutLimits limits{.ranks = 2, .micro_tokens = 2000};
  limits.options.remap = Remap::Never;
  EXPECT_GT(make_layout("balanced", samples, limits).ranks[0][0].cuts.size(), 0u);
  limits.cost.links = {Curve::rate(1e6, 1e-3)};
  EXPECT_EQ(make_layout("balanced", samples, limits).ranks[0][0].cuts.size(), 0u);
}

TEST(Balanced, IsPredictedNoSlowerThanSimplerLayouts) {
  std::mt19937_64 random(8);
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < 24; ++i) lengths.push_back(1 + static_cast<int64_t>(random() % 250));
    const auto samples = samples_of(lengths);
    LayoutLimits limits{.ranks = 6, .micro_tokens = 256 + static_cast<int64_t>(random() % 500)};
    limits.topology = Topology({{"gpu", 3, {}, {}}, {"node", 2, {}, {}}});
    limits.cost.links = {Curve::rate(std::pow(10.0, 6 + static_cast<double>(turn % 6)), 1e-5), Curve::rate(std::pow(10.0, 5 + static_cast<double>(turn % 6)), 1e-4)};
    if (turn % 2 == 0) limits.cost.attention = Curve::rate(1e9), limits.cost.linear = Curve::rate(1e6, 1e-4);   // what a micro-batch costs whatever it holds
    const LayoutReport report = describe_layout(make_layout("balanced", samples, limits), limits);
    for (const char* other : {"packed", "longest-first", "hybrid", "context-parallel"}) {   // but for what lies within 3 % of the least possible
      const double its = describe_layout(make_layout(other, samples, limits), limits).step_s;
      EXPECT_LE(report.step_s, std::max(its * (1 + 1e-9), 1.03 * report.lower_bound_s)) << other << " " << turn;
    }
  }
}

TEST(Balanced, RemapsWhereThatIsFaster) {
  std::vector<int64_t> lengths(20, 500);
  lengths.push_back(4000);
  const auto samples = samples_of(lengths);
  LayoutLimits limits{.ranks = 2, .micro_tokens = 7500};   // too little for all short ones on one rank
  limits.options.sharing = Sharing::Heads, limits.heads = 1, limits.kv_heads = 1;   // nothing may be cut
  limits.cost.attention = Curve::rate(1e7);
  Layout layout = make_layout("balanced", samples, limits);
  ASSERT_TRUE(layout.ranks[0][0].remapped());
  EXPECT_EQ(layout.ranks[0][0].slots(), 7000);
  EXPECT_EQ(layout.ranks[1][0].slots(), 7000);
  ASSERT_FALSE(layout.ranks[0][0].attended.empty() || layout.ranks[1][0].attended.empty());
  EXPECT_EQ(std::max(layout.ranks[0][0].attended.front().length, layout.ranks[1][0].attended.front().length), 4000);
  limits.cost.links = {Curve::rate(1e3)};
  layout = make_layout("balanced", samples, limits);
  EXPECT_FALSE(layout.ranks[0][0].remapped());
  limits.options.remap = Remap::Always;
  EXPECT_EQ(make_layout("balanced", samples_of({100, 100}), limits).ranks[0][0].remapped(), false);   // even as it is
}

TEST(Balanced, RefusesWhatNoLayoutHoldsAndSaysWhatWould) {
  const auto refused = [](std::vector<int64_t> lengths, const LayoutLimits& limits) -> std::string {
    try {
      make_layout("balanced", samples_of(lengths), limits);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const Remap remap : {Remap::Never, Remap::Always, Remap::Auto}) {
    LayoutLimits limits{.ranks = 4, .micro_tokens = 16};
    limits.options.remap = remap;
    constexpr int64_t needed = 26;   // 101 / 4 rounded up, and 13 + 13 of the chunks
    limits.micro_tokens = needed - 1;
    EXPECT_NE(refused({101, 3}, limits).find("micro_tokens to " + std::to_string(needed)), std::string::npos) << refused({101, 3}, limits);
    limits.micro_tokens = needed;
    EXPECT_EQ(refused({101, 3}, limits), "");
  }
  LayoutLimits limits{.ranks = 4, .micro_tokens = 100};
  EXPECT_NE(refused({3, 0}, limits).find("length 0"), std::string::npos);
  EXPECT_NE(refused({3, -7}, limits).find("length -7"), std::string::npos);
  limits.options.attention_tokens = 20, limits.options.remap = Remap::Always;
  EXPECT_NE(refused({101}, limits).find("attention_tokens to 26"), std::string::npos);
}

TEST(Balanced, TeamsDivideEveryRing) {
  LayoutLimits limits{.ranks = 16, .micro_tokens = 400};
  limits.topology = Topology({{"gpu", 4, {}, {}}, {"node", 4, {}, {}}});
  limits.options.team = 2;
  const auto samples = samples_of({3000, 900, 700, 30, 200, 100, 400, 10});
  Layout layout = make_layout("balanced", samples, limits);
  expect_legal(layout, samples, 16);
  for (const auto& rank : layout.ranks) for (const CutPart& part : rank[0].cuts) EXPECT_EQ(part.cut->members() % 4, 0);
  // Chosen by cost: a latency-bound ring over all ranks is faster in teams, one on free links is plain.
  limits.options.team = 0;
  layout = make_layout("context-parallel", samples, limits);
  EXPECT_EQ(layout.ranks[0][0].cuts[0].cut->team, 1);
  limits.cost.links = {Curve::rate(100e9, 1e-7), Curve::rate(1e9, 1e-3)};
  layout = make_layout("context-parallel", samples, limits);
  EXPECT_EQ(layout.ranks[0][0].cuts[0].cut->team, 4);
  limits.options.team_memory_bytes = 1;
  EXPECT_EQ(make_layout("context-parallel", samples, limits).ranks[0][0].cuts[0].cut->team, 1);
}

}  // namespace
}  // namespace ballast
