// Damaged and unsupported tokenizer files: each gives one typed error that names file and place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/data/tokenizer_bytes.h"
#include "ballast/data/tokenizer_files.h"
#include "ballast/data/tokenizer_json.h"

namespace ballast {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kGolden = fs::path(BALLAST_SOURCE_DIR) / "tests/data/golden";

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_error(const std::function<void()>& call, ErrorKind kind, std::initializer_list<const char*> texts) {
  try {
    call();
    ADD_FAILURE() << "no error: " << *texts.begin();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const char* text : texts) EXPECT_THAT(error.what(), testing::HasSubstr(text));
  }
}

json small() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 3, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
              "fuse_unk": false, "byte_fallback": false, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

TEST(TokenizerCorruption, TheUndamagedFileIsRead) {
  const auto tokenizer = parse_tokenizer_json(small().dump(), "t.json", "<end>");
  EXPECT_EQ(tokenizer->encode("abb<end>a"), (std::vector<int32_t>{2, 1, 3, 0}));
  EXPECT_EQ(tokenizer->end_of_text(), 3);
  json pairs = small();
  pairs["model"]["merges"] = json::parse(R"([["a", "b"]])");
  EXPECT_EQ(parse_tokenizer_json(pairs.dump(), "t.json", "<end>")->hash(), tokenizer->hash());
  expect_error([&] { tokenizer->encode("abc"); }, ErrorKind::Data, {"byte 0x63"});
  expect_error([&] { tokenizer->decode(std::vector<int32_t>{0, 4}); }, ErrorKind::Data, {"token id 4", "t.json", "position 1"});
  expect_error([&] { tokenizer->decode(std::vector<int32_t>{-1}); }, ErrorKind::Data, {"token id -1"});
  expect_error([&] { parse_tokenizer_json(small().dump(), "t.json")->end_of_text(); }, ErrorKind::Data, {"end-of-text", "eos_token"});
  expect_error([&] { parse_tokenizer_json(small().dump(), "t.json", "</s>"); }, ErrorKind::Data, {"eos_token '</s>'"});
}

struct JsonRow {
  const char* what;
  const char* patch;   // merge patch (RFC 7396): null removes, so null values are tested elsewhere
  const char* place;
  const char* text;
};

class JsonTable : public testing::TestWithParam<JsonRow> {};

TEST_P(JsonTable, IsRefused) {
  json value = small();
  value.merge_patch(json::parse(GetParam().patch));
  expect_error([&] { parse_tokenizer_json(value.dump(), "t.json"); }, ErrorKind::Data, {"t.json", GetParam().place, GetParam().text});
}

