#pragma once
// Writes a token store in one pass: tokens as they come, index regions through spill files, the footer last. Memory does not grow
// with the number of tokens or records (8 bytes per 64 KiB of tokens).
#include <xxhash.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ballast/base/files.h"
#include "ballast/data/record.h"
#include "ballast/data/store_footer.h"

namespace ballast {

// A nameless file in a folder that is written once, then copied: index regions that must stand behind the tokens.
class SpillFile {
 public:
  explicit SpillFile(const std::filesystem::path& folder);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;
  void append(const void* data, size_t bytes);
  // Appends all of it to `out` and returns the XXH3-64 of the bytes.
  uint64_t copy_to(FileWriter& out);

 private:
  std::filesystem::path folder_;
  int file_ = -1;
  std::vector<char> buffer_;
};

struct StoreIdentity {
  uint64_t tokenizer_hash = 0;
  int64_t vocab_size = 0;
  int32_t end_of_text = 0;
  bool all_trained = true;   // no spans are written; every record must then be trained whole
};

class StoreWriter {
 public:
  // Writes to `out`, which must be at its start; spill files go into `folder`. Token width: 2 bytes up to a vocabulary of 65,536.
  StoreWriter(FileWriter& out, const std::filesystem::path& folder, const StoreIdentity& identity);
  // Throws Error(Data) for an id outside the vocabulary.
  void add(const TokenizedRecord& record);
  // `sources`: JSON object with files: [{path, records, ...}], records adding up to records().
  void finish(const std::string& sources);
  const StoreFooter& footer() const { return footer_; }

 private:
  void put_tokens(const void* data, size_t bytes);
  void start_region(StoreRegion& region);

  FileWriter& out_;
  StoreIdentity identity_;
  StoreFooter footer_{};
  SpillFile offsets_, span_index_, spans_;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> chunk_;
  int64_t chunk_used_ = 0;
  std::vector<uint64_t> sums_;
  std::vector<uint16_t> narrow_;
};

}  // namespace ballast
