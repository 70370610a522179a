// What stands around attention in parts: its check, the row sums that its backward needs, the merge of partial results, and the exchange of
// head columns for rows.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ballast/kernel/attention_tile.h"

namespace ballast::kernel {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

template <class A, class B>
struct RowDot {
  BALLAST_INLINE static void run(const A* a, const B* b, int64_t heads, int64_t d, float* result) {
    for (int64_t head = 0; head < heads; ++head, a += d, b += d) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < d; ++i) sum += load(a + i) * load(b + i);
      result[head] = sum;
    }
  }
};

// sum = or += weight * part.
template <class P>
struct AddPart {
  BALLAST_INLINE static void run(const P* part, int64_t n, float weight, bool first, float* sum) {
    if (first) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) sum[i] = weight * load(part + i);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) sum[i] += weight * load(part + i);
    }
  }
};

void check_spans(const std::vector<RowSpan>& spans, int64_t rows, const char* what) {
  for (const RowSpan& span : spans) {
    BALLAST_CHECK(span.row >= 0 && span.count >= 0 && span.position >= 0 && span.row + span.count <= rows, "{} rows [{}, {}) of {}, position {}",
                  what, span.row, span.row + span.count, rows, span.position);
  }
}

// Copies `parts` blocks of a row to or from rows of their own.
void move_heads(const at::Tensor& wide, int64_t parts, const at::Tensor& tall, bool split) {
  BALLAST_CHECK(parts > 0 && wide.dim() == 2 && tall.dim() == 2 && tall.size(0) == parts * wide.size(0) && wide.size(1) == parts * tall.size(1) &&
                    wide.scalar_type() == tall.scalar_type() && wide.is_contiguous() && tall.is_contiguous(),
                "{} parts of the columns of [{}, {}] as rows [{}, {}]", parts, wide.size(0), wide.size(1), tall.size(0), tall.size(1));
  const int64_t rows = wide.size(0), bytes = tall.size(1) * tall.element_size();
  auto *wide_data = static_cast<char*>(wide.data_ptr()), *tall_data = static_cast<char*>(tall.data_ptr());
  if (bytes == 0) return;
  at::parallel_for(0, parts * rows, rows_per_task(tall.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char *block = wide_data + (i % rows * parts + i / rows) * bytes, *row = tall_data + i * bytes;
      if (split) std::memcpy(row, block, static_cast<size_t>(bytes));
      else std::memcpy(block, row, static_cast<size_t>(bytes));
    }
  });
}

}  // namespace

void check_attention(const AttentionShape& shape, std::span<const AttendUnit> units, const AttentionDropout& dropout, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v, const at::Tensor& lse) {
  BALLAST_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && q.dim() == 2 && q.size(1) == shape.heads * shape.head_dim && k.dim() == 2 &&
                    k.size(1) == shape.kv_heads * shape.head_dim && k.sizes() == v.sizes(),
                "{} and {} heads of {} channels, columns {} and {}", shape.heads, shape.kv_heads, shape.head_dim, q.size(-1), k.size(-1));
  BALLAST_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(), "q, k and v have one dtype");
  BALLAST_CHECK(lse.dim() == 2 && lse.size(0) == q.size(0) && lse.size(1) == shape.heads && lse.scalar_type() == at::kFloat,
                "lse is [{}, {}] in fp32", q.size(0), shape.heads);
  BALLAST_CHECK(q.is_contiguous() && k.is_contiguous() && v.is_contiguous() && lse.is_contiguous(), "attention takes contiguous tensors");
  BALLAST_CHECK(dropout.p == 0 || dropout.keys.size() == units.size(), "{} keys of dropout for {} units", dropout.keys.size(), units.size());
  for (const AttendUnit& unit : units) {
    check_spans(unit.queries, q.size(0), "query");
    check_spans(unit.keys, k.size(0), "key");
  }
}

void attention_delta(const AttentionShape& shape, const at::Tensor& o, const at::Tensor& d_o, const at::Tensor& delta) {
  const int64_t rows = o.size(0), d = shape.head_dim, heads = shape.heads, width = heads * d;
  BALLAST_CHECK(o.sizes() == d_o.sizes() && o.size(1) == width && delta.numel() == rows * heads && delta.scalar_type() == at::kFloat &&
                    o.is_contiguous() && d_o.is_contiguous() && delta.is_contiguous(),
                "delta [{}, {}] of o [{}, {}]", delta.size(0), delta.size(1), rows, o.size(1));
  float* result = delta.data_ptr<float>();
  with_element(o, [&]<class A>(A*) {
    with_element(d_o, [&]<class B>(B*) {
      const A* a = pointer<A>(o);
      const B* b = pointer<B>(d_o);
      at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) run<RowDot<A, B>>(a + r * width, b + r * width, heads, d, result + r * heads);
      });
    });
  });
}

void attention_merge(const AttentionShape& shape, std::span<const at::Tensor> parts, std::span<const at::Tensor> lses, const at::Tensor& o,
                     const at::Tensor& lse) {
  const int64_t rows = o.size(0), d = shape.head_dim, heads = shape.heads, width = heads * d;
  BALLAST_CHECK(!parts.empty() && parts.size() == lses.size(), "{} parts with {} log-sum-exps", parts.size(), lses.size());
  BALLAST_CHECK(o.size(1) == width && o.is_contiguous() && lse.numel() == rows * heads && lse.is_contiguous() && lse.scalar_type() == at::kFloat,
                "o [{}, {}] of {} heads of {} channels", rows, o.size(1), heads, d);
  for (size_t i = 0; i < parts.size(); ++i) {
    BALLAST_CHECK(parts[i].sizes() == o.sizes() && lses[i].sizes() == lse.sizes() && parts[i].is_contiguous() && lses[i].is_contiguous() &&
                      parts[i].scalar_type() == parts[0].scalar_type() && lses[i].scalar_type() == at::kFloat,
                  "part {} has another shape or dtype than o and lse", i);
  }
  float* lse_data = lse.data_ptr<float>();
  with_element(parts[0], [&]<class P>(P*) {
    with_element(o, [&]<class O>(O*) {
      O* o_data = pointer<O>(o);
      at::parallel_for(0, rows, rows_per_task(width * static_cast<int64_t>(parts.size())), [&](int64_t begin, int64_t end) {
        std::vector<float> weights(parts.size()), sums(static_cast<size_t>(d));
        for (int64_t at = begin * heads; at < end * heads; ++at) {
          float top = kNothing, total = 0;
          for (const at::Tensor& part : lses) top = std::max(top, part.data_ptr<float>()[at]);
          if (top == kNothing) {
            std::fill(sums.begin(), sums.end(), 0.0f);
          } else {
            for (size_t i = 0; i < parts.size(); ++i) total += weights[i] = std::exp(lses[i].data_ptr<float>()[at] - top);
            bool first = true;
            for (size_t i = 0; i < parts.size(); ++i) {
              if (weights[i] == 0) continue;
              run<AddPart<P>>(static_cast<const P*>(pointer<P>(parts[i]) + at * d), d, weights[i] / total, first, sums.data());
              first = false;
            }
          }
          lse_data[at] = top == kNothing ? kNothing : top + std::log(total);
          run<StoreTile<O>>(static_cast<const float*>(sums.data()), int64_t{1}, d, o_data + at * d, d);
        }
      });
    });
  });
}

void split_heads(const at::Tensor& x, int64_t parts, const at::Tensor& y) { move_heads(x, parts, y, true); }
void join_heads(const at::Tensor& y, int64_t parts, const at::Tensor& x) { move_heads(x, parts, y, false); }

}  // namespace ballast::kernel
