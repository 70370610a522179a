#pragma once
// Tokens outside the merges - special ones and added words - and how they are found in a text: the longest at the leftmost place,
// as Hugging Face's files mean it.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ballast {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool single_word = false;   // only where no word character touches it
  bool lstrip = false;        // takes the white space before it
  bool rstrip = false;        // ... after it
  bool normalized = false;    // looked for after normalization
  bool operator==(const AddedToken&) const = default;
};

struct TextPart {
  std::string_view text;
  int32_t id;   // -1: ordinary text
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Contents must not be empty.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  // Appends the parts of valid UTF-8 in order, never empty text. `ordinary`: special tokens are text like any other.
  void split(std::string_view text, bool ordinary, std::vector<TextPart>& parts) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> next;   // ascending
    int32_t token = -1;                                    // index, where a content ends
  };
  // Index of the longest token at the beginning of `text`, or -1.
  int32_t longest(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> may_begin_{};
};

}  // namespace ballast
