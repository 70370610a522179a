#pragma once
// Hand-written matchers of the pre-tokenizer patterns that nearly all byte-level tokenizers use. Tests hold them equal to PCRE2
// running the pattern's text, and to the original libraries.
#include <optional>
#include <string>
#include <string_view>

namespace ballast {

enum class KnownPattern {
  Gpt2,            // GPT-2, r50k, p50k
  Cl100k,          // as tiktoken has it today: white space at the end of the text is one piece
  Llama3,          // Llama-3, and cl100k in Hugging Face's files
  Qwen,            // as Llama-3, digits one by one
  O200k
};

// The pattern's text in the dialect of Hugging Face's files.
const char* pattern_text(KnownPattern pattern);
// The known pattern with this meaning, whichever of its published spellings `text` is.
std::optional<KnownPattern> find_known_pattern(std::string_view text);

// End of the piece that begins at `begin` < `end`; the text is valid UTF-8. Pieces cover the text without holes.
const char* next_piece(KnownPattern pattern, const char* begin, const char* end);

}  // namespace ballast
