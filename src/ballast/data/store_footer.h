#pragma once
// The fixed parts of a token store: its first bytes, and the footer that is written last, when all counts are known.
// docs/file-formats.md describes the whole file. Little-endian, no pointers.
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ballast {

static_assert(std::endian::native == std::endian::little, "token stores are little-endian");

constexpr char kStoreMagic[8] = {'B', 'A', 'L', 'T', 'O', 'K', '1', '\n'};
constexpr uint32_t kStoreVersion = 1;
constexpr int64_t kStoreFrontBytes = 4096;    // the magic, then zeros; the tokens start on a page
constexpr int64_t kStoreAlign = 64;           // every region starts on it
constexpr int64_t kTokenChunkBytes = 65536;   // bytes of tokens that one checksum covers
constexpr uint64_t kLargestVocabulary = uint64_t{1} << 31;   // ids fit in int32

struct StoreRegion {
  uint64_t offset, bytes;   // in the file
  uint64_t checksum;        // XXH3-64 of the bytes; 0 for the tokens, which have one per chunk in the sum region
};

struct StoreFooter {
  uint64_t tokenizer_hash, vocab_size;
  uint64_t records, tokens, trained, spans;     // trained: targets that count, were no record cut
  uint64_t highest_id, end_of_text;
  uint64_t short_records;                       // of fewer than two tokens: no sample
  uint64_t all_trained;                         // 1: every target of every record counts and there are no spans
  StoreRegion token_region, offset_region, span_index_region, span_region, sum_region, source_region;
  uint64_t file_bytes;
  uint32_t version, token_bytes;                // token_bytes: 2 or 4
  char magic[8];
  uint64_t checksum;                            // XXH3-64 of all fields before it
};
static_assert(sizeof(StoreFooter) == 8 * 10 + 24 * 6 + 32);

}  // namespace ballast
