#pragma once
// Readers of the tokenizer files other than tokenizer.json, each from bytes, and what stands in the files beside them.
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ballast/data/tokenizer_bpe.h"

namespace ballast {

// The bytes of a regular file. Throws Error(Data) if there is none, it is empty or larger than a tokenizer can be.
std::string read_tokenizer_file(const std::filesystem::path& path);

// What tokenizer_config.json and special_tokens_map.json say that matters for ids.
struct TokenizerConfig {
  std::optional<std::string> end_of_text;        // eos_token
  std::optional<std::string> tokenizer_class;
  bool add_prefix_space = false;
  bool has_added = false;                        // added_tokens_decoder is there
  std::vector<AddedToken> added;
};
// From the files in `folder`, if they are there.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);
TokenizerConfig parse_tokenizer_config(std::string_view bytes, const std::string& name);

// GPT-2's pair of files: `vocab` is JSON, token to id; `merges` one pair a line under a #version line.
std::unique_ptr<BpeTokenizer> parse_gpt2_files(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                                               const std::string& merges_name, const TokenizerConfig& config,
                                               std::vector<std::filesystem::path> files);

// tiktoken's rank file: a line per token, base64 and rank. `encoding`: r50k_base (gpt2), p50k_base, cl100k_base, o200k_base, llama3;
// the published files have known sizes. `published` false: a file of any size that uses the pattern of `encoding`, with
// <|endoftext|> as the only special token, after the highest rank. Throws Error(Usage) for an unknown encoding.
std::unique_ptr<BpeTokenizer> parse_tiktoken(std::string_view bytes, const std::string& name, const std::string& encoding,
                                             bool published, std::vector<std::filesystem::path> files);
// Whether the first line looks like one of a rank file.
bool looks_like_tiktoken(std::string_view bytes);

// SentencePiece .model, BPE or unigram, by libsentencepiece.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& name,
                                               std::vector<std::filesystem::path> files);
bool looks_like_sentencepiece(std::string_view bytes);

}  // namespace ballast
