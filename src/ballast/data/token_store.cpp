#include "ballast/data/token_store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/data/mapped_file.h"
#include "ballast/data/store_footer.h"

namespace ballast {

int64_t TokenStore::record_at(int64_t position) const {
  BALLAST_CHECK(position >= 0 && position < tokens_, "token {} of {}", position, tokens_);
  // Empty records share their offset with the next one; upper_bound finds the last of them, which holds the token.
  return std::upper_bound(offsets_, offsets_ + records_ + 1, static_cast<uint64_t>(position)) - offsets_ - 1;
}

void TokenStore::read(int64_t begin, int64_t count, int64_t* ids) const {
  BALLAST_CHECK(begin >= 0 && count >= 0 && begin <= tokens_ - count, "tokens [{}, +{}) of {}", begin, count, tokens_);
  touch(begin, begin + count);
  const std::byte* source = data_ + begin * token_bytes_;
  for (int64_t i = 0; i < count; ++i) {
    if (token_bytes_ == 2) {
      uint16_t id;
      std::memcpy(&id, source + 2 * i, 2);
      ids[i] = id;
    } else {
      uint32_t id;
      std::memcpy(&id, source + 4 * i, 4);
      ids[i] = id;
    }
  }
}

int64_t TokenStore::highest_of(int64_t begin, int64_t end) const {
  uint32_t highest = 0;
  for (int64_t i = begin; i < end; ++i) {
    uint32_t id = 0;
    std::memcpy(&id, data_ + i * token_bytes_, static_cast<size_t>(token_bytes_));
    highest = std::max(highest, id);
  }
  return highest;
}

int64_t TokenStore::trained_in(int64_t record, int64_t begin, int64_t end) const {
  begin = std::max<int64_t>(begin, 1);
  end = std::min(end, length_of(record));
  if (begin >= end) return 0;
  if (!spans_) return end - begin;
  int64_t sum = 0;
  for (uint64_t s = span_index_[record]; s < span_index_[record + 1]; ++s)
    sum += std::max<int64_t>(0, std::min(end, spans_[s].end) - std::max(begin, spans_[s].begin));
  return sum;
}

std::vector<Span> TokenStore::spans_of(int64_t record) const {
  if (!spans_) return {{0, length_of(record)}};
  return {spans_ + span_index_[record], spans_ + span_index_[record + 1]};
}

std::string TokenStore::record_name(int64_t record) const {
  int64_t before = 0;
  for (const StoreFile& file : files()) {
    if (record < before + file.records) return fmt::format("{}, record {}", file.path, record - before + 1);
    before += file.records;
  }
  return fmt::format("{}, record {}", path_, record + 1);
}

namespace {

class OwnStore : public TokenStore {
 public:
  explicit OwnStore(const std::string& path) : TokenStore(path), file_(path) {
    constexpr auto kFooter = static_cast<int64_t>(sizeof(StoreFooter));
    if (file_.bytes() < kStoreFrontBytes + kFooter || file_.bytes() % 8 != 0)
      throw corrupt("the file is truncated, or no token store").found(fmt::format("{} bytes", file_.bytes()));
    if (std::memcmp(file_.data(), kStoreMagic, sizeof kStoreMagic) != 0)
      throw corrupt("this is no token store: the magic bytes are missing");
    check_zero(sizeof kStoreMagic, kStoreFrontBytes);
    std::memcpy(&footer_, file_.data() + file_.bytes() - kFooter, sizeof footer_);
    const StoreFooter& h = footer_;
    if (std::memcmp(h.magic, kStoreMagic, sizeof kStoreMagic) != 0)
      throw corrupt("the store is truncated: its footer is missing");
    if (h.version != kStoreVersion)
      throw corrupt("the store has another version")
          .found(fmt::format("version {}", h.version))
          .expected(fmt::format("version {}", kStoreVersion));
    if (h.checksum != XXH3_64bits(&footer_, offsetof(StoreFooter, checksum)))
      throw corrupt("the footer's checksum is wrong");
    if (h.file_bytes != static_cast<uint64_t>(file_.bytes()))
      throw corrupt("the store is truncated or longer than written")
          .found(fmt::format("{} bytes", file_.bytes()))
          .expected(fmt::format("{} bytes", h.file_bytes));

    // A valid checksum proves no good will: every count is checked before it is used as a size.
    const auto limit = static_cast<uint64_t>(file_.bytes());
    if ((h.token_bytes != 2 && h.token_bytes != 4) || h.records > limit || h.tokens > limit || h.spans > limit ||
        h.all_trained > 1 || h.vocab_size == 0 || h.vocab_size > kLargestVocabulary || h.highest_id >= h.vocab_size ||
        h.end_of_text >= h.vocab_size)
      throw corrupt("the footer's counts are impossible");
    const uint64_t spans = h.all_trained ? 0 : h.spans, span_index = h.all_trained ? 0 : h.records + 1;
    const uint64_t chunks = (h.tokens * h.token_bytes + kTokenChunkBytes - 1) / kTokenChunkBytes;
    uint64_t end = kStoreFrontBytes;
    region("tokens", h.token_region, h.tokens * h.token_bytes, end, false);
    region("offsets", h.offset_region, (h.records + 1) * 8, end);
    region("span index", h.span_index_region, span_index * 8, end);
    region("spans", h.span_region, spans * sizeof(Span), end);
    region("checksums", h.sum_region, chunks * 8, end);
    region("sources", h.source_region, h.source_region.bytes, end);
    const uint64_t footer = (end + kStoreAlign - 1) / kStoreAlign * kStoreAlign;
    if (footer + sizeof(StoreFooter) != limit) throw corrupt("bytes lie between the last region and the footer");
    check_zero(end, footer);

    token_bytes_ = static_cast<int>(h.token_bytes);
    records_ = static_cast<int64_t>(h.records), tokens_ = static_cast<int64_t>(h.tokens);
    data_ = file_.data() + h.token_region.offset;
    offsets_ = pointer<uint64_t>(h.offset_region);
    sums_ = pointer<uint64_t>(h.sum_region);
    if (!h.all_trained) span_index_ = pointer<uint64_t>(h.span_index_region), spans_ = pointer<Span>(h.span_region);
    check_index();
    parse_sources();
    checked_ = std::make_unique<std::atomic<bool>[]>(chunks);
    chunks_ = static_cast<int64_t>(chunks);
  }

