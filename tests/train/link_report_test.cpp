// Measured links as text: what doctor prints is a topology that a configuration takes back.
#include "ballast/train/link_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ballast/config/run_config.h"

namespace ballast {
namespace {

using testing::HasSubstr;

std::vector<LinkFigures> three_levels() {
  return {{.name = "node", .size = 2, .latency_s = 2.53e-5, .bandwidth_bytes_per_s = 8.125e8, .by_size = {{4096, 1e8, 1.5e8}, {1 << 20, 7e8, 8.125e8}}, .left_out = {}},
          {.name = "lone", .size = 1, .by_size = {}, .left_out = {}},
          {.name = "cluster", .size = 3, .latency_s = 0.004, .bandwidth_bytes_per_s = 1234, .by_size = {{4096, 1000, 1234}}, .left_out = 32768}};
}

TEST(LinkReport, TheYamlIsATopologyWithTheSameFigures) {
  const std::string yaml = link_yaml(three_levels(), "gloo");
  const RunConfig config = parse_run_config(yaml, "topology.yaml");
  ASSERT_TRUE(config.topology) << yaml;
  const std::vector<Level>& levels = config.topology->levels();
  ASSERT_EQ(levels.size(), 3u);
  EXPECT_EQ(levels[0].name, "node");
  EXPECT_EQ(levels[0].size, 2);
  EXPECT_EQ(levels[0].bandwidth, 8.125e8);
  EXPECT_EQ(levels[0].latency, 2.53e-5);
  EXPECT_EQ(levels[1].size, 1);
  EXPECT_FALSE(levels[1].bandwidth);
  EXPECT_FALSE(levels[1].latency);
  EXPECT_EQ(levels[2].size, 3);
  EXPECT_EQ(levels[2].bandwidth, 1234);
  EXPECT_EQ(levels[2].latency, 0.004);
}

TEST(LinkReport, AnyNameOfALevelComesBack) {
  for (const char* name : {"on", "true", "Null", "7", "a: b", "x #y", "\"q\"", "rack-1", "gr\xc3\xbc\xc3\x9f" "e", "two\nlines", "{a}"}) {
    std::vector<LinkFigures> figures = three_levels();
    figures[0].name = name;
    const std::string yaml = link_yaml(figures, "gloo");
    const RunConfig config = parse_run_config(yaml, "topology.yaml");
    ASSERT_TRUE(config.topology) << yaml;
    EXPECT_EQ(config.topology->level(0).name, name) << yaml;
  }
}

TEST(LinkReport, TheCommentsHoldTheTable) {
  const std::string yaml = link_yaml(three_levels(), "gloo");
  EXPECT_THAT(yaml, HasSubstr("over gloo"));
  EXPECT_THAT(yaml, HasSubstr("#        1 MiB      700 MB/s                812 MB/s\n"));
  EXPECT_THAT(yaml, HasSubstr("# lone: one unit, no links\n"));
  EXPECT_THAT(yaml, HasSubstr("#       32 KiB  not measured"));
}

TEST(LinkReport, TheJsonHoldsEveryFigure) {
  const nlohmann::json json = link_json(three_levels(), "gloo");
  EXPECT_EQ(json["name"], "links");
  EXPECT_EQ(json["transport"], "gloo");
  EXPECT_EQ(json["ranks"], 6);
  EXPECT_EQ(json["levels"][0]["latency_s"], 2.53e-5);
  EXPECT_EQ(json["levels"][0]["bandwidth_bytes_per_s"], 8.125e8);
  EXPECT_EQ(json["levels"][0]["by_size"][1], (nlohmann::json{{"bytes", 1 << 20}, {"pair_bytes_per_s", 7e8}, {"unit_bytes_per_s", 8.125e8}}));
  EXPECT_TRUE(json["levels"][1]["latency_s"].is_null());
  EXPECT_EQ(json["levels"][2]["left_out_from_bytes"], 32768);
}

}  // namespace
}  // namespace ballast
