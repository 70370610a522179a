// tiktoken's rank files: a token's rank is its id, and two neighbours merge where their bytes together are a token.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "ballast/base/error.h"
#include "ballast/data/bpe_vocabulary.h"
#include "ballast/data/tokenizer_bytes.h"
#include "ballast/data/tokenizer_files.h"

namespace ballast {
namespace {

using Specials = std::vector<std::pair<std::string, int32_t>>;

struct Encoding {
  const char* name;
  KnownPattern pattern;
  int64_t ranks;             // lines of the published file
  const char* end_of_text;
  Specials (*specials)();
};

// Llama-3: 256 tokens after the ranks; Llama 3.1 gives some of the reserved ones other names.
Specials llama3_specials() {
  static constexpr std::array named{"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>", "<|reserved_special_token_2|>", "<|reserved_special_token_3|>",
                                    "<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"};
  Specials specials;
  for (const char* name : named) specials.emplace_back(name, 128000 + static_cast<int32_t>(specials.size()));
  for (int i = 5; specials.size() < 256; ++i) {
    specials.emplace_back(fmt::format("<|reserved_special_token_{}|>", i), 128000 + static_cast<int32_t>(specials.size()));
  }
  return specials;
}

constexpr const char* kEndOfText = "<|endoftext|>";

const std::array<Encoding, 6>& encodings() {
  static const std::array<Encoding, 6> all{{
      {"r50k_base", KnownPattern::Gpt2, 50256, kEndOfText, [] { return Specials{{kEndOfText, 50256}}; }},
      {"gpt2", KnownPattern::Gpt2, 50256, kEndOfText, [] { return Specials{{kEndOfText, 50256}}; }},
      {"p50k_base", KnownPattern::Gpt2, 50280, kEndOfText, [] { return Specials{{kEndOfText, 50256}}; }},
      {"cl100k_base", KnownPattern::Cl100k, 100256, kEndOfText,
       [] {
         return Specials{{kEndOfText, 100257}, {"<|fim_prefix|>", 100258}, {"<|fim_middle|>", 100259}, {"<|fim_suffix|>", 100260}, {"<|endofprompt|>", 100276}};
       }},
      {"o200k_base", KnownPattern::O200k, 199998, kEndOfText, [] { return Specials{{kEndOfText, 199999}, {"<|endofprompt|>", 200018}}; }},
      {"llama3", KnownPattern::Llama3, 128000, "<|end_of_text|>", llama3_specials},
  }};
  return all;
}

const Encoding& find_encoding(const std::string& name, const std::string& file) {
  std::vector<std::string> names;
  for (const Encoding& encoding : encodings()) {
    if (encoding.name == name) return encoding;
    names.emplace_back(encoding.name);
  }
  const std::string near = nearest(name, names);
  throw Error(ErrorKind::Usage, fmt::format("the file name does not say which pattern the rank file goes with: '{}'", printable(name)))
      .at(file)
      .expected(fmt::format("one of {}", fmt::join(names, ", ")))
      .cure(fmt::format("{}name it PATTERN.tiktoken if it is a published file, NAME.PATTERN.tiktoken if it is your own",
                        near.empty() ? "" : "did you mean " + near + "? "));
}

struct Rank {
  std::string bytes;
  int32_t rank;
};

std::vector<Rank> read_ranks(std::string_view bytes, const std::string& name) {
  std::vector<Rank> ranks;
  int64_t line_number = 0;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    int32_t rank = -1;
    const auto token = from_base64(line.substr(0, space));
    bool valid = token && !token->empty() && space != std::string_view::npos;
    if (valid) {
      const auto [stopped, wrong] = std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
      valid = wrong == std::errc() && stopped == line.data() + line.size() && rank >= 0;
    }
    if (!valid) {
      throw Error(ErrorKind::CorruptFile, "a line of the rank file is damaged")
          .at(name, fmt::format("line {}", line_number))
          .found(printable(std::string(line)))
          .expected("base64, a space and a rank");
    }
    ranks.push_back({*token, rank});
  }
  return ranks;
}

void fill(BpeParts& parts, const std::vector<Rank>& ranks, const Specials& specials, const std::string& name) {
  int64_t highest = -1;
  for (const Rank& rank : ranks) highest = std::max<int64_t>(highest, rank.rank);
  for (const auto& [text, id] : specials) highest = std::max<int64_t>(highest, id);
  if (highest > BpeVocabulary::kHighestId) {
    throw Error(ErrorKind::Data, fmt::format("rank {} is out of range", highest)).at(name).expected(fmt::format("0 to {}", BpeVocabulary::kHighestId));
  }
  parts.tokens.assign(static_cast<size_t>(highest + 1), std::nullopt);
  std::unordered_map<std::string_view, int32_t> ids;
  for (const Rank& rank : ranks) {
    auto& token = parts.tokens[static_cast<size_t>(rank.rank)];
    if (token) throw Error(ErrorKind::Data, fmt::format("two tokens have the rank {}", rank.rank)).at(name);
    token = rank.bytes;
    if (!ids.emplace(rank.bytes, rank.rank).second) {
      throw Error(ErrorKind::Data, fmt::format("token '{}' appears twice", printable(rank.bytes))).at(name).found(fmt::format("again with rank {}", rank.rank));
    }
  }
  const int32_t highest_rank = ranks.empty() ? -1 : std::max_element(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) { return a.rank < b.rank; })->rank;
  for (const auto& [text, id] : specials) {
    auto& token = parts.tokens[static_cast<size_t>(id)];
    if (token) throw Error(ErrorKind::Data, fmt::format("rank {} belongs to {}", id, text)).at(name);
    token = text;
    parts.added.push_back({.content = text, .id = id, .special = true});
  }
  for (int32_t id = 0; id < highest_rank; ++id) {
    if (!parts.tokens[static_cast<size_t>(id)]) {
      throw Error(ErrorKind::Data, fmt::format("no token has the rank {}", id)).at(name).expected("ranks without gaps");
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = ids.find(std::string_view(&c, 1));
    if (found == ids.end()) throw Error(ErrorKind::Data, fmt::format("byte 0x{:02x} has no rank", byte)).at(name).expected("all 256 bytes");
    parts.byte_ids[static_cast<size_t>(byte)] = found->second;
  }
  for (const Rank& rank : ranks) {
    const std::string_view token = rank.bytes;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(token.substr(cut));
      if (right != ids.end()) parts.merges.push_back({left->second, right->second, rank.rank, rank.rank});
    }
  }
}

}  // namespace

