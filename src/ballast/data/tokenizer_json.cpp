#include "ballast/data/tokenizer_json.h"

#include <fmt/format.h>

#include "ballast/base/error.h"
#include "ballast/data/bpe_vocabulary.h"

namespace ballast {
namespace {

void check_empty_string(const JsonValue& model, const char* key) {
  if (const auto value = model.find(key); value && !value->string().empty()) {
    value->refuse(fmt::format("{} is not supported", key));
  }
}

void read_model(const JsonValue& model, BpeVocabulary& vocabulary) {
  if (const auto type = model.find("type"); type && type->string() != "BPE") {
    type->refuse(fmt::format("model type '{}' is not supported", printable(std::string(type->string()))),
                 "use a byte-level BPE tokenizer, or the SentencePiece file that this one was made from");
  }
  model.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
                    "ignore_merges", "vocab", "merges"});
  if (const auto dropout = model.find("dropout")) dropout->refuse("dropout of merges is not supported", "set it to null");
  check_empty_string(model, "continuing_subword_prefix");
  check_empty_string(model, "end_of_word_suffix");
  if (model.boolean_or("byte_fallback", false)) {
    model.get("byte_fallback").refuse("byte_fallback is not supported", "use the SentencePiece tokenizer.model that this file was made from");
  }
  const JsonValue vocab = model.get("vocab");
  for (const auto field : vocab.object()) {
    const std::string place = fmt::format("model.vocab['{}']", printable(std::string(field.key), 40));
    int64_t id = 0;
    if (field.value.get(id) != simdjson::SUCCESS) vocab.refuse(fmt::format("{} is not an integer id", place));
    vocabulary.add_token(field.key, id, place);
  }
  const JsonValue merges = model.get("merges");
  size_t index = 0;
  for (const simdjson::dom::element merge : merges.array()) {
    const std::string place = fmt::format("model.merges[{}]", index);
    std::string_view text;
    if (merge.get(text) == simdjson::SUCCESS) {
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos || space == 0 ||
          space + 1 == text.size()) {
        merges.element(merge, index).refuse("a merge is not two tokens with a space between them");
      }
      vocabulary.add_merge(text.substr(0, space), text.substr(space + 1), place);
    } else {
      const JsonValue pair = merges.element(merge, index);
      const simdjson::dom::array both = pair.array();
      if (both.size() != 2) pair.refuse("a merge is not two tokens");
      vocabulary.add_merge(pair.element(both.at(0), 0).string(), pair.element(both.at(1), 1).string(), place);
    }
    ++index;
  }
}

void read_unknown(const JsonValue& model, const BpeVocabulary& vocabulary, BpeParts& parts) {
  const auto unknown = model.find("unk_token");
  if (!unknown) return;
  bool complete = true;
  for (const int32_t id : parts.byte_ids) complete = complete && id != BpeModel::kNone;
  if (complete) return;   // then nothing is unknown
  const auto id = vocabulary.find(unknown->string());
  if (!id) unknown->refuse("unk_token is not in the vocabulary");
  if (model.boolean_or("fuse_unk", false)) model.get("fuse_unk").refuse("fuse_unk is not supported");
  parts.unknown = *id;
}

void check_post_processor(const JsonValue& processor) {
  const std::string_view type = processor.get("type").string();
  if (type == "Sequence") {
    const JsonValue list = processor.get("processors");
    size_t index = 0;
    for (const simdjson::dom::element inner : list.array()) {
      const JsonValue value = list.element(inner, index++);
      if (value.get("type").string() == "Sequence") value.refuse("a Sequence inside a Sequence is not supported");
      check_post_processor(value);
    }
    return;
  }
  if (type != "ByteLevel" && type != "TemplateProcessing" && type != "RobertaProcessing" && type != "BertProcessing") {
    processor.get("type").refuse(fmt::format("post_processor '{}' is not supported", printable(std::string(type))));
  }
}

void check_decoder(const JsonValue& decoder) {
  const std::string_view type = decoder.get("type").string();
  if (type != "ByteLevel") {
    decoder.get("type").refuse(fmt::format("decoder '{}' is not supported", printable(std::string(type))), "only ByteLevel is");
  }
}

}  // namespace

AddedToken read_added_token(const JsonValue& token) {
  token.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", "__type"});
  AddedToken added;
  added.content = std::string(token.get("content").string());
  added.single_word = token.boolean_or("single_word", false);
  added.lstrip = token.boolean_or("lstrip", false);
  added.rstrip = token.boolean_or("rstrip", false);
  added.special = token.boolean_or("special", false);
  added.normalized = token.boolean_or("normalized", !added.special);
  return added;
}

std::unique_ptr<BpeTokenizer> parse_tokenizer_json(std::string_view bytes, const std::string& name,
                                                   const std::optional<std::string>& end_of_text_token,
                                                   std::vector<std::filesystem::path> files) {
  simdjson::dom::parser parser;
  const JsonValue root = parse_json(parser, bytes, name);
  root.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"});
  const JsonValue model = root.get("model");
  BpeVocabulary vocabulary(name);
  read_model(model, vocabulary);
  if (const auto added = root.find("added_tokens")) {
    size_t index = 0;
    for (const simdjson::dom::element item : added->array()) {
      const JsonValue value = added->element(item, index++);
      AddedToken token = read_added_token(value);
      const int64_t id = value.get("id").integer();
      if (id < 0 || id > BpeVocabulary::kHighestId) value.refuse(fmt::format("token id {} is out of range", id));
      token.id = static_cast<int32_t>(id);
      vocabulary.add_added(std::move(token), value.place());
    }
  }
  if (const auto processor = root.find("post_processor")) check_post_processor(*processor);
  if (const auto decoder = root.find("decoder")) check_decoder(*decoder);

  BpeParts parts;
  if (const auto normalizer = root.find("normalizer")) parts.normal_form = read_normalizer(*normalizer);
  parts.pretokenizer = read_pretokenizer(root.get("pre_tokenizer"));
  parts.whole_words_first = model.boolean_or("ignore_merges", false);
  parts.end_of_text_cure = "write eos_token into a tokenizer_config.json beside it";
  parts.files = std::move(files);
  if (end_of_text_token) {
    parts.end_of_text = vocabulary.find(*end_of_text_token);
    if (!parts.end_of_text) {
      throw Error(ErrorKind::Data, fmt::format("eos_token '{}' is not in the vocabulary", printable(*end_of_text_token)))
          .at(name)
          .cure("correct eos_token in tokenizer_config.json");
    }
  }
  vocabulary.finish(parts);
  read_unknown(model, vocabulary, parts);
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace ballast