INSTANTIATE_TEST_SUITE_P(
    TokenizerCorruption, JsonTable,
    testing::Values(
        JsonRow{"no_model", R"({"model": null})", "the top level", "'model' is missing"},
        JsonRow{"unknown_key", R"({"extra": 1})", "the top level", "'extra'"},
        JsonRow{"model_type", R"({"model": {"type": "Unigram"}})", "model.type", "Unigram"},
        JsonRow{"word_piece", R"({"model": {"type": "WordPiece"}})", "model.type", "WordPiece"},
        JsonRow{"model_key", R"({"model": {"subwords": 1}})", "model", "'subwords'"},
        JsonRow{"model_text", R"({"model": "BPE"})", "model", "an object"},
        JsonRow{"dropout", R"({"model": {"dropout": 0.1}})", "model.dropout", "dropout"},
        JsonRow{"byte_fallback", R"({"model": {"byte_fallback": true}})", "model.byte_fallback", "byte_fallback"},
        JsonRow{"suffix", R"({"model": {"end_of_word_suffix": "</w>"}})", "model.end_of_word_suffix", "not supported"},
        JsonRow{"prefix", R"({"model": {"continuing_subword_prefix": "##"}})", "model.continuing_subword_prefix", "not supported"},
        JsonRow{"vocab_list", R"({"model": {"vocab": ["a", "b"]}})", "model.vocab", "an object"},
        JsonRow{"id_text", R"({"model": {"vocab": {"b": "1"}}})", "model.vocab['b']", "integer"},
        JsonRow{"id_fraction", R"({"model": {"vocab": {"b": 1.5}}})", "model.vocab['b']", "integer"},
        JsonRow{"id_negative", R"({"model": {"vocab": {"b": -1}}})", "model.vocab['b']", "out of range"},
        JsonRow{"id_huge", R"({"model": {"vocab": {"b": 9000000000}}})", "model.vocab['b']", "out of range"},
        JsonRow{"id_far", R"({"model": {"vocab": {"b": 4000000}}})", "t.json", "too many gaps"},
        JsonRow{"id_twice", R"({"model": {"vocab": {"b": 0}}})", "model.vocab['b']", "two tokens have the id 0"},
        JsonRow{"token_empty", R"({"model": {"vocab": {"": 7}}})", "model.vocab['']", "empty"},
        JsonRow{"merges_missing", R"({"model": {"merges": null}})", "model", "'merges'"},
        JsonRow{"merges_object", R"({"model": {"merges": {"a": "b"}}})", "model.merges", "an array"},
        JsonRow{"merge_unknown", R"({"model": {"merges": ["a b", "a c"]}})", "model.merges[1]", "'c'"},
        JsonRow{"merge_result", R"({"model": {"merges": ["b a"]}})", "model.merges[0]", "'ba'"},
        JsonRow{"merge_single", R"({"model": {"merges": ["ab"]}})", "model.merges[0]", "two tokens"},
        JsonRow{"merge_three", R"({"model": {"merges": ["a b a"]}})", "model.merges[0]", "two tokens"},
        JsonRow{"merge_pair", R"({"model": {"merges": [["a"]]}})", "model.merges[0]", "two tokens"},
        JsonRow{"merge_number", R"({"model": {"merges": [5]}})", "model.merges[0]", "an array"},
        JsonRow{"merge_inner", R"({"model": {"merges": [["a", 1]]}})", "model.merges[0][1]", "a string"},
        JsonRow{"unknown_token", R"({"model": {"unk_token": "zz"}})", "model.unk_token", "not in the vocabulary"},
        JsonRow{"ignore_text", R"({"model": {"ignore_merges": "yes"}})", "model.ignore_merges", "true or false"},
        JsonRow{"added_id", R"({"added_tokens": [{"content": "x"}]})", "added_tokens[0]", "'id'"},
        JsonRow{"added_taken", R"({"added_tokens": [{"content": "x", "id": 1}]})", "added_tokens[0]", "two tokens have the id 1"},
        JsonRow{"added_other", R"({"added_tokens": [{"content": "a", "id": 9}]})", "added_tokens[0]", "another id"},
        JsonRow{"added_twice", R"({"added_tokens": [{"content": "x", "id": 8}, {"content": "x", "id": 8}]})", "added_tokens[1]", "twice"},
        JsonRow{"added_empty", R"({"added_tokens": [{"content": "", "id": 9}]})", "added_tokens[0]", "empty"},
        JsonRow{"added_range", R"({"added_tokens": [{"content": "x", "id": -4}]})", "added_tokens[0]", "out of range"},
        JsonRow{"added_key", R"({"added_tokens": [{"content": "x", "id": 9, "colour": 1}]})", "added_tokens[0]", "'colour'"},
        JsonRow{"normalizer", R"({"normalizer": {"type": "Lowercase"}})", "normalizer.type", "Lowercase"},
        JsonRow{"normalizers", R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFD"}]}})", "normalizer.normalizers", "more than one"},
        JsonRow{"no_pretokenizer", R"({"pre_tokenizer": null})", "the top level", "'pre_tokenizer'"},
        JsonRow{"metaspace", R"({"pre_tokenizer": {"type": "Metaspace"}})", "pre_tokenizer.type", "Metaspace"},
        JsonRow{"no_byte_level", R"({"pre_tokenizer": {"type": "Digits", "add_prefix_space": null, "trim_offsets": null, "use_regex": null}})", "pre_tokenizer", "not byte-level"},
        JsonRow{"after_byte_level", R"({"pre_tokenizer": {"type": "Sequence", "add_prefix_space": null, "trim_offsets": null, "use_regex": null, "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]}})", "pre_tokenizer.pretokenizers[1]", "follow"},
        JsonRow{"bad_regex", R"({"pre_tokenizer": {"type": "Split", "add_prefix_space": null, "trim_offsets": null, "use_regex": null, "pattern": {"Regex": "a$"}, "behavior": "Isolated"}})", "pre_tokenizer.pattern", "$"},
        JsonRow{"behavior", R"({"pre_tokenizer": {"type": "Split", "add_prefix_space": null, "trim_offsets": null, "use_regex": null, "pattern": {"String": "a"}, "behavior": "Cut"}})", "pre_tokenizer.behavior", "Cut"},
        JsonRow{"two_patterns", R"({"pre_tokenizer": {"type": "Split", "add_prefix_space": null, "trim_offsets": null, "use_regex": null, "pattern": {"String": "a", "Regex": "b"}, "behavior": "Isolated"}})", "pre_tokenizer.pattern", "either"},
        JsonRow{"decoder", R"({"decoder": {"type": "WordPiece"}})", "decoder.type", "WordPiece"},
        JsonRow{"post", R"({"post_processor": {"type": "Custom"}})", "post_processor.type", "Custom"}),
    [](const auto& info) { return std::string(info.param.what); });

