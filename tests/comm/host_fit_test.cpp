// Topologies against the hosts of their ranks.
#include "ballast/comm/host_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/process_ranks.h"

namespace ballast {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Topology tree(std::vector<std::pair<const char*, int64_t>> sizes) {
  std::vector<Level> levels;
  for (const auto& [name, size] : sizes) levels.push_back({name, size, {}, {}});
  return Topology(levels);
}

// One letter per rank: its host.
std::string misfit(const Topology& topology, const std::string& letters) {
  std::vector<std::string> hosts;
  for (const char letter : letters) hosts.emplace_back(1, letter);
  return host_misfit(topology, hosts);
}

TEST(HostFit, UnitsOfOneHostOrOfWholeHostsFit) {
  const Topology two = tree({{"node", 2}, {"cluster", 2}});
  EXPECT_EQ(misfit(two, "AABB"), "");
  EXPECT_EQ(misfit(two, "AAAA"), "");
  EXPECT_EQ(misfit(two, "ABCD"), "");                                      // a unit of two whole hosts
  EXPECT_EQ(misfit(tree({{"node", 4}}), "AAAB"), "");                      // no second level would fit
  EXPECT_EQ(misfit(tree({{"node", 4}}), "ABCD"), "");
  EXPECT_EQ(misfit(tree({{"node", 4}}), "AAAA"), "");
  EXPECT_EQ(misfit(tree({{"pair", 2}, {"node", 2}, {"rack", 2}}), "AAAABBBB"), "");
  EXPECT_EQ(misfit(tree({{"node", 4}, {"rack", 2}}), "AABBCCDD"), "");
  EXPECT_EQ(misfit(tree({{"pair", 1}, {"node", 2}, {"cluster", 2}}), "AABB"), "");
}

TEST(HostFit, AUnitThatHoldsPartsOfHostsIsNamedWithItsCure) {
  EXPECT_THAT(misfit(tree({{"node", 2}, {"cluster", 2}}), "AAAB"),
              AllOf(HasSubstr("level 'node'"), HasSubstr("its units have 2 ranks, the 2 hosts 3, 1;"), HasSubstr("rank 2 and rank 3 of one unit stand on 2 hosts"), HasSubstr("start as many ranks on every host"), HasSubstr("topology={node: 4}")));
  EXPECT_THAT(misfit(tree({{"node", 3}, {"cluster", 2}}), "AABBCC"),
              AllOf(HasSubstr("level 'node'"), HasSubstr("ranks 0, 1 and rank 2 of one unit"), HasSubstr("the hosts are topology={node: 2, cluster: 3}")));
  EXPECT_THAT(misfit(tree({{"node", 2}, {"cluster", 2}}), "ABAB"),
              AllOf(HasSubstr("rank 0 and rank 1 of one unit"), HasSubstr("start the ranks host by host"), HasSubstr("topology={node: 2, cluster: 2}")));
  EXPECT_THAT(misfit(tree({{"node", 4}}), "AABB"),
              AllOf(HasSubstr("level 'node'"), HasSubstr("its unit has 4 ranks, the 2 hosts 2 on each"), HasSubstr("the hosts are topology={node: 2, cluster: 2}")));
  EXPECT_THAT(misfit(tree({{"cluster", 6}}), "AABBCC"), HasSubstr("topology={cluster: 2, hosts: 3}"));
  EXPECT_THAT(misfit(tree({{"node", 4}, {"cluster", 1}}), "AABB"), HasSubstr("the hosts are topology={node: 2, cluster: 2}"));
  EXPECT_THAT(misfit(tree({{"node", 4}}), "ABAB"), HasSubstr("start the ranks host by host"));
  // Pairs fit, nodes do not.
  EXPECT_THAT(misfit(tree({{"pair", 2}, {"node", 2}, {"cluster", 2}}), "AAAAAABB"), AllOf(HasSubstr("level 'node'"), HasSubstr("ranks 4, 5 and ranks 6, 7 of one unit")));
}

// Ranks 0 and 2 stand on one host, 1 and 3 on another; their topology is {pair: 2, node: 2}.
TEST(HostFit, RankZeroWarnsAtTheStart) {
  const auto ended = run_processes(4, "meet", -1, -1, "mixed");
  for (size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_EQ(ended[rank].code, 0) << ended[rank].text;
    EXPECT_EQ(ended[rank].text.find("level 'pair' of the topology crosses hosts") != std::string::npos, rank == 0) << ended[rank].text;
  }
}

}  // namespace
}  // namespace ballast