  const StoreFooter& footer() const { return footer_; }
  std::string sources() const {
    return {reinterpret_cast<const char*>(file_.data()) + footer_.source_region.offset, footer_.source_region.bytes};
  }
  int64_t highest_id() const override { return static_cast<int64_t>(footer_.highest_id); }
  std::vector<StoreFile> files() const override { return files_; }
  uint64_t fingerprint() const override {
    // The chunk sums stand for the tokens, so this is a hash of everything but the paths and times in the source
    // region.
    const uint64_t parts[] = {footer_.offset_region.checksum,
                              footer_.span_index_region.checksum,
                              footer_.span_region.checksum,
                              footer_.sum_region.checksum,
                              footer_.tokenizer_hash,
                              footer_.tokens,
                              footer_.token_bytes};
    return XXH3_64bits(parts, sizeof parts);
  }
  void verify() const override {
    for (int64_t c = 0; c < chunks_; ++c) check_chunk(c);
    const int64_t highest = highest_of(0, tokens_);
    if (highest != highest_id())
      throw corrupt("the highest id differs from the footer's")
          .found(fmt::format("{}", highest))
          .expected(fmt::format("{}", highest_id()));
  }

 protected:
  void touch(int64_t begin, int64_t end) const override {
    if (begin == end) return;
    const int64_t first = begin * token_bytes_ / kTokenChunkBytes, last = (end * token_bytes_ - 1) / kTokenChunkBytes;
    for (int64_t c = first; c <= last; ++c)
      if (!checked_[static_cast<size_t>(c)].load(std::memory_order_relaxed)) check_chunk(c);
  }

