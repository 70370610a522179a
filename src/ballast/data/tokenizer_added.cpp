#include "ballast/data/tokenizer_added.h"

#include <algorithm>

#include "ballast/data/pretokenizer_unicode.h"

namespace ballast {
namespace {

uint8_t classes_at(std::string_view text, size_t at) {
  return classes_of(unicode_table(), decode_character(reinterpret_cast<const unsigned char*>(text.data()) + at).code_point);
}

// Where the character that ends before `at` begins.
size_t character_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    size_t at = 0;
    may_begin_[static_cast<unsigned char>(tokens_[i].content[0])] = true;
    for (const char c : tokens_[i].content) {
      const auto byte = static_cast<unsigned char>(c);
      auto& next = nodes_[at].next;
      auto found = std::lower_bound(next.begin(), next.end(), std::pair<unsigned char, int32_t>{byte, -1});
      if (found == next.end() || found->first != byte) {
        found = next.insert(found, {byte, static_cast<int32_t>(nodes_.size())});
        at = static_cast<size_t>(found->second);
        nodes_.emplace_back();
      } else {
        at = static_cast<size_t>(found->second);
      }
    }
    nodes_[at].token = static_cast<int32_t>(i);
  }
}

int32_t AddedTokens::longest(std::string_view text) const {
  int32_t best = -1;
  size_t at = 0;
  for (const char c : text) {
    const auto& next = nodes_[at].next;
    const auto byte = static_cast<unsigned char>(c);
    const auto found = std::lower_bound(next.begin(), next.end(), std::pair<unsigned char, int32_t>{byte, -1});
    if (found == next.end() || found->first != byte) break;
    at = static_cast<size_t>(found->second);
    if (nodes_[at].token >= 0) best = nodes_[at].token;
  }
  return best;
}

void AddedTokens::split(std::string_view text, bool ordinary, std::vector<TextPart>& parts) const {
  size_t done = 0;
  if (!tokens_.empty()) {
    for (size_t at = 0; at < text.size();) {
      if (!may_begin_[static_cast<unsigned char>(text[at])]) {
        ++at;
        continue;
      }
      const int32_t index = longest(text.substr(at));
      if (index < 0) {
        ++at;
        continue;
      }
      const AddedToken& token = tokens_[static_cast<size_t>(index)];
      size_t begin = at, end = at + token.content.size();
      at = end;
      if (ordinary && token.special) continue;
      if (token.single_word && ((begin > 0 && (classes_at(text, character_before(text, begin)) & kWord)) ||
                                (end < text.size() && (classes_at(text, end) & kWord)))) {
        continue;
      }
      if (token.lstrip) {
        while (begin > done && (classes_at(text, character_before(text, begin)) & kSpace)) begin = character_before(text, begin);
      }
      if (token.rstrip) {
        while (end < text.size() && (classes_at(text, end) & kSpace)) {
          end += decode_character(reinterpret_cast<const unsigned char*>(text.data()) + end).bytes;
        }
      }
      if (begin > done) parts.push_back({text.substr(done, begin - done), -1});
      parts.push_back({text.substr(begin, end - begin), token.id});
      // The next token is looked for where this one's content ends, even inside the white space that it took: the original does so.
      done = end;
    }
  }
  if (done < text.size()) parts.push_back({text.substr(done), -1});
}

}  // namespace ballast
