// SentencePiece models, encoded and decoded by libsentencepiece itself.
#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <xxhash.h>

#include "ballast/base/error.h"
#include "ballast/data/tokenizer_files.h"

namespace ballast {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, std::string name, std::vector<std::filesystem::path> files)
      : name_(std::move(name)), hash_(XXH3_64bits(bytes.data(), bytes.size())), files_(std::move(files)) {
    const auto status = processor_.LoadFromSerializedProto({bytes.data(), bytes.size()});
    if (!status.ok()) {
      throw Error(ErrorKind::CorruptFile, "the SentencePiece model cannot be read").at(name_).found(printable(status.message()));
    }
    if (processor_.GetPieceSize() < 1) throw Error(ErrorKind::CorruptFile, "the SentencePiece model has no pieces").at(name_);
  }

  void append(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> own;
    const auto status = processor_.Encode({text.data(), text.size()}, &own);
    if (!status.ok()) {
      throw Error(ErrorKind::Data, "SentencePiece cannot encode a text").at(name_).found(printable(status.message()));
    }
    ids.insert(ids.end(), own.begin(), own.end());
  }
  // Control symbols are never made from text.
  void append_ordinary(std::string_view text, std::vector<int32_t>& ids) const override { append(text, ids); }

  std::string decode(std::span<const int32_t> ids) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= processor_.GetPieceSize()) {
        throw Error(ErrorKind::Data, fmt::format("token id {} stands for no token", ids[i]))
            .at(name_, fmt::format("position {}", i))
            .expected(fmt::format("an id of the tokenizer, below {}", processor_.GetPieceSize()));
      }
    }
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) throw Error(ErrorKind::Data, "SentencePiece cannot decode").at(name_).found(printable(status.message()));
    return text;
  }

  int64_t vocab_size() const override { return processor_.GetPieceSize(); }

  int32_t end_of_text() const override {
    if (processor_.eos_id() < 0) {
      throw Error(ErrorKind::Data, "the tokenizer names no end-of-text token").at(name_).cure("train the SentencePiece model with eos_id");
    }
    return processor_.eos_id();
  }

  std::optional<int32_t> find(std::string_view special_token) const override {
    const int id = processor_.PieceToId({special_token.data(), special_token.size()});
    if (id < 0 || !processor_.IsControl(id) || processor_.IdToPiece(id) != special_token) return {};
    return id;
  }

  std::vector<SpecialToken> special_tokens() const override {
    std::vector<SpecialToken> tokens;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id)) tokens.push_back({processor_.IdToPiece(id), id});
    }
    return tokens;
  }
  const char* method() const override { return "SentencePiece"; }
  uint64_t hash() const override { return hash_; }
  std::vector<std::filesystem::path> files() const override { return files_; }

 private:
  std::string name_;
  uint64_t hash_;
  std::vector<std::filesystem::path> files_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& name, std::vector<std::filesystem::path> files) {
  return std::make_unique<SentencePieceTokenizer>(bytes, name, std::move(files));
}

// Both begin with the first piece, a length-delimited field 1 of the model's protocol buffer.
bool looks_like_sentencepiece(std::string_view bytes) { return bytes.size() > 2 && bytes[0] == '\n'; }

}  // namespace ballast
