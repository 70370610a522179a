#pragma once
// The byte-level BPE tokenizer that tokenizer.json, vocab.json + merges.txt and tiktoken's rank files all describe.
#include <map>
#include <mutex>

#include "ballast/data/bpe.h"
#include "ballast/data/pretokenizer.h"
#include "ballast/data/tokenizer.h"
#include "ballast/data/tokenizer_added.h"
#include "ballast/data/tokenizer_normalizer.h"

namespace ballast {

// What a file says, in one form.
struct BpeParts {
  std::string name;                              // the file, for errors
  std::vector<std::optional<std::string>> tokens;   // bytes by id; nothing where an id stands for no token. Added ones included
  std::array<int32_t, 256> byte_ids;             // BpeModel::kNone where the vocabulary lacks a byte
  std::vector<Merge> merges;
  bool whole_words_first = false;                // a word that is a token needs no merges
  int32_t unknown = BpeModel::kNone;
  NormalForm normal_form = NormalForm::None;
  Pretokenizer pretokenizer;
  std::vector<AddedToken> added;                 // with their ids
  bool recognise_added = true;                   // in ordinary text
  std::optional<int32_t> end_of_text;
  std::string end_of_text_cure;                  // what to do when there is none
  std::vector<std::filesystem::path> files;
};

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts);
  ~BpeTokenizer() override;

  void append(std::string_view text, std::vector<int32_t>& ids) const override;
  void append_ordinary(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(parts_.tokens.size()); }
  int32_t end_of_text() const override;
  std::optional<int32_t> find(std::string_view special_token) const override;
  std::vector<SpecialToken> special_tokens() const override;
  const char* method() const override { return "byte-level BPE"; }
  uint64_t hash() const override { return hash_; }
  std::vector<std::filesystem::path> files() const override { return parts_.files; }

 private:
  struct Scratch;
  class Lease;   // a scratch for the length of one call
  void encode_valid(std::string_view text, bool ordinary, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_text(std::string_view text, bool ordinary, std::vector<int32_t>& ids) const;
  uint64_t compute_hash() const;

  BpeParts parts_;
  BpeModel model_;
  AddedTokens before_normalization_, after_normalization_;
  std::map<std::string, int32_t, std::less<>> special_;
  uint64_t hash_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;   // as many as threads ever encoded at once
};

}  // namespace ballast
