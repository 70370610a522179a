// Placements at the command: planned side by side, benched with their errors and losses, refused before ranks start; the example of Frontier.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/apps/program.h"

namespace ballast::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kTable = "{weights: pair, secondary: {shard: node, storage: int8}, gradients: pair, optimizer: world, wire: {reduce_on: {codec: int4, feedback: true}, refresh: [int8]}}";

class Partitioning : public ::testing::Test {
 protected:
  void SetUp() override {
    place_.write("c.yaml", R"(model: {preset: gpt2-tiny}
data: {sequence: {max_tokens: 32}}
topology: {pair: {size: 2, bandwidth: 1GB/s}, node: {size: 2, bandwidth: 25MB/s}}
placement: zero3
batch: {tokens: 512, micro_tokens: 64}
optimizer: {name: adamw, lr: 1e-3}
)");
  }
  Printed program(std::vector<std::string> arguments) const { return run_program(arguments, place_.path()); }
  Workplace place_;
};

TEST_F(Partitioning, PlanComparesPresetsAndTables) {
  const std::string list = std::string("hsdp(pair), ") + kTable + ",zeropp(pair)";
  const Printed printed = program({"plan", "c.yaml", "--json", "--flops", "50G", "--limit", "memory=1GiB", "--compare", list});
  ASSERT_EQ(printed.code, 0) << printed.errors;
  const Json json = Json::parse(printed.output);
  EXPECT_EQ(json["limit_bytes_per_rank"], 1 << 30);
  EXPECT_EQ(json["flops_per_rank"], 50e9);
  ASSERT_EQ(json["compare"].size(), 4u);
  EXPECT_EQ(json["compare"][0]["placement"], "zero3");
  EXPECT_EQ(json["compare"][2]["placement"], kTable);
  for (const Json& one : json["compare"]) {
    // Each is what plan says of it alone, and its movements are its levels' bytes.
    const Printed alone = program({"plan", "c.yaml", "--json", "placement=" + one["placement"].get<std::string>()});
    ASSERT_EQ(alone.code, 0) << alone.errors;
    const Json plan = Json::parse(alone.output);
    for (const char* key : {"levels", "memory", "movements", "bytes_per_rank"}) EXPECT_EQ(plan[key], one[key]) << one["placement"];
    std::map<std::string, int64_t> sums;
    for (const Json& movement : one["movements"]) sums[movement["level"]] += movement["bytes_per_step"].get<int64_t>();
    for (const Json& level : one["levels"]) EXPECT_EQ(sums[level["name"]], level["bytes_per_step"].get<int64_t>()) << one["placement"];
    EXPECT_GT(one["largest_parameters"]["x4"].get<double>(), 0);
    EXPECT_GT(one["estimate"]["communication_share"].get<double>(), 0);
  }
  const Printed words = program({"plan", "c.yaml", std::string("placement=") + kTable});
  EXPECT_THAT(words.output, HasSubstr("    refresh "));
  EXPECT_THAT(words.output, HasSubstr("    reduce_on "));
}

TEST_F(Partitioning, WhatCannotBeComparedIsRefusedBeforeRanksStart) {
  const auto expect = [](const Printed& printed, const char* what) {
    EXPECT_EQ(printed.code, 2) << printed.errors;
    EXPECT_THAT(printed.errors, HasSubstr(what));
    EXPECT_THAT(printed.errors, Not(HasSubstr("started by"))) << "ranks were started";
  };
  for (const auto& [text, what] : std::vector<std::pair<std::string, const char*>>{{"zero3,{secondary: pair}", "a legal neighbour: {weights: node, secondary: pair, gradients: self, optimizer: node}"},
                                                                                   {"{weights: pair", "is no table"},
                                                                                   {"zero9", "unknown placement 'zero9'"},
                                                                                   {"[{groups: 'block.*', optimizer: node}]", "no placement row covers the parameter group"}}) {
    expect(program({"plan", "c.yaml", "--compare", text}), what);
    for (const std::string mode : {"", "--errors"}) {
      std::vector<std::string> bench{"bench", "partition", "topology={pair: 2, node: 2}", "model.preset=gpt2-tiny", "seq=32", "placements=" + text};
      if (!mode.empty()) bench.push_back(mode);
      expect(program(bench), what);
    }
  }
  expect(program({"plan", "c.yaml", "--flops", "0", "--compare", "zero1"}), "a rate must be above 0");
  expect(program({"plan", "c.yaml", "--limit", "memory=0"}), "a limit must be above 0");
  expect(program({"plan", "c.yaml", "--limit", "ranks=0"}), "a limit must be above 0");
  expect(program({"plan", "c.yaml", "--ranks", "5"}), "5 is no multiple of the 2 ranks of a pair");
}

