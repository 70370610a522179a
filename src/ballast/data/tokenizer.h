#pragma once
// Text to token ids and back, whatever file the tokenizer comes from. A value of this type never changes: encode and decode may be
// called from many threads at once.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

struct SpecialToken {
  std::string text;
  int32_t id = 0;
  bool operator==(const SpecialToken&) const = default;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of the text, as the tokenizer's original library gives them when it is asked to add no special tokens. Special tokens that
  // are written inside the text: files of Hugging Face (tokenizer.json, vocab.json) recognise them, as `tokenizers` does by default;
  // rank files of tiktoken read them as ordinary text, as its encode_ordinary does; SentencePiece reads control symbols as text.
  // Bytes that are not UTF-8: byte-level tokenizers cut the text around them and encode them byte by byte, so that decode gives
  // them back; SentencePiece replaces them by U+FFFD. Throws Error(Data) for text that the tokenizer has no tokens for.
  std::vector<int32_t> encode(std::string_view text) const;
  // As encode, but no text can give a special token: for what users write inside a chat template.
  std::vector<int32_t> encode_ordinary(std::string_view text) const;
  // The same two without a new vector: appends to `ids`.
  virtual void append(std::string_view text, std::vector<int32_t>& ids) const = 0;
  virtual void append_ordinary(std::string_view text, std::vector<int32_t>& ids) const = 0;

  // The bytes of the ids, special tokens included, nothing cleaned up; SentencePiece writes control symbols as nothing and drops
  // the space that it puts before a text. Throws Error(Data) for an id that stands for no token.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocab_size() const = 0;     // highest id + 1
  virtual int32_t end_of_text() const = 0;    // throws Error(Data) if the tokenizer names none
  // The id of a special token by its exact text; nothing for ordinary tokens.
  virtual std::optional<int32_t> find(std::string_view special_token) const = 0;
  virtual std::vector<SpecialToken> special_tokens() const = 0;   // those that find() knows, ids ascending
  virtual const char* method() const = 0;     // "byte-level BPE"
  virtual uint64_t hash() const = 0;          // XXH3 over all that decides the ids
  // What it was read from, and what lies beside that for `transformers`: to be copied into a model folder (named_for_model).
  virtual std::vector<std::filesystem::path> files() const = 0;
};

// A folder with tokenizer.json (+ tokenizer_config.json), vocab.json + merges.txt, one *.tiktoken file, or tokenizer.model
// (SentencePiece, or the rank file of Llama-3), or one of these files. Where a folder holds a SentencePiece tokenizer.model, that
// one is read and not a tokenizer.json converted from it. Throws Error(Data) for what is missing or unsupported, naming the key,
// and Error(CorruptFile) for damaged bytes, naming file and place.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder_or_file);

// The files of the tokenizer that a folder holds, unread; none if it holds no tokenizer (a tokenizer_config.json alone is none).
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder);
// The files by the names under which load_tokenizer of a model folder finds them: mine.json is tokenizer.json there, while rank files
// keep theirs, which says the pattern.
std::map<std::string, std::filesystem::path> named_for_model(const std::vector<std::filesystem::path>& files);

}  // namespace ballast
