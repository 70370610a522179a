// Chooses how a product is computed: in panels, or by the BLAS inside libtorch (sgemm; gemm_bf16bf16f32 and oneDNN where the CPU has
// bf16 units).
#include "ballast/kernel/gemm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "ballast/base/error.h"
#include "ballast/kernel/packed_gemm.h"
#include "ballast/kernel/vector.h"

// The Fortran interface of the BLAS that libtorch carries: column-major, everything by reference.
extern "C" {
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha, const float* a,
            const int* lda, const float* b, const int* ldb, const float* beta, float* c, const int* ldc);
void gemm_bf16bf16f32_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha,
                       const void* a, const int* lda, const void* b, const int* ldb, const float* beta, float* c, const int* ldc);
}

namespace ballast::kernel {
namespace {

// The choice that an environment variable makes between two words: 0 or 1, or nothing where it is not set.
std::optional<int> wish_of(const char* variable, const char* what, std::string_view first, std::string_view second) {
  const char* wish = std::getenv(variable);
  if (wish == nullptr) return std::nullopt;
  const std::string text = wish;
  if (text == first) return 0;
  if (text == second) return 1;
  throw Error(ErrorKind::Usage, fmt::format("unknown way to multiply {} matrices", what))
      .at(variable)
      .found(printable(text))
      .expected(fmt::format("{} or {}", first, second))
      .cure("unset it to decide by the CPU");
}

Bf16Products detect_bf16() {
  if (const auto wish = wish_of("BALLAST_BF16_PRODUCTS", "bf16", "native", "converted")) return static_cast<Bf16Products>(*wish);
#if defined(__x86_64__)
  // CPUID leaf 7: subleaf 1 EAX bit 5 = AVX512_BF16; subleaf 0 EDX bit 22 = AMX-BF16.
  uint32_t eax = 7, ebx = 0, ecx = 1, edx = 0;
  __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  const bool avx512_bf16 = __builtin_cpu_supports("avx512f") && ((eax >> 5) & 1u) != 0;
  return avx512_bf16 ? Bf16Products::Native : Bf16Products::Converted;
#else
  return Bf16Products::Native;
#endif
}

Fp32Products detect_fp32() {
  if (const auto wish = wish_of("BALLAST_FP32_PRODUCTS", "fp32", "packed", "blas")) return static_cast<Fp32Products>(*wish);
  return packed_products_are_fastest() ? Fp32Products::Packed : Fp32Products::Blas;
}

std::atomic<int>& bf16_mode() {
  static std::atomic<int> value{static_cast<int>(detect_bf16())};
  return value;
}
std::atomic<int>& fp32_mode() {
  static std::atomic<int> value{static_cast<int>(detect_fp32())};
  return value;
}

// A 2-D view as BLAS sees it: row-major with a leading dimension, or its transpose.
struct Operand {
  void* data;
  int64_t ld;
  bool transposed;  // the memory holds the transpose, row-major
};

Operand operand(const at::Tensor& t) {
  BALLAST_CHECK(t.dim() == 2, "a product takes matrices, not {} dimensions", t.dim());
  const int64_t rows = t.size(0), cols = t.size(1);
  if (t.stride(1) == 1 || cols == 1) {
    const int64_t ld = rows > 1 ? t.stride(0) : std::max<int64_t>(cols, 1);
    if (t.stride(1) == 1 || rows == 1 || t.stride(0) != 1) return {t.data_ptr(), std::max<int64_t>(ld, 1), false};
  }
  BALLAST_CHECK(t.stride(0) == 1 || rows == 1, "a product takes views with a unit stride");
  return {t.data_ptr(), std::max<int64_t>(cols > 1 ? t.stride(1) : rows, 1), true};
}

int narrow_to_int(int64_t value) {
  BALLAST_CHECK(value <= std::numeric_limits<int>::max(), "{} exceeds the sizes that the BLAS takes", value);
  return static_cast<int>(value);
}

// c (+)= a b over fp32 or bf16 operands of one dtype into an fp32 c.
void blas(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool accumulate) {
  Operand left = operand(a), right = operand(b), result = operand(c);
  int64_t rows = c.size(0), cols = c.size(1);
  if (result.transposed) {  // c^T = b^T a^T
    std::swap(left, right);
    left.transposed = !left.transposed;
    right.transposed = !right.transposed;
    std::swap(rows, cols);
  }
  // Row-major c = left right is column-major c^T = right^T left^T.
  const char transa = right.transposed ? 'T' : 'N', transb = left.transposed ? 'T' : 'N';
  const int m = narrow_to_int(cols), n = narrow_to_int(rows), k = narrow_to_int(a.size(1));
  const int lda = narrow_to_int(right.ld), ldb = narrow_to_int(left.ld), ldc = narrow_to_int(result.ld);
  const float alpha = 1.0f, beta = accumulate ? 1.0f : 0.0f;
  if (a.scalar_type() == at::kFloat) {
    sgemm_(&transa, &transb, &m, &n, &k, &alpha, static_cast<float*>(right.data), &lda, static_cast<float*>(left.data), &ldb, &beta,
           static_cast<float*>(result.data), &ldc);
  } else {
    gemm_bf16bf16f32_(&transa, &transb, &m, &n, &k, &alpha, right.data, &lda, left.data, &ldb, &beta,
                      static_cast<float*>(result.data), &ldc);
  }
}

// The same for operands of any of the two dtypes, in panels.
void packed(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool accumulate) {
  const auto view = [](const at::Tensor& t) {
    const Operand o = operand(t);
    return MatrixOperand{o.data, t.scalar_type() == at::kBFloat16, o.transposed ? 1 : o.ld, o.transposed ? o.ld : 1};
  };
  MatrixOperand left = view(a), right = view(b);
  const Operand result = operand(c);
  int64_t rows = c.size(0), cols = c.size(1);
  if (result.transposed) {  // c^T = b^T a^T
    std::swap(left, right);
    std::swap(left.row_stride, left.column_stride);
    std::swap(right.row_stride, right.column_stride);
    std::swap(rows, cols);
  }
  packed_product(left, right, rows, cols, a.size(1), static_cast<float*>(result.data), result.ld, accumulate);
}

template <class From, class To>
struct ConvertRow {
  BALLAST_INLINE static void run(const From* from, To* to, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(to + i, load(from + i));
  }
};

template <class T>
struct AddRows {
  BALLAST_INLINE static void run(const T* a, int64_t stride, int64_t rows, float* sums, int64_t width) {
    for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) sums[c] += load(a + r * stride + c);
    }
  }
};

