#pragma once
// What the forward and the backward of attention share: tile sizes, which keys a query tile sees, and how work is handed out.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "ballast/kernel/attention.h"
#include "ballast/kernel/vector.h"

namespace ballast::kernel {

constexpr int64_t kQueryTile = 64;
constexpr int64_t kKeyTile = 128;

// First key that query i sees.
inline int64_t first_key(int64_t i, int64_t window) { return window > 0 ? std::max<int64_t>(0, i - window + 1) : 0; }

// Runs work(item, thread) for every item; threads take the next one when they are free. Items must be independent.
template <class F>
void for_each_item(int64_t items, F&& work) {
  const int64_t threads = std::min<int64_t>(items, at::in_parallel_region() ? 1 : at::get_num_threads());
  std::atomic<int64_t> next{0};
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread)
      for (int64_t item = next.fetch_add(1); item < items; item = next.fetch_add(1)) work(item, thread);
  });
}

template <class T>
struct LoadTile {  // dst[r][0..d) = src[r * stride ...], fp32
  BALLAST_INLINE static void run(const T* src, int64_t stride, int64_t rows, int64_t d, float* dst) {
    for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
      for (int64_t c = 0; c < d; ++c) dst[r * d + c] = load(src + r * stride + c);
    }
  }
};

template <class T>
struct StoreTile {
  BALLAST_INLINE static void run(const float* src, int64_t rows, int64_t d, T* dst, int64_t stride) {
    for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
      for (int64_t c = 0; c < d; ++c) store(dst + r * stride + c, src[r * d + c]);
    }
  }
};

// A tile as the products read it: fp32 memory is used where it lies, bf16 is widened into `room`.
struct Tile {
  const float* data;
  int64_t ld;
};
inline Tile tile(const float* src, int64_t stride, int64_t, int64_t, float*) { return {src, stride}; }
inline Tile tile(const c10::BFloat16* src, int64_t stride, int64_t rows, int64_t d, float* room) {
  run<LoadTile<c10::BFloat16>>(src, stride, rows, d, room);
  return {room, d};
}

}  // namespace ballast::kernel