 private:
  Error corrupt(const std::string& what) const {
    return Error(ErrorKind::CorruptFile, "token store: " + what)
        .at(path_)
        .cure("delete the store: it is made again from the data files");
  }
  template <class T>
  const T* pointer(const StoreRegion& region) const {
    return reinterpret_cast<const T*>(file_.data() + region.offset);
  }
  void check_zero(uint64_t begin, uint64_t end) const {
    for (uint64_t i = begin; i < end; ++i)
      if (file_.data()[i] != std::byte{0}) throw corrupt(fmt::format("byte {}, which is padding, is not zero", i));
  }
  // Regions lie one after another on 64-byte boundaries; `end` moves to the end of this one.
  void region(const char* name, const StoreRegion& region, uint64_t bytes, uint64_t& end, bool summed = true) const {
    const auto limit = static_cast<uint64_t>(file_.bytes());
    const uint64_t start = (end + kStoreAlign - 1) / kStoreAlign * kStoreAlign;
    if (region.offset != start || region.bytes != bytes || start > limit || bytes > limit - start)
      throw corrupt(fmt::format("the region '{}' is not where it must be", name))
          .found(fmt::format("byte {}, {} bytes", region.offset, region.bytes))
          .expected(fmt::format("byte {}, {} bytes", start, bytes));
    check_zero(end, start);
    if (summed && XXH3_64bits(file_.data() + start, bytes) != region.checksum)
      throw Error(ErrorKind::CorruptFile, fmt::format("token store: the checksum of the region '{}' is wrong", name))
          .at(path_, fmt::format("bytes {} to {}", start, start + bytes))
          .cure("delete the store: it is made again from the data files");
    if (!summed && region.checksum != 0) throw corrupt(fmt::format("the region '{}' has a checksum of its own", name));
    end = start + bytes;
  }
  void check_index() const {
    if (offsets_[0] != 0 || offsets_[records_] != static_cast<uint64_t>(tokens_))
      throw corrupt("the record offsets do not span the tokens");
    for (int64_t r = 0; r < records_; ++r)
      if (offsets_[r] > offsets_[r + 1])
        throw corrupt(fmt::format("the offset of record {} is beyond the next one's", r + 1));
    if (!spans_) return;
    if (span_index_[0] != 0 || span_index_[records_] != footer_.spans)
      throw corrupt("the span index does not span the spans");
    for (int64_t r = 0; r < records_; ++r) {
      if (span_index_[r] > span_index_[r + 1] || span_index_[r + 1] > footer_.spans)
        throw corrupt(fmt::format("the span index of record {} does not ascend", r + 1));
      int64_t end = -1;
      for (uint64_t s = span_index_[r]; s < span_index_[r + 1]; ++s) {
        const Span& span = spans_[s];
        if (span.begin <= end || span.end <= span.begin || span.end > length_of(r))
          throw corrupt(fmt::format("a span of record {} is not inside it", r + 1));
        end = span.end;
      }
    }
  }
  void parse_sources() {
    const nlohmann::json json = nlohmann::json::parse(sources(), nullptr, false);
    int64_t records = 0;
    const auto wrong = [&] { return corrupt("the source region is not what Ballast writes"); };
    if (json.is_discarded() || !json.is_object() || !json.contains("files") || !json["files"].is_array()) throw wrong();
    for (const nlohmann::json& file : json["files"]) {
      if (!file.is_object() || !file.contains("path") || !file["path"].is_string() || !file.contains("records") ||
          !file["records"].is_number_unsigned())
        throw wrong();
      const auto count = file["records"].get<uint64_t>();
      if (count > footer_.records) throw wrong();
      files_.push_back({file["path"].get<std::string>(), static_cast<int64_t>(count)});
      records += files_.back().records;
    }
    if (records != records_) throw wrong();
  }
  void check_chunk(int64_t chunk) const {
    const int64_t begin = chunk * kTokenChunkBytes;
    const int64_t bytes = std::min(kTokenChunkBytes, tokens_ * token_bytes_ - begin);
    if (XXH3_64bits(data_ + begin, static_cast<size_t>(bytes)) != sums_[chunk])
      throw Error(ErrorKind::CorruptFile, "token store: the checksum of the tokens is wrong")
          .at(path_, fmt::format("bytes {} to {}", kStoreFrontBytes + begin, kStoreFrontBytes + begin + bytes))
          .cure("delete the store: it is made again from the data files");
    // Ids are bounded here once, so that no reader can index beyond a table of vocab_size rows.
    if (highest_of(begin / token_bytes_, (begin + bytes) / token_bytes_) > highest_id())
      throw corrupt("an id is above the footer's highest");
    checked_[static_cast<size_t>(chunk)].store(true, std::memory_order_relaxed);
  }

  MappedFile file_;
  StoreFooter footer_;
  const uint64_t* sums_ = nullptr;
  std::vector<StoreFile> files_;
  int64_t chunks_ = 0;
  mutable std::unique_ptr<std::atomic<bool>[]> checked_;
};

std::shared_ptr<const OwnStore> open_own(const std::string& path, uint64_t tokenizer_hash) {
  auto store = std::make_shared<OwnStore>(path);
  if (tokenizer_hash != 0 && store->footer().tokenizer_hash != tokenizer_hash)
    throw Error(ErrorKind::Data, "the token store was made by another tokenizer")
        .at(path)
        .found(fmt::format("tokenizer hash {:016x}", store->footer().tokenizer_hash))
        .expected(fmt::format("{:016x}", tokenizer_hash))
        .cure("give the tokenizer that it was made with, or prepare the data again");
  return store;
}

}  // namespace

std::shared_ptr<const TokenStore> open_store(const std::string& path, uint64_t tokenizer_hash) {
  return open_own(path, tokenizer_hash);
}

StoreFooter read_footer(const std::string& path, uint64_t tokenizer_hash) {
  return open_own(path, tokenizer_hash)->footer();
}

void check_vocabulary(const TokenStore& store, int64_t model_vocab) {
  if (store.highest_id() < model_vocab) return;
  throw Error(ErrorKind::Data, "the data hold token ids outside the model's vocabulary")
      .at(store.path())
      .found(fmt::format("id {}", store.highest_id()))
      .expected(fmt::format("ids below {}", model_vocab))
      .cure("use the tokenizer that belongs to the model, or a model with a larger vocab_size");
}

std::string describe_store(const std::string& path) {
  const OwnStore store(path);
  const StoreFooter& h = store.footer();
  nlohmann::json json = nlohmann::json::parse(store.sources());
  json["kind"] = "token store";
  json["version"] = h.version, json["token_bytes"] = h.token_bytes, json["vocab_size"] = h.vocab_size;
  json["tokenizer_hash"] = fmt::format("{:016x}", h.tokenizer_hash);
  json["records"] = h.records, json["tokens"] = h.tokens, json["trained"] = h.trained,
  json["short_records"] = h.short_records;
  json["highest_id"] = h.highest_id, json["end_of_text"] = h.end_of_text, json["bytes"] = h.file_bytes;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace ballast
