// Online softmax over key tiles (FlashAttention, arXiv:2205.14135): per query tile, running maximum m, sum l and output O,
// rescaled by exp(m_old - m_new). 4 T^2/2 d FLOPs per head; reads k and v once per query tile, from the cache.
#include "ballast/kernel/attention_tile.h"
#include "ballast/kernel/gemm.h"

#include <cmath>

namespace ballast::kernel {
namespace {

// One row of scores: visible ones are [0, lo) hidden, [lo, hi) seen, [hi, n) hidden. Turns scores into exp(s - m_new), updates m and l,
// and returns in `rescale` what earlier sums are multiplied by.
struct SoftmaxRow {
  BALLAST_INLINE static void run(float* s, int64_t n, int64_t lo, int64_t hi, float* m, float* l, float* rescale) {
    float top = *m;
#pragma omp simd reduction(max : top)
    for (int64_t j = lo; j < hi; ++j) top = s[j] > top ? s[j] : top;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = lo; j < hi; ++j) {
      const float p = exp_approximate(s[j] - top);
      s[j] = p;
      sum += p;
    }
    for (int64_t j = 0; j < lo; ++j) s[j] = 0;
    for (int64_t j = hi; j < n; ++j) s[j] = 0;
    const float factor = top == *m ? 1.0f : exp_approximate(*m - top);
    *rescale = factor;
    *l = *l * factor + sum;
    *m = top;
  }
};

struct Scale {
  BALLAST_INLINE static void run(float* x, int64_t n, float factor) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) x[i] *= factor;
  }
};

struct Multiply {
  BALLAST_INLINE static void run(float* x, const float* y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) x[i] *= y[i];
  }
};

int64_t room_per_thread(int64_t d) {
  // scores, dropout factors, output tile, q tile, k and v tiles, m and l
  return kQueryTile * kKeyTile + kKeyTile + 2 * kQueryTile * d + 2 * kKeyTile * d + 2 * kQueryTile;
}

struct WorkItem {
  int64_t sequence, head, first;  // first query of the tile, within the sequence
};

}  // namespace

void attention_forward(const AttentionShape& shape, std::span<const int64_t> starts, const AttentionDropout& dropout,
                       const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse) {
  const int64_t d = shape.head_dim, group = shape.heads / shape.kv_heads, tokens = q.size(0);
  const int64_t q_stride = shape.heads * d, kv_stride = shape.kv_heads * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<WorkItem> items;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      for (int64_t first = 0; first < starts[s + 1] - starts[s]; first += kQueryTile) items.push_back({static_cast<int64_t>(s), head, first});
    }
  }
  if (items.empty()) return;
  const int64_t room_size = room_per_thread(d);
  const at::Tensor room = at::empty({std::min<int64_t>(at::get_num_threads(), static_cast<int64_t>(items.size())), room_size}, lse.options());
  float* rooms = room.data_ptr<float>();
  float* lse_out = lse.data_ptr<float>();

  with_element(q, [&]<class T>(T*) {
    const T *q_data = pointer<T>(q), *k_data = pointer<T>(k), *v_data = pointer<T>(v);
    T* o_data = pointer<T>(o);
    for_each_item(static_cast<int64_t>(items.size()), [&](int64_t index, int64_t thread) {
      const WorkItem& item = items[static_cast<size_t>(index)];
      const int64_t start = starts[static_cast<size_t>(item.sequence)];
      const int64_t length = starts[static_cast<size_t>(item.sequence) + 1] - start;
      const int64_t rows = std::min(kQueryTile, length - item.first), kv_head = item.head / group;
      float* scores = rooms + thread * room_size;
      float* factors = scores + kQueryTile * kKeyTile;
      float* out = factors + kKeyTile;
      float* q_room = out + kQueryTile * d;
      float* k_room = q_room + kQueryTile * d;
      float* v_room = k_room + kKeyTile * d;
      float* m = v_room + kKeyTile * d;
      float* l = m + kQueryTile;
      std::fill_n(m, rows, -std::numeric_limits<float>::infinity());
      std::fill_n(l, rows, 0.0f);
      const Tile query = tile(q_data + (start + item.first) * q_stride + item.head * d, q_stride, rows, d, q_room);
      const int64_t keys_begin = first_key(item.first, shape.window), keys_end = item.first + rows;
      for (int64_t key = keys_begin; key < keys_end; key += kKeyTile) {
        const int64_t keys = std::min(kKeyTile, keys_end - key);
        const Tile keys_tile = tile(k_data + (start + key) * kv_stride + kv_head * d, kv_stride, keys, d, k_room);
        const Tile values = tile(v_data + (start + key) * kv_stride + kv_head * d, kv_stride, keys, d, v_room);
        small_product(false, true, rows, keys, d, scale, query.data, query.ld, keys_tile.data, keys_tile.ld, 0.0f, scores, kKeyTile);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = item.first + r;
          const int64_t lo = std::clamp<int64_t>(first_key(i, shape.window) - key, 0, keys);
          const int64_t hi = std::clamp<int64_t>(i + 1 - key, lo, keys);
          float* row = scores + r * kKeyTile;
          float rescale = 1.0f;
          run<SoftmaxRow>(row, keys, lo, hi, m + r, l + r, &rescale);
          if (key > keys_begin && rescale != 1.0f) run<Scale>(out + r * d, d, rescale);
          if (dropout.p > 0 && hi > lo) {
            const int64_t* positions = dropout.positions + start;
            dropout_factors(dropout.keys[static_cast<size_t>(item.sequence)], positions[i], item.head, positions[key], keys,
                            dropout.place, dropout.p, factors);
            run<Multiply>(row, static_cast<const float*>(factors), keys);
          }
        }
        small_product(false, false, rows, d, keys, 1.0f, scores, kKeyTile, values.data, values.ld, key > keys_begin ? 1.0f : 0.0f, out, d);
      }
      for (int64_t r = 0; r < rows; ++r) {
        run<Scale>(out + r * d, d, 1.0f / l[r]);
        lse_out[item.head * tokens + start + item.first + r] = m[r] + std::log(l[r]);
      }
      run<StoreTile<T>>(static_cast<const float*>(out), rows, d, o_data + (start + item.first) * q_stride + item.head * d, q_stride);
    });
  });
}

int64_t attention_scratch_bytes(int64_t head_dim, int64_t longest, int64_t threads, bool backward) {
  const int64_t floats = backward ? kQueryTile * kKeyTile * 2 + kKeyTile + 2 * kQueryTile * head_dim + 2 * kKeyTile * head_dim +
                                        3 * longest * head_dim + longest
                                  : room_per_thread(head_dim);
  // Whole cache lines: the BLAS rounds by alignment, and which thread takes an item must not matter.
  return threads * ((floats + 15) / 16 * 16) * static_cast<int64_t>(sizeof(float));
}

}  // namespace ballast::kernel
