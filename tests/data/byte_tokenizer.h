#pragma once
// A tokenizer whose ids can be read: one per byte, so tests can say what the tokens of a text are. And a folder that
// goes away.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ballast/data/tokenizer.h"

namespace ballast::testing {

// Bytes are ids 0..255, the end of text 256; "<|im_start|>" and "<|im_end|>" are 257 and 258. `vocab` beyond 65,536
// makes wide stores.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(int64_t vocab = 259, uint64_t hash = 42) : vocab_(vocab), hash_(hash) {}
  void append(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  void append_ordinary(std::string_view text, std::vector<int32_t>& ids) const override { append(text, ids); }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += id < 256 ? std::string(1, static_cast<char>(id)) : "|";
    return text;
  }
  int64_t vocab_size() const override { return vocab_; }
  int32_t end_of_text() const override { return 256; }
  std::optional<int32_t> find(std::string_view token) const override {
    if (token == "<|im_start|>") return 257;
    if (token == "<|im_end|>") return 258;
    return std::nullopt;
  }
  std::vector<SpecialToken> special_tokens() const override { return {{"<|im_start|>", 257}, {"<|im_end|>", 258}}; }
  const char* method() const override { return "bytes"; }
  uint64_t hash() const override { return hash_; }
  std::vector<std::filesystem::path> files() const override { return {}; }

 private:
  int64_t vocab_;
  uint64_t hash_;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> next{0};
    path_ = std::filesystem::temp_directory_path() /
            ("ballast-data-" + std::to_string(::getpid()) + "-" + std::to_string(next++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace ballast::testing
