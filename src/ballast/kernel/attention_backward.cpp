// Gradients from the log-sum-exp (FlashAttention, arXiv:2205.14135, algorithm 4): P = exp(S - lse) is computed again per tile,
// dV += P^T dO, dP = dO V^T, dS = P (dP - delta), dQ += dS K, dK += dS^T Q; 10 d FLOPs per visible pair and head. One item is one
// key-value head of a unit with all its query heads in turn, so that every sum has one order whatever the threads.
#include <cmath>
#include <vector>

#include "ballast/kernel/attention_tile.h"
#include "ballast/kernel/gemm.h"

namespace ballast::kernel {
namespace {

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

// The gradients of one key-value head's keys or values while they are summed: where they lie, or in a room beside.
struct KeySums {
  float* data;
  int64_t ld;
  bool in_place;
  float* at(const KeyTile& tile) const { return data + (in_place ? tile.row : tile.before) * ld; }
};
KeySums key_sums(const at::Tensor& gradient, int64_t column, int64_t d, float* room) {
  if (gradient.scalar_type() == at::kFloat) return {gradient.data_ptr<float>() + column, gradient.size(1), true};
  return {room, d, false};
}

int64_t key_count(const AttendUnit& unit) {
  int64_t count = 0;
  for (const RowSpan& span : unit.keys) count += span.count;
  return count;
}

void begin_sums(const KeySums& sums, const AttendUnit& unit, int64_t d) {
  if (!sums.in_place) {
    std::fill_n(sums.data, key_count(unit) * d, 0.0f);
    return;
  }
  for (const RowSpan& span : unit.keys)
    for (int64_t row = span.row; row < span.row + span.count; ++row) std::fill_n(sums.data + row * sums.ld, d, 0.0f);
}

void end_sums(const KeySums& sums, const AttendUnit& unit, int64_t d, const at::Tensor& gradient, int64_t column) {
  if (sums.in_place) return;
  auto* data = pointer<c10::BFloat16>(gradient) + column;
  const float* from = sums.data;
  for (const RowSpan& span : unit.keys) {
    run<StoreTile<c10::BFloat16>>(from, span.count, d, data + span.row * gradient.size(1), gradient.size(1));
    from += span.count * d;
  }
}

}  // namespace

void attention_backward(const AttentionShape& shape, std::span<const AttendUnit> units, const AttentionDropout& dropout, const at::Tensor& q,
                        const at::Tensor& k, const at::Tensor& v, const at::Tensor& lse, const at::Tensor& delta, const at::Tensor& d_o,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, bool add_dq) {
  check_attention(shape, units, dropout, q, k, v, lse);
  BALLAST_CHECK(d_o.sizes() == q.sizes() && dq.sizes() == q.sizes() && dk.sizes() == k.sizes() && dv.sizes() == v.sizes() &&
                    delta.sizes() == lse.sizes() && d_o.scalar_type() == q.scalar_type() && delta.scalar_type() == at::kFloat,
                "gradients of attention are as large as what they belong to");
  for (const at::Tensor* t : {&d_o, &delta, &dq, &dk, &dv}) BALLAST_CHECK(t->is_contiguous(), "attention takes contiguous tensors");
  for (const at::Tensor* t : {&dq, &dk, &dv})
    BALLAST_CHECK(t->scalar_type() == at::kFloat || t->scalar_type() == q.scalar_type(), "a gradient of attention has the dtype of q or fp32");
  BALLAST_CHECK(!add_dq || dq.scalar_type() == at::kFloat, "attention adds to gradients in fp32");
  const int64_t d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t q_stride = shape.heads * d, kv_stride = shape.kv_heads * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const int64_t items = static_cast<int64_t>(units.size()) * shape.kv_heads;
  if (items == 0) return;
  const bool narrow = q.scalar_type() != at::kFloat;
  int64_t narrow_keys = 0;
  if (dk.scalar_type() != at::kFloat || dv.scalar_type() != at::kFloat)
    for (const AttendUnit& unit : units) narrow_keys = std::max(narrow_keys, key_count(unit));
  const int64_t room_size = attend_room_floats(d, narrow, true, narrow_keys);
  const at::Tensor room = at::empty({std::min<int64_t>(at::get_num_threads(), items), room_size}, lse.options());
  float* rooms = room.data_ptr<float>();
  const float *lse_data = lse.data_ptr<float>(), *delta_data = delta.data_ptr<float>();

  with_element(q, [&]<class T>(T*) {
    const T *q_data = pointer<T>(q), *k_data = pointer<T>(k), *v_data = pointer<T>(v), *do_data = pointer<T>(d_o);
    for_each_item(items, [&](int64_t item, int64_t thread) {
      const int64_t unit_index = item / shape.kv_heads, kv_head = item % shape.kv_heads, kv_column = kv_head * d;
      const AttendUnit& unit = units[static_cast<size_t>(unit_index)];
      float* p = rooms + thread * room_size;
      float* dp = p + kQueryTile * kKeyTile;
      float* factors = dp + kQueryTile * kKeyTile;
      float* dq_room = factors + kKeyTile;
      float* lses = dq_room + kQueryTile * d;
      float* deltas = lses + kQueryTile;
      float* q_room = deltas + kQueryTile;
      float* do_room = q_room + (narrow ? kQueryTile * d : 0);
      float* k_room = do_room + (narrow ? kQueryTile * d : 0);
      float* v_room = k_room + (narrow ? kKeyTile * d : 0);
      float* sums_room = v_room + (narrow ? kKeyTile * d : 0);
      const KeySums dk_sums = key_sums(dk, kv_column, d, sums_room), dv_sums = key_sums(dv, kv_column, d, sums_room + narrow_keys * d);
      begin_sums(dk_sums, unit, d);
      begin_sums(dv_sums, unit, d);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for_each_query_tile(unit, [&](const QueryTile& queries) {
          const int64_t rows = queries.rows, first = queries.row * q_stride + head * d;
          const bool in_place = dq.scalar_type() == at::kFloat;
          float* dq_sum = in_place ? dq.data_ptr<float>() + first : dq_room;
          const int64_t dq_ld = in_place ? q_stride : d;
          for (int64_t r = 0; r < rows; ++r) {
            lses[r] = lse_data[(queries.row + r) * shape.heads + head];
            deltas[r] = delta_data[(queries.row + r) * shape.heads + head];
          }
          bool begun = add_dq;
          const Tile query = tile(q_data + first, q_stride, rows, d, q_room), upper = tile(do_data + first, q_stride, rows, d, do_room);
          for_each_key_tile(unit, queries, shape.window, [&](const KeyTile& seen) {
            const int64_t keys = seen.keys, kv_first = seen.row * kv_stride + kv_column;
            const Tile keys_tile = tile(k_data + kv_first, kv_stride, keys, d, k_room), values = tile(v_data + kv_first, kv_stride, keys, d, v_room);
            small_product(false, true, rows, keys, d, scale, query.data, query.ld, keys_tile.data, keys_tile.ld, 0.0f, p, kKeyTile);
            small_product(false, true, rows, keys, d, 1.0f, upper.data, upper.ld, values.data, values.ld, 0.0f, dp, kKeyTile);
            for (int64_t r = 0; r < rows; ++r) {
              const int64_t i = queries.position + r;
              KeyRange range = visible_keys(i, i, shape.window, seen.position, keys);
              if (!(lses[r] > -std::numeric_limits<float>::infinity())) range.end = range.begin;  // saw nothing at all
              float *p_row = p + r * kKeyTile, *dp_row = dp + r * kKeyTile;
              run<Probabilities>(p_row, keys, range.begin, range.end, lses[r]);
              if (dropout.p > 0) {
                dropout_factors(dropout.keys[static_cast<size_t>(unit_index)], i, shape.first_head + head, seen.position, keys, dropout.place,
                                dropout.p, factors);
                run<DroppedScoreGradient>(p_row, dp_row, static_cast<const float*>(factors), keys, deltas[r], scale);
              } else {
                run<ScoreGradient>(static_cast<const float*>(p_row), dp_row, keys, deltas[r], scale);
              }
            }
            small_product(true, false, keys, d, rows, 1.0f, p, kKeyTile, upper.data, upper.ld, 1.0f, dv_sums.at(seen), dv_sums.ld);
            small_product(true, false, keys, d, rows, 1.0f, dp, kKeyTile, query.data, query.ld, 1.0f, dk_sums.at(seen), dk_sums.ld);
            small_product(false, false, rows, d, keys, 1.0f, dp, kKeyTile, keys_tile.data, keys_tile.ld, begun ? 1.0f : 0.0f, dq_sum, dq_ld);
            begun = true;
          });
          if (!begun)
            for (int64_t r = 0; r < rows; ++r) std::fill_n(dq_sum + r * dq_ld, d, 0.0f);
          if (!in_place) run<StoreTile<c10::BFloat16>>(static_cast<const float*>(dq_sum), rows, d, pointer<c10::BFloat16>(dq) + first, q_stride);
        });
      }
      end_sums(dk_sums, unit, d, dk, kv_column);
      end_sums(dv_sums, unit, d, dv, kv_column);
    });
  });
}

}  // namespace ballast::kernel
