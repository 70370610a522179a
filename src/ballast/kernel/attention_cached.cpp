// Per query and group of heads: scores against every visible key, softmax in fp32, weighted sum of values. Reads K and
// V once: 2 * keys * kv_width elements per token; 4 * keys * query_width FLOPs.
#include "ballast/kernel/attention_cached.h"

#include <cmath>
#include <vector>

#include "ballast/kernel/attention_tile.h"

namespace ballast::kernel {
namespace {

// The heads of one group share a key head. room: q [group, d], out [group, d], scores [group, keys], fp32.
template <class T>
struct AttendGroup {
  BALLAST_INLINE static void run(const T* q, const T* k, const T* v, T* o, int64_t stride, int64_t keys, int64_t d,
                                 int64_t group, float scale, float* room) {
    float *wide = room, *out = room + group * d, *scores = room + 2 * group * d;
    for (int64_t i = 0; i < group * d; ++i) wide[i] = load(q + i) * scale;
    for (int64_t i = 0; i < group * d; ++i) out[i] = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const T* key = k + j * stride;
      for (int64_t g = 0; g < group; ++g) {
        const float* query = wide + g * d;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < d; ++c) sum += query[c] * load(key + c);
        scores[g * keys + j] = sum;
      }
    }
    for (int64_t g = 0; g < group; ++g) {
      float* row = scores + g * keys;
      float top = row[0], sum = 0;
#pragma omp simd reduction(max : top)
      for (int64_t j = 0; j < keys; ++j) top = row[j] > top ? row[j] : top;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < keys; ++j) {
        row[j] = exp_approximate(row[j] - top);
        sum += row[j];
      }
      const float inverse = 1.0f / sum;
      for (int64_t j = 0; j < keys; ++j) row[j] *= inverse;
    }
    for (int64_t j = 0; j < keys; ++j) {
      const T* value = v + j * stride;
      for (int64_t g = 0; g < group; ++g) {
        const float p = scores[g * keys + j];
        float* sum = out + g * d;
#pragma omp simd
        for (int64_t c = 0; c < d; ++c) sum[c] += p * load(value + c);
      }
    }
    for (int64_t i = 0; i < group * d; ++i) store(o + i, out[i]);
  }
};

}  // namespace

void attention_cached(const AttentionShape& shape, std::span<const CachedQueries> queries, const at::Tensor& q,
                      const at::Tensor& keys, const at::Tensor& values, const at::Tensor& o) {
  const int64_t d = shape.head_dim, group = shape.heads / shape.kv_heads, stride = shape.kv_heads * d,
                capacity = keys.size(1);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  struct Item {
    int64_t row, slot, position, kv_head;
  };
  std::vector<Item> items;
  int64_t longest = 0;
  for (const CachedQueries& part : queries) {
    BALLAST_CHECK(part.past + part.rows <= capacity && part.first + part.rows <= q.size(0), "{} + {} keys of {}",
                  part.past, part.rows, capacity);
    for (int64_t row = 0; row < part.rows; ++row)
      for (int64_t head = 0; head < shape.kv_heads; ++head)
        items.push_back({part.first + row, part.slot, part.past + row, head});
    longest = std::max(longest, part.past + part.rows);
  }
  if (items.empty()) return;
  const int64_t count = static_cast<int64_t>(items.size()), room_size = 2 * group * d + group * longest;
  const at::Tensor room =
      at::empty({std::min<int64_t>(at::get_num_threads(), count), room_size}, q.options().dtype(at::kFloat));
  float* rooms = room.data_ptr<float>();
  with_element(q, [&]<class T>(T*) {
    const T *q_data = pointer<T>(q), *k_data = pointer<T>(keys), *v_data = pointer<T>(values);
    T* o_data = pointer<T>(o);
    for_each_item(count, [&](int64_t index, int64_t thread) {
      const Item& item = items[static_cast<size_t>(index)];
      const int64_t first = first_key(item.position, shape.window);
      const int64_t cache = (item.slot * capacity + first) * stride + item.kv_head * d;
      const int64_t query = item.row * shape.heads * d + item.kv_head * group * d;
      run<AttendGroup<T>>(q_data + query, k_data + cache, v_data + cache, o_data + query, stride,
                          item.position + 1 - first, d, group, scale, rooms + thread * room_size);
    });
  });
}

}  // namespace ballast::kernel
