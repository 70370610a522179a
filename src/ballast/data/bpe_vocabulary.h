#pragma once
// A BPE vocabulary while it is read: tokens and merges in GPT-2's byte alphabet, checked as they come.
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ballast/data/bpe.h"
#include "ballast/data/tokenizer_bpe.h"

namespace ballast {

class BpeVocabulary {
 public:
  static constexpr int64_t kHighestId = (int64_t{1} << 22) - 1;

  explicit BpeVocabulary(std::string name) : name_(std::move(name)) {}

  // Each throws Error(Data) with file and `place`: ids out of range or given twice, a token twice, a merge of unknown tokens.
  void add_token(std::string_view text, int64_t id, const std::string& place);
  void add_merge(std::string_view left, std::string_view right, const std::string& place);
  // An added token may repeat a token of the vocabulary under the same id.
  void add_added(AddedToken token, const std::string& place);

  std::optional<int32_t> find(std::string_view text) const;   // vocabulary and added tokens, as the file writes them
  int64_t token_count() const { return static_cast<int64_t>(ids_.size()); }
  int64_t merge_count() const { return static_cast<int64_t>(merges_.size()); }
  // The lowest id below the highest that no token has.
  std::optional<int64_t> first_gap() const;
  // Moves tokens, byte ids, merges and added tokens to `parts`. Throws Error(Data) for an empty vocabulary.
  void finish(BpeParts& parts);

 private:
  void claim(int64_t id, std::string bytes, const std::string& place);

  std::string name_;
  WholeWords ids_;                                        // as written
  std::unordered_map<int32_t, std::string> bytes_;        // by id
  std::vector<Merge> merges_;
  std::vector<AddedToken> added_;
  WholeWords added_ids_;
  int64_t highest_ = -1;
};

}  // namespace ballast
