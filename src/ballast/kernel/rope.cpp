// y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin.
#include "ballast/kernel/rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

template <class X>
struct RotateHead {
  BALLAST_INLINE static void run(X* x, int64_t half, const float* cosines, const float* sines, float sign) {
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const float a = load(x + i), b = load(x + half + i), c = cosines[i], s = sign * sines[i];
      store(x + i, a * c - b * s);
      store(x + half + i, b * c + a * s);
    }
  }
};

}  // namespace

void rotate(const at::Tensor& x, int64_t head_dim, const at::Tensor& cosines, const at::Tensor& sines, bool inverse) {
  const int64_t rows = x.size(0), width = x.size(1), half = head_dim / 2;
  BALLAST_CHECK(x.is_contiguous() && head_dim % 2 == 0 && width % head_dim == 0, "RoPE over {} channels of heads of {}", width, head_dim);
  const float *c = pointer<float>(cosines), *s = pointer<float>(sines);
  with_element(x, [&]<class X>(X*) {
    X* data = pointer<X>(x);
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t first = 0; first < width; first += head_dim)
          run<RotateHead<X>>(data + t * width + first, half, c + t * half, s + t * half, inverse ? -1.0f : 1.0f);
      }
    });
  });
}

}  // namespace ballast::kernel