template <class B, class R>
struct FillRow {
  BALLAST_INLINE static void run(const B* bias, const R* residual, float* y, int64_t n) {
    if (residual == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = load(bias + i);
    } else if (bias == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = load(residual + i);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = load(residual + i) + load(bias + i);
    }
  }
};

// y = bias + residual, of which at least one is defined.
void fill(const at::Tensor& y, const at::Tensor& bias, const at::Tensor& residual) {
  const int64_t rows = y.size(0), cols = y.size(1), stride = y.stride(0);
  float* out = y.data_ptr<float>();
  with_element(bias.defined() ? bias : residual, [&]<class B>(B*) {
    with_element(residual.defined() ? residual : bias, [&]<class R>(R*) {
      const B* b = pointer<B>(bias);
      const R* r = pointer<R>(residual);
      at::parallel_for(0, rows, rows_per_task(cols), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) run<FillRow<B, R>>(b, r != nullptr ? r + t * cols : nullptr, out + t * stride, cols);
      });
    });
  });
}

}  // namespace

Bf16Products bf16_products() { return static_cast<Bf16Products>(bf16_mode().load(std::memory_order_relaxed)); }
void set_bf16_products(Bf16Products value) { bf16_mode().store(static_cast<int>(value), std::memory_order_relaxed); }
Fp32Products fp32_products() { return static_cast<Fp32Products>(fp32_mode().load(std::memory_order_relaxed)); }
void set_fp32_products(Fp32Products value) { fp32_mode().store(static_cast<int>(value), std::memory_order_relaxed); }

at::ScalarType product_dtype(at::ScalarType compute) {
  return bf16_products() == Bf16Products::Native ? compute : at::kFloat;
}

void convert(const at::Tensor& src, const at::Tensor& dst) {
  const int64_t rows = src.size(0), cols = src.size(1);
  BALLAST_CHECK(src.sizes() == dst.sizes() && (cols <= 1 || (src.stride(1) == 1 && dst.stride(1) == 1)), "convert takes equal row-major views");
  const int64_t src_stride = src.stride(0), dst_stride = dst.stride(0);
  with_element(src, [&]<class From>(From*) {
    with_element(dst, [&]<class To>(To*) {
      const From* from = pointer<From>(src);
      To* to = pointer<To>(dst);
      at::parallel_for(0, rows, rows_per_task(cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) run<ConvertRow<From, To>>(from + r * src_stride, to + r * dst_stride, cols);
      });
    });
  });
}

