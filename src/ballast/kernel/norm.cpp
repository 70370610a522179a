// Traffic: statistics read x once; apply reads x and writes y; backward reads x and dy twice (rows for dx, columns for the
// weights, whose sums run in row order whatever the number of threads).
#include "ballast/kernel/norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

template <class X>
struct RowStatistics {
  BALLAST_INLINE static void run(const X* x, int64_t n, float eps, float* mean, float* rstd) {
    float center = 0;
    if (mean != nullptr) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < n; ++i) sum += load(x + i);
      center = sum / static_cast<float>(n);
      *mean = center;
    }
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; ++i) {
      const float d = load(x + i) - center;
      squares += d * d;
    }
    *rstd = 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
  }
};

template <class X, class W, class Y>
struct RowApply {
  BALLAST_INLINE static void run(const X* x, int64_t n, float mean, float rstd, const W* weight, const W* bias, Y* y) {
    if (bias != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) store(y + i, (load(x + i) - mean) * rstd * load(weight + i) + load(bias + i));
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) store(y + i, (load(x + i) - mean) * rstd * load(weight + i));
    }
  }
};

template <class X, class W, class D, class Out>
struct RowBackward {
  BALLAST_INLINE static void run(const X* x, int64_t n, float mean, float rstd, bool centered, const W* weight, const D* dy, Out* dx,
                                 bool accumulate) {
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < n; ++i) {
      const float g = load(dy + i) * load(weight + i);
      sum += g;
      dot += g * (load(x + i) - mean);
    }
    const float scale = 1.0f / static_cast<float>(n);
    const float shift = centered ? sum * scale : 0.0f;
    const float slope = dot * rstd * rstd * scale;
    if (accumulate) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float g = load(dy + i) * load(weight + i);
        store(dx + i, load(dx + i) + rstd * (g - shift - (load(x + i) - mean) * slope));
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float g = load(dy + i) * load(weight + i);
        store(dx + i, rstd * (g - shift - (load(x + i) - mean) * slope));
      }
    }
  }
};

template <class X, class D>
struct ColumnBackward {
  BALLAST_INLINE static void run(const X* x, const D* dy, int64_t stride, int64_t rows, int64_t width, const float* mean,
                                 const float* rstd, float* dweight, float* dbias) {
    for (int64_t r = 0; r < rows; ++r) {
      const float m = mean != nullptr ? mean[r] : 0.0f, s = rstd[r];
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const float g = load(dy + r * stride + c);
        dweight[c] += g * (load(x + r * stride + c) - m) * s;
        dbias[c] += g;
      }
    }
  }
};

}  // namespace

void norm_statistics(const at::Tensor& x, double eps, const at::Tensor& mean, const at::Tensor& rstd) {
  const int64_t rows = x.size(0), width = x.size(1);
  float* means = pointer<float>(mean);
  float* rstds = pointer<float>(rstd);
  with_element(x, [&]<class X>(X*) {
    const X* data = pointer<X>(x);
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        run<RowStatistics<X>>(data + r * width, width, static_cast<float>(eps), means != nullptr ? means + r : nullptr, rstds + r);
    });
  });
}

void norm_apply(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight, const at::Tensor& bias,
                const at::Tensor& y) {
  const int64_t rows = x.size(0), width = x.size(1);
  const float* means = pointer<float>(mean);
  const float* rstds = pointer<float>(rstd);
  with_element(x, [&]<class X>(X*) {
    with_element(weight, [&]<class W>(W*) {
      with_element(y, [&]<class Y>(Y*) {
        const X* data = pointer<X>(x);
        const W *w = pointer<W>(weight), *b = pointer<W>(bias);
        Y* out = pointer<Y>(y);
        at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r)
            run<RowApply<X, W, Y>>(data + r * width, width, means != nullptr ? means[r] : 0.0f, rstds[r], w, b, out + r * width);
        });
      });
    });
  });
}

void norm_backward(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight, const at::Tensor& dy,
                   const at::Tensor& dx, bool accumulate, const at::Tensor& dweight, const at::Tensor& dbias,
                   bool accumulate_weights) {
  const int64_t rows = x.size(0), width = x.size(1);
  const float* means = pointer<float>(mean);
  const float* rstds = pointer<float>(rstd);
  with_element(x, [&]<class X>(X*) {
    with_element(dy, [&]<class D>(D*) {
      const X* data = pointer<X>(x);
      const D* upper = pointer<D>(dy);
      // The columns first: dx may be the memory of dy.
      if (dweight.defined() || dbias.defined()) {
        constexpr int64_t kColumns = 128;
        float *dw = pointer<float>(dweight), *db = pointer<float>(dbias);
        at::parallel_for(0, (width + kColumns - 1) / kColumns, rows_per_task(rows * kColumns), [&](int64_t begin, int64_t end) {
          for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * kColumns, columns = std::min(kColumns, width - first);
            float weights[kColumns] = {}, biases[kColumns] = {};
            run<ColumnBackward<X, D>>(data + first, upper + first, width, rows, columns, means, rstds,
                                      static_cast<float*>(weights), static_cast<float*>(biases));
            for (int64_t c = 0; c < columns && dw != nullptr; ++c) dw[first + c] = accumulate_weights ? dw[first + c] + weights[c] : weights[c];
            for (int64_t c = 0; c < columns && db != nullptr; ++c) db[first + c] = accumulate_weights ? db[first + c] + biases[c] : biases[c];
          }
        });
      }
      with_element(weight, [&]<class W>(W*) {
        with_element(dx, [&]<class Out>(Out*) {
          const W* w = pointer<W>(weight);
          Out* out = pointer<Out>(dx);
          at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r)
              run<RowBackward<X, W, D, Out>>(data + r * width, width, means != nullptr ? means[r] : 0.0f, rstds[r], means != nullptr, w,
                                             upper + r * width, out + r * width, accumulate);
          });
        });
      });
    });
  });
}

}  // namespace ballast::kernel
