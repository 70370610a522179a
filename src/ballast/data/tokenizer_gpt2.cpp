// vocab.json + merges.txt, the pair of files that GPT-2 was published with.
#include <fmt/format.h>

#include "ballast/base/error.h"
#include "ballast/data/bpe_vocabulary.h"
#include "ballast/data/tokenizer_files.h"
#include "ballast/data/tokenizer_json_value.h"

namespace ballast {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";

void read_vocab(std::string_view bytes, const std::string& name, BpeVocabulary& vocabulary) {
  simdjson::dom::parser parser;
  const JsonValue root = parse_json(parser, bytes, name);
  for (const auto field : root.object()) {
    const std::string place = fmt::format("'{}'", printable(std::string(field.key), 40));
    vocabulary.add_token(field.key, JsonValue(field.value, name, place).integer(), place);
  }
}

void read_merges(std::string_view bytes, const std::string& name, BpeVocabulary& vocabulary) {
  int64_t line_number = 0;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      throw Error(ErrorKind::Data, "a merge is not two tokens with a space between them")
          .at(name, fmt::format("line {}", line_number))
          .found(printable(std::string(line)));
    }
    vocabulary.add_merge(line.substr(0, space), line.substr(space + 1), fmt::format("{} line {}", name, line_number));
  }
}

}  // namespace

std::unique_ptr<BpeTokenizer> parse_gpt2_files(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                                               const std::string& merges_name, const TokenizerConfig& config,
                                               std::vector<std::filesystem::path> files) {
  // Other models publish the same two files and mean another pattern: their tokenizer.json says which.
  if (config.tokenizer_class && *config.tokenizer_class != "GPT2Tokenizer" && *config.tokenizer_class != "GPT2TokenizerFast") {
    throw Error(ErrorKind::Data, fmt::format("vocab.json and merges.txt of a {} are not supported", printable(*config.tokenizer_class)))
        .at(vocab_name, "tokenizer_class in tokenizer_config.json beside it")
        .expected("GPT2Tokenizer")
        .cure("put the model's tokenizer.json beside them");
  }
  BpeVocabulary vocabulary(vocab_name);
  read_vocab(vocab, vocab_name, vocabulary);
  read_merges(merges, merges_name, vocabulary);
  for (const AddedToken& token : config.added) vocabulary.add_added(token, "added_tokens_decoder in tokenizer_config.json");
  const std::string end_of_text = config.end_of_text.value_or(kEndOfText);
  if (!config.has_added) {
    if (const auto id = vocabulary.find(end_of_text)) {
      vocabulary.add_added({.content = end_of_text, .id = *id, .special = true}, "the end-of-text token");
    }
  }
  BpeParts parts;
  parts.end_of_text = vocabulary.find(end_of_text);
  if (!parts.end_of_text && config.end_of_text) {
    throw Error(ErrorKind::Data, fmt::format("eos_token '{}' is not in the vocabulary", printable(end_of_text)))
        .at(vocab_name)
        .cure("correct eos_token in tokenizer_config.json");
  }
  parts.end_of_text_cure = "write eos_token into a tokenizer_config.json beside it";
  if (const auto gap = vocabulary.first_gap()) {
    throw Error(ErrorKind::Data, fmt::format("no token has the id {}", *gap)).at(vocab_name).expected("ids without gaps");
  }
  std::vector<PretokenizerStep> steps;
  if (config.add_prefix_space) steps.push_back({.kind = PretokenizerStep::Kind::PrefixSpace});
  steps.push_back(pattern_step(pattern_text(KnownPattern::Gpt2), SplitBehavior::Isolated, false, vocab_name));
  parts.pretokenizer = Pretokenizer(std::move(steps));
  parts.files = std::move(files);
  vocabulary.finish(parts);
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace ballast
