#include "ballast/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ballast/base/error.h"
#include "ballast/data/tokenizer_files.h"
#include "ballast/data/tokenizer_json.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

using Files = std::vector<fs::path>;

// Appends those of `names` that are there.
void add_present(const fs::path& folder, std::initializer_list<const char*> names, Files& files) {
  for (const char* name : names) {
    if (fs::is_regular_file(folder / name)) files.push_back(folder / name);
  }
}

// `files`, and what lies beside them that says more about the same tokenizer.
Files with_companions(Files files, const fs::path& folder) {
  add_present(folder, {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"}, files);
  return files;
}

Files rank_files(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tiktoken") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::shared_ptr<const Tokenizer> load_json(const fs::path& path, Files files) {
  return parse_tokenizer_json(read_tokenizer_file(path), path.string(), read_tokenizer_config(path.parent_path()).end_of_text, std::move(files));
}

std::shared_ptr<const Tokenizer> load_gpt2(const fs::path& folder, Files files) {
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
                          std::move(files));
}

// cl100k_base.tiktoken is the published file, mine.cl100k_base.tiktoken one that uses its pattern.
std::shared_ptr<const Tokenizer> load_tiktoken(const fs::path& path, Files files) {
  const std::string stem = path.stem().string();
  const size_t dot = stem.rfind('.');
  const bool published = dot == std::string::npos;
  return parse_tiktoken(read_tokenizer_file(path), path.string(), published ? stem : stem.substr(dot + 1), published, std::move(files));
}

// A .model file: SentencePiece's, or Llama-3's rank file of the same name.
std::shared_ptr<const Tokenizer> load_model(const fs::path& path, Files files) {
  const std::string bytes = read_tokenizer_file(path);
  if (looks_like_sentencepiece(bytes)) return parse_sentencepiece(bytes, path.string(), std::move(files));
  if (looks_like_tiktoken(bytes)) return parse_tiktoken(bytes, path.string(), "llama3", true, std::move(files));
  throw Error(ErrorKind::CorruptFile, "the file is neither a SentencePiece model nor a rank file")
      .at(path.string(), "byte 0")
      .cure("fetch it again; a pointer of Git LFS instead of the file itself looks like this");
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
    auto tokenizer = load_model(model, tokenizer_files(folder));
    check_converted(json, *tokenizer);
    return tokenizer;
  }
  if (fs::exists(json)) return load_json(json, tokenizer_files(folder));
  if (fs::exists(folder / "vocab.json") || fs::exists(folder / "merges.txt")) return load_gpt2(folder, tokenizer_files(folder));
  const Files ranks = rank_files(folder);
  if (ranks.size() == 1) return load_tiktoken(ranks[0], tokenizer_files(folder));
  if (ranks.size() > 1) {
    std::string names;
    for (const fs::path& file : ranks) names += (names.empty() ? "" : ", ") + file.filename().string();
    throw Error(ErrorKind::Data, "the folder has more than one rank file")
        .at(folder.string())
        .found(names)
        .expected("one tokenizer")
        .cure("set data.tokenizer to one of the files, as in data.tokenizer=" + ranks[0].string());
  }
  throw Error(ErrorKind::Data, "the folder has no tokenizer")
      .at(folder.string())
      .expected("tokenizer.json, vocab.json with merges.txt, tokenizer.model or a .tiktoken file")
      .cure("put the tokenizer's files into it, or set data.tokenizer to where they are");
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

std::vector<fs::path> tokenizer_files(const fs::path& folder) {
  try {
    Files files;
    add_present(folder, {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model"}, files);
    if (files.empty() && fs::is_directory(folder)) files = rank_files(folder);
    return files.empty() ? files : with_companions(std::move(files), folder);
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorKind::Environment, "the folder cannot be read").at(folder.string()).found(error.code().message()).cure("check its permissions");
  }
}

std::map<std::string, fs::path> named_for_model(const Files& files) {
  static constexpr std::array known{"vocab.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"};
  std::map<std::string, fs::path> named;
  for (const fs::path& file : files) {
    std::string name = file.filename().string();
    if (file.extension() == ".model") name = "tokenizer.model";
    if (file.extension() == ".json" && std::find(known.begin(), known.end(), name) == known.end()) name = "tokenizer.json";
    named.emplace(std::move(name), file);
  }
  return named;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& path) {
  try {
    if (fs::is_directory(path)) return load_folder(path);
    if (!fs::exists(path)) {
      throw Error(ErrorKind::Data, "there is no such tokenizer").at(path.string()).cure("give a folder with tokenizer files, or one of them");
    }
    const std::string name = path.filename().string();
    const fs::path folder = path.parent_path();
    if (name == "vocab.json" || name == "merges.txt") return load_gpt2(folder, with_companions({folder / "vocab.json", folder / "merges.txt"}, folder));
    if (path.extension() == ".json") return load_json(path, with_companions({path}, folder));
    if (path.extension() == ".tiktoken") return load_tiktoken(path, {path});
    if (path.extension() == ".model") return load_model(path, with_companions({path}, folder));
    throw Error(ErrorKind::Data, "the file name is none of a tokenizer")
        .at(path.string())
        .expected("tokenizer.json, vocab.json, merges.txt, NAME.model or NAME.tiktoken");
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorKind::Environment, "the tokenizer cannot be read").at(path.string()).found(error.code().message()).cure("check its permissions");
  }
}

}  // namespace ballast
