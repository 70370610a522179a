#include "ballast/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/error.h"
#include "ballast/data/tokenizer_files.h"
#include "ballast/data/tokenizer_json.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// Those of `names` that are there: what an exported model needs beside it.
std::vector<fs::path> present(const fs::path& folder, std::initializer_list<const char*> names) {
  std::vector<fs::path> files;
  for (const char* name : names) {
    if (fs::exists(folder / name)) files.push_back(folder / name);
  }
  return files;
}

std::shared_ptr<const Tokenizer> load_json(const fs::path& path) {
  const fs::path folder = path.parent_path();
  std::vector<fs::path> files{path};
  for (fs::path& file : present(folder, {"tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt", "added_tokens.json",
                                         "chat_template.jinja"})) {
    files.push_back(std::move(file));
  }
  return parse_tokenizer_json(read_tokenizer_file(path), path.string(), read_tokenizer_config(folder).end_of_text, std::move(files));
}

std::shared_ptr<const Tokenizer> load_gpt2(const fs::path& folder) {
  const fs::path vocab = folder / "vocab.json", merges = folder / "merges.txt";
  for (const fs::path& path : {vocab, merges}) {
    if (!fs::exists(path)) {
      throw Error(ErrorKind::Data, "vocab.json and merges.txt go together, and one is missing").at(path.string()).cure("put both into the folder");
    }
  }
  const TokenizerConfig config = read_tokenizer_config(folder);
  if (const fs::path added = folder / "added_tokens.json"; fs::exists(added) && !config.has_added) {
    throw Error(ErrorKind::Data, "added_tokens.json is not supported without added_tokens_decoder in tokenizer_config.json")
        .at(added.string())
        .cure("use the model's tokenizer.json");
  }
  return parse_gpt2_files(read_tokenizer_file(vocab), vocab.string(), read_tokenizer_file(merges), merges.string(), config,
                          present(folder, {"vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json",
                                           "added_tokens.json", "chat_template.jinja"}));
}

// cl100k_base.tiktoken is the published file, mine.cl100k_base.tiktoken one that uses its pattern.
std::shared_ptr<const Tokenizer> load_tiktoken(const fs::path& path) {
  const std::string stem = path.stem().string();
  const size_t dot = stem.rfind('.');
  const bool published = dot == std::string::npos;
  return parse_tiktoken(read_tokenizer_file(path), path.string(), published ? stem : stem.substr(dot + 1), published, {path});
}

// A .model file: SentencePiece's, or Llama-3's rank file of the same name.
std::shared_ptr<const Tokenizer> load_model(const fs::path& path) {
  const std::string bytes = read_tokenizer_file(path);
  std::vector<fs::path> files{path};
  for (fs::path& file : present(path.parent_path(), {"tokenizer_config.json", "special_tokens_map.json"})) files.push_back(std::move(file));
  if (looks_like_sentencepiece(bytes)) return parse_sentencepiece(bytes, path.string(), std::move(files));
  if (looks_like_tiktoken(bytes)) return parse_tiktoken(bytes, path.string(), "llama3", true, std::move(files));
  throw Error(ErrorKind::CorruptFile, "the file is neither a SentencePiece model nor a rank file").at(path.string(), "byte 0");
}

// A tokenizer.json beside a SentencePiece model is a copy of it, unless it has tokens of its own: those would be lost.
void check_converted(const fs::path& json, const Tokenizer& model) {
  if (!fs::exists(json)) return;
  const std::string name = json.string(), bytes = read_tokenizer_file(json);
  simdjson::dom::parser parser;
  const auto added = parse_json(parser, bytes, name).find("added_tokens");
  if (!added) return;
  size_t index = 0;
  for (const simdjson::dom::element item : added->array()) {
    const JsonValue token = added->element(item, index++);
    if (token.get("id").integer() >= model.vocab_size()) {
      token.refuse(fmt::format("the token '{}' is not in the SentencePiece model beside this file",
                               printable(std::string(token.get("content").string()))),
                   "give the .model file itself as the tokenizer if such tokens are not needed");
    }
  }
}

std::shared_ptr<const Tokenizer> load_folder(const fs::path& folder) {
  const fs::path json = folder / "tokenizer.json", model = folder / "tokenizer.model";
  if (fs::exists(model) && (!fs::exists(json) || looks_like_sentencepiece(read_tokenizer_file(model)))) {
    auto tokenizer = load_model(model);
    check_converted(json, *tokenizer);
    return tokenizer;
  }
  if (fs::exists(json)) return load_json(json);
  if (fs::exists(folder / "vocab.json") || fs::exists(folder / "merges.txt")) return load_gpt2(folder);
  std::vector<fs::path> rank_files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tiktoken") rank_files.push_back(entry.path());
  }
  std::sort(rank_files.begin(), rank_files.end());
  if (rank_files.size() == 1) return load_tiktoken(rank_files[0]);
  if (rank_files.size() > 1) {
    throw Error(ErrorKind::Data, "the folder has more than one rank file")
        .at(folder.string())
        .found(rank_files[0].filename().string() + ", " + rank_files[1].filename().string())
        .cure("give one of the files as the tokenizer");
  }
  throw Error(ErrorKind::Data, "the folder has no tokenizer")
      .at(folder.string())
      .expected("tokenizer.json, vocab.json with merges.txt, tokenizer.model or a .tiktoken file");
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  append(text, ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_ordinary(std::string_view text) const {
  std::vector<int32_t> ids;
  append_ordinary(text, ids);
  return ids;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& path) {
  try {
    if (fs::is_directory(path)) return load_folder(path);
    if (!fs::exists(path)) {
      throw Error(ErrorKind::Data, "there is no such tokenizer").at(path.string()).cure("give a folder with tokenizer files, or one of them");
    }
    const std::string name = path.filename().string();
    if (name == "vocab.json" || name == "merges.txt") return load_gpt2(path.parent_path());
    if (path.extension() == ".json") return load_json(path);
    if (path.extension() == ".tiktoken") return load_tiktoken(path);
    if (path.extension() == ".model") return load_model(path);
    throw Error(ErrorKind::Data, "the file name is none of a tokenizer")
        .at(path.string())
        .expected("tokenizer.json, vocab.json, merges.txt, NAME.model or NAME.tiktoken");
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorKind::Environment, "the tokenizer cannot be read").at(path.string()).found(error.code().message());
  }
}

}  // namespace ballast
