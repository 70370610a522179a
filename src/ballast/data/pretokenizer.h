#pragma once
// Cuts a text into the words that byte-pair merges may not cross, as a list of steps that tokenizer files name.
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/data/pretokenizer_patterns.h"
#include "ballast/data/pretokenizer_regex.h"

namespace ballast {

enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

struct PretokenizerStep {
  enum class Kind { Pattern, Digits, PrefixSpace } kind = Kind::Pattern;
  std::string text;                         // Pattern: as written in the file
  std::optional<KnownPattern> known;        // Pattern: either this
  std::shared_ptr<const Regex> regex;       // ... or this
  SplitBehavior behavior = SplitBehavior::Isolated;   // of matches; Digits: Isolated or Contiguous
  bool invert = false;                      // what does not match counts as a match and the reverse
};

// Where words and their bytes stand while they are used; one per thread.
struct PretokenizerScratch {
  std::vector<std::string_view> words;
  RegexScratch regex;
  std::deque<std::string> prefixed;         // bytes of words that got a space put before them
  std::vector<std::string_view> previous;
};

class Pretokenizer {
 public:
  Pretokenizer() = default;
  explicit Pretokenizer(std::vector<PretokenizerStep> steps);

  // The only step, where a hand-written matcher does all the work.
  std::optional<KnownPattern> single() const { return single_; }
  // Fills scratch.words, never with empty ones; they live until the next call or as long as `text`, which is valid UTF-8.
  void split(std::string_view text, PretokenizerScratch& scratch) const;
  // All that decides the words, as text: for hashes.
  std::string description() const;

 private:
  std::vector<PretokenizerStep> steps_;
  std::optional<KnownPattern> single_;
};

// A step for a pattern in the dialect of Hugging Face's files. Throws Error(Data) naming `place` for what is not supported.
PretokenizerStep pattern_step(const std::string& pattern, SplitBehavior behavior, bool invert, const std::string& place);

}  // namespace ballast
