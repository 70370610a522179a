// Tokenizers, token stores and the token files of other trainers, as inspect shows them.
#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/error.h"
#include "ballast/base/units.h"
#include "ballast/checkpoint/bounded_json.h"
#include "ballast/data/foreign_store.h"
#include "ballast/data/tokenizer.h"
#include "ballast/train/inspect_parts.h"

namespace ballast {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kShownSpecials = 12;   // lines for people; the JSON has all

std::optional<int32_t> end_of_text_of(const Tokenizer& tokenizer) {
  try {
    return tokenizer.end_of_text();
  } catch (const Error&) {
    return {};
  }
}

// Documents of llm.c's one stream each start with the same id, that of the first token.
int64_t count_of(const TokenStore& store, int64_t id) {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<int64_t> ids(kPiece);
  int64_t count = 0;
  for (int64_t begin = 0; begin < store.tokens(); begin += kPiece) {
    const int64_t size = std::min(kPiece, store.tokens() - begin);
    store.read(begin, size, ids.data());
    count += std::count(ids.begin(), ids.begin() + size, id);
  }
  return count;
}

}  // namespace

Inspection inspect_tokenizer(const fs::path& path) {
  const auto tokenizer = load_tokenizer(path);
  Inspection result = begin_inspection("tokenizer", path);
  const std::optional<int32_t> end = end_of_text_of(*tokenizer);
  const std::vector<SpecialToken> specials = tokenizer->special_tokens();
  Json files = Json::array(), list = Json::array();
  result.text += fmt::format("  {}, {} ids, {} special tokens\n", tokenizer->method(), tokenizer->vocab_size(), specials.size());
  for (const SpecialToken& token : specials) {
    list.push_back({{"id", token.id}, {"text", token.text}});
    if (list.size() <= kShownSpecials) result.text += fmt::format("  {:>10}  {}{}\n", token.id, printable(token.text), end == token.id ? "  (end of text)" : "");
  }
  if (list.size() > kShownSpecials) result.text += fmt::format("  and {} more (--json lists them)\n", list.size() - kShownSpecials);
  if (!end) {
    result.text += "  no end-of-text is named: it cannot be trained with (write eos_token into a tokenizer_config.json beside it)\n";
  } else {
    result.text += fmt::format("  end of text: {}\n", *end);
  }
  for (const fs::path& file : tokenizer->files()) {
    const auto bytes = static_cast<int64_t>(fs::file_size(file));
    files.push_back({{"path", file.string()}, {"bytes", bytes}});
    result.text += fmt::format("  {:>10}  {}\n", format_bytes(bytes), file.filename().string());
  }
  result.text += fmt::format("  hash of all that decides the ids: {:016x}; every file was read\n", tokenizer->hash());
  result.json.update(Json{{"method", tokenizer->method()}, {"vocab_size", tokenizer->vocab_size()}, {"end_of_text", end ? Json(*end) : Json(nullptr)},
                          {"special_tokens", list}, {"hash", fmt::format("{:016x}", tokenizer->hash())}, {"files", files}, {"verified", true}});
  return result;
}

Inspection inspect_foreign(const fs::path& path, bool verify) {
  const ForeignFacts facts = foreign_facts(path.string());
  const auto store = open_foreign(path.string());
  Inspection result = begin_inspection(facts.megatron ? "token file of Megatron-LM" : "token file of llm.c", path);
  result.json.update(Json{{"dtype", facts.dtype}, {"tokens", store->tokens()}, {"records", store->records()}});
  result.text += fmt::format("  {} tokens as {}, {}\n", store->tokens(), facts.dtype,
                             facts.megatron ? fmt::format("{} sequences, {} documents", store->records(), facts.documents) : std::string("one stream"));
  if (facts.megatron) result.json["documents"] = facts.documents;
  if (verify) {
    result.json["highest_id"] = store->highest_id();
    result.text += fmt::format("  highest id {}: a model for it has a vocabulary of at least {}\n", store->highest_id(), store->highest_id() + 1);
    if (!facts.megatron) {
      int64_t first = 0;
      store->read(0, 1, &first);
      const int64_t documents = count_of(*store, first);
      result.json.update(Json{{"first_id", first}, {"documents", documents}});
      result.text += fmt::format("  {} documents, if each starts with the id {} as the first does\n", documents, first);
    }
  }
  result.json["verified"] = false;
  result.text += fmt::format("  header{} and sizes agree; the format keeps no hashes and no tokenizer{}\n", facts.megatron ? ", index" : "",
                             verify ? "" : " (--verify reads the ids)");
  return result;
}

Inspection inspect_store(const fs::path& path, bool verify) {
  const auto store = open_store(path.string());
  if (verify) store->verify();
  Inspection result = begin_inspection("token store", path);
  result.json.update(Json{{"records", store->records()}, {"tokens", store->tokens()}, {"highest_id", store->highest_id()},
                          {"sources", parse_bounded_json<Json>(describe_store(path.string()))}, {"verified", verify}});
  result.text += fmt::format("  {} records, {} tokens, highest id {}\n", store->records(), store->tokens(), store->highest_id());
  for (const StoreFile& file : store->files()) result.text += fmt::format("  {:>10} records  {}\n", file.records, printable(file.path, 400));
  result.text += verify ? "  every byte agrees with the checksums\n" : "  all but the tokens checked (--verify reads them)\n";
  return result;
}

}  // namespace ballast
