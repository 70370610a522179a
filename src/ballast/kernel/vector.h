#pragma once
// How the elementwise kernels of this folder become vector code: a kernel is a struct with a static `run` over plain
// pointers, compiled once for the baseline and once for AVX2 + FMA, chosen by the CPU at run time. Loads and stores convert
// between fp32 or bf16 in memory and fp32 in registers; the few transcendental functions are branch-free polynomials.
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <cstdint>
#include <cstring>

#include "ballast/base/check.h"

#define BALLAST_INLINE __attribute__((always_inline)) inline

namespace ballast::kernel {

#if defined(__x86_64__)
template <class Kernel, class... Args>
__attribute__((target("avx2,fma"))) void run_avx2(Args... args) {
  Kernel::run(args...);
}
inline bool has_avx2() {
  static const bool yes = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return yes;
}
#endif

// Arguments are passed by value, so that pointers stay in registers and loops vectorise.
template <class Kernel, class... Args>
void run(Args... args) {
#if defined(__x86_64__)
  if (has_avx2()) return run_avx2<Kernel>(args...);
#endif
  Kernel::run(args...);
}

BALLAST_INLINE float load(const float* p) { return *p; }
BALLAST_INLINE float load(const c10::BFloat16* p) {
  const uint32_t bits = static_cast<uint32_t>(p->x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
BALLAST_INLINE void store(float* p, float value) { *p = value; }
// Rounds to nearest, ties to even; a NaN stays one.
BALLAST_INLINE void store(c10::BFloat16* p, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  p->x = static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
}

// exp with a relative error below 2e-7; 0 below -87.7, inf above 88.8 (Cody-Waite reduction, degree-6 polynomial). The edges are made of
// bits and by overflow: a choice between floats becomes a branch, and its loop stays scalar.
BALLAST_INLINE float exp_approximate(float x) {
  uint32_t inside;
  std::memcpy(&inside, &x, sizeof inside);
  const uint32_t under = -static_cast<uint32_t>(x < -100.0f), over = -static_cast<uint32_t>(x > 89.0f);
  inside = (inside & ~(under | over)) | (under & 0xc2c80000u) | (over & 0x42b20000u);  // -100, 89
  float clamped;
  std::memcpy(&clamped, &inside, sizeof clamped);
  const float shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the integer lands in the low mantissa bits
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // 2^n in two factors, since n = 128 has no float of its own; the first is 0 where n < -126. A NaN stays one through p.
  const int32_t exponent = static_cast<int32_t>(bits - 0x4b400000u);
  const uint32_t tiny = static_cast<uint32_t>((exponent + 126) >> 31);
  const uint32_t low = (static_cast<uint32_t>((exponent >> 1) + 127) << 23) & ~tiny;
  const uint32_t high = static_cast<uint32_t>(exponent - (exponent >> 1) + 127) << 23;
  float scale_low, scale_high;
  std::memcpy(&scale_low, &low, sizeof low);
  std::memcpy(&scale_high, &high, sizeof high);
  return p * scale_low * scale_high;
}

BALLAST_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp_approximate(-x)); }

// Calls f with a null pointer of the tensor's element type: float or c10::BFloat16.
template <class F>
void with_element(const at::Tensor& tensor, F&& f) {
  if (tensor.scalar_type() == at::kFloat) return f(static_cast<float*>(nullptr));
  BALLAST_CHECK(tensor.scalar_type() == at::kBFloat16, "kernels know fp32 and bf16, not {}", c10::toString(tensor.scalar_type()));
  f(static_cast<c10::BFloat16*>(nullptr));
}

template <class T>
T* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

// Rows per task so that a task moves at least about 32 KiB elements: below that a thread is not worth waking.
inline int64_t rows_per_task(int64_t width) { return width > 0 ? (32768 + width - 1) / width : 1; }

}  // namespace ballast::kernel
