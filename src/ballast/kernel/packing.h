#pragma once
// Copies parts of matrices into slivers, which the innermost loops of products read in order. AVX2.
#include <algorithm>
#include <cstdint>

#include "ballast/kernel/avx2.h"

#if defined(__x86_64__)
namespace ballast::kernel {

// Packs `lines` x `depth` elements into slivers of `kWidth` lines: sliver, then k, then line; missing lines are zero.
// Lines are rows of a or columns of b; a line's elements lie `along_k` apart, lines `across` apart; one of the two is 1.
template <int kWidth, class T>
BALLAST_AVX2 void pack(const T* source, int64_t across, int64_t along_k, int64_t lines, int64_t depth, float* out) {
  for (int64_t first = 0; first < lines; first += kWidth, out += kWidth * depth) {
    const int64_t width = std::min<int64_t>(kWidth, lines - first);
    const T* from = source + first * across;
    if (across == 1 && width == kWidth) {
      // A store of a whole vector may reach into the next k, which is written after it.
      const bool room = first + (kWidth + 7) / 8 * 8 <= lines;  // and a load must not reach past the matrix
      if (room || kWidth % 8 == 0) {
        for (int64_t p = 0; p < depth; ++p) {
          for (int i = 0; i < kWidth; i += 8) _mm256_storeu_ps(out + p * kWidth + i, load8(from + p * along_k + i));
        }
        continue;
      }
    }
    int64_t p = 0;
    if (along_k == 1 && width == kWidth) {
      for (; p + 8 <= depth; p += 8) {
        for (int i = 0; i < kWidth; i += 8) {
          __m256 rows[8];
          for (int j = 0; j < 8; ++j) rows[j] = i + j < kWidth ? load8(from + (i + j) * across + p) : _mm256_setzero_ps();
          transpose8(rows);
          for (int j = 0; j < 8; ++j) _mm256_storeu_ps(out + (p + j) * kWidth + i, rows[j]);
        }
      }
    }
    for (; p < depth; ++p) {
      for (int64_t i = 0; i < width; ++i) out[p * kWidth + i] = load1(from + i * across + p * along_k);
      for (int64_t i = width; i < kWidth; ++i) out[p * kWidth + i] = 0;
    }
  }
}

}  // namespace ballast::kernel
#endif
