// Ids equal to those of the original libraries, on the files that tests/data/golden/make_tokenizer_golden.py wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "ballast/data/tokenizer.h"

namespace ballast {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(BALLAST_SOURCE_DIR) / "tests/data/golden";
const std::filesystem::path kGpt2 = std::filesystem::path(BALLAST_SOURCE_DIR) / "examples/tokenizers/gpt2";

const nlohmann::json& golden() {
  static const nlohmann::json json = nlohmann::json::parse(std::ifstream(kGolden / "tokenizer_golden.json"));
  return json;
}

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  if (name == "gpt2") return load_tokenizer(kGpt2);
  if (name == "cl100k_base") return load_tokenizer(kGolden / "cl100k_base.tiktoken");
  return load_tokenizer(kGolden / name);
}

// Loaded once for all tests.
std::shared_ptr<const Tokenizer> open(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
  auto& tokenizer = loaded[name];
  if (!tokenizer) tokenizer = load(name);
  return tokenizer;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

using Ids = std::vector<int32_t>;

TEST(TokenizerGolden, IdsOfTestPlans) {
  std::ifstream file(kGolden / "TestPlans.txt");
  std::string line, encoding, sample;
  const auto r50k = open("gpt2"), cl100k = open("cl100k_base");
  int checked = 0;
  while (std::getline(file, line)) {
    if (line.starts_with("EncodingName: ")) encoding = line.substr(14);
    if (line.starts_with("Sample: ")) sample = line.substr(8);
    if (!line.starts_with("Encoded: ") || (encoding != "r50k_base" && encoding != "cl100k_base")) continue;
    const auto expected = nlohmann::json::parse(line.substr(9)).get<Ids>();
    const Tokenizer& tokenizer = encoding == "r50k_base" ? *r50k : *cl100k;
    EXPECT_EQ(tokenizer.encode_ordinary(sample), expected) << encoding << ": " << sample;
    EXPECT_EQ(tokenizer.decode(expected), sample);
    ++checked;
  }
  EXPECT_EQ(checked, 128);
}

class Against : public testing::TestWithParam<const char*> {};

TEST_P(Against, IdsOfTheOriginalLibrary) {
  const auto tokenizer = open(GetParam());
  const auto& texts = golden()["texts"];
  const auto& ids = golden()["ids"][GetParam()];
  const auto& ordinary = golden()["ordinary"];
  ASSERT_EQ(texts.size(), ids.size());
  ASSERT_GT(texts.size(), 180u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    // tiktoken's ids of the GPT-2 files are without special tokens; Hugging Face's reading of these files has them.
    const bool as_ordinary = std::string(GetParam()) == "gpt2";
    EXPECT_EQ(as_ordinary ? tokenizer->encode_ordinary(text) : tokenizer->encode(text), ids[i].get<Ids>()) << "text " << i << ": " << text;
    if (ordinary.contains(GetParam())) {
      EXPECT_EQ(tokenizer->encode_ordinary(text), ordinary[GetParam()][i].get<Ids>()) << "text " << i << ": " << text;
    }
    if (golden()["decoded"].contains(GetParam())) {
      EXPECT_EQ(tokenizer->decode(ids[i].get<Ids>()), golden()["decoded"][GetParam()][i].get<std::string>()) << "text " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(TokenizerGolden, Against, testing::Values("gpt2", "cl100k_base", "llama3", "qwen", "added", "steps", "removed", "o200k", "sp_bpe", "sp_unigram"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerGolden, LongRunsOfOneUnit) {
  for (const auto& run : golden()["runs"]) {
    const auto tokenizer = open(run["tokenizer"]);
    std::string text;
    for (int i = 0; i < run["count"].get<int>(); ++i) text += run["unit"];
    const Ids ids = tokenizer->encode(text);
    ASSERT_EQ(ids.size(), run["ids"].get<size_t>()) << run["tokenizer"] << " " << run["unit"];
    EXPECT_EQ(Ids(ids.begin(), ids.begin() + 5), run["first"].get<Ids>());
    EXPECT_EQ(Ids(ids.end() - 5, ids.end()), run["last"].get<Ids>());
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
}

TEST(TokenizerGolden, DecodeGivesTheBytesBack) {
  for (const char* name : {"gpt2", "cl100k_base", "llama3", "o200k", "steps"}) {
    const auto tokenizer = open(name);
    for (const std::string text : golden()["texts"]) EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name;
    for (const std::string hex : golden()["broken"]) {
      const std::string text = from_hex(hex);
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name << " " << hex;
    }
    std::string every_byte;
    for (int round = 0; round < 3; ++round) {
      for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte * (2 * round + 1));
    }
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(every_byte)), every_byte) << name;
  }
}

TEST(TokenizerGolden, BytesThatAreNotUtf8CutTheText) {
  const auto tokenizer = open("cl100k_base");
  Ids expected = tokenizer->encode("He said");
  expected.push_back(tokenizer->encode("\xff")[0]);
  for (const int32_t id : tokenizer->encode(" hi")) expected.push_back(id);
  EXPECT_EQ(tokenizer->encode("He said\xff hi"), expected);
}

TEST(TokenizerGolden, SentencePieceOnBytesThatAreNotUtf8) {
  for (const char* name : {"sp_bpe", "sp_unigram"}) {
    const auto tokenizer = open(name);
    for (size_t i = 0; i < golden()["broken"].size(); ++i) {
      EXPECT_EQ(tokenizer->encode(from_hex(golden()["broken"][i])), golden()["broken_ids"][name][i].get<Ids>()) << name << " " << golden()["broken"][i];
    }
  }
}

TEST(TokenizerGolden, EncodingFromManyThreads) {
  for (const char* name : {"qwen", "steps", "sp_unigram"}) {
    const auto tokenizer = open(name);
    std::vector<int> wrong(4);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        for (int round = 0; round < 3; ++round) {
          for (size_t i = 0; i < golden()["texts"].size(); ++i) {
            const size_t at = (i * (2 * t + 1)) % golden()["texts"].size();
            wrong[t] += tokenizer->encode(golden()["texts"][at].get<std::string>()) != golden()["ids"][name][at].get<Ids>();
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4)) << name;
  }
}

TEST(TokenizerGolden, SpecialTokensAndSizes) {
  struct Row {
    const char* name;
    int64_t size;
    int32_t end_of_text;
    const char* special;
    std::optional<int32_t> id;
  };
  for (const Row& row : {Row{"gpt2", 50257, 50256, "<|endoftext|>", 50256}, Row{"cl100k_base", 100277, 100257, "<|endofprompt|>", 100276},
                         Row{"llama3", 1001, 1, "<|eot_id|>", 4}, Row{"qwen", 1000, 0, "<|im_end|>", 2}, Row{"added", 606, 0, "word", std::nullopt},
                         Row{"added", 606, 0, "<mask>", 600}, Row{"sp_bpe", 1000, 2, "</s>", 2}, Row{"sp_unigram", 1000, 2, "<mask>", std::nullopt},
                         Row{"sp_bpe", 1000, 2, "<ctrl>", 3}}) {
    const auto tokenizer = open(row.name);
    EXPECT_EQ(tokenizer->vocab_size(), row.size) << row.name;
    EXPECT_EQ(tokenizer->end_of_text(), row.end_of_text) << row.name;
    EXPECT_EQ(tokenizer->find(row.special), row.id) << row.name << " " << row.special;
    EXPECT_EQ(tokenizer->find("no such token"), std::nullopt);
  }
  EXPECT_EQ(open("gpt2")->encode("a<|endoftext|>"), (Ids{64, 50256}));
  EXPECT_EQ(open("gpt2")->encode_ordinary("<|endoftext|>"), (Ids{27, 91, 437, 1659, 5239, 91, 29}));
}

TEST(TokenizerGolden, HashTellsTokenizersApart) {
  std::vector<uint64_t> hashes;
  for (const char* name : {"gpt2", "cl100k_base", "llama3", "qwen", "added", "steps", "removed", "o200k", "sp_bpe", "sp_unigram"}) {
    hashes.push_back(open(name)->hash());
    EXPECT_EQ(load(name)->hash(), hashes.back());
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

TEST(TokenizerGolden, FilesToCopy) {
  using Paths = std::vector<std::filesystem::path>;
  EXPECT_EQ(open("gpt2")->files(), (Paths{kGpt2 / "vocab.json", kGpt2 / "merges.txt", kGpt2 / "tokenizer_config.json"}));
  EXPECT_EQ(open("qwen")->files(), (Paths{kGolden / "qwen/tokenizer.json", kGolden / "qwen/tokenizer_config.json"}));
  EXPECT_EQ(open("sp_bpe")->files(), (Paths{kGolden / "sp_bpe/tokenizer.model"}));
  EXPECT_EQ(open("cl100k_base")->files(), (Paths{kGolden / "cl100k_base.tiktoken"}));
  // A file alone and its folder are the same tokenizer.
  EXPECT_EQ(load_tokenizer(kGpt2 / "merges.txt")->files(), open("gpt2")->files());
  EXPECT_EQ(load_tokenizer(kGolden / "qwen/tokenizer.json")->files(), open("qwen")->files());
  EXPECT_EQ(tokenizer_files(kGolden / "sp_bpe"), open("sp_bpe")->files());
  EXPECT_EQ(tokenizer_files(kGolden), (Paths{kGolden / "cl100k_base.tiktoken"}));
  EXPECT_EQ(tokenizer_files(kGolden / "none"), Paths{});
}

TEST(TokenizerGolden, SpecialTokensAreThoseThatFindKnows) {
  EXPECT_EQ(open("qwen")->special_tokens(), (std::vector<SpecialToken>{{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}}));
  for (const char* name : {"gpt2", "llama3", "cl100k_base", "sp_bpe", "sp_unigram"}) {
    const auto tokenizer = open(name);
    EXPECT_FALSE(tokenizer->special_tokens().empty()) << name;
    for (const SpecialToken& token : tokenizer->special_tokens()) EXPECT_EQ(tokenizer->find(token.text), token.id) << name;
  }
}

TEST(TokenizerGolden, NamesInAModelFolder) {
  using Named = std::map<std::string, std::filesystem::path>;
  EXPECT_EQ(named_for_model({"a/mine.json", "a/tokenizer_config.json", "a/special_tokens_map.json"}),
            (Named{{"tokenizer.json", "a/mine.json"}, {"tokenizer_config.json", "a/tokenizer_config.json"}, {"special_tokens_map.json", "a/special_tokens_map.json"}}));
  EXPECT_EQ(named_for_model({"vocab.json", "merges.txt"}), (Named{{"vocab.json", "vocab.json"}, {"merges.txt", "merges.txt"}}));
  EXPECT_EQ(named_for_model({"m/pieces.model"}), (Named{{"tokenizer.model", "m/pieces.model"}}));
  EXPECT_EQ(named_for_model({"m/r50k_base.tiktoken"}), (Named{{"r50k_base.tiktoken", "m/r50k_base.tiktoken"}}));
}

}  // namespace
}  // namespace ballast
