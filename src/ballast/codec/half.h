#pragma once
// Two-byte floats: scalar conversions (the reference) and array kernels that use AVX2 and F16C where the CPU has them.
// All round to nearest even; infinities and the sign of zero stay; NaN stays NaN (quieted, top payload bits kept);
// overflow gives infinity.
#include <bit>
#include <cstdint>

namespace ballast {

inline uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float float_from_bf16(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

inline uint16_t fp16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {                                              // normal: 2^-14 and above
    const uint32_t rebased = magnitude - 0x38000000u;                          // exponent bias 127 -> 15
    return static_cast<uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);  // 2^-25 ties to the even zero
  // Denormal: units of 2^-24. value = mantissa * 2^(exponent - 150), so shift right by 126 - exponent.
  const uint32_t shift = 126u - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u);
  const uint32_t tie = 1u << (shift - 1u);
  return static_cast<uint16_t>(sign | (kept + ((rest > tie || (rest == tie && (kept & 1u))) ? 1u : 0u)));
}

inline float float_from_fp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude > 0x7c00u) return std::bit_cast<float>(sign | 0x7fc00000u | ((magnitude & 0x1ffu) << 13));
  if (magnitude == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u);
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float denormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(denormal));
}

// `elements` numbers each. The two-byte side needs no alignment; source and result must not overlap.
void encode_bf16(const float* source, int64_t elements, void* encoded);
void decode_bf16(const void* encoded, int64_t elements, float* result);
void decode_add_bf16(const void* encoded, int64_t elements, float* result);
void encode_fp16(const float* source, int64_t elements, void* encoded);
void decode_fp16(const void* encoded, int64_t elements, float* result);
void decode_add_fp16(const void* encoded, int64_t elements, float* result);
// result += source; `source` needs no alignment.
void add_fp32(const void* source, int64_t elements, float* result);

// "avx2+f16c" or "scalar": which kernels this CPU runs.
const char* half_kernels();

}  // namespace ballast
