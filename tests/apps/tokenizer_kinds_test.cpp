// Every kind of tokenizer through a whole life: trained with, in a checkpoint, exported, read back by generate and eval.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/apps/program.h"

namespace ballast::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kSource = BALLAST_SOURCE_DIR;
const fs::path kGolden = kSource / "tests/data/golden";

// The 256 bytes as a rank file of one's own, byte b with rank b.
std::string byte_ranks() {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text += {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    text += " " + std::to_string(byte) + "\n";
  }
  return text;
}

TEST(TokenizerKinds, EveryKindComesBackFromAnExport) {
  const Workplace place;
  std::string records;
  for (int i = 0; i < 20; ++i) records += nlohmann::json{{"text", "Line " + std::to_string(i * 37 % 101) + " of a text."}}.dump() + "\n";
  place.write("d.jsonl", records);
  place.write("model.json", R"({"model_type": "gpt2", "vocab_size": 300, "n_positions": 32, "n_embd": 8, "n_layer": 1, "n_head": 1,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})");
  place.write("c.yaml", R"(run: {seed: 7}
model: {config: model.json}
data: {train: [d.jsonl], eval: [d.jsonl], sequence: {max_tokens: 32}}
batch: {tokens: 64, micro_tokens: 32}
train: {steps: 2}
checkpoint: {every: 1}
)");
  fs::create_directories(place.path() / "ranks");
  place.write("ranks/mine.cl100k_base.tiktoken", byte_ranks());
  fs::create_directories(place.path() / "renamed");
  fs::copy_file(kGolden / "qwen/tokenizer.json", place.path() / "renamed/mine.json");
  fs::copy_file(kGolden / "qwen/tokenizer_config.json", place.path() / "renamed/tokenizer_config.json");
  fs::copy_file(kGolden / "sp_bpe/tokenizer.model", place.path() / "renamed/mine.model");
  const std::string gpt2 = (kSource / "examples/tokenizers/gpt2").string(), qwen = (kGolden / "qwen").string(), pieces = (kGolden / "sp_bpe").string();
  struct Row {
    std::string tokenizer;
    int vocab_size;
    std::string file;   // that the export must hold
  };
  const std::vector<Row> rows{{gpt2, 50257, "merges.txt"},
                              {gpt2 + "/vocab.json", 50257, "merges.txt"},
                              {qwen, 1003, "tokenizer.json"},
                              {qwen + "/tokenizer.json", 1003, "tokenizer.json"},
                              {"renamed/mine.json", 1003, "tokenizer.json"},
                              {"ranks", 257, "mine.cl100k_base.tiktoken"},
                              {"ranks/mine.cl100k_base.tiktoken", 257, "mine.cl100k_base.tiktoken"},
                              {pieces, 1000, "tokenizer.model"},
                              {pieces + "/tokenizer.model", 1000, "tokenizer.model"},
                              {"renamed/mine.model", 1000, "tokenizer.model"}};
  int number = 0;
  for (const Row& row : rows) {
    const std::string run = "runs/" + std::to_string(number), exported = "exported" + std::to_string(number);
    ++number;
    const Printed trained = run_program({"train", "c.yaml", "run.dir=" + run, "data.tokenizer=" + row.tokenizer, "model.vocab_size=" + std::to_string(row.vocab_size)}, place.path());
    ASSERT_EQ(trained.code, 0) << row.tokenizer << "\n" << trained.errors;
    const Printed done = run_program({"export", run, "--to", exported}, place.path());
    ASSERT_EQ(done.code, 0) << row.tokenizer << "\n" << done.errors;
    EXPECT_TRUE(fs::exists(place.path() / exported / row.file)) << row.tokenizer;
    const auto loss = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin(), "eval");
      arguments.push_back("--json");
      const Printed printed = run_program(arguments, place.path());
      EXPECT_EQ(printed.code, 0) << row.tokenizer << "\n" << printed.errors;
      return printed.code == 0 ? nlohmann::json::parse(printed.output)["loss"].get<double>() : 0.0;
    };
    const double of_run = loss({run});
    EXPECT_GT(of_run, 1) << row.tokenizer;
    EXPECT_EQ(loss({exported, "data.eval=[d.jsonl]", "data.sequence.max_tokens=32"}), of_run) << row.tokenizer;
    const Printed text = run_program({"generate", exported, "--prompt", "Line 3", "--tokens", "4", "--json"}, place.path());
    ASSERT_EQ(text.code, 0) << row.tokenizer << "\n" << text.errors;
    const Printed same = run_program({"generate", run, "--prompt", "Line 3", "--tokens", "4", "--json"}, place.path());
    ASSERT_EQ(same.code, 0) << row.tokenizer << "\n" << same.errors;
    EXPECT_EQ(nlohmann::json::parse(text.output)["ids"], nlohmann::json::parse(same.output)["ids"]) << row.tokenizer;
  }
}

// What a checkpoint could not be written with is said by validate, and by train before its first step.
TEST(TokenizerKinds, WhatNoCheckpointCanHoldIsRefusedBeforeTraining) {
  const Workplace place;
  place.write("d.jsonl", R"({"text": "a line of text"})" "\n");
  place.write("c.yaml", R"(run: {seed: 7, dir: r}
model: {preset: llama-60m, dropout: 0.1}
data: {train: [d.jsonl]}
batch: {tokens: 32}
train: {steps: 2}
)");
  for (const std::string verb : {"validate", "train"}) {
    const Printed printed = run_program({verb, "c.yaml", "data.tokenizer=" + (kGolden / "qwen").string()}, place.path());
    EXPECT_EQ(printed.code, 2) << verb << "\n" << printed.errors;
    EXPECT_THAT(printed.errors, HasSubstr("model.dropout")) << verb;
    EXPECT_THAT(printed.errors, HasSubstr("outside the attention")) << verb;
    EXPECT_FALSE(fs::exists(place.path() / "r" / "metrics.jsonl")) << verb;
  }
}

}  // namespace
}  // namespace ballast::testing
