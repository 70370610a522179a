// Gradients from the log-sum-exp (FlashAttention, arXiv:2205.14135, algorithm 4): P = exp(S - lse) is computed again per tile,
// dV += P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O)), dQ += dS K, dK += dS^T Q. 10 T^2/2 d FLOPs per head. One item is one
// key-value head of a sequence with all its query heads in turn, so that every sum has one order.
#include "ballast/kernel/attention_tile.h"
#include "ballast/kernel/gemm.h"

#include <cmath>

namespace ballast::kernel {
namespace {

template <class T>
struct RowDot {
  BALLAST_INLINE static void run(const T* a, const T* b, int64_t n, float* result) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += load(a + i) * load(b + i);
    *result = sum;
  }
};

// p = exp(s - lse) over the visible [lo, hi), 0 elsewhere.
struct Probabilities {
  BALLAST_INLINE static void run(float* s, int64_t n, int64_t lo, int64_t hi, float lse) {
#pragma omp simd
    for (int64_t j = lo; j < hi; ++j) s[j] = exp_approximate(s[j] - lse);
    for (int64_t j = 0; j < lo; ++j) s[j] = 0;
    for (int64_t j = hi; j < n; ++j) s[j] = 0;
  }
};

// dp = p (dp - delta) scale.
struct ScoreGradient {
  BALLAST_INLINE static void run(const float* p, float* dp, int64_t n, float delta, float scale) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) dp[j] = p[j] * (dp[j] - delta) * scale;
  }
};

// With dropout factors f: dp = p (f dp - delta) scale, and p becomes f p for dV.
struct DroppedScoreGradient {
  BALLAST_INLINE static void run(float* p, float* dp, const float* f, int64_t n, float delta, float scale) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      dp[j] = p[j] * (f[j] * dp[j] - delta) * scale;
      p[j] *= f[j];
    }
  }
};

}  // namespace

void attention_backward(const AttentionShape& shape, std::span<const int64_t> starts, const AttentionDropout& dropout,
                        const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse,
                        const at::Tensor& d_o, const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv) {
  const int64_t d = shape.head_dim, group = shape.heads / shape.kv_heads, tokens = q.size(0);
  const int64_t q_stride = shape.heads * d, kv_stride = shape.kv_heads * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  int64_t longest = 0;
  for (size_t s = 0; s + 1 < starts.size(); ++s) longest = std::max(longest, starts[s + 1] - starts[s]);
  if (longest == 0) return;
  const int64_t items = static_cast<int64_t>(starts.size() - 1) * shape.kv_heads;
  const int64_t room_size = attention_scratch_bytes(d, longest, 1, true) / static_cast<int64_t>(sizeof(float));
  const at::Tensor room = at::empty({std::min<int64_t>(at::get_num_threads(), items), room_size}, lse.options());
  float* rooms = room.data_ptr<float>();
  const float* lse_data = lse.data_ptr<float>();

  with_element(q, [&]<class T>(T*) {
    const T *q_data = pointer<T>(q), *k_data = pointer<T>(k), *v_data = pointer<T>(v), *o_data = pointer<T>(o), *do_data = pointer<T>(d_o);
    T *dq_data = pointer<T>(dq), *dk_data = pointer<T>(dk), *dv_data = pointer<T>(dv);
    for_each_item(items, [&](int64_t item, int64_t thread) {
      const int64_t sequence = item / shape.kv_heads, kv_head = item % shape.kv_heads;
      const int64_t start = starts[static_cast<size_t>(sequence)], length = starts[static_cast<size_t>(sequence) + 1] - start;
      float* p = rooms + thread * room_size;
      float* dp = p + kQueryTile * kKeyTile;
      float* factors = dp + kQueryTile * kKeyTile;
      float* q_room = factors + kKeyTile;
      float* do_room = q_room + kQueryTile * d;
      float* k_room = do_room + kQueryTile * d;
      float* v_room = k_room + kKeyTile * d;
      float* dq_sum = v_room + kKeyTile * d;
      float* dk_sum = dq_sum + length * d;
      float* dv_sum = dk_sum + length * d;
      float* delta = dv_sum + length * d;
      std::fill_n(dk_sum, 2 * length * d, 0.0f);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const int64_t base = start * q_stride + head * d;
        std::fill_n(dq_sum, length * d, 0.0f);
        for (int64_t i = 0; i < length; ++i) run<RowDot<T>>(o_data + base + i * q_stride, do_data + base + i * q_stride, d, delta + i);
        for (int64_t key = 0; key < length; key += kKeyTile) {
          const int64_t keys = std::min(kKeyTile, length - key), kv_base = (start + key) * kv_stride + kv_head * d;
          const Tile keys_tile = tile(k_data + kv_base, kv_stride, keys, d, k_room);
          const Tile values = tile(v_data + kv_base, kv_stride, keys, d, v_room);
          // Queries before the first key of the tile see nothing of it; with a window neither do those far behind.
          for (int64_t first = key / kQueryTile * kQueryTile; first < length; first += kQueryTile) {
            const int64_t rows = std::min(kQueryTile, length - first);
            if (first_key(first, shape.window) >= key + keys) break;
            const Tile query = tile(q_data + base + first * q_stride, q_stride, rows, d, q_room);
            const Tile upper = tile(do_data + base + first * q_stride, q_stride, rows, d, do_room);
            small_product(false, true, rows, keys, d, scale, query.data, query.ld, keys_tile.data, keys_tile.ld, 0.0f, p, kKeyTile);
            small_product(false, true, rows, keys, d, 1.0f, upper.data, upper.ld, values.data, values.ld, 0.0f, dp, kKeyTile);
            for (int64_t r = 0; r < rows; ++r) {
              const int64_t i = first + r;
              const int64_t lo = std::clamp<int64_t>(first_key(i, shape.window) - key, 0, keys);
              const int64_t hi = std::clamp<int64_t>(i + 1 - key, lo, keys);
              float *p_row = p + r * kKeyTile, *dp_row = dp + r * kKeyTile;
              run<Probabilities>(p_row, keys, lo, hi, lse_data[head * tokens + start + i]);
              if (dropout.p > 0) {
                const int64_t* positions = dropout.positions + start;
                dropout_factors(dropout.keys[static_cast<size_t>(sequence)], positions[i], head, positions[key], keys, dropout.place,
                                dropout.p, factors);
                run<DroppedScoreGradient>(p_row, dp_row, static_cast<const float*>(factors), keys, delta[i], scale);
              } else {
                run<ScoreGradient>(static_cast<const float*>(p_row), dp_row, keys, delta[i], scale);
              }
            }
            small_product(true, false, keys, d, rows, 1.0f, p, kKeyTile, upper.data, upper.ld, 1.0f, dv_sum + key * d, d);
            small_product(true, false, keys, d, rows, 1.0f, dp, kKeyTile, query.data, query.ld, 1.0f, dk_sum + key * d, d);
            small_product(false, false, rows, d, keys, 1.0f, dp, kKeyTile, keys_tile.data, keys_tile.ld, 1.0f, dq_sum + first * d, d);
          }
        }
        run<StoreTile<T>>(static_cast<const float*>(dq_sum), length, d, dq_data + base, q_stride);
      }
      const int64_t kv_base = start * kv_stride + kv_head * d;
      run<StoreTile<T>>(static_cast<const float*>(dk_sum), length, d, dk_data + kv_base, kv_stride);
      run<StoreTile<T>>(static_cast<const float*>(dv_sum), length, d, dv_data + kv_base, kv_stride);
    });
  });
}

}  // namespace ballast::kernel
