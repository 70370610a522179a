#pragma once
// How the head cuts its rows and its vocabulary, so that logits never exist whole. Shared by the segment and its memory formula.
#include <algorithm>
#include <cstdint>

namespace ballast {

constexpr int64_t kHeadChunkBytes = int64_t{64} << 20;  // of fp32 logits
constexpr int64_t kHeadVocabBlock = 8192;               // columns of logits whose gradient is rounded to bf16 at a time, for bf16 units

// The most rows of a chunk: kHeadChunkBytes of logits, in sixteens, at least one sixteen.
inline int64_t head_chunk_limit(int64_t vocab) { return std::max<int64_t>(16, kHeadChunkBytes / (4 * vocab) / 16 * 16); }

// Rows per chunk: as few chunks as the limit allows, of equal size up to rounding.
inline int64_t head_chunk_rows(int64_t rows, int64_t vocab) {
  const int64_t limit = head_chunk_limit(vocab);
  const int64_t chunks = std::max<int64_t>(1, (rows + limit - 1) / limit);
  return std::min(rows, ((rows + chunks - 1) / chunks + 15) / 16 * 16);
}

}  // namespace ballast
