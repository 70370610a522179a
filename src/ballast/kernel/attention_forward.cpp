// Online softmax over tiles of queries and keys (FlashAttention, arXiv:2205.14135): one pass over the keys that a tile of queries sees,
// running maximum and sum per query, 4 d FLOPs per visible pair and head. Merging starts from what stands there instead of from nothing.
#include <cmath>
#include <vector>

#include "ballast/kernel/attention_tile.h"
#include "ballast/kernel/sliver_product.h"

namespace ballast::kernel {
namespace {

// One row of scores: keys [0, lo) are hidden, [lo, hi) seen, [hi, n) hidden. Turns scores into exp(s - m_new), updates m and l,
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

struct WorkItem {
  int64_t unit, head;
  QueryTile queries;
};

// Tiles that see nothing write zeros, or nothing at all where they merge.
std::vector<WorkItem> work_of(const AttentionShape& shape, std::span<const AttendUnit> units, bool merge) {
  std::vector<WorkItem> items;
  for (size_t u = 0; u < units.size(); ++u) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      for_each_query_tile(units[u], [&](const QueryTile& queries) {
        if (!merge || sees_any(units[u], queries, shape.window)) items.push_back({static_cast<int64_t>(u), head, queries});
      });
    }
  }
  return items;
}

constexpr float kNothing = -std::numeric_limits<float>::infinity();

}  // namespace

void attention_forward(const AttentionShape& shape, std::span<const AttendUnit> units, const AttentionDropout& dropout, const at::Tensor& q,
                       const at::Tensor& k, const at::Tensor& v, const at::Tensor& o, const at::Tensor& lse, bool merge) {
  check_attention(shape, units, dropout, q, k, v, lse);
  BALLAST_CHECK(o.sizes() == q.sizes() && o.is_contiguous(), "o is contiguous and as large as q");
  const int64_t d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t q_stride = shape.heads * d, kv_stride = shape.kv_heads * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const std::vector<WorkItem> items = work_of(shape, units, merge);
  if (items.empty()) return;
  const int64_t room_size = attend_room_floats(d, false, 0);
  const at::Tensor room = at::empty({std::min<int64_t>(at::get_num_threads(), static_cast<int64_t>(items.size())), room_size}, lse.options());
  float* rooms = room.data_ptr<float>();
  float* lse_data = lse.data_ptr<float>();

  const auto attend = [&]<class T, class O>(T*, O*) {
    const T *q_data = pointer<T>(q), *k_data = pointer<T>(k), *v_data = pointer<T>(v);
    O* o_data = pointer<O>(o);
    for_each_item(static_cast<int64_t>(items.size()), [&](int64_t index, int64_t thread) {
      const auto& [unit_index, head, queries] = items[static_cast<size_t>(index)];
      const AttendUnit& unit = units[static_cast<size_t>(unit_index)];
      const int64_t rows = queries.rows, kv_head = head / group, first = queries.row * q_stride + head * d;
      float* scores = rooms + thread * room_size;
      float* factors = scores + kQueryTile * kKeyTile;
      float* out = factors + kKeyTile;
      float* m = out + kQueryTile * d;
      float* l = m + kQueryTile;
      float* query = l + kQueryTile;
      float* key_slivers = query + kQueryTile * d;
      float* value_slivers = key_slivers + kKeyTile * d;
      float* lse_rows = lse_data + queries.row * shape.heads + head;
      // An earlier result is a key whose score is its log-sum-exp and whose value is its output.
      bool begun = false;
      for (int64_t r = 0; r < rows; ++r) {
        m[r] = merge ? lse_rows[r * shape.heads] : kNothing;
        l[r] = m[r] > kNothing ? 1.0f : 0.0f;
        begun = begun || l[r] > 0;
      }
      if (begun) {
        run<LoadTile<O>>(static_cast<const O*>(o_data + first), q_stride, rows, d, 1.0f, out);
        for (int64_t r = 0; r < rows; ++r)
          if (l[r] == 0) std::fill_n(out + r * d, d, 0.0f);
      }
      run<LoadTile<T>>(static_cast<const T*>(q_data + first), q_stride, rows, d, scale, query);
      for_each_key_tile(unit, queries, shape.window, [&](const KeyTile& seen) {
        const int64_t keys = seen.keys, kv_first = seen.row * kv_stride + kv_head * d;
        pack_slivers(k_data + kv_first, kv_stride, true, d, keys, key_slivers);
        pack_slivers(v_data + kv_first, kv_stride, false, keys, d, value_slivers);
        sliver_product(false, rows, sliver_columns(keys), d, query, d, key_slivers, scores, kKeyTile, false);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = queries.position + r;
          const KeyRange range = visible_keys(i, i, shape.window, seen.position, keys);
          float* row = scores + r * kKeyTile;
          float rescale = 1.0f;
          run<SoftmaxRow>(row, keys, range.begin, range.end, m + r, l + r, &rescale);
          if (begun && rescale != 1.0f) run<Scale>(out + r * d, d, rescale);
          if (dropout.p > 0 && !range.empty()) {
            dropout_factors(dropout.keys[static_cast<size_t>(unit_index)], i, shape.first_head + head, seen.position, keys, dropout.place,
                            dropout.p, factors);
            run<Multiply>(row, static_cast<const float*>(factors), keys);
          }
        }
        sliver_product(false, rows, d, keys, scores, kKeyTile, value_slivers, out, d, begun);
        begun = true;
      });
      for (int64_t r = 0; r < rows; ++r) {
        if (l[r] > 0) run<Scale>(out + r * d, d, 1.0f / l[r]);
        else std::fill_n(out + r * d, d, 0.0f);
        lse_rows[r * shape.heads] = l[r] > 0 ? m[r] + std::log(l[r]) : kNothing;
      }
      run<StoreTile<O>>(static_cast<const float*>(out), rows, d, o_data + first, q_stride);
    });
  };
  with_element(q, [&]<class T>(T* element) { with_element(o, [&]<class O>(O* out_element) { attend(element, out_element); }); });
}

}  // namespace ballast::kernel
