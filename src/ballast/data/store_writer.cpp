#include "ballast/data/store_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ballast/base/check.h"
#include "ballast/base/error.h"
#include "ballast/base/output_file.h"

namespace ballast {

namespace {

constexpr size_t kSpillBuffer = 1 << 18;

void write_fully(int file, const char* data, size_t bytes, const std::filesystem::path& folder) {
  while (bytes > 0) {
    const ssize_t done = ::write(file, data, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_system_error(errno, "write a temporary file", folder);
    data += done, bytes -= static_cast<size_t>(done);
  }
}

XXH3_state_t* new_state() {
  XXH3_state_t* state = XXH3_createState();
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state);
  return state;
}

}  // namespace

SpillFile::SpillFile(const std::filesystem::path& folder) : folder_(folder) {
  std::string name = (folder / ".spill.XXXXXX").string();
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) throw_system_error(errno, "create a temporary file", folder);
  ::unlink(name.c_str());  // nothing is left behind whatever ends the process
  buffer_.reserve(kSpillBuffer);
}

SpillFile::~SpillFile() { ::close(file_); }

void SpillFile::append(const void* data, size_t bytes) {
  if (buffer_.size() + bytes > kSpillBuffer) {
    write_fully(file_, buffer_.data(), buffer_.size(), folder_);
    buffer_.clear();
  }
  const char* begin = static_cast<const char*>(data);
  buffer_.insert(buffer_.end(), begin, begin + bytes);
}

uint64_t SpillFile::copy_to(FileWriter& out) {
  write_fully(file_, buffer_.data(), buffer_.size(), folder_);
  if (::lseek(file_, 0, SEEK_SET) != 0) throw_system_error(errno, "read a temporary file", folder_);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(new_state(), XXH3_freeState);
  buffer_.resize(kSpillBuffer);
  while (true) {
    const ssize_t got = ::read(file_, buffer_.data(), buffer_.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error(errno, "read a temporary file", folder_);
    if (got == 0) break;
    XXH3_64bits_update(state.get(), buffer_.data(), static_cast<size_t>(got));
    out.write(buffer_.data(), static_cast<size_t>(got));
  }
  return XXH3_64bits_digest(state.get());
}

StoreWriter::StoreWriter(FileWriter& out, const std::filesystem::path& folder, const StoreIdentity& identity)
    : out_(out),
      identity_(identity),
      offsets_(folder),
      span_index_(folder),
      spans_(folder),
      chunk_(new_state(), XXH3_freeState) {
  BALLAST_CHECK(identity.vocab_size >= 1 && static_cast<uint64_t>(identity.vocab_size) <= kLargestVocabulary,
                "vocab_size {}", identity.vocab_size);
  footer_.tokenizer_hash = identity.tokenizer_hash;
  footer_.vocab_size = static_cast<uint64_t>(identity.vocab_size);
  footer_.end_of_text = static_cast<uint64_t>(identity.end_of_text);
  footer_.all_trained = identity.all_trained ? 1 : 0;
  footer_.version = kStoreVersion;
  footer_.token_bytes = identity.vocab_size <= 65536 ? 2 : 4;
  char front[kStoreFrontBytes] = {};
  std::memcpy(front, kStoreMagic, sizeof kStoreMagic);
  std::memcpy(footer_.magic, kStoreMagic, sizeof kStoreMagic);
  out_.write(front, sizeof front);
  footer_.token_region.offset = kStoreFrontBytes;
  const uint64_t zero = 0;
  offsets_.append(&zero, sizeof zero);
  if (!identity.all_trained) span_index_.append(&zero, sizeof zero);
}

void StoreWriter::put_tokens(const void* data, size_t bytes) {
  out_.write(data, bytes);
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t part = std::min(bytes, static_cast<size_t>(kTokenChunkBytes - chunk_used_));
    XXH3_64bits_update(chunk_.get(), at, part);
    at += part, bytes -= part, chunk_used_ += static_cast<int64_t>(part);
    if (chunk_used_ == kTokenChunkBytes) {
      sums_.push_back(XXH3_64bits_digest(chunk_.get()));
      XXH3_64bits_reset(chunk_.get());
      chunk_used_ = 0;
    }
  }
}

