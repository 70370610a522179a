// Measuring links with real ranks: the YAML goes into a configuration as it is, and ranks with different trees are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/apps/program.h"

namespace ballast::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Links, WhatDoctorPrintsIsTakenByAConfiguration) {
  const Workplace place;
  const Printed printed = run_program({"doctor", "--links", "topology={pair: 2, lone: 1}"}, place.path());
  ASSERT_EQ(printed.code, 0) << printed.errors;
  EXPECT_THAT(printed.output, StartsWith("# Measured"));
  EXPECT_THAT(printed.output, HasSubstr("\ntopology:\n  pair: {size: 2, bandwidth: "));
  EXPECT_THAT(printed.errors, HasSubstr("each unit, all at once"));
  place.write("c.yaml", "model: {preset: gpt2-10m}\ndata: {sequence: {max_tokens: 64}}\nbatch: {tokens: 512, micro_tokens: 64}\nplacement: zero3\n" + printed.output);
  const Printed plan = run_program({"plan", "c.yaml", "--json"}, place.path());
  ASSERT_EQ(plan.code, 0) << plan.errors;
}

TEST(Links, DoctorGivesThemAsJson) {
  const Printed printed = run_program({"doctor", "--links", "--ranks", "2", "--json"});
  ASSERT_EQ(printed.code, 0) << printed.errors;
  const auto json = nlohmann::json::parse(printed.output);
  ASSERT_EQ(json["levels"].size(), 1u);
  const auto& level = json["levels"][0];
  EXPECT_EQ(level["name"], "node");
  EXPECT_GT(level["latency_s"].get<double>(), 0);
  ASSERT_EQ(level["by_size"].size(), 5u);
  EXPECT_EQ(level["by_size"][4]["bytes"], 16 << 20);
  for (const auto& rate : level["by_size"]) {
    EXPECT_GT(rate["pair_bytes_per_s"].get<double>(), 0);
    EXPECT_LE(rate["unit_bytes_per_s"].get<double>(), level["bandwidth_bytes_per_s"].get<double>());
  }
}

TEST(Links, RanksWithDifferentTopologiesAreRefused) {
  const auto ended = run_ranks({{"doctor", "--links", "topology={node: {size: 2, bandwidth: 1Gbit}}"}, {"doctor", "--links", "topology={node: {size: 2, bandwidth: 2Gbit}}"}});
  for (const Printed& rank : ended) {
    EXPECT_EQ(rank.code, 5) << rank.errors;
    EXPECT_THAT(rank.errors, HasSubstr("rank 0 and rank 1 were started differently: 'topology' differs"));
    EXPECT_THAT(rank.errors, HasSubstr("node: 2 x 250000000 B/s"));
  }
}

// The setting is a path, the same on all ranks; the files behind it differ.
TEST(Links, RanksWithDifferentTopologyFilesAreRefusedByEveryVerb) {
  const Workplace here, there;
  here.write("links.yaml", "node: {size: 2, bandwidth: 1Gbit}\n");
  there.write("links.yaml", "node: {size: 2, bandwidth: 2Gbit}\n");
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"doctor", "--links", "topology=links.yaml"},
           {"bench", "links", "topology=links.yaml"},
           {"bench", "partition", "topology=links.yaml", "model.preset=gpt2-tiny", "seq=32", "steps=1", "turns=1", "placements=zero3"}}) {
    for (const Printed& rank : run_ranks({command, command}, {here.path(), there.path()})) {
      EXPECT_EQ(rank.code, 5) << rank.errors;
      EXPECT_THAT(rank.errors, HasSubstr("rank 0 and rank 1 were started differently: 'topology' differs"));
      EXPECT_THAT(rank.errors, HasSubstr("node: 2 x 250000000 B/s"));
    }
  }
}

TEST(Links, OneRankAloneIsRefused) {
  const Printed printed = run_program({"doctor", "--links"});
  EXPECT_EQ(printed.code, 2);
  EXPECT_THAT(printed.errors, HasSubstr("no links to measure"));
  EXPECT_EQ(run_program({"doctor", "topology={node: 2}"}).code, 2);
}

TEST(Links, ARateOfZeroInATopologyIsRefused) {
  const Printed printed = run_program({"doctor", "--links", "topology={node: {size: 2, bandwidth: 0}}"});
  EXPECT_EQ(printed.code, 2);
  EXPECT_THAT(printed.errors, HasSubstr("level 'node' has bandwidth 0 bytes/s"));
}

}  // namespace
}  // namespace ballast::testing
