#pragma once
// What the forward and the backward of attention share: which keys a tile of queries sees, and how work is handed out.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "ballast/kernel/attention.h"
#include "ballast/kernel/vector.h"
#include "ballast/plan/attention_tiles.h"

namespace ballast::kernel {

constexpr int64_t kQueryTile = kAttendQueryTile;
constexpr int64_t kKeyTile = kAttendKeyTile;

// First key that a query at position i sees.
inline int64_t first_key(int64_t i, int64_t window) { return window > 0 ? std::max<int64_t>(0, i - window + 1) : 0; }

// Keys [begin, end), counted from a first one.
struct KeyRange {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
};

// Which of `count` keys, the first at `position`, a query at some position of [first, last] sees.
inline KeyRange visible_keys(int64_t first, int64_t last, int64_t window, int64_t position, int64_t count) {
  const int64_t begin = std::clamp<int64_t>(first_key(first, window) - position, 0, count);
  return {begin, std::clamp<int64_t>(last + 1 - position, begin, count)};
}

// Neighbouring queries of a unit.
struct QueryTile {
  int64_t row, rows, position;
};
// f(tile) for the tiles of a unit's queries; no tile reaches over the end of a span.
template <class F>
void for_each_query_tile(const AttendUnit& unit, F&& f) {
  for (const RowSpan& span : unit.queries) {
    for (int64_t first = 0; first < span.count; first += kQueryTile)
      f(QueryTile{span.row + first, std::min(kQueryTile, span.count - first), span.position + first});
  }
}

// Neighbouring keys of a unit; `before` of the unit's keys precede them.
struct KeyTile {
  int64_t row, keys, position, before;
};
// f(tile) for tiles of the unit's keys that some of the queries sees, in the order of the unit.
template <class F>
void for_each_key_tile(const AttendUnit& unit, const QueryTile& queries, int64_t window, F&& f) {
  int64_t before = 0;
  for (const RowSpan& span : unit.keys) {
    const KeyRange seen = visible_keys(queries.position, queries.position + queries.rows - 1, window, span.position, span.count);
    for (int64_t key = seen.begin; key < seen.end; key += kKeyTile)
      f(KeyTile{span.row + key, std::min(kKeyTile, seen.end - key), span.position + key, before + key});
    before += span.count;
  }
}

inline bool sees_any(const AttendUnit& unit, const QueryTile& queries, int64_t window) {
  return std::any_of(unit.keys.begin(), unit.keys.end(), [&](const RowSpan& span) {
    return !visible_keys(queries.position, queries.position + queries.rows - 1, window, span.position, span.count).empty();
  });
}

// That tensors and units fit each other and the shape.
void check_attention(const AttentionShape& shape, std::span<const AttendUnit> units, const AttentionDropout& dropout, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v, const at::Tensor& lse);

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
struct LoadTile {  // dst[r][0..d) = factor * src[r * stride ...], fp32
  BALLAST_INLINE static void run(const T* src, int64_t stride, int64_t rows, int64_t d, float factor, float* dst) {
    for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
      for (int64_t c = 0; c < d; ++c) dst[r * d + c] = factor * load(src + r * stride + c);
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

}  // namespace ballast::kernel
