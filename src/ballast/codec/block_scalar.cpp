// The reference kernels of the block codecs, in plain C++.
#include <algorithm>
#include <bit>
#include <cmath>

#include "ballast/codec/block_kernels.h"

namespace ballast {

namespace {

template <bool symmetric>
BlockRange range(const float* source, int64_t elements) {
  BlockRange range;
  if (elements == 0) return range;
  if (!symmetric) range.low = range.high = source[0];
  for (int64_t i = 0; i < elements; ++i) {
    range.magnitude = std::max(range.magnitude, std::bit_cast<uint32_t>(source[i]) & 0x7fffffffu);
    if (!symmetric) {
      range.low = source[i] < range.low ? source[i] : range.low;
      range.high = source[i] > range.high ? source[i] : range.high;
    }
  }
  return range;
}

template <int bits>
void put(uint8_t* data, int64_t i, int32_t code) {
  if constexpr (bits == 8) {
    data[i] = static_cast<uint8_t>(code);
  } else if (i % 2 == 0) {
    data[i / 2] = static_cast<uint8_t>(code & 0xf);
  } else {
    data[i / 2] = static_cast<uint8_t>(data[i / 2] | (code & 0xf) << 4);
  }
}

template <int bits, bool symmetric>
int32_t get(const uint8_t* data, int64_t i) {
  if constexpr (bits == 8) {
    return symmetric ? static_cast<int8_t>(data[i]) : data[i];
  } else {
    const int32_t nibble = (data[i / 2] >> (i % 2 * 4)) & 0xf;
    return symmetric ? (nibble ^ 8) - 8 : nibble;
  }
}

// For magnitudes below 2^22: the sum's last bit is worth one, and additions round to nearest even.
int32_t round_to_even(float value) {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(value + 0x1.8p23f)) - 0x4b400000;
}

template <int bits, bool symmetric, bool stochastic>
void codes(const float* source, int64_t elements, const BlockScale& scale, DrawSeed seed, uint32_t counter,
           uint8_t* data) {
  constexpr float origin = draw_origin(symmetric);
  for (int64_t i = 0; i < elements; ++i) {
    const float value = symmetric ? source[i] : source[i] - scale.base;
    if constexpr (stochastic) {
      const float units = static_cast<float>(drawn_units(unit_bits(bits), seed, counter, static_cast<uint32_t>(i)));
      const float sum = std::fma(value, scale.inverse * units_in_step(bits), origin + units);
      put<bits>(data, i, (std::bit_cast<int32_t>(sum) - std::bit_cast<int32_t>(origin)) >> unit_bits(bits));
    } else {
      put<bits>(data, i, round_to_even(value * scale.inverse));
    }
  }
}

template <int bits, bool symmetric>
void values(const uint8_t* data, int64_t elements, float base, float step, float* result) {
  for (int64_t i = 0; i < elements; ++i) {
    result[i] = std::fma(static_cast<float>(get<bits, symmetric>(data, i)), step, base);
  }
}

template <int bits, bool symmetric>
void add(const uint8_t* data, int64_t elements, float base, float step, float* result) {
  for (int64_t i = 0; i < elements; ++i) {
    result[i] += std::fma(static_cast<float>(get<bits, symmetric>(data, i)), step, base);
  }
}

template <int bits, bool symmetric>
BlockKernels kernels(bool stochastic) {
  return {"scalar",
          range<symmetric>,
          stochastic ? codes<bits, symmetric, true> : codes<bits, symmetric, false>,
          values<bits, symmetric>,
          add<bits, symmetric>,
          nullptr,
          nullptr};
}

}  // namespace

BlockKernels scalar_block_kernels(const CodecSpec& spec) {
  if (spec.name == "int8")
    return spec.symmetric ? kernels<8, true>(spec.stochastic) : kernels<8, false>(spec.stochastic);
  return spec.symmetric ? kernels<4, true>(spec.stochastic) : kernels<4, false>(spec.stochastic);
}

void careful_codes(const float* source, int64_t elements, const BlockScale& scale, const CodecSpec& spec, DrawSeed seed,
                   uint32_t counter, uint8_t* data) {
  const int bits = spec.name == "int8" ? 8 : 4;
  const double most = largest_code(bits, spec.symmetric), least = spec.symmetric ? -most : 0;
  for (int64_t i = 0; i < elements; ++i) {
    const double value = (static_cast<double>(source[i]) - static_cast<double>(scale.base)) / scale.step;
    const double inside = std::min(std::max(value, least), most);
    double code = std::nearbyint(inside);
    if (spec.stochastic) {
      const double in_step = units_in_step(bits),
                   units = drawn_units(unit_bits(bits), seed, counter, static_cast<uint32_t>(i));
      code = std::floor(std::nearbyint(inside * in_step + units) / in_step);
    }
    if (bits == 8) {
      put<8>(data, i, static_cast<int32_t>(code));
    } else {
      put<4>(data, i, static_cast<int32_t>(code));
    }
  }
}

}  // namespace ballast
