// Gradients from the log-sum-exp (FlashAttention, arXiv:2205.14135, algorithm 4): P = exp(S - lse) is computed again per tile,
// dV += P^T dO, dP = dO V^T, dS = P (dP - delta), dQ += dS K, dK += dS^T Q; 10 d FLOPs per visible pair and head. One item is one
// key-value head of a unit with all its query heads in turn, so that every sum has one order whatever the threads.
#include <cmath>
#include <vector>

#include "ballast/kernel/attention_tile.h"
#include "ballast/kernel/sliver_product.h"

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
  int64_t summed_keys = 0;
  if (dk.scalar_type() != at::kFloat || dv.scalar_type() != at::kFloat)
    for (const AttendUnit& unit : units) summed_keys = std::max(summed_keys, key_count(unit));
  const int64_t room_size = attend_room_floats(d, true, summed_keys);
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
      float* lses = factors + kKeyTile;
      float* deltas = lses + kQueryTile;
      float* dq_sum = deltas + kQueryTile;
      float* query = dq_sum + kQueryTile * d;
      float* upper = query + kQueryTile * d;
      float* query_slivers = upper + kQueryTile * d;
      float* upper_slivers = query_slivers + kQueryTile * sliver_columns(d);
      float* keys_across = upper_slivers + kQueryTile * sliver_columns(d);
      float* values_across = keys_across + kKeyTile * d;
      float* key_slivers = values_across + kKeyTile * d;
      float* sums_room = key_slivers + kKeyTile * sliver_columns(d);
      const KeySums dk_sums = key_sums(dk, kv_column, d, sums_room), dv_sums = key_sums(dv, kv_column, d, sums_room + summed_keys * d);
      begin_sums(dk_sums, unit, d);
      begin_sums(dv_sums, unit, d);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for_each_query_tile(unit, [&](const QueryTile& queries) {
          const int64_t rows = queries.rows, first = queries.row * q_stride + head * d;
          for (int64_t r = 0; r < rows; ++r) {
            lses[r] = lse_data[(queries.row + r) * shape.heads + head];
            deltas[r] = delta_data[(queries.row + r) * shape.heads + head];
          }
          bool begun = add_dq;
          if (add_dq) run<LoadTile<float>>(static_cast<const float*>(pointer<float>(dq) + first), q_stride, rows, d, 1.0f, dq_sum);
          run<LoadTile<T>>(q_data + first, q_stride, rows, d, scale, query);
          run<LoadTile<T>>(do_data + first, q_stride, rows, d, 1.0f, upper);
          pack_slivers(q_data + first, q_stride, false, rows, d, query_slivers);
          pack_slivers(do_data + first, q_stride, false, rows, d, upper_slivers);
          for_each_key_tile(unit, queries, shape.window, [&](const KeyTile& seen) {
            const int64_t keys = seen.keys, kv_first = seen.row * kv_stride + kv_column;
            pack_slivers(k_data + kv_first, kv_stride, true, d, keys, keys_across);
            pack_slivers(v_data + kv_first, kv_stride, true, d, keys, values_across);
            pack_slivers(k_data + kv_first, kv_stride, false, keys, d, key_slivers);
            sliver_product(false, rows, sliver_columns(keys), d, query, d, keys_across, p, kKeyTile, false);
            sliver_product(false, rows, sliver_columns(keys), d, upper, d, values_across, dp, kKeyTile, false);
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
            sliver_product(true, keys, d, rows, p, kKeyTile, upper_slivers, dv_sums.at(seen), dv_sums.ld, true);
            sliver_product(true, keys, d, rows, dp, kKeyTile, query_slivers, dk_sums.at(seen), dk_sums.ld, true);
            sliver_product(false, rows, d, keys, dp, kKeyTile, key_slivers, dq_sum, d, begun);
            begun = true;
          });
          if (!begun) std::fill_n(dq_sum, rows * d, 0.0f);
          with_element(dq, [&]<class G>(G*) { run<StoreTile<G>>(static_cast<const float*>(dq_sum), rows, d, pointer<G>(dq) + first, q_stride); });
        });
      }
      end_sums(dk_sums, unit, d, dk, kv_column);
      end_sums(dv_sums, unit, d, dv, kv_column);
    });
  });
}

}  // namespace ballast::kernel