TEST(TokenizerCorruption, TruncatedJson) {
  const std::string whole = read(kGolden / "qwen/tokenizer.json");
  for (size_t size = 0; size < whole.size(); size += 97) {
    expect_error([&] { parse_tokenizer_json(std::string_view(whole).substr(0, size), "cut.json"); }, ErrorKind::CorruptFile, {"cut.json"});
  }
  expect_error([&] { parse_tokenizer_json(std::string_view(whole).substr(0, 500), "cut.json"); }, ErrorKind::CorruptFile, {"byte 50"});
}

TEST(TokenizerCorruption, OtherBytesThanJson) {
  expect_error([] { parse_tokenizer_json("", "e.json"); }, ErrorKind::CorruptFile, {"e.json", "empty"});
  expect_error([] { parse_tokenizer_json("[1, 2]", "e.json"); }, ErrorKind::Data, {"e.json", "an object"});
  expect_error([] { parse_tokenizer_json("{\"model\": {\"type\": \"B\xff\"}}", "e.json"); }, ErrorKind::CorruptFile, {"e.json", "byte "});
  expect_error([] { parse_tokenizer_json(std::string(200'000, '['), "e.json"); }, ErrorKind::CorruptFile, {"e.json"});
  // One token twice as a key: a parser that keeps the last would not see it.
  std::string twice = small().dump();
  twice.replace(twice.find("\"b\":1"), 5, "\"b\":1,\"b\":5");
  expect_error([&] { parse_tokenizer_json(twice, "e.json"); }, ErrorKind::Data, {"model.vocab['b']", "twice"});
}

TEST(TokenizerCorruption, Gpt2Files) {
  const auto parse = [](const char* vocab, const char* merges, TokenizerConfig config = {}) { return parse_gpt2_files(vocab, "vocab.json", merges, "merges.txt", config, {}); };
  EXPECT_EQ(parse(R"({"a": 0, "b": 1, "ab": 2})", "#version: 0.2\r\na b\r\n")->encode("aab"), (std::vector<int32_t>{0, 2}));
  expect_error([&] { parse(R"({"a": 0, "b": 1})", "a b\n"); }, ErrorKind::Data, {"merges.txt line 1", "'ab'"});
  expect_error([&] { parse(R"({"a": 0, "b": 1})", "#version: 0.2\n\nab\n"); }, ErrorKind::Data, {"merges.txt", "line 3"});
  expect_error([&] { parse(R"({"a": 0, "b": 2})", ""); }, ErrorKind::Data, {"vocab.json", "no token has the id 1"});
  expect_error([&] { parse(R"({"a": 0, "b": "x"})", ""); }, ErrorKind::Data, {"vocab.json", "'b'", "an integer"});
  expect_error([&] { parse(R"({"a": 0, "b": 0})", ""); }, ErrorKind::Data, {"vocab.json", "'b'", "two tokens"});
  expect_error([&] { parse("{}", ""); }, ErrorKind::Data, {"vocab.json", "empty"});
  expect_error([&] { parse(R"({"a": 0)", ""); }, ErrorKind::CorruptFile, {"vocab.json", "byte "});
  expect_error([&] { parse(R"({"a": 0})", "", {.tokenizer_class = "Qwen2Tokenizer"}); }, ErrorKind::Data, {"Qwen2Tokenizer", "tokenizer.json"});
  expect_error([&] { parse(R"({"a": 0})", "")->end_of_text(); }, ErrorKind::Data, {"vocab.json", "end-of-text"});
  expect_error([] { parse_tokenizer_config(R"({"eos_token": 5})", "c.json"); }, ErrorKind::Data, {"c.json", "eos_token"});
  expect_error([] { parse_tokenizer_config(R"({"added_tokens_decoder": {"x1": {"content": "a"}}})", "c.json"); }, ErrorKind::Data, {"c.json", "'x1'", "not a token id"});
}

// All bytes, then "ab" and "abc"; lines can be changed.
std::string small_ranks() {
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += std::string{digits[byte >> 2], digits[(byte & 3) << 4]} + "== " + std::to_string(byte) + "\n";
  return text + "YWI= 256\nYWJj 257\n";
}

TEST(TokenizerCorruption, RankFiles) {
  const auto parse = [](const std::string& bytes, const char* encoding = "cl100k_base", bool published = false) { return parse_tiktoken(bytes, "r.tiktoken", encoding, published, {}); };
  const std::string good = small_ranks();
  EXPECT_EQ(parse(good)->encode("abcab"), (std::vector<int32_t>{257, 256}));
  EXPECT_EQ(parse(good)->end_of_text(), 258);
  EXPECT_EQ(parse(good)->vocab_size(), 259);
  expect_error([&] { parse(good, "mine"); }, ErrorKind::Usage, {"'mine'", "cl100k_base", "NAME.PATTERN.tiktoken"});
  expect_error([&] { parse(good, "cl100kbase"); }, ErrorKind::Usage, {"did you mean cl100k_base"});
  expect_error([&] { parse(good, "cl100k_base", true); }, ErrorKind::CorruptFile, {"258 tokens", "100256"});
  for (const char* line : {"YWI 258", "YW=I 258", "YWJ= 258", "Y\x80J= 258", "YWJkZA==258", "YWJkZA== -1", "YWJkZA== 1x", "YWJkZA== 99999999999", " 258", "YWJkZA== "}) {
    expect_error([&] { parse(good + line + "\n"); }, ErrorKind::CorruptFile, {"r.tiktoken", "line 259"});
  }
  expect_error([&] { parse(good + "YWJkZA== 257\n"); }, ErrorKind::Data, {"two tokens have the rank 257"});
  expect_error([&] { parse(good + "YWI= 258\n"); }, ErrorKind::Data, {"appears twice"});
  expect_error([&] { parse(good + "YWJkZA== 260\n"); }, ErrorKind::Data, {"no token has the rank 258"});
  expect_error([&] { parse(good + "YWJkZA== 2000000000\n"); }, ErrorKind::Data, {"out of range"});
  expect_error([&] { parse(good.substr(good.find('\n') + 1) + "YWJkZA== 0\n"); }, ErrorKind::Data, {"byte 0x00"});
  expect_error([&] { parse(""); }, ErrorKind::Data, {"r.tiktoken"});
  const std::string whole = read(kGolden / "cl100k_base.tiktoken");
  expect_error([&] { parse(whole.substr(0, whole.size() / 2), "cl100k_base", true); }, ErrorKind::CorruptFile, {"r.tiktoken"});
}

TEST(TokenizerCorruption, SentencePieceModels) {
  const std::string whole = read(kGolden / "sp_bpe/tokenizer.model");
  expect_error([] { parse_sentencepiece("no model", "m.model", {}); }, ErrorKind::CorruptFile, {"m.model"});
  expect_error([&] { parse_sentencepiece(std::string_view(whole).substr(0, whole.size() / 2), "m.model", {}); }, ErrorKind::CorruptFile, {"m.model"});
  const auto tokenizer = parse_sentencepiece(whole, "m.model", {});
  expect_error([&] { tokenizer->decode(std::vector<int32_t>{1000}); }, ErrorKind::Data, {"1000", "m.model"});
}

TEST(TokenizerCorruption, Base64) {
  EXPECT_EQ(from_base64(""), "");
  EXPECT_EQ(from_base64("YQ=="), "a");
  EXPECT_EQ(from_base64("+/+/"), "\xfb\xff\xbf");
  for (const char* text : {"Y", "YQ", "YQ=", "YR==", "YWJ=", "=YQ=", "====", "YQ==YQ==", "Y Q="}) EXPECT_FALSE(from_base64(text)) << text;
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / ("ballast_tokenizer_" + std::to_string(::getpid()));
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  void TearDown() override { fs::remove_all(path_); }
  void write(const char* name, const std::string& bytes) { std::ofstream(path_ / name, std::ios::binary) << bytes; }
  fs::path path_;
};

TEST_F(Folder, MissingAndUnknownFiles) {
  expect_error([&] { load_tokenizer(path_ / "none"); }, ErrorKind::Data, {"no such tokenizer", "none"});
  expect_error([&] { load_tokenizer(path_); }, ErrorKind::Data, {"no tokenizer", "vocab.json"});
  write("vocab.json", "{\"a\": 0}");
  expect_error([&] { load_tokenizer(path_); }, ErrorKind::Data, {"merges.txt"});
  write("notes.txt", "x");
  expect_error([&] { load_tokenizer(path_ / "notes.txt"); }, ErrorKind::Data, {"notes.txt", "tokenizer.json"});
  write("merges.txt", "");
  expect_error([&] { load_tokenizer(path_); }, ErrorKind::CorruptFile, {"merges.txt", "empty"});
  write("tokenizer.json", "");
  expect_error([&] { load_tokenizer(path_); }, ErrorKind::CorruptFile, {"tokenizer.json", "empty"});
  write("tokenizer.model", "neither this nor that");
  expect_error([&] { load_tokenizer(path_ / "tokenizer.model"); }, ErrorKind::CorruptFile, {"tokenizer.model", "neither"});
}

TEST_F(Folder, RankFilesByName) {
  write("mine.llama3.tiktoken", small_ranks());
  EXPECT_EQ(load_tokenizer(path_)->encode("abc"), (std::vector<int32_t>{257}));
  write("other.tiktoken", small_ranks());
  expect_error([&] { load_tokenizer(path_); }, ErrorKind::Data, {"more than one rank file", "mine.llama3.tiktoken, other.tiktoken", "set data.tokenizer to one of the files, as in data.tokenizer=", "/mine.llama3.tiktoken"});
  expect_error([&] { load_tokenizer(path_ / "other.tiktoken"); }, ErrorKind::Usage, {"'other'"});
  write("tokenizer.model", small_ranks());
  expect_error([&] { load_tokenizer(path_ / "tokenizer.model"); }, ErrorKind::CorruptFile, {"258 tokens", "128000"});
}

TEST_F(Folder, SentencePieceBesideItsConversion) {
  write("tokenizer.model", read(kGolden / "sp_bpe/tokenizer.model"));
  write("tokenizer.json", R"({"model": {"type": "BPE"}, "added_tokens": [{"id": 2, "content": "</s>"}]})");
  EXPECT_EQ(load_tokenizer(path_)->end_of_text(), 2);
  write("tokenizer.json", R"({"model": {"type": "BPE"}, "added_tokens": [{"id": 1000, "content": "<|im_end|>"}]})");
  expect_error([&] { load_tokenizer(path_); }, ErrorKind::Data, {"added_tokens[0]", "<|im_end|>"});
}

TEST_F(Folder, EndOfTextFromTheFilesBeside) {
  write("tokenizer.json", small().dump());
  expect_error([&] { load_tokenizer(path_)->end_of_text(); }, ErrorKind::Data, {"eos_token"});
  write("special_tokens_map.json", R"({"eos_token": {"content": "<end>", "special": true}})");
  EXPECT_EQ(load_tokenizer(path_)->end_of_text(), 3);
  write("tokenizer_config.json", R"({"eos_token": "a"})");
  EXPECT_EQ(load_tokenizer(path_ / "tokenizer.json")->end_of_text(), 0);
  write("tokenizer_config.json", R"({"eos_token": )");
  expect_error([&] { load_tokenizer(path_); }, ErrorKind::CorruptFile, {"tokenizer_config.json"});
}

}  // namespace
}  // namespace ballast