std::unique_ptr<BpeTokenizer> parse_tiktoken(std::string_view bytes, const std::string& name, const std::string& encoding_name,
                                             bool published, std::vector<std::filesystem::path> files) {
  const Encoding& encoding = find_encoding(encoding_name, name);
  const std::vector<Rank> ranks = read_ranks(bytes, name);
  const auto count = static_cast<int64_t>(ranks.size());
  if (published && count != encoding.ranks) {
    throw Error(ErrorKind::CorruptFile, fmt::format("the rank file is not the published {}", encoding.name))
        .at(name)
        .found(fmt::format("{} tokens", count))
        .expected(fmt::format("{}", encoding.ranks))
        .cure("fetch it again, or name a file of your own NAME.PATTERN.tiktoken");
  }
  BpeParts parts;
  parts.name = name;
  fill(parts, ranks, published ? encoding.specials() : Specials{{kEndOfText, static_cast<int32_t>(count)}}, name);
  parts.whole_words_first = true;
  PretokenizerStep step;
  step.text = pattern_text(encoding.pattern);
  step.known = encoding.pattern;
  parts.pretokenizer = Pretokenizer({step});
  parts.recognise_added = false;
  for (const AddedToken& token : parts.added) {
    if (token.content == (published ? encoding.end_of_text : kEndOfText)) parts.end_of_text = token.id;
  }
  parts.files = std::move(files);
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

bool looks_like_tiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.substr(0, 4096).find('\n'));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || !from_base64(line.substr(0, space))) return false;
  std::string_view digits = line.substr(space + 1);
  if (!digits.empty() && digits.back() == '\r') digits.remove_suffix(1);
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace ballast
