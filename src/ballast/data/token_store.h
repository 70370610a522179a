#pragma once
// Tokens of many records, mapped from disk: what training reads. Records stay whole here; the sequence limit cuts them on reading
// (sample_windows.h), so one store serves every limit. Ballast's own stores and foreign ones look the same from here.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ballast/data/record.h"
#include "ballast/data/store_footer.h"

namespace ballast {

// A file that a store was made from.
struct StoreFile {
  std::string path;
  int64_t records = 0;
};

class TokenStore {
 public:
  virtual ~TokenStore() = default;
  const std::string& path() const { return path_; }
  int64_t records() const { return records_; }
  int64_t tokens() const { return tokens_; }
  // Tokens of the record and where they start in the store; offsets ascend.
  int64_t begin_of(int64_t record) const { return static_cast<int64_t>(offsets_[record]); }
  int64_t length_of(int64_t record) const { return begin_of(record + 1) - begin_of(record); }
  // The record that holds the store's token number `position`.
  int64_t record_at(int64_t position) const;
  // Tokens [begin, begin + count) of the store as ids. Throws Error(CorruptFile) where their checksum is wrong.
  void read(int64_t begin, int64_t count, int64_t* ids) const;

  // Trained targets: a token is one if a span holds it and it is not its record's first. Reads no tokens.
  bool all_trained() const { return !spans_; }
  int64_t trained_in(int64_t record, int64_t begin, int64_t end) const;   // among the record's tokens [begin, end)
  std::vector<Span> spans_of(int64_t record) const;

  virtual int64_t highest_id() const = 0;            // own stores know it; foreign ones are read once
  virtual std::vector<StoreFile> files() const = 0;
  virtual uint64_t fingerprint() const = 0;          // of the content; equal on two ranks that see the same store
  virtual void verify() const = 0;                   // reads everything. Throws Error(CorruptFile)
  std::string record_name(int64_t record) const;     // "a.jsonl, record 17", counted from 1

 protected:
  explicit TokenStore(std::string path) : path_(std::move(path)) {}
  // Called before tokens [begin, end) are read.
  virtual void touch(int64_t begin, int64_t end) const = 0;
  int64_t highest_of(int64_t begin, int64_t end) const;

  std::string path_;
  int64_t records_ = 0, tokens_ = 0;
  int token_bytes_ = 2;
  const std::byte* data_ = nullptr;          // tokens, perhaps not aligned
  const uint64_t* offsets_ = nullptr;        // [records + 1], offsets_[0] = 0, offsets_[records] = tokens
  const uint64_t* span_index_ = nullptr;     // [records + 1], into spans_
  const Span* spans_ = nullptr;
};

// Ballast's own store. On opening, footer and all regions but the tokens are checked against their checksums; the tokens are checked
// in pieces of 64 KiB when first read, so a large store opens at once and no wrong byte is trained on.
// Throws Error(CorruptFile); Error(Data) where it was made by another tokenizer (0 = any).
std::shared_ptr<const TokenStore> open_store(const std::string& path, uint64_t tokenizer_hash = 0);

// The counts of a store, after the same checks.
StoreFooter read_footer(const std::string& path, uint64_t tokenizer_hash = 0);

// Throws Error(Data) if an id of the store is not below the model's vocabulary.
void check_vocabulary(const TokenStore& store, int64_t model_vocab);

// What `inspect` shows: the JSON text of the source region, with counts. Opens and checks as open_store does.
std::string describe_store(const std::string& path);

}  // namespace ballast
