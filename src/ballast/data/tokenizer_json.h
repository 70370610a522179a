#pragma once
// Hugging Face's tokenizer.json with a byte-level BPE model. What it asks for and Ballast does not do is refused by its key.
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ballast/data/tokenizer_bpe.h"
#include "ballast/data/tokenizer_json_value.h"

namespace ballast {

// Read: added_tokens, normalizer, pre_tokenizer, model. Checked and not applied: post_processor (no special tokens are added) and
// decoder. Not applied: truncation and padding, which are no part of a tokenizer. `end_of_text_token` names that token.
// Throws Error(CorruptFile) or Error(Data) naming `name` and the key.
std::unique_ptr<BpeTokenizer> parse_tokenizer_json(std::string_view bytes, const std::string& name,
                                                   const std::optional<std::string>& end_of_text_token = {},
                                                   std::vector<std::filesystem::path> files = {});

// The parts of it that stand in files of their own.
NormalForm read_normalizer(const JsonValue& normalizer);
Pretokenizer read_pretokenizer(const JsonValue& pretokenizer);
AddedToken read_added_token(const JsonValue& token);   // all but the id

}  // namespace ballast
