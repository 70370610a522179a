#include "ballast/data/tokenizer_bpe.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <xxhash.h>

#include "ballast/base/error.h"
#include "ballast/data/pretokenizer_unicode.h"

namespace ballast {

struct BpeTokenizer::Scratch {
  BpeScratch bpe;
  PretokenizerScratch pretokenizer;
  std::vector<TextPart> parts, normalized_parts;
  std::string normalized;
};

class BpeTokenizer::Lease {
 public:
  explicit Lease(const BpeTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner.mutex_);
    if (!owner.idle_.empty()) {
      scratch_ = std::move(owner.idle_.back());
      owner.idle_.pop_back();
    }
  }
  ~Lease() {
    if (!scratch_) return;
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch& operator*() {
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
    return *scratch_;
  }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

BpeTokenizer::BpeTokenizer(BpeParts parts) : parts_(std::move(parts)) {
  WholeWords whole_words;
  if (parts_.whole_words_first) {
    std::vector<bool> is_added(parts_.tokens.size());
    for (const AddedToken& token : parts_.added) is_added[static_cast<size_t>(token.id)] = true;
    for (size_t id = 0; id < parts_.tokens.size(); ++id) {
      if (parts_.tokens[id] && !is_added[id]) whole_words.emplace(*parts_.tokens[id], static_cast<int32_t>(id));
    }
  }
  model_ = BpeModel(parts_.byte_ids, parts_.merges, std::move(whole_words), parts_.unknown);
  std::vector<AddedToken> before, after;
  std::string storage;
  for (const AddedToken& token : parts_.added) {
    if (token.special) special_.emplace(token.content, token.id);
    if (!parts_.recognise_added) continue;
    if (!token.normalized) {
      before.push_back(token);
    } else {
      after.push_back(token);
      after.back().content = std::string(normalize(parts_.normal_form, token.content, storage));
    }
  }
  before_normalization_ = AddedTokens(std::move(before));
  after_normalization_ = AddedTokens(std::move(after));
  hash_ = compute_hash();
  parts_.merges = {};   // the model holds them now
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::append(std::string_view text, std::vector<int32_t>& ids) const { encode_text(text, false, ids); }
void BpeTokenizer::append_ordinary(std::string_view text, std::vector<int32_t>& ids) const { encode_text(text, true, ids); }

void BpeTokenizer::encode_text(std::string_view text, bool ordinary, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  Lease lease(*this);
  Scratch& scratch = *lease;
  if (simdjson::validate_utf8(text.data(), text.size())) return encode_valid(text, ordinary, scratch, ids);
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) encode_valid(text.substr(0, valid), ordinary, scratch, ids);
    text.remove_prefix(valid);
    const size_t invalid = invalid_utf8_prefix(text);
    if (invalid > 0) model_.append(text.substr(0, invalid), scratch.bpe, ids);
    text.remove_prefix(invalid);
  }
}

void BpeTokenizer::encode_valid(std::string_view text, bool ordinary, Scratch& scratch, std::vector<int32_t>& ids) const {
  scratch.parts.clear();
  before_normalization_.split(text, ordinary, scratch.parts);
  for (const TextPart& part : scratch.parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    const std::string_view normalized = normalize(parts_.normal_form, part.text, scratch.normalized);
    if (after_normalization_.empty()) {
      encode_words(normalized, scratch, ids);
      continue;
    }
    scratch.normalized_parts.clear();
    after_normalization_.split(normalized, ordinary, scratch.normalized_parts);
    for (const TextPart& inner : scratch.normalized_parts) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        encode_words(inner.text, scratch, ids);
      }
    }
  }
}

void BpeTokenizer::encode_words(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (const auto pattern = parts_.pretokenizer.single()) {
    const char *p = text.data(), *end = p + text.size();
    while (p < end) {
      const char* q = next_piece(*pattern, p, end);
      model_.append({p, static_cast<size_t>(q - p)}, scratch.bpe, ids);
      p = q;
    }
    return;
  }
  parts_.pretokenizer.split(text, scratch.pretokenizer);
  for (const std::string_view word : scratch.pretokenizer.words) model_.append(word, scratch.bpe, ids);
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t id = ids[i];
    if (id < 0 || id >= vocab_size() || !parts_.tokens[static_cast<size_t>(id)]) {
      throw Error(ErrorKind::Data, fmt::format("token id {} stands for no token", id))
          .at(parts_.name, fmt::format("position {}", i))
          .expected(fmt::format("an id of the tokenizer, below {}", vocab_size()));
    }
    text += *parts_.tokens[static_cast<size_t>(id)];
  }
  return text;
}

int32_t BpeTokenizer::end_of_text() const {
  if (parts_.end_of_text) return *parts_.end_of_text;
  throw Error(ErrorKind::Data, "the tokenizer names no end-of-text token").at(parts_.name).cure(parts_.end_of_text_cure);
}

std::vector<SpecialToken> BpeTokenizer::special_tokens() const {
  std::vector<SpecialToken> tokens;
  for (const auto& [text, id] : special_) tokens.push_back({text, id});
  std::sort(tokens.begin(), tokens.end(), [](const SpecialToken& a, const SpecialToken& b) { return a.id < b.id; });
  return tokens;
}

std::optional<int32_t> BpeTokenizer::find(std::string_view special_token) const {
  const auto found = special_.find(special_token);
  return found == special_.end() ? std::nullopt : std::optional(found->second);
}

uint64_t BpeTokenizer::compute_hash() const {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  const auto number = [&](int64_t value) { XXH3_64bits_update(state.get(), &value, sizeof(value)); };
  const auto text = [&](std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    XXH3_64bits_update(state.get(), value.data(), value.size());
  };
  number(static_cast<int64_t>(parts_.tokens.size()));
  for (const auto& token : parts_.tokens) {
    number(token.has_value());
    if (token) text(*token);
  }
  for (const int32_t id : parts_.byte_ids) number(id);
  number(static_cast<int64_t>(parts_.merges.size()));
  for (const Merge& merge : parts_.merges) {
    for (const int32_t value : {merge.left, merge.right, merge.rank, merge.result}) number(value);
  }
  number(parts_.whole_words_first);
  number(parts_.unknown);
  number(static_cast<int>(parts_.normal_form));
  text(parts_.pretokenizer.description());
  number(parts_.recognise_added);
  number(static_cast<int64_t>(parts_.added.size()));
  for (const AddedToken& token : parts_.added) {
    text(token.content);
    for (const int64_t value : {int64_t{token.id}, int64_t{token.special}, int64_t{token.single_word}, int64_t{token.lstrip},
                                int64_t{token.rstrip}, int64_t{token.normalized}}) {
      number(value);
    }
  }
  number(parts_.end_of_text ? *parts_.end_of_text : -1);
  return XXH3_64bits_digest(state.get());
}

}  // namespace ballast