void StoreWriter::add(const TokenizedRecord& record) {
  const auto count = static_cast<int64_t>(record.tokens.size());
  int32_t highest = 0, lowest = 0;
  for (const int32_t id : record.tokens) highest = std::max(highest, id), lowest = std::min(lowest, id);
  if (lowest < 0 || highest >= identity_.vocab_size)
    throw Error(ErrorKind::Data, "the tokenizer gave an id outside its vocabulary")
        .found(fmt::format("id {}", lowest < 0 ? lowest : highest))
        .expected(fmt::format("0 to {}", identity_.vocab_size - 1));
  footer_.highest_id = std::max(footer_.highest_id, static_cast<uint64_t>(highest));
  if (footer_.token_bytes == 2) {
    narrow_.assign(record.tokens.begin(), record.tokens.end());
    put_tokens(narrow_.data(), narrow_.size() * 2);
  } else {
    put_tokens(record.tokens.data(), record.tokens.size() * 4);
  }
  footer_.records += 1;
  footer_.tokens += static_cast<uint64_t>(count);
  if (count < 2) footer_.short_records += 1;
  offsets_.append(&footer_.tokens, sizeof footer_.tokens);
  if (identity_.all_trained) {
    BALLAST_CHECK(count == 0 || (record.trained.size() == 1 && record.trained[0] == (Span{0, count})),
                  "a record is not trained whole");
    footer_.trained += static_cast<uint64_t>(std::max<int64_t>(0, count - 1));
    return;
  }
  int64_t end = -1;
  for (const Span& span : record.trained) {
    BALLAST_CHECK(span.begin > end && span.end > span.begin && span.end <= count, "span [{}, {}) of {} tokens",
                  span.begin, span.end, count);
    end = span.end;
    footer_.trained += static_cast<uint64_t>(
        span.end - std::max<int64_t>(span.begin, 1) > 0 ? span.end - std::max<int64_t>(span.begin, 1) : 0);
  }
  footer_.spans += record.trained.size();
  spans_.append(record.trained.data(), record.trained.size() * sizeof(Span));
  span_index_.append(&footer_.spans, sizeof footer_.spans);
}

void StoreWriter::start_region(StoreRegion& region) {
  const char zeros[kStoreAlign] = {};
  const int64_t padding = (kStoreAlign - out_.written() % kStoreAlign) % kStoreAlign;
  out_.write(zeros, static_cast<size_t>(padding));
  region.offset = static_cast<uint64_t>(out_.written());
}

void StoreWriter::finish(const std::string& sources) {
  if (chunk_used_ > 0) sums_.push_back(XXH3_64bits_digest(chunk_.get()));
  footer_.token_region.bytes = static_cast<uint64_t>(out_.written() - kStoreFrontBytes);
  for (auto [region, spill] : {std::pair{&footer_.offset_region, &offsets_},
                               {&footer_.span_index_region, &span_index_},
                               {&footer_.span_region, &spans_}}) {
    start_region(*region);
    region->checksum = spill->copy_to(out_);
    region->bytes = static_cast<uint64_t>(out_.written()) - region->offset;
  }
  for (auto [region, data, bytes] :
       {std::tuple{&footer_.sum_region, static_cast<const void*>(sums_.data()), sums_.size() * 8},
        {&footer_.source_region, static_cast<const void*>(sources.data()), sources.size()}}) {
    start_region(*region);
    out_.write(data, bytes);
    region->bytes = bytes;
    region->checksum = XXH3_64bits(data, bytes);
  }
  StoreRegion end{};
  start_region(end);
  footer_.file_bytes = end.offset + sizeof footer_;
  footer_.checksum = XXH3_64bits(&footer_, offsetof(StoreFooter, checksum));
  out_.write(&footer_, sizeof footer_);
}

}  // namespace ballast
