// Three passes over a row that stays in the cache: maximum, sum of exponentials, gradient.
#include "ballast/kernel/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ballast/base/error.h"
#include "ballast/kernel/vector.h"

namespace ballast::kernel {
namespace {

struct LogSumExp {
  BALLAST_INLINE static void run(const float* x, int64_t n, float* maximum, float* sum) {
    float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
    // Sums over blocks, then of blocks, keep the rounding error of a long vocabulary small.
    constexpr int64_t kBlock = 1024;
    double total = 0;
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t end = first + kBlock < n ? first + kBlock : n;
      float part = 0;
#pragma omp simd reduction(+ : part)
      for (int64_t i = first; i < end; ++i) part += exp_approximate(x[i] - top);
      total += static_cast<double>(part);
    }
    *maximum = top;
    *sum = static_cast<float>(total);
  }
};

struct SoftmaxGradient {
  BALLAST_INLINE static void run(float* x, int64_t n, float maximum, float factor) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) x[i] = exp_approximate(x[i] - maximum) * factor;
  }
};

}  // namespace

void cross_entropy(const at::Tensor& logits, const int64_t* targets, float* losses, bool gradient, double scale) {
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  float* data = logits.data_ptr<float>();
  for (int64_t i = 0; i < rows; ++i) {
    if (targets[i] >= 0 && targets[i] < vocab) continue;
    throw Error(ErrorKind::Data, "a target is outside the vocabulary")
        .found(std::to_string(targets[i]))
        .expected(fmt::format("0 to {}, or -1 where nothing is trained", vocab - 1))
        .cure("check that the tokenizer fits the model");
  }
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = data + i * vocab;
      float maximum = 0, sum = 0;
      run<LogSumExp>(row, vocab, &maximum, &sum);
      losses[i] = std::log(sum) + (maximum - row[targets[i]]);
      if (!gradient) continue;
      run<SoftmaxGradient>(row, vocab, maximum, static_cast<float>(scale) / sum);
      row[targets[i]] -= static_cast<float>(scale);
    }
  });
}

}  // namespace ballast::kernel
