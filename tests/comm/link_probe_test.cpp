// Measured links: figures of thread-ranks with known limits, and the refusal of figures that no plan may use.
#include "ballast/comm/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/comm/thread_ranks.h"

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LinkProbeOptions quick() { return {.sizes = {1000, 100'000}, .seconds = 0.1}; }

TEST(LinkProbe, FindsTheLimitsOfEveryLevelOnEveryRank) {
  const Topology topology({{"node", 2, {}, {}}, {"lone", 1, {}, {}}, {"cluster", 2, 5e6, 0.004}});
  CommunicatorOptions options{std::chrono::milliseconds(60000)};
  options.limit_links = true;
  std::vector<std::vector<LinkFigures>> all(4);
  std::vector<std::string> levels;
  const auto errors = errors_of_ranks(
      topology,
      [&](Communicator& communicator) {
        all[static_cast<size_t>(communicator.rank())] = probe_links(communicator, topology, quick(), [&](const std::string& name) {
          if (communicator.rank() == 0) levels.push_back(name);
        });
      },
      options);
  for (const std::string& error : errors) ASSERT_EQ(error, "");
  EXPECT_THAT(levels, ElementsAre("node", "lone", "cluster"));
  ASSERT_EQ(all[0].size(), 3u);
  for (const auto& figures : all) {
    for (size_t l = 0; l < 3; ++l) {
      EXPECT_EQ(figures[l].name, topology.level(static_cast<int>(l)).name);
      EXPECT_EQ(figures[l].latency_s, all[0][l].latency_s);
      EXPECT_EQ(figures[l].bandwidth_bytes_per_s, all[0][l].bandwidth_bytes_per_s);
    }
  }
  EXPECT_TRUE(all[0][1].by_size.empty());
  const LinkFigures& slow = all[0][2];
  EXPECT_GE(slow.latency_s, 0.004);
  ASSERT_EQ(slow.by_size.size(), 2u);
  for (const LinkRate& rate : slow.by_size) {  // never above the limit: a node's two ranks share it
    EXPECT_LE(rate.pair_bytes_per_s, 5e6);
    EXPECT_LE(rate.unit_bytes_per_s, 5e6);
    EXPECT_GT(rate.pair_bytes_per_s, 0);
    EXPECT_LE(rate.unit_bytes_per_s, slow.bandwidth_bytes_per_s);
  }
  EXPECT_GT(slow.bandwidth_bytes_per_s, 0);
  EXPECT_FALSE(slow.left_out);
}

TEST(LinkProbe, LeavesOutWhatWouldTakeTooLongAndSaysSo) {
  const Topology topology({{"cluster", 2, 1e6, {}}});
  CommunicatorOptions options{std::chrono::milliseconds(60000)};
  options.limit_links = true;
  const auto errors = errors_of_ranks(
      topology,
      [&](Communicator& communicator) {
        const auto figures = probe_links(communicator, topology, {.sizes = {10'000, 1'000'000'000}, .seconds = 0.05});
        ASSERT_EQ(figures.size(), 1u);
        EXPECT_EQ(figures[0].by_size.size(), 1u);
        EXPECT_EQ(figures[0].left_out, 1'000'000'000);
      },
      options);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(LinkProbe, OneRankAloneHasNothingToMeasure) {
  const auto single = make_single();
  EXPECT_THROW(probe_links(*single, Topology::flat(1), {}), Error);
}

TEST(LinkProbe, FiguresThatAreZeroOrNotFiniteAreRefusedByLevel) {
  const LinkFigures good{.name = "cluster", .size = 2, .latency_s = 1e-4, .bandwidth_bytes_per_s = 2e7, .by_size = {{4096, 1e7, 2e7}}, .left_out = {}};
  check_figures(good);
  check_figures({.name = "lone", .size = 1, .by_size = {}, .left_out = {}});
  const auto text_of = [](const LinkFigures& figures) -> std::string {
    try {
      check_figures(figures);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Environment);
      return error.what();
    }
    return "";
  };
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (double LinkFigures::* figure : {&LinkFigures::latency_s, &LinkFigures::bandwidth_bytes_per_s}) {
      LinkFigures wrong = good;
      wrong.*figure = bad;
      EXPECT_THAT(text_of(wrong), HasSubstr("level 'cluster'"));
    }
    for (double LinkRate::* figure : {&LinkRate::pair_bytes_per_s, &LinkRate::unit_bytes_per_s}) {
      LinkFigures wrong = good;
      wrong.by_size[0].*figure = bad;
      EXPECT_THAT(text_of(wrong), HasSubstr("messages of 4 KiB"));
    }
  }
  LinkFigures empty = good;
  empty.by_size.clear();
  EXPECT_THAT(text_of(empty), HasSubstr("no rate"));
}

}  // namespace
}  // namespace ballast
