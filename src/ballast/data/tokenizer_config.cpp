// tokenizer_config.json and special_tokens_map.json: what they say about ids.
#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <system_error>

#include "ballast/base/error.h"
#include "ballast/data/bpe_vocabulary.h"
#include "ballast/data/tokenizer_files.h"
#include "ballast/data/tokenizer_json.h"

namespace ballast {
namespace {

// A token is written as its text or as an object with it.
std::optional<std::string> token_text(const JsonValue& root, const char* key) {
  const auto value = root.find(key);
  if (!value) return {};
  return std::string(value->is_string() ? value->string() : value->get("content").string());
}

}  // namespace

std::string read_tokenizer_file(const std::filesystem::path& path) {
  constexpr uintmax_t kMost = uintmax_t{1} << 30;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw Error(ErrorKind::Data, "there is no such file").at(path.string()).cure("check the path of the tokenizer");
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size == 0) throw Error(ErrorKind::CorruptFile, "the file is empty").at(path.string());
  if (!error && size > kMost) {
    throw Error(ErrorKind::Data, "the file is too large for a tokenizer").at(path.string()).found(fmt::format("{} bytes", size)).expected("at most 1 GiB");
  }
  std::ifstream stream(path, std::ios::binary);
  std::string bytes(error ? 0 : size, '\0');
  if (!error) stream.read(bytes.data(), static_cast<std::streamsize>(size));
  if (error || !stream) {
    throw Error(ErrorKind::Environment, "the file cannot be read").at(path.string()).found(error ? error.message() : errno_text(errno));
  }
  return bytes;
}

TokenizerConfig parse_tokenizer_config(std::string_view bytes, const std::string& name) {
  simdjson::dom::parser parser;
  const JsonValue root = parse_json(parser, bytes, name);
  TokenizerConfig config;
  config.end_of_text = token_text(root, "eos_token");
  if (const auto type = root.find("tokenizer_class")) config.tokenizer_class = std::string(type->string());
  config.add_prefix_space = root.boolean_or("add_prefix_space", false);
  if (const auto added = root.find("added_tokens_decoder")) {
    config.has_added = true;
    for (const auto field : added->object()) {
      const JsonValue value(field.value, name, fmt::format("added_tokens_decoder['{}']", printable(std::string(field.key), 20)));
      AddedToken token = read_added_token(value);
      const char *begin = field.key.data(), *end = begin + field.key.size();
      const auto [stopped, wrong] = std::from_chars(begin, end, token.id);
      if (wrong != std::errc() || stopped != end || token.id < 0 || token.id > BpeVocabulary::kHighestId) {
        value.refuse("the key is not a token id");
      }
      config.added.push_back(std::move(token));
    }
  }
  return config;
}

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder) {
  TokenizerConfig config;
  if (const auto path = folder / "tokenizer_config.json"; std::filesystem::exists(path)) {
    config = parse_tokenizer_config(read_tokenizer_file(path), path.string());
  }
  if (const auto path = folder / "special_tokens_map.json"; !config.end_of_text && std::filesystem::exists(path)) {
    const std::string name = path.string(), bytes = read_tokenizer_file(path);
    simdjson::dom::parser parser;
    config.end_of_text = token_text(parse_json(parser, bytes, name), "eos_token");
  }
  return config;
}

}  // namespace ballast
