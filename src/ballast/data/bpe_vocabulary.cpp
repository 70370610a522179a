#include "ballast/data/bpe_vocabulary.h"

#include <fmt/format.h>

#include "ballast/base/error.h"
#include "ballast/data/tokenizer_bytes.h"

namespace ballast {
namespace {

std::string shown(std::string_view text) { return "'" + printable(std::string(text)) + "'"; }

}  // namespace

void BpeVocabulary::claim(int64_t id, std::string bytes, const std::string& place) {
  if (id < 0 || id > kHighestId) {
    throw Error(ErrorKind::Data, fmt::format("token id {} is out of range", id)).at(name_, place).expected(fmt::format("0 to {}", kHighestId));
  }
  if (const auto [at, added] = bytes_.emplace(static_cast<int32_t>(id), std::move(bytes)); !added) {
    throw Error(ErrorKind::Data, fmt::format("two tokens have the id {}", id)).at(name_, place).found("also " + shown(at->second));
  }
  highest_ = std::max(highest_, id);
}

void BpeVocabulary::add_token(std::string_view text, int64_t id, const std::string& place) {
  if (text.empty()) throw Error(ErrorKind::Data, "a token is empty").at(name_, place);
  if (ids_.contains(text)) throw Error(ErrorKind::Data, fmt::format("token {} appears twice", shown(text))).at(name_, place);
  // What is not in the byte alphabet is no product of merges: such tokens are only ever decoded.
  claim(id, from_byte_alphabet(text).value_or(std::string(text)), place);
  ids_.emplace(text, static_cast<int32_t>(id));
}

void BpeVocabulary::add_merge(std::string_view left, std::string_view right, const std::string& place) {
  const auto id_of = [&](std::string_view text) {
    const auto found = ids_.find(text);
    if (found == ids_.end()) {
      throw Error(ErrorKind::Data, fmt::format("a merge refers to {}, which is not in the vocabulary", shown(text)))
          .at(name_, place)
          .found(fmt::format("merge of {} and {}", shown(left), shown(right)))
          .cure("take vocabulary and merges from the same tokenizer");
    }
    return found->second;
  };
  const int32_t left_id = id_of(left), right_id = id_of(right);
  const int32_t result = id_of(std::string(left) + std::string(right));
  merges_.push_back({left_id, right_id, static_cast<int32_t>(merges_.size()), result});
}

void BpeVocabulary::add_added(AddedToken token, const std::string& place) {
  if (token.content.empty()) throw Error(ErrorKind::Data, "an added token is empty").at(name_, place);
  if (added_ids_.contains(token.content)) {
    throw Error(ErrorKind::Data, fmt::format("added token {} appears twice", shown(token.content))).at(name_, place);
  }
  if (const auto found = ids_.find(token.content); found != ids_.end()) {
    if (found->second != token.id) {
      throw Error(ErrorKind::Data, fmt::format("added token {} has another id in the vocabulary", shown(token.content)))
          .at(name_, place)
          .found(fmt::format("{}", token.id))
          .expected(fmt::format("{}", found->second));
    }
    bytes_[token.id] = token.content;
  } else {
    claim(token.id, token.content, place);
  }
  added_ids_.emplace(token.content, token.id);
  added_.push_back(std::move(token));
}

std::optional<int32_t> BpeVocabulary::find(std::string_view text) const {
  if (const auto found = added_ids_.find(text); found != added_ids_.end()) return found->second;
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  return {};
}

std::optional<int64_t> BpeVocabulary::first_gap() const {
  if (static_cast<int64_t>(bytes_.size()) == highest_ + 1) return {};
  int64_t id = 0;
  while (bytes_.contains(static_cast<int32_t>(id))) ++id;
  return id;
}

void BpeVocabulary::finish(BpeParts& parts) {
  if (ids_.empty()) throw Error(ErrorKind::Data, "the vocabulary is empty").at(name_);
  // Some published tokenizers leave holes before their added tokens; a highest id far beyond the count is a broken file.
  if (highest_ + 1 > 2 * static_cast<int64_t>(bytes_.size()) + 65536) {
    throw Error(ErrorKind::Data, "token ids leave too many gaps")
        .at(name_)
        .found(fmt::format("highest id {} with {} tokens", highest_, bytes_.size()));
  }
  parts.name = name_;
  parts.tokens.assign(static_cast<size_t>(highest_ + 1), std::nullopt);
  for (auto& [id, bytes] : bytes_) parts.tokens[static_cast<size_t>(id)] = std::move(bytes);
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto found = ids_.find(byte_alphabet()[byte]);
    parts.byte_ids[byte] = found == ids_.end() ? BpeModel::kNone : found->second;
  }
  parts.merges = std::move(merges_);
  parts.added = std::move(added_);
}

}  // namespace ballast
