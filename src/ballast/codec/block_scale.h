#pragma once
// What every kernel of the block codecs shares, so that all of them give the same bits: a block's header made from its
// range, and the random numbers of stochastic rounding.
//
// With L the largest code (127, 7; asymmetric 255, 15) and x the numbers of a block:
//   symmetric   step = absmax / L, base = -0, code = round(x / step) in -L..L
//   asymmetric  step = (max - min) / L, base = min, code = round((x - min) / step) in 0..L
//   decoded     fma(code, step, base), rounded once; base -0 makes it the plain product
#include <cstdint>

#include "ballast/codec/codec.h"

namespace ballast {

// Seen over a block's numbers: the greatest magnitude as bits (NaN and infinities are the greatest of all as integers,
// so no comparison loses them), and, for asymmetric codecs only, the least and the greatest number.
struct BlockRange {
  uint32_t magnitude = 0;
  float low = 0, high = 0;
};

struct BlockScale {
  enum class Kind {
    Constant,   // all codes 0
    Usual,      // code = round((x - base) * inverse)
    Careful,    // `inverse` or x - base could overflow: codes are made in double precision
    NotFinite,  // step is NaN, and with it every decoded number
  };
  Kind kind = Kind::Constant;
  float base = 0, step = 0, inverse = 0;
};

constexpr int32_t largest_code(int bits, bool symmetric) { return symmetric ? (1 << (bits - 1)) - 1 : (1 << bits) - 1; }

BlockScale block_scale(const BlockRange& range, int bits, bool symmetric);

// The streams of one key, each over 2^32 counters; a block draws from that of its first element's `index`, from counter
// index mod 2^32 on.
struct DrawSeed {
  uint32_t first = 0, second = 0;
};
inline DrawSeed draw_seed(uint64_t key, uint64_t index) {
  uint64_t z = key + (index >> 32) * 0x9e3779b97f4a7c15ull + 0x9e3779b97f4a7c15ull;  // splitmix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return {static_cast<uint32_t>(z), static_cast<uint32_t>(z >> 32)};
}
constexpr uint32_t kDrawStride = 0x9e3779b1u, kDrawMultiplier1 = 0x7feb352du, kDrawMultiplier2 = 0x846ca68bu;
// Uniform on 0..2^width - 1 (width at most 16), for the element at `position` of a block that begins at `counter`. A
// 32-bit mix serves two elements, 16 apart, by its lower and its upper bits: kernels of 8 and of 16 lanes then find
// both in the lanes where they need them.
inline uint32_t drawn_units(int width, DrawSeed seed, uint32_t counter, uint32_t position) {
  uint32_t x = (counter + (position & ~16u)) * kDrawStride + seed.first;
  x = (x ^ (x >> 16)) * kDrawMultiplier1 + seed.second;
  x = (x ^ (x >> 15)) * kDrawMultiplier2;
  return (position & 16) != 0 ? x >> (32 - width) : (x ^ (x >> 16)) & ((1u << width) - 1);
}

// Stochastic rounding of v, a number in steps, with units of 2^-u: floor((round(v * 2^u) + drawn units) / 2^u). Whole v
// stay, and others go up with the probability of their fraction to within 2^-(u + 1). Up to the floor it is one fused
// multiply-add: added to the origin a number takes whole units, and its code stands in the sum's bits from bit u on.
// All sums lie between 2^23 and 2^24, which leaves int8 no finer units. No code passes its range, since v * 2^u is at
// most L * 2^u * (1 + 2^-24), less than half a unit too much.
constexpr int unit_bits(int bits) { return bits == 8 ? 15 : 16; }
constexpr float units_in_step(int bits) { return 1 << unit_bits(bits); }
constexpr float draw_origin(bool symmetric) { return symmetric ? 0x1.8p23f : 0x1p23f; }

}  // namespace ballast