void product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool accumulate) {
  BALLAST_CHECK(a.size(1) == b.size(0) && a.size(0) == c.size(0) && b.size(1) == c.size(1), "[{}, {}] x [{}, {}] -> [{}, {}]",
                a.size(0), a.size(1), b.size(0), b.size(1), c.size(0), c.size(1));
  BALLAST_CHECK(!accumulate || c.scalar_type() == at::kFloat, "products accumulate in fp32");
  if (c.numel() == 0) return;
  if (a.size(1) == 0) {
    if (!accumulate) c.zero_();
    return;
  }
  const bool both_bf16 = a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16;
  if (both_bf16 && bf16_products() == Bf16Products::Native) {
    if (c.scalar_type() == at::kFloat) return blas(a, b, c, accumulate);
    at::Tensor out = c;
    at::mm_out(out, a, b);
    return;
  }
  const bool both_fp32 = a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat;
  const auto into = [&](const at::Tensor& wide, bool add) {
    if (both_fp32 && fp32_products() == Fp32Products::Blas) blas(a, b, wide, add);
    else packed(a, b, wide, add);
  };
  if (c.scalar_type() == at::kFloat) return into(c, accumulate);
  const at::Tensor wide = at::empty({c.size(0), c.size(1)}, c.options().dtype(at::kFloat));
  into(wide, false);
  convert(wide, c);
}

void linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool transposed, const at::Tensor& y,
                    const at::Tensor& residual) {
  const at::Tensor w = transposed ? weight : weight.t();
  if (y.numel() == 0) return;
  if (!bias.defined() && !residual.defined()) return product(x, w, y);
  BALLAST_CHECK(!residual.defined() || residual.is_contiguous(), "a residual is contiguous");
  // The addends go in first and the product accumulates onto them: no pass after it.
  const bool wide = y.scalar_type() == at::kFloat;
  const at::Tensor sum = wide ? y : at::empty({y.size(0), y.size(1)}, y.options().dtype(at::kFloat));
  fill(sum, bias, residual);
  product(x, w, sum, true);
  if (!wide) convert(sum, y);
}

void linear_backward_input(const at::Tensor& dy, const at::Tensor& weight, bool transposed, const at::Tensor& dx, bool accumulate) {
  product(dy, transposed ? weight.t() : weight, dx, accumulate);
}

void linear_backward_weight(const at::Tensor& x, const at::Tensor& dy, bool transposed, const at::Tensor& dweight,
                            const at::Tensor& dbias, bool accumulate) {
  if (dweight.defined()) {
    if (transposed) product(x.t(), dy, dweight, accumulate);
    else product(dy.t(), x, dweight, accumulate);
  }
  if (dbias.defined()) column_sums(dy, dbias, accumulate);
}

void column_sums(const at::Tensor& a, const at::Tensor& sums, bool accumulate) {
  const int64_t rows = a.size(0), cols = a.size(1), stride = a.stride(0);
  BALLAST_CHECK(sums.scalar_type() == at::kFloat && sums.numel() == cols, "column sums need {} fp32 values", cols);
  constexpr int64_t kColumns = 128;
  float* out = sums.data_ptr<float>();
  with_element(a, [&]<class T>(T*) {
    const T* data = pointer<T>(a);
    at::parallel_for(0, (cols + kColumns - 1) / kColumns, rows_per_task(rows * kColumns), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kColumns, width = std::min(kColumns, cols - first);
        float partial[kColumns] = {};
        run<AddRows<T>>(data + first, stride, rows, static_cast<float*>(partial), width);
        for (int64_t c = 0; c < width; ++c) out[first + c] = accumulate ? out[first + c] + partial[c] : partial[c];
      }
    });
  });
}

void small_product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const char transa = transpose_b ? 'T' : 'N', transb = transpose_a ? 'T' : 'N';
  const int rows = static_cast<int>(m), cols = static_cast<int>(n), inner = static_cast<int>(k);
  const int left = static_cast<int>(ldb), right = static_cast<int>(lda), out = static_cast<int>(ldc);
  sgemm_(&transa, &transb, &cols, &rows, &inner, &alpha, b, &left, a, &right, &beta, c, &out);
}

}  // namespace ballast::kernel
