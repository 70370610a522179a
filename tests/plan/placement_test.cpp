// The language of placements: what presets stand for, what is refused with which rule and which legal neighbour, what is noted.
#include "ballast/plan/placement.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "ballast/base/error.h"

namespace ballast {
namespace {

Topology two_by_two() { return Topology({{"pair", 2, {}, {}}, {"node", 2, {}, {}}}); }

struct Refused {
  const char* text;
  const char* rule;        // what the message says
  const char* neighbour;   // the table that its cure proposes; "" where the text is no row
};

const std::vector<Refused>& refused() {
  static const std::vector<Refused> all{
      // No words of the language.
      {"{weights: {shard: rack}}", "no level 'rack'", ""},
      {"{weight: {shard: pair}}", "unknown key 'placement.weight'", ""},
      {"zero5", "unknown placement 'zero5'", ""},
      {"hsdp", "needs a level", ""},
      {"hsdp()", "needs a level", ""},
      {"ddp(pair)", "takes no level", ""},
      {"hpz", "needs a level", ""},
      {"hpz(rack)", "no level 'rack'", ""},
      {"topo(pair)", "needs 2 levels", ""},
      {"topo(pair, node, node)", "takes 2 level(s)", ""},
      {"topo(pair, node, third=pair)", "has no option 'third=pair'", ""},
      {"zeropp(pair, reduce=int5)", "unknown codec 'int5'", ""},
      {"topo(pair, node, reduce={)", "cannot take 'reduce={'", ""},
      {"{wire: {forward: int3}}", "unknown codec 'int3'", ""},
      {"{keep: maybe}", "placement.keep must be true or false", ""},
      {"[]", "the placement list is empty", ""},
      {"{wire: {reduce_on: {block: 256}}}", "placement.wire.reduce_on names no codec", ""},
      {"{wire: {reduce_on: {codec: int8, rounding: up}}}", "unknown rounding 'up'", ""},
      {"{wire: {reduce_on: {codec: int8, symetric: true}}}", "unknown key 'placement.wire.reduce_on.symetric'", ""},
      {"{wire: {reduce_on: {codec: int8, feedback: {beta: 2}}}}", "beta must be a number from 0 to below 1", ""},
      {"{wire: {reduce_on: {codec: int8, feedback: {reset: 0}}}}", "reset must be at least 1 step", ""},
      // Rows that break a rule.
      {"{weights: {shard: node}, optimizer: {shard: pair}}", "weights must not be cut further than the optimizer state", "{weights: node, gradients: self, optimizer: node}"},
      {"{gradients: {shard: node}}", "gradients must not be cut further than the optimizer state", "{weights: self, gradients: node, optimizer: node}"},
      {"{weights: {shard: pair, tier: host}, optimizer: pair}", "only the tier 'device'", "{weights: pair, gradients: self, optimizer: pair}"},
      {"{weights: {storage: fp16}}", "placement.weights cannot be stored as fp16", "{weights: self, gradients: self, optimizer: self}"},
      {"{optimizer: {shard: node, storage: int8}}", "placement.optimizer cannot be stored as int8", "{weights: self, gradients: self, optimizer: node}"},
      {"{secondary: pair}", "secondary weights belong to weights that are cut", "{weights: node, secondary: pair, gradients: self, optimizer: node}"},
      {"{weights: node, optimizer: node, keep: true, secondary: pair}", "kept weights leave nothing for secondary weights",
       "{weights: node, secondary: pair, gradients: self, optimizer: node}"},
      {"{groups: 'block.*', gradients: node, optimizer: pair, keep: true}", "gradients must not be cut further",
       "{groups: \"block.*\", weights: self, gradients: node, optimizer: node, keep: true}"},
      {"{weights: node, gradients: node, optimizer: node, wire: {reduce: [native, native, native]}}", "wire.reduce lists 3 codecs",
       "{weights: node, gradients: node, optimizer: node, wire: {reduce: [native, native]}}"},
      {"{weights: node, optimizer: node, wire: {forward: {codec: int8, block: 7}}}", "cannot have blocks of 7 elements",
       "{weights: node, gradients: self, optimizer: node, wire: {forward: {codec: int8, block: 8}}}"},
      {"{weights: node, optimizer: node, wire: {forward: {codec: int8, block: 1000000}}}", "cannot have blocks of 1000000 elements",
       "{weights: node, gradients: self, optimizer: node, wire: {forward: {codec: int8, block: 65536}}}"},
      {"{weights: node, secondary: {shard: pair, storage: {codec: int4, block: 100}}, optimizer: node}", "secondary.storage: codec int4 cannot have blocks of 100 elements",
       "{weights: node, secondary: {shard: pair, storage: {codec: int4, block: 104}}, gradients: self, optimizer: node}"},
      {"{weights: node, optimizer: node, wire: {forward: {codec: bf16, block: 256}}}", "codec bf16 has no blocks",
       "{weights: node, gradients: self, optimizer: node, wire: {forward: bf16}}"},
      {"{weights: node, optimizer: node, wire: {forward: {codec: int8, feedback: true}}}", "error feedback belongs to sums of gradients",
       "{weights: node, gradients: self, optimizer: node, wire: {forward: int8}}"},
      {"{wire: {reduce_on: {codec: bf16, feedback: true}}}", "error feedback needs a block codec",
       "{weights: self, gradients: self, optimizer: self, wire: {reduce_on: {codec: int8, feedback: true}}}"},
      {"{wire: {reduce_on: [{codec: int8, up_to: pair}]}}", "wire.reduce_on: the outermost hop ends at pair",
       "{weights: self, gradients: self, optimizer: self, wire: {reduce_on: {codec: int8, up_to: node}}}"},
      {"{wire: {reduce_on: [{codec: int8, up_to: world}, int8]}}", "some entries say up_to, some do not",
       "{weights: self, gradients: self, optimizer: self, wire: {reduce_on: [int8, int8]}}"},
      {"{wire: {reduce_on: [{codec: int8, up_to: world}, {codec: int8, up_to: pair}, {codec: int8, up_to: node}]}}", "hops must be listed outermost first",
       "{weights: self, gradients: self, optimizer: self, wire: {reduce_on: [{codec: int8, up_to: node}, {codec: int8, up_to: node}, {codec: int8, up_to: pair}]}}"},
      // Blocks whose shards would be whole blocks of nothing smaller than 4 thousand million elements.
      {"{weights: node, optimizer: node, wire: {forward: {codec: int8, block: 65528}, reduce_on: {codec: int4, block: 65520}}}", "the blocks of a row fit no common shard",
       "{weights: node, gradients: self, optimizer: node, wire: {forward: {codec: int8, block: 65528}, reduce_on: {codec: int4, block: 65528}}}"},
  };
  return all;
}

std::string message(const std::string& text, const Topology& topology) {
  try {
    parse_placement(YAML::Load(text), topology);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage) << text;
    return error.what();
  }
  return "";
}

TEST(Placement, WhatIsRefusedNamesTheRuleAndALegalNeighbour) {
  const Topology topology = two_by_two();
  for (const Refused& one : refused()) {
    const std::string text = message(one.text, topology);
    EXPECT_NE(text.find(one.rule), std::string::npos) << one.text << "\n" << text;
    const std::string cure = "a legal neighbour: ";
    const size_t at = text.find(cure);
    const std::string neighbour = at == std::string::npos ? "" : text.substr(at + cure.size());
    EXPECT_EQ(neighbour, one.neighbour) << one.text;
    if (!neighbour.empty()) {
      EXPECT_EQ(message(neighbour, topology), "");
    }
  }
}

// Every broken row out of a grid of words, several faults at once among them: the cure is a table that is legal, and the row itself if it was.
TEST(Placement, NeighboursAreLegal) {
  const Topology topology({{"pair", 2, {}, {}}, {"lone", 1, {}, {}}, {"big node", 2, {}, {}}});
  const std::vector<std::string> levels{"self", "pair", "\"big node\""};
  const std::vector<std::string> wires{"", "forward: [int8, bf16]", "reduce: [{codec: int4, feedback: {beta: 0.5, reset: 3}}, int8]", "reduce_on: {codec: int8, feedback: true}",
                                       "refresh: {codec: int8, rounding: stochastic, block: 12}", "backward: {codec: fp16, symmetric: false}",
                                       "reduce: [{codec: int8, up_to: pair}, {codec: int8, block: 40, up_to: world}]", "reduce_on: [{codec: bf16, feedback: true}, {codec: int4, up_to: pair}]",
                                       "forward: {codec: int8, block: 65528}, reduce: {codec: int4, block: 4096}, reduce_on: {codec: int4, block: 24}"};
  int64_t broken = 0;
  for (const std::string& weights : levels) {
    for (const std::string& gradients : levels) {
      for (const std::string& optimizer : levels) {
        for (const std::string& more : {std::string(), std::string(", secondary: {shard: pair, storage: {codec: int8, block: 20}, forward: true}"), std::string(", secondary: \"big node\", keep: true")}) {
          for (const std::string& wire : wires) {
            const std::string table = "{weights: " + weights + ", gradients: " + gradients + ", optimizer: " + optimizer + more + ", wire: {" + wire + "}}";
            const std::string text = message(table, topology);
            if (text.empty()) {
              const PlacementRow row = parse_placement(YAML::Load(table), topology).rows[0];
              EXPECT_EQ(table_text(legal_neighbour(row, topology), topology), table_text(row, topology)) << table;
              EXPECT_EQ(describe_row(parse_placement(YAML::Load(table_text(row, topology)), topology).rows[0], topology), describe_row(row, topology)) << table;
              continue;
            }
            ++broken;
            const std::string cure = "a legal neighbour: ";
            ASSERT_NE(text.find(cure), std::string::npos) << text;
            const std::string neighbour = text.substr(text.find(cure) + cure.size());
            EXPECT_EQ(message(neighbour, topology), "") << table;
          }
        }
      }
    }
  }
  EXPECT_GT(broken, 300);
}

TEST(Placement, BlocksNeedACommonShardOfModestSize) {
  const Topology topology = two_by_two();
  const auto legal = [&](int64_t a, int64_t b) {
    return message("{weights: node, gradients: node, optimizer: node, wire: {forward: {codec: int8, block: " + std::to_string(a) + "}, reduce: {codec: int4, block: " + std::to_string(b) + "}}}",
                   topology) == "";
  };
  EXPECT_TRUE(legal(65536, 8));      // they divide one another
  EXPECT_TRUE(legal(40, 24));        // 120
  EXPECT_TRUE(legal(256, 2040));     // 65280
  EXPECT_FALSE(legal(256, 2056));    // 65792
  EXPECT_FALSE(legal(65536, 65528));
}

TEST(Placement, PresetsStandForTables) {
  const Topology topology({{"pair", 2, {}, {}}, {"node", 2, {}, {}}, {"cluster", 2, {}, {}}});
  const auto text = [&](const char* placement) { return describe_row(parse_placement(YAML::Load(placement), topology).rows[0], topology); };
  EXPECT_EQ(text("mics(node)"), text("hsdp(node)"));
  EXPECT_EQ(text("hpz(node)"), text("{weights: world, secondary: node, gradients: world, optimizer: world}"));
  EXPECT_EQ(text("topo(pair,node)"), text("{weights: pair, secondary: {shard: node, storage: int8}, gradients: node, optimizer: world, wire: {forward: int8, "
                                          "reduce: {codec: int4, up_to: node}, reduce_on: native, refresh: native}}"));
  EXPECT_NE(text("topo(pair, node, secondary=pair)"), text("topo(pair, node)"));
  EXPECT_EQ(text("topo(pair, node, refresh=int8, reduce_on=int4)"),
            text("{weights: pair, secondary: {shard: node, storage: int8}, gradients: node, optimizer: world, wire: {forward: int8, reduce: {codec: int4, up_to: node}, "
                 "reduce_on: int4, refresh: int8}}"));
  EXPECT_EQ(text("zeropp(node, block=64)"), text("{weights: world, secondary: node, gradients: world, optimizer: world, wire: {forward: int8, "
                                                 "reduce: [{codec: int4, block: 64, up_to: world}, {codec: int4, block: 64, up_to: node}]}}"));
  EXPECT_EQ(text("topo(pair, node, feedback=true, reduce=int8)"),
            text("{weights: pair, secondary: {shard: node, storage: int8}, gradients: node, optimizer: world, wire: {forward: int8, "
                 "reduce: {codec: int8, feedback: true, up_to: node}, reduce_on: native, refresh: native}}"));
  EXPECT_EQ(text("zeropp(node, block=256, feedback=false)"), text("zeropp(node)"));
  EXPECT_THROW(text("zeropp(node, reduce=native, block=64)"), Error);
  EXPECT_THROW(text("hpz(node, block=64)"), Error);
  EXPECT_THROW(text("zeropp(node, block=63)"), Error);
  EXPECT_EQ(split_placements("zeropp(node), topo(pair,node),mics(node)"), (std::vector<std::string>{"zeropp(node)", "topo(pair,node)", "mics(node)"}));
}

TEST(Placement, NotesSayWhatDoesNotPayAndWhatFallsAway) {
  const auto notes = [](std::vector<Level> levels, const char* placement) {
    const Topology topology(std::move(levels));
    std::string all;
    for (const std::string& note : placement_notes(parse_placement(YAML::Load(placement), topology), topology)) all += note + "\n";
    return all;
  };
  const std::vector<Level> two{{"node", 4, 10e9, {}}, {"cluster", 4, 1e9, {}}};
  const std::vector<Level> equal{{"node", 4, 1e9, {}}, {"cluster", 4, 1e9, {}}};
  const std::vector<Level> one{{"node", 4, {}, {}}, {"cluster", 1, {}, {}}};
  EXPECT_EQ(notes(two, "zeropp(node)"), "");
  EXPECT_EQ(notes(two, "topo(node, node)"), "");
  EXPECT_NE(notes(equal, "hpz(node)").find("do not pay"), std::string::npos);
  EXPECT_NE(notes(one, "hpz(node)").find("do not pay"), std::string::npos);
  EXPECT_NE(notes(one, "zeropp(node)").find("fall away"), std::string::npos);
  EXPECT_NE(notes(two, "{optimizer: world, wire: {forward: int8}}").find("wire.forward has nothing to encode"), std::string::npos);
  EXPECT_EQ(notes(one, "zero3"), "");
  EXPECT_NE(notes(two, "topo(node, node, refresh=int4)").find("int4"), std::string::npos);
  EXPECT_NE(notes(two, "hpz(cluster)").find("bring nothing"), std::string::npos);
}

}  // namespace
}  // namespace ballast
