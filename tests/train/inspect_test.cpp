// What inspect says of tokenizers, of token files of other trainers and of a model's config.json.
#include "ballast/train/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "ballast/base/error.h"
#include "scratch_folder.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const fs::path kGolden = fs::path(BALLAST_SOURCE_DIR) / "tests/data/golden";

template <class... Values>
std::string bytes_of(Values... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

class Inspect : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) {
    std::ofstream(scratch_.path() / name, std::ios::binary) << bytes;
    return scratch_.path() / name;
  }
  ScratchFolder scratch_;
};

TEST_F(Inspect, TokenizersByFolderAndByFile) {
  for (const fs::path& path : {kGolden / "qwen", kGolden / "qwen/tokenizer.json"}) {
    const Inspection seen = inspect(path, false);
    EXPECT_EQ(seen.json["kind"], "tokenizer");
    EXPECT_EQ(seen.json["method"], "byte-level BPE");
    EXPECT_EQ(seen.json["vocab_size"], 1000);
    EXPECT_EQ(seen.json["special_tokens"], Json::parse(R"([{"id": 0, "text": "<|endoftext|>"}, {"id": 1, "text": "<|im_start|>"}, {"id": 2, "text": "<|im_end|>"}])"));
    EXPECT_EQ(seen.json["files"].size(), 2u);
    EXPECT_EQ(seen.json["verified"], true);
    EXPECT_THAT(seen.text, HasSubstr("<|im_start|>"));
  }
  const Inspection ranks = inspect(kGolden / "cl100k_base.tiktoken", false);
  EXPECT_EQ(ranks.json["vocab_size"], 100277);
  EXPECT_EQ(ranks.json["end_of_text"], 100257);
  for (const fs::path& path : {kGolden / "sp_bpe", kGolden / "sp_bpe/tokenizer.model"}) {
    const Inspection pieces = inspect(path, false);
    EXPECT_EQ(pieces.json["method"], "SentencePiece");
    EXPECT_EQ(pieces.json["end_of_text"], 2);
    EXPECT_EQ(pieces.json["special_tokens"], Json::parse(R"([{"id": 1, "text": "<s>"}, {"id": 2, "text": "</s>"}, {"id": 3, "text": "<ctrl>"}])"));
  }
  const fs::path gpt2 = fs::path(BALLAST_SOURCE_DIR) / "examples/tokenizers/gpt2";
  for (const char* name : {"", "vocab.json", "merges.txt"}) EXPECT_EQ(inspect(gpt2 / name, false).json["vocab_size"], 50257) << name;
}

TEST_F(Inspect, ATokenizerWithoutEndOfTextSaysSo) {
  fs::copy_file(kGolden / "qwen/tokenizer.json", scratch_.path() / "tokenizer.json");
  const Inspection seen = inspect(scratch_.path(), false);
  EXPECT_TRUE(seen.json["end_of_text"].is_null());
  EXPECT_THAT(seen.text, HasSubstr("no end-of-text is named"));
}

TEST_F(Inspect, TokenFilesOfLlmc) {
  std::string bytes = bytes_of(int32_t{20240520}, int32_t{1}, int32_t{6});
  bytes.resize(1024);
  bytes += bytes_of(uint16_t{9}, uint16_t{1}, uint16_t{2}, uint16_t{9}, uint16_t{40}, uint16_t{3});
  const fs::path path = write("a.bin", bytes);
  const Inspection quick = inspect(path, false);
  EXPECT_EQ(quick.json["kind"], "token file of llm.c");
  EXPECT_EQ(quick.json["dtype"], "uint16");
  EXPECT_EQ(quick.json["tokens"], 6);
  EXPECT_FALSE(quick.json.contains("highest_id"));
  EXPECT_THAT(quick.text, HasSubstr("--verify"));
  const Inspection whole = inspect(path, true);
  EXPECT_EQ(whole.json["highest_id"], 40);
  EXPECT_EQ(whole.json["documents"], 2);   // two tokens are the first one's id
  EXPECT_EQ(whole.json["first_id"], 9);
  bytes.pop_back();
  EXPECT_THROW(inspect(write("b.bin", bytes), false), Error);
}

TEST_F(Inspect, TokenFilesOfMegatron) {
  const fs::path bin = write("m.bin", bytes_of(int32_t{7}, int32_t{70000}, int32_t{5}, int32_t{6}, int32_t{7}));
  // Three sequences of 2, 1 and 2 tokens, in two documents: that of the first two, and that of the last.
  const fs::path idx = write("m.idx", std::string("MMIDIDX\0\0", 9) + bytes_of(uint64_t{1}, uint8_t{4}, uint64_t{3}, uint64_t{3}) +
                                          bytes_of(int32_t{2}, int32_t{1}, int32_t{2}, int64_t{0}, int64_t{8}, int64_t{12}, int64_t{0}, int64_t{2}, int64_t{3}));
  for (const fs::path& path : {bin, idx}) {
    const Inspection seen = inspect(path, true);
    EXPECT_EQ(seen.json["kind"], "token file of Megatron-LM");
    EXPECT_EQ(seen.json["dtype"], "int32");
    EXPECT_EQ(seen.json["tokens"], 5);
    EXPECT_EQ(seen.json["records"], 3);
    EXPECT_EQ(seen.json["documents"], 2);
    EXPECT_EQ(seen.json["highest_id"], 70000);
    EXPECT_THAT(seen.text, HasSubstr("3 sequences, 2 documents"));
  }
}

TEST_F(Inspect, AConfigurationWithoutWeights) {
  const fs::path file = write("config.json", R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})");
  for (const fs::path& path : {file, scratch_.path()}) {
    const Inspection seen = inspect(path, false);
    EXPECT_EQ(seen.json["kind"], "model configuration");
    EXPECT_EQ(seen.json["vocab_size"], 257);
    EXPECT_EQ(seen.json["layers"], 2);
    EXPECT_GT(seen.json["parameters"].get<int64_t>(), 0);
    EXPECT_THAT(seen.text, HasSubstr("without weights"));
  }
}

TEST_F(Inspect, AModelShowsItsTokenizer) {
  fs::copy(fs::path(BALLAST_SOURCE_DIR) / "tests/model/golden/gpt2", scratch_.path());
  EXPECT_TRUE(inspect(scratch_.path(), false).json["tokenizer"].is_null());
  fs::copy_file(kGolden / "sp_bpe/tokenizer.model", scratch_.path() / "tokenizer.model");
  EXPECT_EQ(inspect(scratch_.path(), false).json["tokenizer"]["vocab_size"], 1000);
  write("tokenizer.model", "not one");
  const Inspection broken = inspect(scratch_.path(), false);
  EXPECT_EQ(broken.json["kind"], "model");
  EXPECT_THAT(broken.json["tokenizer"]["error"].get<std::string>(), HasSubstr("neither"));
  EXPECT_THAT(broken.text, HasSubstr("cannot be used"));
}

TEST_F(Inspect, OtherJsonIsRefusedWithACure) {
  const fs::path path = write("notes.json", R"({"a": 1})");
  try {
    inspect(path, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
    EXPECT_THAT(error.what(), HasSubstr("cure:"));
  }
}

}  // namespace
}  // namespace ballast