TEST_F(Partitioning, BenchesTakeTablesAndGiveJson) {
  const std::string placements = std::string("placements=zero3,") + kTable + ",zeropp(pair)";
  const std::vector<std::string> common{"bench", "partition", "--json", "topology={pair: 2, node: 2}", "model.preset=gpt2-tiny", "threads=1", placements};
  const auto bench = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = common;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Printed printed = program(arguments);
    EXPECT_EQ(printed.code, 0) << printed.errors;
    return Json::parse(printed.output);
  };
  const Json speed = bench({"seq=32", "steps=1", "warmup=0", "turns=1"});
  ASSERT_EQ(speed["placements"].size(), 3u);
  EXPECT_EQ(speed["placements"][1]["placement"], kTable);
  EXPECT_GT(speed["placements"][0]["bytes"]["node"].get<int64_t>(), speed["placements"][1]["bytes"]["node"].get<int64_t>());
  const Json errors = bench({"seq=32", "--errors"});
  ASSERT_EQ(errors["placements"].size(), 3u);
  EXPECT_LT(errors["placements"][0]["gradient_error"].get<double>(), 1e-4);   // fp32 zero3 is the exact step
  for (const size_t lossy : {size_t{1}, size_t{2}}) {
    EXPECT_GT(errors["placements"][lossy]["gradient_error"].get<double>(), 1e-4);
    EXPECT_LT(errors["placements"][lossy]["gradient_error"].get<double>(), 0.5);
  }
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += Json{{"text", "Line " + std::to_string(i * 37 % 101) + " of some text."}}.dump() + "\n";
  place_.write("train.jsonl", lines);
  write_byte_tokenizer(place_);
  const Json losses = bench({"--convergence", "steps=2", "seeds=1", "data.train=[train.jsonl]", "data.tokenizer=tokenizer", "data.sequence.max_tokens=32", "batch.tokens=256"});
  ASSERT_EQ(losses["placements"].size(), 4u);
  EXPECT_EQ(losses["placements"][0]["placement"], "exact (fp32, zero3)");
  for (const Json& one : losses["placements"]) {
    ASSERT_EQ(one["train_losses"].size(), 1u);
    EXPECT_NEAR(one["train_losses"][0].get<double>(), losses["placements"][0]["train_losses"][0].get<double>(), 0.05) << one;
  }
}

TEST_F(Partitioning, CodecsAreBenchedAsJson) {
  const Printed printed = program({"bench", "codecs", "--json"});
  ASSERT_EQ(printed.code, 0) << printed.errors;
  const Json json = Json::parse(printed.output);
  std::map<std::string, double> bits;
  for (const Json& one : json["codecs"]) bits[one["codec"]] = one["bits_per_element"].get<double>();
  EXPECT_EQ(bits.at("bf16"), 16);
  EXPECT_EQ(bits.at("int8"), 8.125);
  EXPECT_EQ(bits.at("int4"), 4.125);
}

// Whoever stands elsewhere takes the example's levels from its file; only its model's path is relative.
TEST_F(Partitioning, TheExampleOfFrontierIsTakenFromAnotherFolder) {
  const std::string folder = BALLAST_SOURCE_DIR "/examples/frontier";
  const Printed whole = program({"validate", folder + "/plan.yaml", "model.config=" + folder + "/config.json"});
  EXPECT_EQ(whole.code, 0) << whole.errors;
  EXPECT_THAT(whole.output, HasSubstr("{pair: 2, node: 4, cluster: 48} = 384 ranks"));
  const Printed topology = program({"validate", "c.yaml", "topology=" + folder + "/plan.yaml", "placement=topo(pair, node)"});
  EXPECT_EQ(topology.code, 0) << topology.errors;
  EXPECT_THAT(topology.output, HasSubstr("{pair: 2, node: 4, cluster: 48} = 384 ranks"));
}

}  // namespace
}  // namespace ballast::testing
