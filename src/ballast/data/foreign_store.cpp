#include "ballast/data/foreign_store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "ballast/base/error.h"
#include "ballast/data/mapped_file.h"
#include "ballast/data/store_footer.h"

namespace ballast {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kLlmcHeader = 256 * 4;  // bytes
constexpr char kMegatronMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};

Error corrupt(const std::string& path, const std::string& what) {
  return Error(ErrorKind::CorruptFile, what)
      .at(path)
      .cure("copy the file again, or make it again with the tool that wrote it");
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class ForeignStore : public TokenStore {
 public:
  explicit ForeignStore(const std::string& path) : TokenStore(path), file_(path) {}

  int64_t highest_id() const override {
    std::call_once(scanned_, [&] { highest_ = highest_of(0, tokens_); });
    return highest_;
  }
  std::vector<StoreFile> files() const override { return {{path_, records_}}; }
  uint64_t fingerprint() const override {
    // Hashing all tokens would read a file of any size at the start of every run: its size, index and both ends must
    // do.
    constexpr int64_t kEnd = 1 << 20;
    const int64_t end = std::min(kEnd, file_.bytes());
    const uint64_t parts[] = {static_cast<uint64_t>(file_.bytes()), XXH3_64bits(file_.data(), static_cast<size_t>(end)),
                              XXH3_64bits(file_.data() + file_.bytes() - end, static_cast<size_t>(end)),
                              XXH3_64bits(starts_.data(), starts_.size() * 8)};
    return XXH3_64bits(parts, sizeof parts);
  }
  void verify() const override { highest_id(); }
  const ForeignFacts& facts() const { return facts_; }

 protected:
  void touch(int64_t, int64_t) const override {}
  void set_records(std::vector<uint64_t> starts) {
    starts_ = std::move(starts);
    offsets_ = starts_.data();
    records_ = static_cast<int64_t>(starts_.size()) - 1;
    tokens_ = static_cast<int64_t>(starts_.back());
    if (tokens_ == 0) {
      throw Error(ErrorKind::Data, "the token file holds no tokens").at(path_).cure("make the file again, or leave it out of the list");
    }
  }
  MappedFile file_;
  std::vector<uint64_t> starts_;
  ForeignFacts facts_;

 private:
  mutable std::once_flag scanned_;
  mutable int64_t highest_ = 0;
};

class LlmcStore : public ForeignStore {
 public:
  explicit LlmcStore(const std::string& path) : ForeignStore(path) {
    if (file_.bytes() < kLlmcHeader)
      throw corrupt(path, "the file is too short for llm.c's header").found(fmt::format("{} bytes", file_.bytes()));
    const auto magic = load<int32_t>(file_.data()), version = load<int32_t>(file_.data() + 4),
               count = load<int32_t>(file_.data() + 8);
    if (magic == 20240520 && version == 1)
      token_bytes_ = 2;
    else if (magic == 20240801 && version == 7)
      token_bytes_ = 4;
    else
      throw corrupt(path, "this is no token file of llm.c, and no .idx lies beside it for Megatron")
          .found(fmt::format("magic {}, version {}", magic, version))
          .expected("magic 20240520 version 1, or magic 20240801 version 7");
    const int64_t there = file_.bytes() - kLlmcHeader;
    if (count < 0 || there != int64_t{count} * token_bytes_)
      throw corrupt(path, "the number of tokens does not fit the file's size")
          .found(fmt::format("{} bytes of tokens", there))
          .expected(fmt::format("{} tokens of {} bytes", count, token_bytes_));
    data_ = file_.data() + kLlmcHeader;
    facts_.dtype = token_bytes_ == 2 ? "uint16" : "uint32";
    set_records({0, static_cast<uint64_t>(count)});
  }
};

class MegatronStore : public ForeignStore {
 public:
  MegatronStore(const std::string& bin, const std::string& idx) : ForeignStore(bin) {
    const MappedFile index(idx);
    const std::byte* at = index.data();
    constexpr int64_t kHeader = 9 + 8 + 1 + 8 + 8;
    if (index.bytes() < kHeader)
      throw corrupt(idx, "the index is too short for a header").found(fmt::format("{} bytes", index.bytes()));
    if (std::memcmp(at, kMegatronMagic, sizeof kMegatronMagic) != 0)
      throw corrupt(idx, "this is no index of Megatron: the magic bytes MMIDIDX are missing");
    if (const auto version = load<uint64_t>(at + 9); version != 1)
      throw corrupt(idx, "the index has another version")
          .found(fmt::format("version {}", version))
          .expected("version 1");
    const auto code = load<uint8_t>(at + 17);
    if (code != 4 && code != 8)
      throw corrupt(idx, "the tokens have a type that is not read")
          .found(fmt::format("type code {}", code))
          .expected("4 (int32) or 8 (uint16)");
    token_bytes_ = code == 8 ? 2 : 4;
    facts_ = {.megatron = true, .dtype = code == 8 ? "uint16" : "int32"};
    const auto sequences = load<uint64_t>(at + 18), documents = load<uint64_t>(at + 26);
    // The index lists where documents begin, and after them where the last one ends.
    facts_.documents = documents > 0 ? static_cast<int64_t>(documents) - 1 : 0;
    const auto room = static_cast<uint64_t>(index.bytes() - kHeader);
    if (sequences > room / 12 || documents > room / 8 || sequences * 12 + documents * 8 > room)
      throw corrupt(idx, "the index is truncated")
          .found(fmt::format("{} bytes", index.bytes()))
          .expected(fmt::format("{} sequences and {} documents", sequences, documents));
    // Multimodal indices append one mode byte per sequence; anything else is not Megatron's.
    if (const uint64_t rest = room - sequences * 12 - documents * 8; rest != 0 && rest != sequences)
      throw corrupt(idx, fmt::format("{} bytes follow the index", rest));
    const std::byte* sizes = at + kHeader;
    const std::byte* pointers = sizes + sequences * 4;
    std::vector<uint64_t> starts{0};
    starts.reserve(sequences + 1);
    for (uint64_t s = 0; s < sequences; ++s) {
      const auto size = load<int32_t>(sizes + s * 4);
      const auto pointer = load<int64_t>(pointers + s * 8);
      if (size < 0 || pointer != static_cast<int64_t>(starts.back()) * token_bytes_)
        throw corrupt(idx, "a sequence does not start where the one before it ends")
            .at(idx, fmt::format("sequence {}", s))
            .found(fmt::format("size {}, byte {}", size, pointer))
            .expected(fmt::format("byte {}", static_cast<int64_t>(starts.back()) * token_bytes_));
      starts.push_back(starts.back() + static_cast<uint64_t>(size));
    }
    if (static_cast<int64_t>(starts.back()) * token_bytes_ != file_.bytes())
      throw corrupt(bin, "the sizes in the index do not add up to the token file")
          .found(fmt::format("{} bytes", file_.bytes()))
          .expected(fmt::format("{} tokens of {} bytes", starts.back(), token_bytes_));
    data_ = file_.data();
    set_records(std::move(starts));
  }
};

std::shared_ptr<const ForeignStore> open_either(const std::string& path) {
  fs::path bin = path, idx = path;
  bin.replace_extension(".bin");
  idx.replace_extension(".idx");
  std::error_code ignored;
  if (fs::path(path).extension() == ".idx" || fs::exists(idx, ignored))
    return std::make_shared<MegatronStore>(bin.string(), idx.string());
  return std::make_shared<LlmcStore>(path);
}

}  // namespace

bool is_foreign(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  return extension == ".bin" || extension == ".idx";
}

std::shared_ptr<const TokenStore> open_foreign(const std::string& path) { return open_either(path); }

ForeignFacts foreign_facts(const std::string& path) { return open_either(path)->facts(); }

}  // namespace ballast
