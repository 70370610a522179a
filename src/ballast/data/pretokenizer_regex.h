#pragma once
// Regular expressions of tokenizer files, run by PCRE2: those that no hand-written matcher knows. Character classes are those of
// the installed PCRE2's Unicode version.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ballast {

// What one thread needs to run any Regex.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

class Regex {
 public:
  // `pattern` is in the dialect of Hugging Face's files (Oniguruma). Constructs that PCRE2 would read otherwise are refused:
  // Error(Data) naming `place`, the construct and its offset.
  Regex(const std::string& pattern, const std::string& place);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // The first match at or after `from` in valid UTF-8; false if there is none. Throws Error(Data) where the match would take more
  // steps or memory than PCRE2's limits.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end, RegexScratch& scratch) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string pattern_, place_;
};

// Oniguruma's pattern in PCRE2's syntax; throws as the constructor does.
std::string translate_regex(std::string_view pattern, const std::string& place);
// The pattern that matches `text` itself.
std::string quote_regex(std::string_view text);

}  // namespace ballast
