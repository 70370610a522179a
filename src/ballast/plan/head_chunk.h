#pragma once
// How the head cuts its rows and its vocabulary, so that logits never exist whole. Shared by the segment and its memory formula.
#include <algorithm>
#include <cstdint>

namespace ballast {

constexpr int64_t kHeadChunkBytes = int64_t{64} << 20;  // of fp32 logits
constexpr int64_t kHeadVocabBlock = 8192;               // rows of a bf16 head that are converted at a time

// Rows per chunk: equal chunks, none with more than kHeadChunkBytes of logits (at least 16 rows).
inline int64_t head_chunk_rows(int64_t rows, int64_t vocab) {
  const int64_t most = std::max<int64_t>(16, kHeadChunkBytes / (4 * vocab));
  const int64_t chunks = std::max<int64_t>(1, (rows + most - 1) / most);
  return std::min(rows, ((rows + chunks - 1) / chunks + 15) / 16 * 16);
}

}  // namespace ballast
